"""The outbox: its bytes on the wire, their order, and their charges while they wait."""

import itertools
import math
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
import trio
from attrs import define, field
from hypothesis import example, given, settings
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.support.limits import JOIN_BYTES
from trio_stomp import CloseReason
from trio_stomp.broker import BrokerPolicies, Client, Delivery, MemoryBudget, Subscription
from trio_stomp.broker.delivery import NEVER, Destination, Publication
from trio_stomp.broker.headers import SubscribeOptions
from trio_stomp.broker.names import Kind
from trio_stomp.broker.queues import Consumer
from trio_stomp.broker.routing import FanOut
from trio_stomp.frames import Head
from trio_stomp.server.io import Outbox, OutboxShared, WebSocketMessages
from trio_stomp.server.io._outbox import (
    BULK_INLINE_BYTES,
    CLEARED_AT_ONCE,
    COUNTED_AT_ONCE,
    INLINE_BYTES,
    LOW_WATER_BYTES,
    STUCK_S,
)
from trio_stomp.transport import MAX_BEHIND, frame_message
from trio_stomp.transport.wire import Piece

AMPLE = 1 << 40
ROUTE = "/t"
PLAIN, WEBSOCKET = "plain", "websocket"
FRAMINGS = (PLAIN, WEBSOCKET)
BIG_TAIL_BYTES = 64 * 1024
BULK_TAILS = BULK_INLINE_BYTES // BIG_TAIL_BYTES


def framing_of(name: str) -> WebSocketMessages | None:
    return WebSocketMessages("auto") if name == WEBSOCKET else None


@define(eq=False)
class GatedWire:
    """A wire that accepts as many bytes as the test allows, and records them."""

    allowed: float = 0
    taken: bytearray = field(factory=bytearray)
    writes: list[int] = field(factory=list)
    pieces: list[int] = field(factory=list)
    """The number of pieces of each write."""
    is_lost: bool = False
    remote: str = "test"
    is_loopback: bool = True
    gathers: bool = True
    _gate: trio.lowlevel.ParkingLot = field(factory=trio.lowlevel.ParkingLot)

    def allow(self, count: float) -> None:
        """Accept ``count`` bytes more."""
        self.allowed += count
        self._gate.unpark_all()

    def lose(self) -> None:
        """Break the connection; the next send fails."""
        self.is_lost = True
        self._gate.unpark_all()

    def send_nowait(self, data: Piece, behind: Sequence[Piece] = ()) -> int:
        if self.is_lost:
            raise trio.BrokenResourceError
        assert self.gathers or not behind
        assert len(behind) <= MAX_BEHIND
        data = b"".join((data, *behind))
        size = int(min(self.allowed, len(data)))
        self.allowed -= size
        self.taken += data[:size]
        self.writes.append(size)
        self.pieces.append(1 + len(behind))
        return size

    async def wait_sent(self, data: bytes | memoryview) -> int:
        assert len(data), "nothing to send"
        await trio.lowlevel.checkpoint()
        while True:
            sent = self.send_nowait(data)
            if sent:
                return sent
            await self._gate.park()

    async def receive_some(self, max_bytes: int) -> bytes:
        raise NotImplementedError

    def untaken(self) -> int:
        return 0

    async def send_eof(self) -> None:
        raise NotImplementedError

    async def aclose(self) -> None:
        raise NotImplementedError


@define(eq=False)
class Rig:
    """An outbox with its surroundings, and its reports."""

    wire: GatedWire
    shared: OutboxShared
    outbox: Outbox = field(init=False)
    destination: Destination = field(factory=lambda: Destination(ROUTE, Kind.TOPIC))
    closed: list[CloseReason] = field(factory=list)
    rooms: int = 0
    is_lost: bool = False
    nursery: trio.Nursery | None = None
    has_writer: bool = False
    framing: str = PLAIN

    def framed(self, frame: bytes) -> bytes:
        """Return the bytes of a frame on the wire."""
        if self.framing == WEBSOCKET:
            return frame_message(frame, "auto")
        return frame

    def on_blocked(self) -> None:
        if not self.has_writer and self.nursery is not None:
            self.has_writer = True
            self.nursery.start_soon(self.write)

    async def write(self) -> None:
        try:
            await self.outbox.write()
        except trio.BrokenResourceError:
            self.is_lost = True
            self.outbox.break_off()

    def on_room(self) -> None:
        self.rooms += 1

    @property
    def used(self) -> int:
        return self.shared.memory.used_bytes

    def delivery(self, *tails: bytes, expires_at: float = NEVER) -> Delivery:
        head = Head("SEND", (("destination", ROUTE),), -1, ROUTE)
        publication = Publication(self.destination, head, [], 0.0, expires_at)
        return Delivery([b"", *tails], len(tails), sum(map(len, tails)), publication)

    def stage(self, *tails: bytes, prefix: bytes = b"P:", expires_at: float = NEVER) -> bool:
        return self.outbox.stage(prefix, self.delivery(*tails, expires_at=expires_at))

    def publish(self, *tails: bytes, expires_at: float = NEVER) -> None:
        """Stage a run, if there is one, and end the turn as the dispatcher does."""
        if tails:
            self.stage(*tails, expires_at=expires_at)
        dirty, self.shared.dirty = self.shared.dirty, []
        for outbox in dirty:
            outbox.publish(trio.current_time())

    async def flush(self, count: float = math.inf) -> None:
        """Let the wire accept bytes until nothing moves."""
        self.wire.allow(count)
        await wait_all_tasks_blocked()

    def assert_settled(self) -> None:
        """Check that nothing waits, and nothing is charged."""
        assert self.outbox.waiting_bytes == 0
        assert self.used == 0
        assert self.outbox.waiting_messages == 0


