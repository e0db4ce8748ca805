"""ACKs by message id beside ACKs that wait for the store, over real sockets."""

from pathlib import Path

import pytest

from tests.support.fakes import frame_bytes
from tests.support.served import served

SAVED = {"persistent": "true"}


async def test_the_first_ack_by_message_id_comes_while_a_commit_waits_for_the_store(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(data_dir=str(tmp_path / "data")) as broker:
        client = await broker.connect({})
        await client.subscribe("/queue/plain", "plain")
        await client.publish("/queue/plain", b"plain")
        plain = await client.receive()
        await client.subscribe("/queue/work", "work", {"ack": "client-individual"})
        await client.publish("/queue/work", b"work", headers=SAVED)
        work = await client.receive()
        begun = {"transaction": "t"}
        frames = (
            ("BEGIN", begun),
            ("SEND", {"destination": "/queue/done", **SAVED, **begun}),
            ("ACK", {"id": work["ack"], **begun}),
            ("COMMIT", {**begun, "receipt": "committed"}),
            ("ACK", {"id": plain["message-id"]}),
            ("ACK", {"id": work["message-id"], "receipt": "acknowledged"}),
        )
        await client.send_bytes(b"".join(frame_bytes(*frame, b"", "1.2") for frame in frames))
        await client.receive_until_receipt("committed")
        await client.receive_until_receipt("acknowledged")
        await client.disconnect()
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []
