"""Queues whose messages are in the store take no more memory than is allowed."""

from pathlib import Path

import trio

from tests.support.fakes import Client
from tests.support.served import served, served_with, used_bytes
from trio_stomp.broker import DestinationPolicy

MIB = 1024 * 1024
Q, DEAD = "/queue/q", "/queue/dead"
ONE_EACH = {"ack": "client-individual", "prefetch-count": "1"}


async def stored(sender: Client, to: str, count: int, size: int) -> None:
    """Send durable messages with their numbers, and wait until they are stored."""
    for first in range(0, count, 100):
        bodies = [f"{n}".ljust(size).encode() for n in range(first, min(first + 100, count))]
        await sender.publish(to, *bodies, headers={"persistent": "true"}, receipt=True)


async def numbers(reader: Client, count: int) -> list[int]:
    """Acknowledge messages one by one, and return their numbers."""
    found = []
    for _ in range(count):
        message = await reader.receive()
        await reader.send("ACK", {"id": message["ack"]})
        found.append(int(message.body))
    return found


async def test_dead_letters_leave_room_for_producers(tmp_path: Path) -> None:
    """RabbitMQ 5312: a queue expires at once; the dead letters filled the memory for ever."""
    policy = {Q: DestinationPolicy(ttl_ms=1500, dead_letter=DEAD, dead_letter_expired=True)}
    options = {"data_dir": str(tmp_path), "max_memory_bytes": 4 * MIB}
    async with served_with(policy, options) as broker:
        await stored(await broker.connect({}), Q, 1400, 2000)
        await trio.sleep(2.0)
        await stored(await broker.connect({}), "/queue/other", 1, 2000)
        reader = await broker.connect({})
        await reader.subscribe(DEAD, headers={"ack": "client-individual"})
        assert sorted(await numbers(reader, 1400)) == list(range(1400))


async def test_queues_that_are_read_back_share_the_memory(tmp_path: Path) -> None:
    """RabbitMQ 2254: after a restart, consumers of some queues loaded more than memory has."""
    options = {"data_dir": str(tmp_path), "max_memory_bytes": 4 * MIB}
    names = [f"/queue/{number}" for number in range(6)]
    for name in names:
        async with served(**options) as broker:
            await stored(await broker.connect({}), name, 60, 40_000)
    async with served(**options) as broker:
        readers = [await broker.connect({}) for _ in names]
        for name, reader in zip(names, readers, strict=True):
            await reader.subscribe(name, headers=ONE_EACH)
        await trio.sleep(0.3)
        assert await used_bytes(broker) < 4 * MIB * 0.9
        async with trio.open_nursery() as nursery:
            for reader in readers:
                nursery.start_soon(reads_all, reader)


async def reads_all(reader: Client) -> None:
    assert await numbers(reader, 60) == list(range(60))