def make_rig(limit: int = AMPLE, memory: int = AMPLE, framing: str = PLAIN) -> Rig:
    rig = Rig(GatedWire(), OutboxShared(MemoryBudget(memory), limit), framing=framing)
    rig.outbox = Outbox(rig.shared, rig.wire, rig.on_blocked, rig.closed.append, rig.on_room)
    rig.outbox.framing = framing_of(framing)
    return rig


@asynccontextmanager
async def open_rig(
    limit: int = AMPLE, memory: int = AMPLE, framing: str = PLAIN
) -> AsyncIterator[Rig]:
    rig = make_rig(limit, memory, framing)
    async with trio.open_nursery() as nursery:
        rig.nursery = nursery
        yield rig
        nursery.cancel_scope.cancel()


# --- what goes straight to the wire ---------------------------------------------------------------


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    """At the end all charges are released."""
    async with open_rig() as rig:
        yield rig
        rig.assert_settled()


async def test_nothing_leaves_before_the_turn_ends(rig: Rig) -> None:
    rig.wire.allow(math.inf)
    assert rig.stage(b"a")
    rig.outbox.stage_frame(b"R")
    assert rig.wire.taken == b""
    assert rig.used == rig.outbox.waiting_bytes == 4
    rig.publish()
    assert rig.wire.taken == b"P:aR"
    assert len(rig.wire.writes) == 1
    rig.assert_settled()
    assert not rig.has_writer


async def test_a_turn_is_one_write_and_one_dirty_entry(rig: Rig) -> None:
    rig.wire.allow(math.inf)
    for number in range(100):
        rig.stage(b"%d," % number)
    assert rig.shared.dirty == [rig.outbox]
    rig.publish()
    assert bytes(rig.wire.taken) == b"".join(b"P:%d," % number for number in range(100))
    assert len(rig.wire.writes) == 1
    assert rig.outbox.frames_out == 100


async def test_publishing_twice_sends_once(rig: Rig) -> None:
    """``drop_oldest`` enters the outbox among the dirty ones a second time."""
    rig.wire.allow(math.inf)
    rig.stage(b"a")
    rig.outbox.drop_oldest(0)
    rig.publish()
    rig.publish()
    assert rig.wire.taken == b"P:a"


async def test_a_partial_write_leaves_the_rest_to_the_writer(rig: Rig) -> None:
    rig.wire.allow(3)
    rig.publish(b"abc", b"def")
    assert rig.wire.taken == b"P:a"
    assert rig.has_writer
    assert rig.outbox.blocked_since > 0
    rig.publish(b"ghi")
    await rig.flush(4)
    assert rig.wire.taken == b"P:abcP:"
    await rig.flush()
    assert rig.wire.taken == b"P:abcP:defP:ghi"
    rig.assert_settled()
    assert rig.outbox.blocked_since == 0.0


async def test_large_message_is_sent_immediately_without_joining(rig: Rig) -> None:
    rig.wire.allow(math.inf)
    rig.stage(b"x" * BIG_TAIL_BYTES, b"y" * BIG_TAIL_BYTES)
    rig.outbox.stage_frame(b"R")
    rig.publish()
    size = 2 * (BIG_TAIL_BYTES + 2) + 1
    assert rig.wire.writes == [size]
    assert rig.wire.pieces == [2 * 2 + 1]
    assert not rig.has_writer


async def test_unsent_rest_is_left_to_the_writer(rig: Rig) -> None:
    tails = [b"%d" % number * BIG_TAIL_BYTES for number in range(8)]
    rig.wire.allow(3)
    rig.publish(*tails)
    assert rig.outbox.blocked_since > 0 or rig.has_writer
    wire = b"".join(b"P:" + tail for tail in tails)
    for step in (1, BIG_TAIL_BYTES - 2, 1, 1, 1, 3 * BIG_TAIL_BYTES):
        await rig.flush(step)
        assert wire.startswith(rig.wire.taken)
    await rig.flush()
    assert bytes(rig.wire.taken) == wire


async def test_large_messages_that_expire_while_they_wait_are_not_sent(
    rig: Rig, autojump_clock
) -> None:
    await trio.sleep(1)
    now = trio.current_time()
    rig.publish(b"a" * BIG_TAIL_BYTES)
    rig.stage(b"b" * BIG_TAIL_BYTES, expires_at=now + 1)
    rig.publish(b"c" * BIG_TAIL_BYTES)
    await trio.sleep(2)
    await rig.flush()
    wire = b"P:" + b"a" * BIG_TAIL_BYTES + b"P:" + b"c" * BIG_TAIL_BYTES
    assert bytes(rig.wire.taken) == wire
    assert rig.shared.expired == 1


@pytest.mark.parametrize(
    ("gathers", "tails"),
    [
        pytest.param(True, [b"x" * BIG_TAIL_BYTES] * BULK_TAILS, id="in pieces"),
        pytest.param(False, [b"x" * (INLINE_BYTES + 1)], id="in one piece"),
        # TLS would make a record for each piece.
        pytest.param(False, [b"x" * BIG_TAIL_BYTES, b"y" * BIG_TAIL_BYTES], id="joined"),
    ],
)
async def test_very_much_is_not_sent_in_the_dispatchers_time(
    rig: Rig, gathers: bool, tails: list[bytes]
) -> None:
    rig.wire.gathers = gathers
    rig.wire.allow(math.inf)
    rig.publish(*tails)
    assert rig.wire.taken == b""
    await wait_all_tasks_blocked()
    assert bytes(rig.wire.taken) == b"".join(b"P:" + tail for tail in tails)
    assert gathers or len(rig.wire.writes) == 1


async def test_messages_staged_while_the_writer_waits_keep_their_order(rig: Rig) -> None:
    rig.publish(b"1")
    for number in range(2, 50):
        rig.stage(b"%d" % number)
        rig.outbox.stage_frame(b"R%d" % number)
        rig.publish()
        await rig.flush(number % 5)
    await rig.flush()
    expected = b"P:1" + b"".join(b"P:%dR%d" % (number, number) for number in range(2, 50))
    assert bytes(rig.wire.taken) == expected


async def test_the_writer_joins_but_within_bounds(rig: Rig) -> None:
    for _ in range(1000):
        rig.publish(b"x" * 1000)
    await rig.flush()
    assert len(rig.wire.taken) == 1000 * 1002
    assert len(rig.wire.writes) < 12
    assert max(rig.wire.writes) <= JOIN_BYTES + 1002


async def test_a_big_message_is_not_copied_for_each_subscriber(rig: Rig) -> None:
    tail = b"x" * (2 * JOIN_BYTES)
    delivery = rig.delivery(b"small", tail, b"end")
    rig.outbox.stage(b"P:", delivery)
    rig.publish()
    await rig.flush(5)
    await rig.flush(5)
    held = next(iter(rig.outbox._parts))
    assert isinstance(held, memoryview)
    assert held.obj is tail
    assert rig.used == delivery.size + 3 * 2  # charged until all of it is sent
    await rig.flush()
    assert bytes(rig.wire.taken) == b"P:smallP:" + tail + b"P:end"


@pytest.mark.parametrize("gathers", [False, True])
@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize(
    "sizes",
    [
        [BIG_TAIL_BYTES],
        [BIG_TAIL_BYTES, BIG_TAIL_BYTES],
        [10, BIG_TAIL_BYTES - 1, 10],
        [JOIN_BYTES, 1, JOIN_BYTES],
        [1, JOIN_BYTES + 1],
        [BIG_TAIL_BYTES - 1] * 6,
        [1000] * 400,
    ],
)
async def test_runs_of_every_size_arrive_whole(
    sizes: list[int], framing: str, gathers: bool
) -> None:
    async with open_rig(framing=framing) as rig:
        rig.wire.gathers = gathers
        tails = [bytes([65 + place % 26]) * size for place, size in enumerate(sizes)]
        rig.outbox.stage_frame(b"first")
        rig.stage(*tails, prefix=b"prefix")
        rig.stage(*tails, prefix=b"other-prefix")
        rig.outbox.stage_frame(b"last")
        rig.publish()
        while rig.outbox.waiting_bytes:
            await rig.flush(99_991)
        whole = [b"first", *(b"prefix" + tail for tail in tails)]
        whole += [*(b"other-prefix" + tail for tail in tails), b"last"]
        assert bytes(rig.wire.taken) == b"".join(map(rig.framed, whole))
        rig.assert_settled()


# --- limits ---------------------------------------------------------------------------------------


