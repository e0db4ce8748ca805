"""Many ids for duplicate detection, over a restart: those of the window are known, no others."""

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import pytest

from tests.support.fakes import Client, frame_bytes
from tests.support.served import served_with
from trio_stomp.broker import DestinationPolicy

QUEUES = ["/queue/a", "/queue/b"]
MANY, WINDOW = 1_500, 1_200
POLICIES = dict.fromkeys(QUEUES, DestinationPolicy(dedup_window=WINDOW))


async def duplicates(client: Client, numbers: Iterable[int]) -> list[int]:
    """Send a message to each queue in turn for each number. Return those that were duplicates."""
    found = []
    for batch in batched(numbers, 50):
        frames = [
            frame_bytes(
                "SEND",
                {
                    "destination": name,
                    "persistent": "true",
                    "receipt": f"{number}",
                    "x-dedup-id": f"order-{number}",
                },
                b"x",
                "1.2",
            )
            for number in batch
            for name in QUEUES
        ]
        await client.send_bytes(b"".join(frames))
        answers = await client.receive_many(len(frames))
        found += [int(each["receipt-id"]) for each in answers if each.get("duplicate") == "true"]
    return found


def batched(numbers: Iterable[int], count: int) -> Iterator[list[int]]:
    """Yield numbers, ``count`` at a time."""
    left = iter(numbers)
    while batch := list(islice(left, count)):
        yield batch


@pytest.mark.parametrize("ack", ["consumed", "waiting"])
async def test_every_id_of_the_window_is_known_after_a_restart(ack: str, tmp_path: Path) -> None:
    options = {"data_dir": str(tmp_path)}
    async with served_with(POLICIES, options) as broker:
        client = await broker.connect({})
        if ack == "consumed":
            reader = await broker.connect({})
            for name in QUEUES:
                await reader.subscribe(name, id=name)
        assert await duplicates(client, range(MANY)) == []
    async with served_with(POLICIES, options) as broker:
        client = await broker.connect({})
        known = range(MANY - WINDOW, MANY)
        assert await duplicates(client, known) == [n for n in known for _ in QUEUES]
        assert await duplicates(client, range(3)) == []
