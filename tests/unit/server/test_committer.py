"""The committer alone: when it appends what, its answers, and how it handles failures.

The host is a real log, so commit numbers are the core's own; there are no clients or queues.
"""

import logging
import struct
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import cast

import pytest
import trio
from attrs import define, field
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.support.core import counted_turns
from tests.support.gated_store import GatedStore, eventually
from trio_stomp.broker import Broker, Log, Retention, StoreRead
from trio_stomp.server._committer import (
    IN_DOUBT,
    MEASURE_S,
    NOT_STORED,
    RETAIN_S,
    RETRY_S,
    SILENCE_S,
    StoreCommitter,
)
from trio_stomp.store import (
    Append,
    Begin,
    Keep,
    LeftOut,
    Page,
    Put,
    StoreBroken,
    StoreUnavailable,
    Streamed,
    StreamState,
    Turn,
)

FULL = "journal: no space left on device"


class StreamsFake:
    """Streams that keep as many bytes as the test says."""

    def __init__(self) -> None:
        self.wanted: list[Retention] = []
        self.retained: list[tuple[str, int]] = []

    def retentions(self, now: float) -> list[Retention]:
        return self.wanted

    def retain(self, name: str, state: StreamState, before: int) -> None:
        self.retained.append((name, before))


@define(eq=False)
class Host:
    """A core that is only a log, and a dispatcher that takes its turns at once."""

    store: GatedStore = field(factory=GatedStore)
    log: Log = field(factory=lambda: Log("stored:memory", counted_turns()))
    streams: StreamsFake = field(factory=StreamsFake)
    committer: StoreCommitter = field(init=False)
    reported: list[str] = field(factory=list)
    """The committer's reports, in order."""
    wakes: int = 0
    is_held: bool = False
    """The dispatcher is busy, so answers wait."""
    calls: list[Callable[[float], None]] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        core = cast("Broker", self)
        self.committer = StoreCommitter(self.store, self.log.committed, core, self.call_soon)

    def committed(self, number: int, now: float, left_out: Sequence[LeftOut] = ()) -> None:
        self.log.commit(number, now)
        self.reported.append(f"committed {number}")

    def uncommitted(self, error: str, now: float) -> None:
        self.log.fail(now)
        self.reported.append(f"uncommitted: {error}")

    def refuse_durable(self, error: str, doubt: str, now: float) -> None:
        assert (error, doubt) == (NOT_STORED, IN_DOUBT)
        self.reported.append("refused")

    def note_capacity(self, limit_bytes: int) -> None:
        self.reported.append(f"capacity {limit_bytes}")

    def call_soon(self, call: Callable[[float], None]) -> None:
        """Call soon, as the dispatcher does."""
        self.wakes += 1
        self.calls.append(call)
        if not self.is_held:
            self.turn()

    def turn(self) -> None:
        """End a turn, as the dispatcher does."""
        calls, self.calls = self.calls, []
        for call in calls:
            call(trio.current_time())
        turn = self.log.take()
        if turn is not None:
            self.committer.submit(turn)
        self.committer.hurry(self.log.take_patience())

    async def has_reported(self, count: int) -> None:
        """Wait until the host was notified a number of times."""
        await eventually(lambda: len(self.reported) == count)

    def send(self, text: str, *, must_retry: bool = False) -> None:
        """Take a turn that stores a record which a client waits for."""
        self.log.write(Keep(text, "."), must_retry=must_retry)
        self.turn()


@asynccontextmanager
async def running(store: GatedStore) -> AsyncIterator[Host]:
    host = Host(store)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(host.committer.run)
        await wait_all_tasks_blocked()
        yield host
        store.go_on()
        nursery.cancel_scope.cancel()


@pytest.fixture
async def host() -> AsyncIterator[Host]:
    """A host whose committer runs over a working store."""
    async with running(GatedStore()) as host:
        yield host


def keys(turns: Sequence[Turn]) -> list[str]:
    return [record.key for turn in turns for record in turn.records if isinstance(record, Keep)]