async def test_over_the_limit_nothing_is_kept() -> None:
    async with open_rig(limit=1000) as rig:
        assert rig.stage(b"x" * 997)
        assert rig.stage(b"y" * 5000)  # after less than the limit, one run fits, however large
        assert not rig.stage(b"z")
        assert rig.used == rig.outbox.waiting_bytes == 999 + 5002
        await rig.flush()
        rig.publish()
        await wait_all_tasks_blocked()
        assert b"y" * 5000 in rig.wire.taken
        assert b"z" not in rig.wire.taken
        rig.assert_settled()


async def test_one_run_always_fits_while_there_is_room() -> None:
    """Even a large one; otherwise the first stored message could make a late subscriber slow."""
    async with open_rig(limit=1000) as rig:
        assert rig.stage(b"x" * 5000)
        assert not rig.stage(b"y")
    async with open_rig(limit=1000) as rig:
        rig.stage(b"x" * 100)
        assert rig.outbox.has_room()
        assert rig.stage(b"x" * 5000)
        assert not rig.outbox.has_room()


@pytest.mark.parametrize("limit", [1024, 10_000, 100_000, 10_000_000])
async def test_has_room_means_that_staging_succeeds(limit: int) -> None:
    async with open_rig(limit=limit) as rig:
        staged = 0
        while rig.outbox.has_room():
            assert rig.stage(b"x" * 9_000)
            staged += 1
        assert staged * 9_002 < limit + 9_002 + LOW_WATER_BYTES
        rig.publish()
        await rig.flush()
        assert rig.rooms == 1
        rig.assert_settled()


async def test_memory_refuses_too() -> None:
    async with open_rig(memory=1000) as rig:
        assert rig.stage(b"x" * 900)
        assert not rig.stage(b"x" * 200)
        assert rig.used == 902
        rig.publish()
        await rig.flush()
        rig.assert_settled()


async def test_strain_is_counted_from_three_quarters_on() -> None:
    async with open_rig(limit=1000) as rig:
        rig.stage(b"x" * 700)
        assert rig.shared.strained == 0
        rig.stage(b"x" * 60)
        assert rig.shared.strained == 1
        rig.stage(b"x" * 900)  # refused, but still a strain
        assert rig.shared.strained == 2


# --- room -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [100, 30_000, 90_000, 600_000])
async def test_room_is_offered_once_after_it_was_refused(rig: Rig, size: int) -> None:
    while rig.outbox.has_room():
        rig.stage(b"x" * size)
    rig.publish()
    assert rig.rooms == 0
    await rig.flush(10)
    assert rig.rooms == 0
    await rig.flush()
    assert rig.rooms == 1


async def test_room_is_not_reported_without_a_refused_delivery(rig: Rig) -> None:
    for _ in range(100):
        rig.stage(b"x" * 10_000)
    rig.publish()
    await rig.flush()
    assert rig.rooms == 0


async def test_room_is_offered_as_soon_as_little_waits() -> None:
    async with open_rig() as rig:
        for _ in range(8):
            rig.publish(b"x" * 100_000)
        assert not rig.outbox.has_room()
        await rig.flush(500_000)
        assert rig.rooms == 0
        await rig.flush(200_100)
        assert rig.rooms == 1
        assert rig.outbox.waiting_bytes > 0


async def test_room_is_offered_when_the_rest_has_expired(rig: Rig, autojump_clock) -> None:
    """Room is signalled even if nothing is written; otherwise its waiter would wait for ever."""
    await trio.sleep(1)
    for _ in range(8):
        rig.publish(b"x" * 100_000, expires_at=trio.current_time() + 5)
    assert not rig.outbox.has_room()
    await rig.flush(10)
    await trio.sleep(6)
    await rig.flush(300_000)
    assert rig.shared.expired == 7  # one write had begun before
    assert rig.rooms == 1


async def test_a_closed_outbox_has_no_room_and_takes_nothing(rig: Rig) -> None:
    rig.stage(b"a")
    rig.outbox.close(CloseReason.PROTOCOL_ERROR)
    rig.outbox.close(CloseReason.SLOW_CONSUMER)
    assert rig.closed == [CloseReason.PROTOCOL_ERROR]
    assert not rig.outbox.has_room()
    assert rig.stage(b"b")  # it is not a slow consumer, it only gets nothing more
    rig.outbox.stage_frame(b"c")
    rig.outbox.stage_bytes(b"d")  # the transport's ending comes last
    rig.publish()
    await rig.flush()
    assert rig.wire.taken == b"P:ad"


# --- dropping -------------------------------------------------------------------------------------


async def test_the_oldest_are_dropped_but_no_receipt_and_nothing_half_written(rig: Rig) -> None:
    rig.wire.allow(3)
    rig.publish(b"half")
    for number in range(5):
        rig.stage(b"%d" % number)
        rig.outbox.stage_frame(b"R%d" % number)
    rig.publish()
    rig.stage(b"5")  # still staged
    assert rig.outbox.drop_oldest(7) == 3
    rig.publish(b"6")
    await rig.flush()
    assert rig.wire.taken == b"P:halfR0R1R2P:3R3P:4R4P:5P:6"


