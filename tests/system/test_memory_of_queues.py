"""Queues take no more memory than is charged, and with a store no more than is allowed."""

import tracemalloc
from pathlib import Path

import pytest
import trio

from tests.support.core import OVERHEAD, Bench, run_of
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


@pytest.mark.parametrize("run", [1, 64])
def test_a_waiting_message_costs_at_most_700_bytes(run: int) -> None:
    bench = Bench()
    # 1,000,000 of 100 bytes must fit 700 MB; a twentieth of them shows as much.
    sender = bench.actor()
    sends = [run_of("/queue/q", (), (("x", "y"),)) for _ in range(50_000 // run)]
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number, send in enumerate(sends):
            send.bodies = [b"%0100d" % (number * run + place) for place in range(run)]
            sender.does(send)
            send.bodies = []
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    queue = bench.queue("/queue/q")
    assert queue.depth == len(sends) * run
    assert used / queue.depth <= 700
    # The charge must cover the cost, or the budget would be wrong.
    charged = queue.size + queue.depth * OVERHEAD
    assert charged + bench.heads_bytes() == bench.memory.used_bytes >= used


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
