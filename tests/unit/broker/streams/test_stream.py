"""The part of a stream that is in memory."""

import weakref

import pytest

from tests.support.core import head_bytes
from trio_stomp.base import BrokenInvariant
from trio_stomp.broker import MemoryBudget
from trio_stomp.broker.delivery import Destination
from trio_stomp.broker.names import Kind
from trio_stomp.broker.streams import Stream, StreamRun
from trio_stomp.frames import Head

MAX_AGED = MIN_DROP = 16

SIZE = 300 + head_bytes(())
"""The charge of a message of 44 bytes."""


class Waiter:
    """A reader that counts its notifications."""

    reported = 0

    def mark(self, _reader: object) -> None:
        self.reported += 1


def make(limit: int = 10 * SIZE, age_ms: int = 0, *, stored: bool = False, memory: int = 1 << 30):
    return Stream(
        "/stream/s",
        Destination("/stream/s", Kind.STREAM),
        "e",
        MemoryBudget(memory),
        limit,
        0,
        age_ms,
        stored,
    )


def fill(stream: Stream, count: int, at_ms: int = 0) -> None:
    """Append a number of runs of one message each."""
    for _ in range(count):
        stream.show(StreamRun(stream.next, Head("SEND", (), -1, "s"), [b"x" * 44], at_ms))


def encoded(head: Head, bodies: list[bytes], behind: bytes = b"") -> list[bytes]:
    run = StreamRun(7, head, bodies, 0)
    return run.encode(0, len(bodies), 2, b"e%d", behind)


def test_the_window_keeps_the_newest_within_its_size():
    stream = make()
    fill(stream, 25)
    assert (stream.first, stream.next, stream.window_first) == (15, 25, 15)
    assert stream.window_bytes == stream.bytes == stream.memory.kept_bytes == 10 * SIZE
    assert stream.run_at(14) is stream.run_at(25) is None
    for offset in range(15, 25):
        run = stream.run_at(offset)
        assert run is not None
        assert run.first == offset


def test_records_of_dropped_messages_are_removed_periodically():
    stream = make()
    fill(stream, 10 + MIN_DROP)
    assert len(stream._runs) == 10 + MIN_DROP
    fill(stream, 1)
    assert len(stream._runs) == len(stream._firsts) == 10
    assert stream.run_at(stream.first).first == stream.first


def test_the_newest_run_stays_however_large_it_is():
    stream = make(limit=1)
    fill(stream, 3)
    assert (stream.first, stream.next) == (2, 3)
    assert stream.newest_ms == 0


def test_without_a_store_age_ends_all_of_it():
    stream = make(age_ms=1000)
    fill(stream, 3, 1000)
    fill(stream, 2, 1500)
    assert (stream.oldest_ms, stream.newest_ms) == (1000, 1500)
    stream.expire(2000, 9)
    assert stream.first == 0
    stream.expire(2001, 9)
    assert stream.first == 3
    stream.expire(9999, 9)
    assert stream.first == stream.next == stream.window_first == 5
    assert stream.memory.used_bytes == stream.newest_ms == stream.oldest_ms == 0
    fill(stream, 1, 9999)
    assert stream.run_at(5).first == 5


def test_expired_messages_are_removed_in_bounded_batches():
    stream = make(age_ms=1000)
    fill(stream, 10, 0)
    assert [stream.expire(2000, 4) for _ in range(4)] == [4, 4, 2, 0]
    assert stream.first == stream.next == 10
    assert stream.memory.used_bytes == 0


def test_another_run_drops_a_few_that_are_too_old_and_all_that_are_too_much():
    stream = make(limit=100 * SIZE, age_ms=1000)
    fill(stream, 50, 0)
    fill(stream, 1, 2000)
    assert stream.first == MAX_AGED
    stream.window_limit_bytes = 5 * SIZE
    fill(stream, 1, 2000)
    assert stream.first == stream.next - 5
    assert stream.run_at(stream.first).first == stream.first


def test_dropped_bodies_are_freed_immediately():
    stream = make(age_ms=1000)
    fill(stream, 8, 0)
    gone = weakref.ref(stream._runs[7])
    assert gone() is not None
    fill(stream, 1, 5000)
    fill(stream, 1, 5000)
    assert len(stream._runs) == 10
    assert stream.offset_at(4000) == 8
    assert stream.first == 8
    assert gone() is None
    assert stream.run_at(8).written_ms == 5000


def test_short_memory_shrinks_the_window():
    stream = make(limit=1 << 20, memory=20 * SIZE)
    fill(stream, 18)
    assert stream.first == 0
    fill(stream, 1)
    assert stream.first == 1
    assert stream.memory.take(2 * SIZE)
    stream.expire(0, 0)
    assert stream.window_bytes == 16 * SIZE
    stream.memory.force_kept(30 * SIZE)
    stream.expire(0, 0)
    assert stream.window_bytes == SIZE


def test_the_first_offset_comes_from_the_store():
    stream = make(stored=True)
    fill(stream, 25)
    assert (stream.first, stream.window_first) == (0, 15)
    assert stream.bytes == 25 * 44
    stream.trimmed(7, 18 * 44)
    assert (stream.first, stream.bytes) == (7, 18 * 44)
    stream.trimmed(3, 100)
    assert stream.first == 7
    stream.trimmed(99, 0)
    assert stream.first == 25


def test_a_time_is_found_in_memory():
    stream = make()
    for at_ms in (10, 10, 20, 40):
        fill(stream, 1, at_ms)
    found = [stream.offset_at(at_ms) for at_ms in (0, 10, 11, 20, 21, 40, 41)]
    assert found == [0, 0, 2, 2, 3, 3, 4]
    fill(stream, 10, 50)
    assert stream.offset_at(0) == 4


def test_waiting_reader_is_notified_once_and_one_that_left_is_not():
    stream = make()
    stays, leaves = Waiter(), Waiter()
    stream.wait(stays)
    stream.wait(leaves)
    stream.leave(leaves)
    stream.leave(leaves)
    fill(stream, 2)
    assert (stays.reported, leaves.reported) == (1, 0)


def test_clearing_gives_the_memory_back():
    stream = make()
    fill(stream, 25)
    stream.clear()
    assert stream.memory.used_bytes == stream.memory.kept_bytes == 0
    assert stream.window_first == stream.next == 25
    assert stream.run_at(24) is None


def test_messages_are_encoded_once_for_all_readers_of_a_version():
    head = Head("SEND", (("destination", "/t"), ("a", "b:c")), -1, "/t")
    run = StreamRun(0, head, [b"x"], 0)
    assert run.tails(2, b"e") is run.tails(2, b"e")
    assert b"\na:b\\cc\n" in run.tails(2, b"e")[0]
    assert b"\na:b:c\n" in run.tails(0, b"e")[0]


@pytest.mark.parametrize("length", [-1, 2])
@pytest.mark.parametrize("behind", [b"", b"\nmessage-id:100%d-"])
def test_percent_signs_stand_for_themselves(length, behind):
    head = Head("SEND", (("destination", "/t%d"), ("a", "100%b%")), length, "/t%d")
    again = b"\nmessage-id:100%d-7" if behind else b""
    expected = (
        b"7%b\nx-stream-offset:7\nx-stream-timestamp:0\nx-stream-epoch:e%%d\ndestination:/t%%d\na:100%%b%%\n"
        b"content-length:2\n\n%%d\0\n"
    ) % again
    assert encoded(head, [b"%d"], behind) == [expected]


@pytest.mark.parametrize("behind", [b"", b"\nmessage-id:m-"])
def test_empty_body_has_no_length_unless_the_sender_set_one(behind):
    head = Head("SEND", (("destination", "/t"),), -1, "/t")
    first, second = encoded(head, [b"", b"\0"], behind)
    assert first.endswith(b"destination:/t\n\n\0\n")
    assert second.endswith(b"destination:/t\ncontent-length:1\n\n\0\0\n")
    result = Head("SEND", (("destination", "/t"),), 0, "/t")
    assert encoded(result, [b""], behind)[0].endswith(b"destination:/t\n\n\0\n")


def test_a_part_of_a_run_is_encoded_with_its_own_offsets():
    run = StreamRun(100, Head("SEND", (), -1, "/t"), [b"a", b"b", b"c"], 1_795_000_000_123)
    (tail,) = run.encode(1, 2, 2, b"e")
    assert tail.startswith(b"101\nx-stream-offset:101\nx-stream-timestamp:1795000000123\n")
    assert tail.endswith(b"b\0\n")


def test_a_gap_between_offsets_is_told() -> None:
    stream = make()
    fill(stream, 2)
    with pytest.raises(BrokenInvariant, match="stream-offsets: offset 3 comes after 1"):
        stream.show(StreamRun(3, Head("SEND", (), -1, "s"), [b"x"], 0))
    assert stream.next == 2