async def test_dropping_more_than_there_is(rig: Rig) -> None:
    rig.publish(b"half")
    rig.stage(b"1", b"2")
    rig.stage(b"3")
    assert rig.outbox.drop_oldest(1_000_000) == 3
    rig.publish()
    await rig.flush()
    assert rig.wire.taken == b"P:half"


async def test_a_big_message_in_the_midst_of_being_written_is_finished(rig: Rig) -> None:
    tail = b"x" * (2 * JOIN_BYTES)
    rig.stage(tail, tail)
    rig.publish(b"after")
    await rig.flush(JOIN_BYTES)
    rig.outbox.discard()
    rig.outbox.stage_frame(b"ERROR")
    rig.publish()
    await rig.flush()
    assert bytes(rig.wire.taken) == b"P:" + tail + b"P:" + tail + b"ERROR"


async def test_discard_before_anything_is_written(rig: Rig) -> None:
    rig.stage(b"1")
    rig.outbox.stage_frame(b"R")
    rig.stage(b"2")
    rig.outbox.discard()
    rig.publish()
    await rig.flush()
    assert rig.wire.taken == b"R"


@pytest.mark.parametrize("how", ["discard", "break_off"])
async def test_discarded_messages_are_freed_in_pieces(how: str) -> None:
    """8 MiB in one write would hold up all clients for milliseconds."""
    async with open_rig() as rig:
        rig.publish(b"half written")
        tail = bytes(bytearray(100))
        before = sys.getrefcount(tail)
        for _ in range(3):
            for _ in range(CLEARED_AT_ONCE):
                rig.stage(tail)
            rig.publish()
        rig.stage(tail)
        getattr(rig.outbox, how)()
        assert rig.used == (len(b"P:half written") if how == "discard" else 0)
        held = [sys.getrefcount(tail) - before]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.outbox.clear_away)
            while held[-1] and len(held) < 99:
                await trio.lowlevel.checkpoint()
                held.append(sys.getrefcount(tail) - before)
        freed = {earlier - later for earlier, later in itertools.pairwise(held)}
        assert held[0] == 3 * CLEARED_AT_ONCE + 1
        assert held[-1] == 0
        assert max(freed) <= 2 * CLEARED_AT_ONCE  # two steps may pass between two checks


async def test_messages_of_many_lost_connections_are_counted_in_pieces(rig: Rig) -> None:
    """16 connections lost at once, with 64,000 runs each, held up all clients for 100 ms."""
    rig.publish(b"half written")
    for _ in range(2 * COUNTED_AT_ONCE):
        rig.stage(b"x")
    rig.publish()
    rig.outbox.break_off()
    assert rig.used == 0
    rig.outbox.break_off()
    counted = [rig.outbox.shared.unsent]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.outbox.clear_away)
        while counted[-1] <= 2 * COUNTED_AT_ONCE and len(counted) < 99:
            await trio.lowlevel.checkpoint()
            counted.append(rig.outbox.shared.unsent)
    steps = {later - earlier for earlier, later in itertools.pairwise(counted)}
    assert counted[0] == 1
    assert counted[-1] == 2 * COUNTED_AT_ONCE + 1
    assert max(steps) <= 2 * CLEARED_AT_ONCE  # two steps may pass between two checks


async def test_nothing_thrown_away_is_nothing_to_wait_for(rig: Rig) -> None:
    with trio.testing.assert_no_checkpoints():
        await rig.outbox.clear_away()
    rig.publish(b"still wanted")
    await rig.outbox.clear_away()
    await rig.flush()
    assert rig.wire.taken == b"P:still wanted"


async def test_messages_discarded_twice_are_freed_too(rig: Rig) -> None:
    tail = bytes(bytearray(100))
    before = sys.getrefcount(tail)
    for number in range(3):
        rig.stage(tail)
        rig.publish()  # the first is half written from now on
        rig.stage(tail)
        assert rig.outbox.discard() == (1 if number == 0 else 2)
    rig.outbox.break_off()
    rig.assert_settled()
    await rig.outbox.clear_away()
    assert sys.getrefcount(tail) == before


async def test_the_expired_are_not_written(rig: Rig, autojump_clock) -> None:
    await trio.sleep(1)
    now = trio.current_time()
    rig.stage(b"half", expires_at=now + 1)
    rig.wire.allow(1)
    rig.publish()
    rig.stage(b"old", b"older", expires_at=now + 1)
    rig.stage(b"x" * 2 * JOIN_BYTES, expires_at=now + 1)
    rig.outbox.stage_frame(b"R")
    rig.publish(b"young", expires_at=now + 10)
    await trio.sleep(1)
    await rig.flush()
    assert rig.wire.taken == b"P:halfRP:young"
    assert rig.shared.expired == 3
    assert rig.destination.expired == 3