async def passes(clock: MockClock, seconds: float) -> None:
    """Advance the clock once all tasks wait, and let them run."""
    await wait_all_tasks_blocked()
    clock.jump(seconds)
    await wait_all_tasks_blocked()


async def settled(host: Host) -> None:
    """Wait until the committer waits only for time."""
    await eventually(lambda: not host.committer._busy)
    await wait_all_tasks_blocked()


async def hang_in_an_append(host: Host) -> None:
    """Send a record, and return while the store is appending it, until it may continue."""
    host.store.hang()
    host.send("a")
    await eventually(lambda: host.store.asked)


# --- group commit ---------------------------------------------------------------------------------


async def test_urgent_records_are_appended_immediately(host: Host, mock_clock) -> None:
    host.send("a")
    await eventually(lambda: host.reported)
    assert host.reported == ["committed 1"]
    assert host.store.sizes == [1]
    assert trio.current_time() == 0


@pytest.mark.parametrize(
    ("bound", "sizes", "expected"),
    [(1000, [1, 7], [0, 1]), (3, [1, 3, 3, 1], [0, 1, 4, 7])],
    ids=["one group", "a group has a bound and the rest follows at once"],
)
async def test_records_during_an_append_form_the_next_one(
    host: Host, mock_clock, monkeypatch, bound: int, sizes: list[int], expected: list[int]
) -> None:
    monkeypatch.setattr("trio_stomp.server._committer.MAX_GROUP_TURNS", bound)
    await hang_in_an_append(host)
    for text in "bcdefgh":
        host.send(text)
    await wait_all_tasks_blocked()
    assert host.store.sizes == [1]
    host.store.go_on()
    await host.has_reported(len(sizes))
    assert host.store.sizes == sizes
    assert host.store.expected == expected
    assert [key for turns, _ in host.store.asked for key in keys(turns)] == list("abcdefgh")
    assert (host.reported[0], host.reported[-1]) == ("committed 1", "committed 8")


async def test_one_thread_appends_and_it_ends_with_the_committer(mock_clock) -> None:
    async with running(GatedStore()) as host:
        for count, text in enumerate("abc", 1):
            host.send(text)
            await host.has_reported(count)
        thread = host.committer._appender._thread
        assert host.store.threads == {thread}
        assert thread.is_alive()
    assert not thread.is_alive()


async def test_cancelled_in_the_middle_of_an_append_it_waits_for_it(mock_clock) -> None:
    host = Host()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(host.committer.run)
        await wait_all_tasks_blocked()
        await hang_in_an_append(host)
        nursery.cancel_scope.cancel()
        nursery.start_soon(wait_and_go_on, host.store)
    assert host.reported == ["committed 1"]
    assert host.store.recover(lambda done, total: None).commit == 1


async def wait_and_go_on(store: GatedStore) -> None:
    with trio.CancelScope(shield=True):
        await wait_all_tasks_blocked()
    store.go_on()


# --- silence --------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_short", [False, True])
async def test_a_store_that_does_not_answer_has_durable_messages_refused(
    mock_clock: MockClock, is_short: bool
) -> None:
    host, silent = Host(), [False]
    host.committer.is_silent = lambda: silent[0]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(host.committer.run)
        await passes(mock_clock, SILENCE_S)
        host.is_held = silent[0] = True
        await passes(mock_clock, SILENCE_S)
        silent[0] = not is_short  # it answers before the turn
        host.turn()
        nursery.cancel_scope.cancel()
    assert host.reported == [] if is_short else ["refused"]


# --- patience -------------------------------------------------------------------------------------


async def test_the_end_of_a_message_waits_five_milliseconds_for_company(
    host: Host, mock_clock
) -> None:
    host.log.finish(1)
    host.turn()
    await wait_all_tasks_blocked()
    assert not host.store.asked
    mock_clock.jump(0.004)
    host.log.finish(2)
    host.turn()
    await wait_all_tasks_blocked()
    assert not host.store.asked
    mock_clock.jump(0.001)
    await eventually(lambda: host.reported)
    assert host.store.sizes == [2]


