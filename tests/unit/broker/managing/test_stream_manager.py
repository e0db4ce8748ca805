"""Streams as operators see them: their records, their readers, and dropped records."""

from typing import Any

import pytest

from tests.support.core import Bench
from tests.support.durable_fakes import DurableBench
from tests.support.managing import drive
from trio_stomp.base import ProtocolError
from trio_stomp.broker import DestinationPolicy
from trio_stomp.broker.managing import Step, _stream_manager
from trio_stomp.frames import Head

TOPIC, STREAM = "/topic/t", "/stream/topic/t"
BOOK = {"/topic/*": DestinationPolicy(stream=True)}


@pytest.fixture(params=["memory", "store", "restarted"])
def core(request: pytest.FixtureRequest) -> Bench:
    """A stream of six records, two in each second: in memory, in both, or in the store only."""
    core = Bench(book=BOOK) if request.param == "memory" else DurableBench(book=BOOK)
    for number in range(3):
        core.actor().sends(TOPIC, f"{number}a", f"{number}b", number=str(number))
        core.turn()
        core.now += 1
    return core.restarts() if request.param == "restarted" else core  # type: ignore[attr-defined]


def read(core: Bench, at: int = 0, written_ms: int = 0, limit: int = 100, **more: Any) -> Any:
    topics = frozenset(more.get("topics", ()))
    reading = core.broker.manager.streams.read(STREAM, at, written_ms, limit, topics)
    drive(core, reading)
    return reading


def bodies(core: Bench, at: int = 0, written_ms: int = 0, limit: int = 100, **more: Any) -> str:
    found = read(core, at, written_ms, limit, **more).found
    return " ".join(body.decode() for _, _, _, body in found)


def start_ms(core: Bench) -> int:
    return core.broker.wall.ms(core.now - 3)


def test_a_part_of_a_stream_is_read_by_offset_or_time(core: Bench) -> None:
    assert bodies(core) == "0a 0b 1a 1b 2a 2b"
    assert bodies(core, at=3, limit=2) == "1b 2a"
    assert bodies(core, at=99) == ""
    assert bodies(core, written_ms=start_ms(core) + 1000) == "1a 1b 2a 2b"
    reading = read(core, at=1, limit=3)
    assert (reading.first, reading.next, reading.done, reading.seen) == (1, 4, 3, 3)
    assert [offset for offset, *_ in reading.found] == [1, 2, 3]
    assert [ms - start_ms(core) for _, ms, _, _ in reading.found] == [0, 1000, 1000]
    assert reading.found[0][2].get("number") == "0"


def test_records_are_taken_one_by_one_as_far_as_there_is_room(core: Bench) -> None:
    taken: list[int] = []

    def take(offset: int, _ms: int, _head: Head, body: bytes) -> bool:
        taken.append(offset)
        return body != b"1a"

    reading = core.broker.manager.streams.read(STREAM, 0, 0, 5, frozenset())
    reading.take = take
    while 2 not in taken:
        assert reading.step(core.now) in (Step.MORE, Step.WAIT)
        core.turn()
    assert (taken, reading.next, reading.done) == ([0, 1, 2], 3, 3)
    drive(core, reading)
    assert (taken, reading.found) == ([0, 1, 2, 3, 4], [])


def test_records_are_chosen_by_their_topic(core: Bench) -> None:
    assert bodies(core, topics={TOPIC}) == "0a 0b 1a 1b 2a 2b"
    reading = read(core, topics={"/topic/other"})
    assert (reading.done, reading.next) == (0, 6)


def test_a_reading_examines_some_records_only(core: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_stream_manager, "MAX_LOOKED", 2)
    monkeypatch.setattr(_stream_manager, "PIECE", 2)
    assert read(core).next == 2


def test_a_step_of_reading_takes_a_share_of_a_turn(
    core: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_stream_manager, "PIECE", 1)
    ticks = iter(range(1000))
    core.broker.turns.clock = lambda: next(ticks) / 1000
    reading = core.broker.manager.streams.read(STREAM, 0, 0, 100, frozenset())
    assert drive(core, reading) > 5
    reading.end(core.now)
    assert reading.done == 6


