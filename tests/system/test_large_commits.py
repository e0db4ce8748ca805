"""Transactions of more bytes than the journal reads at once: all of their messages come back."""

from pathlib import Path

import pytest

from tests.support.fakes import Client, Received, bodies, frame_bytes
from tests.support.served import served
from trio_stomp.store import export_from, verify

MIB = 1024 * 1024


async def commit(client: Client, *sends: tuple[str, bytes]) -> Received:
    """Send each body to its queue in one transaction. Return the RECEIPT of COMMIT."""
    frames = [frame_bytes("BEGIN", {"transaction": "t"}, b"", "1.2")]
    for queue, body in sends:
        headers = {"destination": queue, "persistent": "true", "transaction": "t"}
        frames.append(frame_bytes("SEND", headers, body, "1.2"))
    frames.append(frame_bytes("COMMIT", {"transaction": "t", "receipt": "c"}, b"", "1.2"))
    await client.send_bytes(b"".join(frames))
    receipt = await client.receive()
    assert (receipt.command, receipt["stored"]) == ("RECEIPT", "journal")
    return receipt


def numbered(count: int, size: int) -> list[bytes]:
    return [b"%d" % number * (size // len(b"%d" % number)) for number in range(count)]


@pytest.mark.parametrize(("count", "size"), [(2, 200_000), (40, 9_000)])
async def test_all_messages_of_a_large_commit_come_after_a_restart(
    count: int, size: int, tmp_path: Path
) -> None:
    sent, target = numbered(count, size), str(tmp_path)
    async with served(data_dir=target) as broker:
        client = await broker.connect({})
        # Messages to another queue between them end the journal's runs.
        sends = [pair for body in sent for pair in (("/queue/a", body), ("/queue/b", b""))]
        await commit(client, *sends)
    assert verify(target, lambda done, total: None).messages == 2 * count
    assert sum('"place":"queue:/queue/a"' in line for line in lines(target)) == count
    async with served(data_dir=target) as broker:
        client = await broker.connect({})
        await client.subscribe("/queue/a")
        assert bodies(await client.receive_many(count)) == sent


def lines(target: str) -> list[str]:
    """Return what an export of a store has, without blanks."""
    return [line.replace(" ", "") for line in export_from(target, lambda done, total: None)]


async def test_all_messages_of_a_large_commit_come_from_a_paged_queue(tmp_path: Path) -> None:
    small, large = numbered(1_500, 1_000), numbered(40, 9_000)
    async with served(data_dir=str(tmp_path), max_memory_bytes=3 * MIB) as broker:
        client = await broker.connect({})
        for start in range(0, 1_500, 250):
            some, saved = small[start : start + 250], {"persistent": "true"}
            await client.publish("/queue/a", *some, headers=saved, receipt=True)
        await commit(client, *(("/queue/a", body) for body in large))
        await client.send("SUBSCRIBE", {"destination": "/queue/a", "id": "1"})
        assert bodies(await client.receive_many(1_540)) == small + large