async def test_statistics_wait_a_second_or_go_with_urgent_records(host: Host, mock_clock) -> None:
    host.log.hand_out([1])
    host.turn()
    await passes(mock_clock, 0.9)
    assert not host.store.asked
    mock_clock.jump(0.1)
    await eventually(lambda: host.reported)
    assert not host.store.asked[0][0][0].is_urgent
    host.log.hand_out([1])
    host.turn()
    await wait_all_tasks_blocked()
    host.send("a")
    await host.has_reported(2)
    assert host.store.sizes == [1, 2]
    assert trio.current_time() == 1.0


async def test_the_delay_of_acks_runs_during_another_append(host: Host, mock_clock) -> None:
    await hang_in_an_append(host)
    host.log.finish(1)
    host.turn()
    mock_clock.jump(0.01)
    host.store.go_on()
    await host.has_reported(2)
    assert host.store.sizes == [1, 1]


async def test_records_during_an_append_keep_their_delay(host: Host, mock_clock) -> None:
    await hang_in_an_append(host)
    host.log.finish(1)
    host.turn()
    host.store.go_on()
    await host.has_reported(1)
    await settled(host)
    assert host.store.sizes == [1]
    mock_clock.jump(0.005)
    await host.has_reported(2)
    assert host.store.sizes == [1, 1]


async def test_hurried_append_does_not_wait(host: Host, mock_clock) -> None:
    host.log.hand_out([1])
    host.turn()
    await wait_all_tasks_blocked()
    assert not host.committer.is_idle
    host.committer.hurry()
    await eventually(lambda: host.reported)
    await settled(host)
    assert host.committer.is_idle
    host.committer.hurry()  # the turn stores nothing
    await wait_all_tasks_blocked()
    assert host.store.sizes == [1]


async def test_an_idle_broker_is_woken_by_nothing_but_its_streams(host: Host, mock_clock) -> None:
    host.send("a")
    await eventually(lambda: host.reported)
    await settled(host)
    host.wakes = 0
    for _ in range(10):
        mock_clock.jump(RETAIN_S)
        await wait_all_tasks_blocked()
    assert (host.wakes, host.store.reads, host.store.sizes) == (0, 0, [1])


# --- failures -------------------------------------------------------------------------------------


@pytest.mark.bugs
@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (StoreUnavailable(FULL), NOT_STORED),
        (StoreBroken("nobody knows"), IN_DOUBT),
        (ZeroDivisionError("secret"), NOT_STORED),
    ],
    ids=["unavailable", "broken", "bug"],
)
async def test_failed_records_are_withdrawn_and_must_hold_ones_retried(
    host: Host, mock_clock, caplog: pytest.LogCaptureFixture, fault: Exception, text: str
) -> None:
    host.store.faults += [fault]
    host.log.write(Keep("must hold", "."))
    host.send("may be lost")
    await eventually(lambda: host.reported)
    # The log has paths and causes; clients get the same text each time.
    assert host.reported == [f"uncommitted: {text}"]
    assert host.committer.error == text
    await passes(mock_clock, RETRY_S * 0.99)
    assert host.store.sizes == [1]
    mock_clock.jump(RETRY_S * 0.01)
    await host.has_reported(2)
    assert keys(host.store.asked[1][0]) == ["must hold"]
    assert host.store.expected == [0, 0]
    assert host.reported[1] == "committed 1"
    assert host.committer.error == ""
    assert "the store works again" in caplog.text
    assert str(fault) in caplog.text
    assert ("ZeroDivisionError" in caplog.text) == isinstance(fault, ZeroDivisionError)


async def test_it_finds_out_that_the_store_works_with_nothing_to_store_and_logs_it_once(
    host: Host, mock_clock, caplog: pytest.LogCaptureFixture
) -> None:
    """Else /readyz would stay red, and no message would be sent that could make it green."""
    host.store.faults += [StoreUnavailable(FULL)] * 3
    host.send("lost")
    for count in (1, 2, 3):
        await host.has_reported(count)
        assert host.committer.error
        await passes(mock_clock, RETRY_S)
    await host.has_reported(4)
    assert host.reported[3] == "committed 1"
    assert not host.committer.error
    await settled(host)
    mock_clock.jump(10 * RETRY_S)
    await settled(host)
    assert [len(turns[0].records) for turns, _ in host.store.asked] == [1, 0, 0, 0]
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert lines == [f"the store cannot be written to: {FULL}", "the store works again"]


async def test_records_submitted_during_a_failure_are_withdrawn_too(host: Host, mock_clock) -> None:
    """Its commit number follows one that will never be reached."""
    host.store.faults += [StoreUnavailable(FULL)]
    await hang_in_an_append(host)
    host.send("b")
    host.send("c", must_retry=True)
    host.store.go_on()
    await eventually(lambda: host.reported)
    host.send("d")
    await passes(mock_clock, RETRY_S)
    await host.has_reported(2)
    assert keys(host.store.asked[1][0]) == ["c", "d"]
    assert host.store.expected == [0, 0]
    assert host.reported[1] == "committed 2"


async def test_nothing_is_appended_until_the_core_has_withdrawn(host: Host, mock_clock) -> None:
    host.store.faults += [StoreUnavailable(FULL)]
    await hang_in_an_append(host)
    host.is_held = True
    host.store.go_on()
    await eventually(lambda: host.calls)
    turn = Turn([Keep("of an old number", ".")])
    host.committer.submit(turn)
    host.committer.hurry()
    await passes(mock_clock, 10 * RETRY_S)
    assert host.store.sizes == [1]
    host.is_held = False
    host.turn()
    await passes(mock_clock, RETRY_S)
    await host.has_reported(2)
    assert "of an old number" not in keys(host.store.asked[1][0])


async def test_an_answer_that_is_on_its_way_comes_before_the_failure(
    host: Host, mock_clock
) -> None:
    host.is_held = True
    host.send("a")
    await eventually(lambda: host.calls)
    host.store.faults.append(StoreUnavailable(FULL))
    host.committer.submit(Turn([Keep("b", ".")]))
    host.committer.hurry()
    await eventually(lambda: len(host.calls) == 2)
    host.is_held = False
    host.turn()
    assert host.reported == ["committed 1", f"uncommitted: {NOT_STORED}"]
    assert host.log.committed == 1


async def test_waiter_for_an_answer_gets_the_failure(host: Host, mock_clock) -> None:
    """At the end the dispatcher waits for the committer, and takes no turn for its answer."""
    host.store.faults += [StoreUnavailable(FULL)]
    host.is_held = True
    host.send("a")
    await host.committer.wait_answer()
    assert len(host.calls) == 1
    host.is_held = False
    host.turn()


# --- reads ----------------------------------------------------------------------------------------


def page_wanted(reported: list[str]) -> StoreRead:
    """Return the request of a queue for a page."""

    def take(page: Page | None, now: float) -> None:
        bodies = "nothing" if page is None else b"".join(page.runs[0].bodies).decode()
        reported.append(f"loaded {bodies}")

    return StoreRead(lambda store, size: store.read("queue:/queue/q", 4, 0, size), 1024, take)


def stream_wanted(reported: list[str]) -> StoreRead:
    """Return the request of a stream's reader."""

    def take(runs: Sequence[Streamed] | None, now: float) -> None:
        reported.append(f"loaded {None if runs is None else [each.first for each in runs]}")

    return StoreRead(lambda store, size: store.read_stream("s", 1, size), 1024, take)


async def stored(host: Host) -> None:
    """Store two messages of a queue, and three of a stream."""
    host.log.put(Put("queue:/queue/q", host.log.take_numbers(2), b"", [b"one", b"two"]))
    host.log.write(Begin("s", "e"))
    for offset in range(3):
        body = b"%d" % offset * 100
        host.log.write(Append("s", offset, b"", [body], 1000 * (offset + 1)))
    host.turn()
    await eventually(lambda: host.reported)
    host.reported.clear()


async def test_read_records_go_to_the_core(host: Host, mock_clock) -> None:
    await stored(host)
    for wanted, reported in (
        (page_wanted(host.reported), "loaded onetwo"),
        (stream_wanted(host.reported), "loaded [1, 2]"),
    ):
        host.committer.ask(wanted)
        await eventually(lambda: host.reported)
        assert host.reported == [reported]
        host.reported.clear()


async def test_reads_continue_while_an_append_hangs(host: Host, mock_clock) -> None:
    await stored(host)
    host.store.hang()
    host.send("a")
    await eventually(lambda: len(host.store.asked) == 2)
    host.committer.ask(page_wanted(host.reported))
    await eventually(lambda: host.reported)
    assert host.reported == ["loaded onetwo"]


@pytest.mark.bugs
@pytest.mark.parametrize("fault", [StoreUnavailable("EIO"), ZeroDivisionError("secret")])
async def test_a_read_that_fails_is_answered_after_a_while_so_that_it_is_tried_again(
    host: Host, mock_clock, caplog: pytest.LogCaptureFixture, fault: Exception
) -> None:
    host.store.read_faults += [fault]
    host.committer.ask(page_wanted(host.reported))
    await eventually(lambda: caplog.records)
    await wait_all_tasks_blocked()
    assert host.reported == []
    mock_clock.jump(RETRY_S)
    await eventually(lambda: host.reported)
    assert host.reported == ["loaded nothing"]
    assert not host.committer.error


@pytest.mark.bugs
async def test_a_record_that_the_store_cannot_hold_is_left_out_and_counted(host: Host) -> None:
    host.store.faults += [struct.error("too large")]
    host.log.write(Put("queue:/queue/a", 1, b"", [b"x"], expires_ms=2**63))
    host.turn()
    await eventually(lambda: host.reported)
    assert host.reported == ["committed 1"]
    assert host.committer.bugs.counts["store"] == 1


# --- retention of streams -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("retention", "before"),
    [
        (Retention("s", 0, 2500), 2),
        (Retention("s", 0, 9000), 3),
        (Retention("s", 200, 0), 1),
        (Retention("s", 100, 1500), 2),
        (Retention("s", 300, 500), 0),
    ],
    ids=["age", "all too old", "bytes", "both", "neither"],
)
async def test_streams_are_kept_as_long_and_as_much_as_they_are_to_be(
    host: Host, mock_clock, retention: Retention, before: int
) -> None:
    await stored(host)
    host.streams.wanted = [Retention("unknown", 1, 1), retention]
    mock_clock.jump(RETAIN_S)
    await eventually(lambda: host.streams.retained)
    assert host.streams.retained == [("s", before)]


@pytest.mark.bugs
@pytest.mark.parametrize("fault", [StoreUnavailable("EIO"), ZeroDivisionError("secret")])
async def test_a_failed_retention_of_streams_is_retried_later(
    host: Host, mock_clock, caplog: pytest.LogCaptureFixture, fault: Exception
) -> None:
    await stored(host)
    host.store.read_faults.append(fault)
    host.streams.wanted = [Retention("s", 200, 0)]
    mock_clock.jump(RETAIN_S)
    await eventually(lambda: caplog.records)
    await wait_all_tasks_blocked()
    assert host.streams.retained == []
    mock_clock.jump(RETAIN_S)
    await eventually(lambda: host.streams.retained)


@pytest.mark.bugs
async def test_space_for_messages_is_queried_repeatedly(
    mock_clock, caplog: pytest.LogCaptureFixture
) -> None:
    store = GatedStore(capacities=[5, 5, ZeroDivisionError("secret"), 7])
    async with running(store) as host:
        await eventually(lambda: host.reported == ["capacity 5"])
        for left in (2, 1):
            await passes(mock_clock, MEASURE_S)
            await eventually(lambda left=left: len(store.capacities) == left)  # type: ignore[misc]
        await eventually(lambda: caplog.records)
        await passes(mock_clock, MEASURE_S)
        await eventually(lambda: host.reported == ["capacity 5", "capacity 7"])