async def test_message_that_expires_within_the_turn_is_not_sent_inline(
    rig: Rig, autojump_clock
) -> None:
    await trio.sleep(1)
    rig.wire.allow(math.inf)
    rig.publish(b"late", expires_at=trio.current_time())
    assert rig.wire.taken == b""
    assert rig.shared.expired == 1


async def test_sending_nothing_is_no_sign_of_life(autojump_clock) -> None:
    """A heart-beat is due when nothing was sent, whatever has expired meanwhile."""
    await trio.sleep(1)
    async with open_rig() as rig:
        rig.wire.allow(math.inf)
        rig.publish(b"a")
        sent_at = rig.outbox.last_sent
        assert sent_at == trio.current_time()
        await trio.sleep(1)
        rig.publish(b"b", expires_at=0.0)
        rig.wire.allowed = 0
        rig.publish(b"c")
        assert rig.outbox.last_sent == sent_at


# --- ends -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("tail", [b"a", b"x" * 2 * BIG_TAIL_BYTES], ids=["small", "large"])
async def test_a_lost_wire_is_noticed_in_the_turn(rig: Rig, tail: bytes) -> None:
    rig.wire.lose()
    rig.publish(tail)
    assert rig.closed == [CloseReason.CONNECTION_LOST]
    assert not rig.has_writer
    rig.assert_settled()
    assert rig.stage(b"b")
    rig.outbox.stage_frame(b"c")
    rig.outbox.stage_bytes(b"pong")
    rig.publish()
    rig.assert_settled()
    with trio.fail_after(1):
        await rig.outbox.wait_empty()


async def test_a_lost_wire_is_noticed_by_the_writer(rig: Rig) -> None:
    rig.stage(b"x" * 2 * JOIN_BYTES, b"y" * JOIN_BYTES)
    for _ in range(10):
        rig.publish(b"a")
    await rig.flush(1000)
    rig.stage(b"staged")
    rig.wire.lose()
    await wait_all_tasks_blocked()
    assert rig.is_lost
    rig.outbox.stage_bytes(b"pong")
    rig.publish()


async def test_breaking_off_gives_everything_back(rig: Rig) -> None:
    rig.stage(b"x" * 2 * JOIN_BYTES, b"y" * JOIN_BYTES)
    rig.publish(b"a")
    await rig.flush(1000)
    rig.stage(b"b")
    rig.outbox.break_off()
    rig.assert_settled()
    rig.publish()
    await rig.flush()  # the writer returns from the wire
    rig.assert_settled()
    rig.outbox.break_off()


async def test_waiting_until_all_is_out(rig: Rig) -> None:
    await rig.outbox.wait_empty()
    rig.stage(b"x" * 2 * JOIN_BYTES)
    rig.publish(b"a")
    done = trio.Event()

    async def wait() -> None:
        await rig.outbox.wait_empty()
        done.set()

    assert rig.nursery is not None
    rig.nursery.start_soon(wait)
    await rig.flush(2 * JOIN_BYTES + 4)
    assert not done.is_set()
    await rig.flush()
    assert done.is_set()


async def test_one_pong_flood_does_not_start_two_writers(rig: Rig) -> None:
    for _ in range(10):
        rig.outbox.stage_bytes(b"p")
        rig.publish()
    await rig.flush()
    assert rig.wire.taken == b"p" * 10


# --- WebSockets -----------------------------------------------------------------------------------


async def test_websocket_headers_are_made_once_for_prefixes_of_one_length() -> None:
    rig = make_rig(framing=WEBSOCKET)
    other = Outbox(rig.shared, rig.wire, rig.on_blocked, rig.closed.append, rig.on_room)
    other.framing = framing_of(WEBSOCKET)
    rig.wire.allow(math.inf)
    delivery = rig.delivery(b"a" * 200, "é".encode(), b"\xff")
    rig.outbox.stage(b"one:", delivery)
    other.stage(b"two:", delivery)
    other.stage(b"longer:", delivery)
    rig.publish()
    assert delivery.spliced is not None
    assert sorted(delivery.spliced) == [4, 7]
    expected = b""
    for prefix in (b"one:", b"two:", b"longer:"):
        for tail in delivery.tails[1:]:
            expected += frame_message(prefix + tail, "auto")
    assert bytes(rig.wire.taken) == expected
    assert delivery.tails == [b"", b"a" * 200, "é".encode(), b"\xff"]
    rig.assert_settled()


