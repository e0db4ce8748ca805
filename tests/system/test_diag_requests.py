"""Requests at DIAG destinations are checked while there is somebody to tell, whichever way."""

import json
from pathlib import Path

import pytest

from tests.support.served import served

WRONG = b"this is no JSON"
TRACE, EXPLAIN, LEFT = "DIAG/trace", "DIAG/explain", "DIAG/left"
WAYS = {
    "stored": {"persistent": "true"},
    "scheduled": {"AMQ_SCHEDULED_DELAY": "50", "persistent": "true"},
    "composite": {"persistent": "true"},
    "committed": {"persistent": "true", "transaction": "t"},
    "scheduled in a COMMIT": {"AMQ_SCHEDULED_DELAY": "50", "transaction": "t"},
}


@pytest.mark.parametrize("place", [TRACE, EXPLAIN, LEFT])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("is_stored", [False, True])
async def test_an_invalid_request_is_refused(
    tmp_path: Path, place: str, way: str, is_stored: bool
) -> None:
    options = {"data_dir": str(tmp_path)} if is_stored else {}
    async with served(**options) as broker:
        client, other = await broker.connect({}), await broker.connect({})
        if place == EXPLAIN and way != "composite":
            await other.subscribe("/queue/q")
        where = f"{place},/queue/q" if way == "composite" else place
        headers = WAYS[way]
        if "transaction" in headers:
            await client.send("BEGIN", [("transaction", "t")])
        await client.publish(where, WRONG, headers=headers)
        if "transaction" in headers:
            await client.send("COMMIT", [("transaction", "t")])
        await client.expect_error("invalid-question")
        await other.fence()


async def test_a_trace_that_cannot_begin_any_more_does_no_harm(tmp_path: Path) -> None:
    async with served(data_dir=str(tmp_path)) as broker:
        client, other = await broker.connect({}), await broker.connect({})
        nobody = json.dumps({"session": "none"}).encode()
        await client.send("BEGIN", [("transaction", "t")])
        headers = {"persistent": "true", "transaction": "t"}
        await client.publish(TRACE, nobody, headers=headers)
        await client.send("COMMIT", [("transaction", "t"), ("receipt", "r")])
        assert (await client.receive())["receipt-id"] == "r"
        await client.publish(TRACE, nobody)
        await client.expect_error("invalid-question")
        await other.fence()
