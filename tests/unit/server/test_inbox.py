"""The input queue: bounds in frames and bytes, order, fairness, loss only where it was chosen."""

import random
from collections.abc import Callable
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.support.limits import CAPACITY
from trio_stomp import CloseReason
from trio_stomp.frames import FrameRun, Head
from trio_stomp.protocol import Disconnected, Event
from trio_stomp.server import ServerLimits
from trio_stomp.server.io import Batch, ConnectionEnd, Control, Inbox

NOBODY: Any = None
HEAD = Head("SEND", (("destination", "/t"),), -1, "/t")


def sends(count: int) -> FrameRun:
    return FrameRun(HEAD, [b"x"] * count, [])


def batch(frames: int, size: int = 0, mark: float = 0.0) -> Batch:
    return Batch(NOBODY, [sends(frames)], frames, size, mark)


def inbox_of(**limits: Any) -> Inbox:
    return Inbox(ServerLimits(**limits))


async def puts(inbox: Inbox, item: Batch, done: list[float]) -> None:
    await inbox.put_batch(item)
    done.append(item.received_at)


def take_all(inbox: Inbox) -> list[Any]:
    taken: list[Any] = []
    while True:
        try:
            taken.append(inbox.take_nowait())
        except trio.WouldBlock:
            return taken


async def test_items_come_out_in_order() -> None:
    inbox = inbox_of()
    items: list[Batch | ConnectionEnd | Control] = [
        batch(1, 10),
        ConnectionEnd(NOBODY, CloseReason.CLIENT_CLOSED),
        batch(2, 20),
        Control(print),
    ]
    for item in items:
        if isinstance(item, Batch):
            await inbox.put_batch(item)
        else:
            await inbox.put(item)
    assert (inbox.frames, inbox.bytes) == (3, 30)
    assert [await inbox.take() for _ in items] == items
    assert (inbox.frames, inbox.bytes) == (0, 0)
    with pytest.raises(trio.WouldBlock):
        inbox.take_nowait()


async def test_so_many_batches_lie_in_it_at_once(nursery: trio.Nursery) -> None:
    inbox, done = inbox_of(), list[float]()
    for _ in range(CAPACITY):
        await inbox.put_batch(batch(1))
    nursery.start_soon(puts, inbox, batch(1, mark=7.0), done)
    await wait_all_tasks_blocked()
    assert done == []
    inbox.take_nowait()
    await wait_all_tasks_blocked()
    assert done == [7.0]


@pytest.mark.parametrize(
    ("limits", "first", "second", "fits"),
    [
        ({"max_input_queue_size": 10}, batch(5), batch(5), True),
        ({"max_input_queue_size": 10}, batch(5), batch(6), False),
        ({"max_input_queue_bytes": 1024}, batch(1, 1000), batch(1, 24), True),
        ({"max_input_queue_bytes": 1024}, batch(1, 1000), batch(1, 25), False),
        ({"max_input_queue_size": 10}, batch(500), batch(1), False),
    ],
)
async def test_a_batch_beyond_a_bound_waits_for_the_first(
    limits: dict[str, int], first: Batch, second: Batch, fits: bool
) -> None:
    inbox = inbox_of(**limits)
    await inbox.put_batch(first)  # the first batch always fits, whatever its size
    done: list[float] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(puts, inbox, second, done)
        await wait_all_tasks_blocked()
        assert len(done) == fits
        assert inbox.take_nowait() is first
        await wait_all_tasks_blocked()
        assert len(done) == 1
        assert (inbox.frames, inbox.bytes) == (second.frames, second.size)
        assert inbox.take_nowait() is second
    assert (inbox.frames, inbox.bytes) == (0, 0)


async def test_many_wait_and_are_served_in_order_of_arrival() -> None:
    inbox = inbox_of(max_input_queue_size=10)
    await inbox.put_batch(batch(10, mark=-1))
    done: list[float] = []
    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(puts, inbox, batch(4, mark=number), done)
            await wait_all_tasks_blocked()
        taken: list[float] = []
        while len(taken) < 21:
            assert inbox.frames <= 10
            taken.append((await inbox.take()).received_at)  # type: ignore[union-attr]
            await wait_all_tasks_blocked()
    assert taken == [-1, *range(20)]
    assert done == list(range(20))


