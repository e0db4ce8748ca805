"""Readers of a stream that do not read: what waits for them is bounded in sum, whoever sends."""

from pathlib import Path

import pytest
import trio

from tests.support.fakes import frame_bytes
from tests.support.served import served_with, used_bytes
from trio_stomp.broker import DestinationPolicy

TOPIC = "/topic/log"
MESSAGES = 20_000
CONNECTIONS, SUBSCRIPTIONS = 20, 10
LIMIT_BYTES = 16 * 1024 * 1024
STILL_S = 0.3


@pytest.mark.parametrize("ack", ["auto", "client"])
async def test_unread_streams_stay_within_the_memory(tmp_path: Path, ack: str) -> None:
    """A run of a page was given at once, some megabytes for each subscription, beyond any limit."""
    policies = {TOPIC: DestinationPolicy(stream=True)}
    options = {"data_dir": str(tmp_path / "data"), "max_memory_bytes": LIMIT_BYTES}
    options["diag_stream_memory_bytes"] = 65536
    async with served_with(policies, options) as made:
        writer = await made.connect({})
        run = frame_bytes("SEND", [("destination", TOPIC)], b"xy") * 999
        last = frame_bytes("SEND", [("destination", TOPIC), ("receipt", "stored")], b"xy")
        for _ in range(MESSAGES // 1000):
            await writer.pipe.send_bytes(run + last)
            assert (await writer.receive()).command == "RECEIPT"
        before = await used_bytes(made)
        for _ in range(CONNECTIONS):
            reader = await made.connect({})
            for number in range(SUBSCRIPTIONS):
                await reader.send(
                    "SUBSCRIBE",
                    {
                        "id": str(number),
                        "destination": TOPIC,
                        "ack": ack,
                        "prefetch-count": "20000",
                        "x-stream-offset": "first",
                    },
                )
        used = [await used_bytes(made)]
        with trio.fail_after(60):
            while len(used) < 3 or len(set(used[-3:])) > 1 or used[-1] == before:
                await trio.sleep(STILL_S)
                used.append(await used_bytes(made))
        # The promise for each abuse: runs of pages that were given at the same moment exceed the
        # limit itself a little, how far depends on what the sockets of the machine take.
        assert max(used) <= 1.2 * LIMIT_BYTES