def test_streams_are_listed_with_their_bounds(core: Bench) -> None:
    manager = core.broker.manager.streams
    assert manager.names() == [STREAM]
    figures = manager.figures(STREAM)
    assert (figures["first"], figures["next"], figures["messages"]) == (0, 6, 6)
    assert figures["stored"] == isinstance(core, DurableBench)
    with pytest.raises(ProtocolError, match="there is no stream '/stream/topic/none'"):
        manager.find("/stream/topic/none")
    assert core.broker.destinations.find("/topic/none") is None


def test_the_readers_of_a_stream_are_found(core: Bench) -> None:
    actor = core.actor()
    actor.subscribes(STREAM, from_seq="0", id="reader")
    actor.subscribes("/topic/t", id="other")
    core.turn()
    manager = core.broker.manager.streams
    stream = manager.find(STREAM)
    found = [
        reader.at
        for subscription in actor.client.subscriptions.values()
        for reader in manager.readers(subscription, stream)
    ]
    assert found == [6]


@pytest.mark.parametrize("by_time", [False, True])
def test_old_records_are_dropped_for_good(core: Bench, by_time: bool) -> None:
    where = (0, start_ms(core) + 1000) if by_time else (3, 0)
    trimming = core.broker.manager.streams.trim(STREAM, *where)
    drive(core, trimming)
    trimming.end(core.now)
    left = "1a 1b 2a 2b" if by_time else "1b 2a 2b"
    assert (trimming.done, trimming.total) == (6 - len(left.split()), 6)
    assert trimming.seen == trimming.done
    assert bodies(core) == left
    nothing = core.broker.manager.streams.trim(STREAM, 1, 0)
    drive(core, nothing)
    assert nothing.done == 0
    if isinstance(core, DurableBench):
        core = core.restarts()
        assert bodies(core) == left
    drive(core, core.broker.manager.streams.trim(STREAM, 99, 0))
    assert bodies(core) == ""
    core.actor().sends(TOPIC, "next")
    core.turn()
    assert bodies(core) == "next"


def test_trimming_takes_a_share_of_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_stream_manager, "PIECE", 1)
    core = Bench(book=BOOK)
    for number in range(5):
        core.actor().sends(TOPIC, f"{number}")
    ticks = iter(range(1000))
    core.broker.turns.clock = lambda: next(ticks) / 2500
    trimming = core.broker.manager.streams.trim(STREAM, 4, 0)
    assert drive(core, trimming) > 1
    stream = core.broker.manager.streams.find(STREAM)
    assert (stream.first, stream.window_first) == (4, 4)


def test_a_store_that_fails_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    core = DurableBench(book=BOOK)
    core.actor().sends(TOPIC, "a", "b")
    core.turn()
    core = core.restarts()
    reading = core.broker.manager.streams.read(STREAM, 0, start_ms(core), 9, frozenset())
    for _ in range(2):  # the search for the time, and the records
        woken: list[int] = []
        reading.woken = lambda woken=woken: woken.append(1)  # type: ignore[misc]
        assert reading.step(core.now) is Step.WAIT
        assert reading.step(core.now) is Step.WAIT
        (wanted,) = core.log.take_reads()
        wanted.take(None, core.now)
        assert woken
        assert reading.step(core.now) is Step.WAIT
        core.loads()
    drive(core, reading)
    assert reading.done == 2


def test_damaged_records_are_passed() -> None:
    core = DurableBench(book=BOOK)
    core.actor().sends(TOPIC, "a", "b")
    core.turn()
    core = core.restarts()
    core.actor().sends(TOPIC, "c")
    core.turn()
    reading = core.broker.manager.streams.read(STREAM, 0, 0, 9, frozenset())
    assert reading.step(core.now) is Step.WAIT
    (wanted,) = core.log.take_reads()
    wanted.take([], core.now)
    drive(core, reading)
    assert [body for *_, body in reading.found] == [b"c"]


def test_the_times_of_the_oldest_and_newest_record_are_known_if_they_are_in_memory(
    core: Bench,
) -> None:
    streams = core.broker.manager.streams
    is_in_memory = STREAM in streams.streams.in_use
    start = start_ms(core)
    first, last = (streams.figures(STREAM)[each] for each in ("oldest_ms", "newest_ms"))
    assert (first, last) == ((start, start + 2000) if is_in_memory else (0, 0))
    drive(core, streams.trim(STREAM, 3, 0))
    assert streams.figures(STREAM)["oldest_ms"] == (start + 1000 if is_in_memory else 0)