async def test_a_large_batch_is_not_overtaken_for_ever_by_small_ones() -> None:
    inbox = inbox_of(max_input_queue_size=10)
    await inbox.put_batch(batch(5, mark=0))
    done: list[float] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(puts, inbox, batch(9, mark=1), done)
        await wait_all_tasks_blocked()
        for number in range(2, 30):
            nursery.start_soon(puts, inbox, batch(1, mark=number), done)
        await wait_all_tasks_blocked()
        assert done == []  # they would fit, but are behind it
        assert (await inbox.take()).received_at == 0  # type: ignore[union-attr]
        await wait_all_tasks_blocked()
        assert done[0] == 1
        while len(done) < 29:
            await inbox.take()
            await wait_all_tasks_blocked()


async def test_cancelled_waiter_loses_no_item() -> None:
    """Received events are processed in order, even if their connection ends meanwhile."""
    inbox = inbox_of(max_input_queue_size=10)
    await inbox.put_batch(batch(10, mark=-1))
    done: list[float] = []
    scopes = []

    async def put_until_cancelled(number: int) -> None:
        with trio.CancelScope() as scope:
            scopes.append(scope)
            await puts(inbox, batch(10, mark=number), done)

    taken = []
    async with trio.open_nursery() as nursery:
        for number in range(4):
            nursery.start_soon(put_until_cancelled, number)
            await wait_all_tasks_blocked()
        scopes[0].cancel()
        scopes[2].cancel()
        for _ in range(5):
            await wait_all_tasks_blocked()
            taken.append((await inbox.take()).received_at)  # type: ignore[union-attr]
    assert taken == [-1, 0, 1, 2, 3]
    assert done == [1, 3]
    assert scopes[0].cancelled_caught
    assert (inbox.frames, inbox.bytes) == (0, 0)


async def test_nothing_is_lost_in_a_full_channel_either() -> None:
    """The bounds allow more, but the channel itself has no room for another item."""
    inbox = inbox_of()
    taken: list[Any] = []
    scopes: list[trio.CancelScope] = []

    async def put(number: int) -> None:
        with trio.CancelScope() as own:
            scopes.append(own)
            await inbox.put_batch(batch(1, 1, mark=number))

    async with trio.open_nursery() as nursery:
        for number in range(300):
            nursery.start_soon(put, number)
        await wait_all_tasks_blocked()
        for scope in scopes:
            scope.cancel()
        while len(taken) < 300:
            await wait_all_tasks_blocked()
            taken += take_all(inbox)
    assert sorted(item.received_at for item in taken) == list(range(300))
    assert (inbox.frames, inbox.bytes) == (0, 0)


async def test_puts_fail_when_the_dispatcher_is_dead() -> None:
    inbox = inbox_of(max_input_queue_size=10)
    await inbox.put_batch(batch(10))
    broken = 0

    async def put() -> None:
        nonlocal broken
        with pytest.raises(trio.BrokenResourceError):
            await inbox.put_batch(batch(10))
        broken += 1

    with trio.fail_after(1):
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(put)
            await wait_all_tasks_blocked()
            inbox.abandon()
        await put()
        with pytest.raises(trio.BrokenResourceError):
            await inbox.put(ConnectionEnd(NOBODY, CloseReason.CLIENT_CLOSED))
        inbox.wake()
    assert broken == 4


async def test_dropping_if_the_operator_chose_so() -> None:
    inbox = inbox_of(max_input_queue_size=10, input_overflow="drop")
    await inbox.put_batch(batch(10))
    left = Disconnected(b"bye")
    events: list[Event] = [sends(3), left, sends(4)]
    with trio.fail_after(1):
        await inbox.put_batch(Batch(NOBODY, events, 8, 100, 0.0))
    assert inbox.dropped == 7  # the DISCONNECT is not a message, so it is not dropped
    taken = take_all(inbox)
    assert len(taken) == 2
    assert list(taken[1].events) == [left]
    assert (inbox.frames, inbox.bytes) == (0, 0)
    await inbox.put_batch(batch(10))
    assert inbox.dropped == 7


async def test_what_is_left_after_dropping_does_not_wait_for_room() -> None:
    """Even behind a single batch that is larger than the queue."""
    inbox = inbox_of(max_input_queue_size=10, input_overflow="drop")
    await inbox.put_batch(batch(500))
    with trio.fail_after(1):
        await inbox.put_batch(Batch(NOBODY, [sends(3), Disconnected(b"bye")], 4, 100, 0.0))
    assert inbox.dropped == 3
    assert [len(each.events) for each in take_all(inbox)] == [1, 1]
    assert (inbox.frames, inbox.bytes) == (0, 0)


