"""Frames of a waiting client are charged, wherever they wait, and released."""

import json
from itertools import count

import trio
from trio.testing import MockClock

from tests.support.core import Bench, run_of
from tests.support.durable_fakes import DurableBench
from tests.support.explain_fakes import asks
from tests.support.fakes import open_dial, until
from trio_stomp.broker import DestinationPolicy, PolicyBook
from trio_stomp.frames import FrameRun
from trio_stomp.protocol import Committed, Subscribed

Q, LARGE = "/queue/q", "x" * 100_000
MIDDLE, SENDERS = b"y" * 60_000, 100
BLOCK = {Q: DestinationPolicy(max_messages=1, overflow="block")}


def held(desk: Bench) -> int:
    return desk.memory.held_bytes


def why(desk: Bench, session: str = "s1") -> str:
    """Return the last explanation of a session."""
    question = json.dumps({"destination": Q, "session": session})
    return str(asks(desk, question)["facts"][-1])


def test_blocked_message_is_charged_until_it_is_queued() -> None:
    desk = Bench(book=BLOCK)
    sender, reader = desk.actor(), desk.actor()
    sender.sends(Q, "a", LARGE, LARGE)
    assert 200_000 < held(desk) < 210_000
    sender.sends(Q, LARGE)
    assert 300_000 < held(desk) < 310_000
    assert why(desk) == "is not read from: it waits for room in a full queue (overflow = block)"
    assert desk.memory.charged_bytes == desk.memory.used_bytes + held(desk)
    reader.subscribes(Q, ack="client", prefetch_count="1")
    for left in (200_000, 100_000, 0, 0):
        reader.acks(*reader.reads())
        desk.turn()
        assert left <= held(desk) < left + 10_000
    assert held(desk) == 0
    desk.ends()


def test_memory_of_held_frames_is_returned_when_their_client_has_gone() -> None:
    desk = Bench(book=BLOCK)
    sender = desk.actor()
    sender.sends(Q, "a", LARGE)
    sender.is_gone()
    desk.turn()
    assert held(desk) == 0


def test_message_waiting_for_the_store_is_charged() -> None:
    desk = DurableBench(is_prompt=False)
    sender = desk.actor()
    sender.sends(Q, "a", persistent="true")
    sender.does(run_of("/topic/t", (LARGE,)), Subscribed("0", "/topic/t", "auto", (), None))
    assert 100_000 < held(desk) < 110_000
    assert why(desk) == "is not read from: its earlier messages are not stored yet"
    desk.turn()
    while desk.turns:
        desk.answers()
    assert held(desk) == 0


def test_message_waiting_for_its_share_of_a_turn_is_charged(bench: Bench) -> None:
    bench.broker.turns.clock = count(2000.0).__next__  # each look finds that the time is up
    sender = bench.actor()
    sender.does(
        *(run_of(Q, (LARGE,)) for _ in range(3)),
        sender.acked("b.1-1"),
        Committed((run_of(Q, (LARGE,)), sender.acked("b.1-1")), None),
    )
    assert 300_000 < held(bench) < 310_000
    assert (
        why(bench)
        == "is not read from: its last request is large, and is carried out in time shares"
    )
    bench.broker.finish(bench.now)
    assert held(bench) == 0


async def test_producers_that_wait_for_a_queue_do_not_take_all_memory(
    autojump_clock: MockClock,
) -> None:
    async with open_dial(max_memory_bytes=1 << 20) as dial:
        clients = [await dial.connect() for _ in range(SENDERS)]
        broker, memory = dial.server.broker, dial.server.memory
        broker.use_policies(PolicyBook(BLOCK.items()))
        for client in clients:
            await client.publish(Q, MIDDLE)
        await trio.sleep(1.0)
        runs = [run for each in broker.clients for events, *_ in each.deferred for run in events]
        bodies = [body for run in runs if isinstance(run, FrameRun) for body in run.bodies]
        assert 0 < sum(map(len, bodies)) < memory.limit_bytes  # of six times as much
        assert memory.is_high
        reader = await dial.connect()
        await reader.subscribe(Q)
        for _ in range(SENDERS):
            assert (await reader.receive()).body == MIDDLE
        await until(lambda: memory.charged_bytes == 0, 0.1)