async def test_all_framings_share_one_delivery() -> None:
    rigs = {framing: make_rig(framing=framing) for framing in FRAMINGS}
    delivery = rigs[PLAIN].delivery(b"a", b"b")
    for rig in rigs.values():
        rig.wire.allow(math.inf)
        rig.outbox.stage(b"P:", delivery)
        rig.publish()
        rig.assert_settled()
    assert rigs[PLAIN].wire.taken == b"P:aP:b"
    assert bytes(rigs[WEBSOCKET].wire.taken) == b"\x81\x03P:a\x81\x03P:b"
    assert delivery.tails == [b"", b"a", b"b"]


@pytest.mark.parametrize("cut", range(8))
async def test_dropping_the_oldest_never_cuts_a_frame(rig: Rig, cut: int) -> None:
    rig.wire.allow(cut)
    rig.publish(b"1\0", b"2\0")
    rig.stage(b"3\0")
    rig.outbox.stage_frame(b"R\0")
    rig.publish(b"4\0")
    before = rig.used
    lost = rig.outbox.drop_oldest(4)
    assert lost == 1
    assert rig.used == rig.outbox.waiting_bytes == before - len(b"P:3\0")
    await rig.flush()
    left = b"P:1\0P:2\0R\0P:4\0"
    assert rig.wire.taken == left


# --- any sequence of operations -------------------------------------------------------------------

SIZES = (1, 30, 5_000, BIG_TAIL_BYTES, JOIN_BYTES + 1)
Steps = list[tuple[object, ...]]

stages = st.tuples(
    st.just("stage"),
    st.sampled_from([b"A:", b"Long-prefix:"]),
    st.lists(st.sampled_from(SIZES), min_size=1, max_size=4),
    st.sampled_from([None, 1, 3]),
)
operations = st.one_of(
    stages,
    stages,
    st.tuples(st.just("frame"), st.integers(1, 100)),
    st.tuples(st.just("bytes"), st.integers(1, 100)),
    st.just(("publish",)),
    st.just(("publish",)),
    st.tuples(st.just("allow"), st.sampled_from([1, 7, 100, 5000, 70_000, 600_000])),
    st.tuples(st.just("drop"), st.sampled_from([1, 40, 10_000, 300_000])),
    st.just(("discard",)),
    st.just(("room",)),
    st.just(("sleep",)),
)


@define(eq=False)
class Story:
    """The history of an outbox, and the expected results."""

    rig: Rig
    items: list[tuple[bytes, bool]] = field(factory=list)
    """The wire bytes of each accepted item, and whether it may be dropped."""
    counts: list[int] = field(factory=list)
    dropped: int = 0
    was_discarded: bool = False

    def unique(self, size: int) -> bytes:
        """Bytes that no other item contains."""
        mark = b"<%d>" % len(self.items)
        return mark + b"." * max(0, size - len(mark)) + b"|"

    async def run(self, steps: Steps) -> None:
        for name, *details in steps:
            if name == "sleep":
                await trio.sleep(1)
            else:
                handler: Callable[..., None] = getattr(self, f"do_{name}")
                handler(*details)
                await wait_all_tasks_blocked()
            assert self.rig.outbox.waiting_bytes == self.rig.used >= 0

    def do_stage(self, prefix: bytes, sizes: list[int], life: int | None) -> None:
        tails = [self.unique(size) + b"%d" % place for place, size in enumerate(sizes)]
        expires_at = NEVER if life is None else trio.current_time() + life
        delivery = self.rig.delivery(*tails, expires_at=expires_at)
        if self.rig.outbox.stage(prefix, delivery):
            wire = [self.rig.framed(prefix + tail) for tail in tails]
            self.items.append((b"".join(wire), True))
            self.counts.append(len(tails))

    def do_frame(self, size: int) -> None:
        frame = self.unique(size)
        self.rig.outbox.stage_frame(frame)
        self.items.append((self.rig.framed(frame), False))
        self.counts.append(0)

    def do_bytes(self, size: int) -> None:
        data = self.unique(size)
        self.rig.outbox.stage_bytes(data)
        self.items.append((data, False))
        self.counts.append(0)

    def do_drop(self, size: int) -> None:
        self.dropped += self.rig.outbox.drop_oldest(size)

    def do_discard(self) -> None:
        self.rig.outbox.discard()
        self.was_discarded = True  # which does not say how many

    def do_publish(self) -> None:
        self.rig.publish()

    def do_allow(self, count: int) -> None:
        self.rig.wire.allow(count)

    def do_room(self) -> None:
        self.rig.outbox.has_room()

    def check(self) -> None:
        """Each item is on the wire, whole and in order, or was counted as dropped or expired."""
        wire = bytes(self.rig.wire.taken)
        missing = 0
        for (data, may_drop), count in zip(self.items, self.counts, strict=True):
            if wire.startswith(data):
                wire = wire[len(data) :]
            else:
                assert may_drop, data[:40]
                missing += count
        assert wire == b""
        accounted = self.dropped + self.rig.shared.expired
        assert missing == accounted or (self.was_discarded and missing >= accounted)