async def test_an_offer_does_not_overtake_those_that_wait() -> None:
    inbox = inbox_of(max_input_queue_size=10)
    assert inbox.offer(batch(10, 7, mark=0))
    assert not inbox.offer(batch(1))
    done: list[float] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(puts, inbox, batch(4, 1, mark=1), done)
        await wait_all_tasks_blocked()
        assert inbox.take_nowait().received_at == 0  # type: ignore[union-attr]
        assert not inbox.offer(batch(1))  # there is room, and another was here before
        await wait_all_tasks_blocked()
        assert done == [1]
    assert inbox.offer(batch(6, 2, mark=2))
    assert (inbox.frames, inbox.bytes) == (10, 3)
    assert [each.received_at for each in take_all(inbox)] == [1, 2]


async def test_an_offer_that_does_not_fit_into_the_channel_counts_for_nothing() -> None:
    inbox = inbox_of()
    taken = 0
    while inbox.offer(batch(1, 1)):
        taken += 1
    assert (inbox.frames, inbox.bytes) == (taken, taken)
    assert len(take_all(inbox)) == taken
    inbox.close()
    with pytest.raises(trio.ClosedResourceError):
        inbox.offer(batch(1, 1))
    assert (inbox.frames, inbox.bytes) == (0, 0)


async def test_items_without_size_never_wait_for_room() -> None:
    inbox = inbox_of(max_input_queue_size=1)
    await inbox.put_batch(batch(5))
    with trio.fail_after(1):
        await inbox.put(ConnectionEnd(NOBODY, CloseReason.CLIENT_CLOSED))
        await inbox.put(Control(print))
    assert len(take_all(inbox)) == 3


async def test_a_wake_up_is_an_item_that_does_nothing() -> None:
    inbox = inbox_of()
    inbox.wake()
    item = await inbox.take()
    assert isinstance(item, Control)
    item.action(0.0)


async def test_waking_a_full_or_closed_queue_is_harmless() -> None:
    inbox = inbox_of()
    for _ in range(1000):
        inbox.wake()
    assert 0 < len(take_all(inbox)) < 1000
    inbox.close()
    inbox.wake()
    with pytest.raises(trio.EndOfChannel):
        await inbox.take()


async def test_a_closed_queue_is_drained_first() -> None:
    inbox = inbox_of()
    await inbox.put_batch(batch(3, 7))
    inbox.close()
    assert isinstance(await inbox.take(), Batch)
    assert (inbox.frames, inbox.bytes) == (0, 0)
    with pytest.raises(trio.EndOfChannel):
        inbox.take_nowait()


@given(
    producers=st.lists(
        st.lists(st.tuples(st.integers(1, 12), st.integers(0, 1500)), max_size=8), max_size=6
    ),
    seed=st.integers(0, 1000),
)
@settings(max_examples=60)
def test_no_interleaving_loses_reorders_or_overfills(
    producers: list[list[tuple[int, int]]], seed: int
) -> None:
    inbox = inbox_of(max_input_queue_size=10, max_input_queue_bytes=1024)
    chance = random.Random(seed)
    taken: list[tuple[int, int]] = []

    async def produce(number: int, sizes: list[tuple[int, int]]) -> None:
        for place, (frames, size) in enumerate(sizes):
            await inbox.put_batch(batch(frames, size, mark=number * 100 + place))
            for _ in range(chance.randrange(3)):
                await trio.lowlevel.checkpoint()

    async def consume(take: Callable[[], Any]) -> None:
        while True:
            item = await take()
            taken.append(divmod(int(item.received_at), 100))
            assert inbox.frames >= 0
            assert inbox.bytes >= 0
            for _ in range(chance.randrange(4)):
                await trio.lowlevel.checkpoint()

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consume, inbox.take)
            async with trio.open_nursery() as producing:
                for number, sizes in enumerate(producers):
                    producing.start_soon(produce, number, sizes)
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()

    trio.run(run, clock=MockClock())
    assert sorted(taken) == [(n, p) for n, sizes in enumerate(producers) for p in range(len(sizes))]
    for number in range(len(producers)):
        own = [place for who, place in taken if who == number]
        assert own == sorted(own)
    assert (inbox.frames, inbox.bytes) == (0, 0)