async def tell(story: Story, steps: Steps) -> None:
    rig = story.rig
    await story.run(steps)
    had_asked = rig.outbox._wants_room
    rooms = rig.rooms
    rig.publish()
    await rig.flush()
    story.check()
    rig.assert_settled()
    assert rig.rooms >= rooms + had_asked


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("limit", [AMPLE, 400_000])
@given(steps=st.lists(operations, max_size=30), gathers=st.booleans())
@settings(max_examples=80)
@example(
    steps=[
        ("stage", b"A:", [JOIN_BYTES + 1], None),
        ("publish",),
        ("allow", 100),
        ("stage", b"A:", [1], None),
        ("publish",),
        ("drop", 1),
        ("stage", b"A:", [30], 1),
        ("room",),
        ("publish",),
        ("sleep",),
    ],
    gathers=True,
)
def test_any_sequence_of_messages_is_written_in_order(
    framing: str, limit: int, steps: Steps, gathers: bool
) -> None:
    async def run() -> None:
        await trio.sleep(1)
        async with open_rig(limit=limit, framing=framing) as rig:
            rig.wire.gathers = gathers
            await tell(Story(rig), steps)

    trio.run(run, clock=MockClock(autojump_threshold=0))


@given(steps=st.lists(operations, max_size=20), lost_by=st.sampled_from(["turn", "writer", "us"]))
@settings(max_examples=80)
def test_any_sequence_that_ends_in_a_loss(steps: Steps, lost_by: str) -> None:
    async def run() -> None:
        await trio.sleep(1)
        async with open_rig() as rig:
            await Story(rig).run(steps)
            if lost_by == "us":
                rig.outbox.break_off()
            else:
                rig.wire.lose()
                if lost_by == "turn":
                    rig.stage(b"x")
            for _ in range(2):
                rig.outbox.stage_bytes(b"late")
                rig.publish()
                await wait_all_tasks_blocked()
            rig.assert_settled()

    trio.run(run, clock=MockClock(autojump_threshold=0))


# --- what it tells the core -----------------------------------------------------------------------


async def test_only_messages_to_acknowledge_are_reported_as_expired_unwritten(rig: Rig) -> None:
    unsent: list[Delivery] = []
    rig.shared.on_unsent = unsent.append
    consumer = Consumer(
        Subscription(Client("s", rig.outbox), "0", "0", ROUTE, [(ROUTE, None)], 1, "t", b"P:"),
        "client",
        SubscribeOptions(),
        FanOut(BrokerPolicies()),
    )
    now = trio.current_time()
    tracked, living = rig.delivery(b"a", expires_at=now), rig.delivery(b"b")
    tracked.ticket, living.ticket = (consumer, 7), (consumer, 8)
    rig.wire.allow(math.inf)
    for delivery in (tracked, rig.delivery(b"c", expires_at=now), living):
        assert rig.outbox.stage(b"P:", delivery)
    rig.publish()
    assert rig.wire.taken == b"P:b"
    assert unsent == [tracked]
    assert rig.shared.expired == rig.destination.expired == 2


async def test_a_pause_is_passed_on() -> None:
    rig = make_rig()
    reported: list[bool] = []
    rig.outbox.on_pause = reported.append
    rig.outbox.pause_reading(paused=True)
    rig.outbox.pause_reading(paused=False)
    assert reported == [True, False]


async def test_refused_source_is_notified_when_a_turn_is_written(rig: Rig) -> None:
    rig.shared.low_water_bytes = 2
    rig.wire.allow(math.inf)
    rig.stage(b"a")
    assert not rig.outbox.has_room()
    assert rig.rooms == 0
    rig.publish()
    assert rig.rooms == 1
    rig.publish(b"b")
    assert rig.rooms == 1  # no client was refused meanwhile


async def test_paced_messages_are_accepted_with_a_spent_budget() -> None:
    async with open_rig(memory=2) as rig:
        rig.wire.allow(math.inf)
        delivery = rig.delivery(b"abc")
        assert not rig.outbox.stage(b"P:", delivery)
        delivery.is_paced = True
        assert rig.outbox.stage(b"P:", delivery)
        rig.publish()
        assert rig.wire.taken == b"P:abc"
        rig.assert_settled()


async def test_a_wire_that_takes_nothing_for_a_while_is_stuck(rig: Rig, autojump_clock) -> None:
    assert not rig.outbox.is_stuck(trio.current_time() + STUCK_S)
    await trio.sleep(1)
    rig.publish(b"a")
    began = trio.current_time()
    assert not rig.outbox.is_stuck(began + STUCK_S / 2)
    assert rig.outbox.is_stuck(began + STUCK_S)
    await rig.flush()
    assert not rig.outbox.is_stuck(began + STUCK_S)
