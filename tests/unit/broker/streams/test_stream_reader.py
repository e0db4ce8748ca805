"""Readers of a stream: start, end, and the headers of their MESSAGEs."""

import pytest

from tests.support.core import Bench, run_of, texts
from tests.support.durable_fakes import WALL_OFFSET_S, DurableBench
from tests.support.replay_fakes import (
    BOOK,
    STREAM,
    TOPIC,
    VERSIONS,
    filled,
    offsets,
    reads,
    stream_of,
    trim,
    writes,
)
from tests.support.replay_fakes import stored as stored


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("ack", ["auto", "client"])
def test_a_reader_is_given_each_message_once_with_its_offset(stored, version, ack):
    bench = filled(5, stored=stored)
    reader = reads(bench, version, ack, x_stream_offset="first")
    writes(bench, 2)
    frames = reader.reads()
    assert offsets(frames) == list(range(7))
    assert texts(frames) == [str(number) for number in range(7)]
    assert {frame.get("destination") for frame in frames} == {TOPIC}
    assert {frame.get("kind") for frame in frames} == {"n"}
    assert {frame.get("x-stream-epoch") for frame in frames} == {stream_of(bench).epoch}
    now_ms = round((bench.now + (WALL_OFFSET_S if stored else 0)) * 1000)
    assert {frame.get("x-stream-timestamp") for frame in frames} == {str(now_ms)}
    assert all(frame.get("x-stream-first") is None for frame in frames)
    assert len({frame.get("message-id") for frame in frames}) == 7


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("length", [-1, 1])
def test_headers_are_escaped_as_the_readers_version_wants_it(stored, version, length):
    bench = DurableBench(book=BOOK) if stored else Bench(book=BOOK)
    bench.actor().does(run_of(TOPIC, ["a", "b"], (("say", "1:2\\3%d"),), length=length))
    bench.turn()
    frames = reads(bench, version, from_seq="0").reads()
    assert texts(frames) == ["a", "b"]
    assert {frame.get("say") for frame in frames} == {"1:2\\3%d"}
    if stored:
        assert isinstance(bench, DurableBench)
        frames = reads(bench.restarts(), version, from_seq="0").reads()
        assert texts(frames) == ["a", "b"]
        assert {frame.get("say") for frame in frames} == {"1:2\\3%d"}


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"x_stream_offset": "first"}, [0, 1, 2, 3, 4]),
        ({"x_stream_offset": "last"}, [4]),
        ({"x_stream_offset": "next"}, []),
        ({}, []),
        ({"x_stream_offset": "offset=3"}, [3, 4]),
        ({"x_stream_offset": "9"}, []),
        ({"from_seq": "2"}, [2, 3, 4]),
        ({"from_seq": "-1"}, []),
        ({"last_message_id": "b.77.S-2"}, [3, 4]),
        ({"x_stream_offset": "1", "x_stream_until": "3"}, [1, 2, 3]),
    ],
)
def test_the_start_is_where_the_headers_say(stored, headers, expected):
    bench = filled(5, stored=stored)
    assert offsets(reads(bench, **headers).reads()) == expected


def test_an_offset_of_the_future_is_waited_for(stored):
    bench = filled(2, stored=stored)
    reader = reads(bench, x_stream_offset="4")
    writes(bench, 4)
    assert offsets(reader.reads()) == [4, 5]


def test_a_time_is_the_first_message_of_then_or_later(stored):
    bench = Bench(book=BOOK) if not stored else DurableBench(book=BOOK)
    offset_s = WALL_OFFSET_S if stored else 0
    for _ in range(4):
        writes(bench, 1)
        bench.now += 10
    start = bench.now - 40 + offset_s
    for seconds, expected in ((-5, 0), (0, 0), (1, 1), (10, 1), (29.5, 3), (30, 3)):
        frames = reads(bench, x_stream_offset=f"timestamp={start + seconds}").reads()
        assert offsets(frames) == list(range(expected, 4))


def test_a_time_in_the_future_is_waited_for(stored):
    bench = filled(2, stored=stored)
    then = bench.now + 5 + (WALL_OFFSET_S if stored else 0)
    reader = reads(bench, x_stream_offset=f"timestamp={then}")
    writes(bench, 2)
    assert reader.reads() == []
    bench.now += 5
    writes(bench, 1)
    bench.now -= 1  # a clock that is set back hides nothing
    writes(bench, 1)
    assert offsets(reader.reads()) == [4, 5]


def test_a_time_in_the_future_is_found_on_disk_as_well():
    bench = filled(0, stored=True, window=1)
    reader = reads(bench, x_stream_offset=f"timestamp={bench.now + 5 + WALL_OFFSET_S}")
    bench.turn()
    reader.outbox.room = 0
    for _ in range(8):
        writes(bench, 1)
        bench.now += 1
    reader.opens_up()
    assert offsets(reader.reads()) == [5, 6, 7]


def test_a_search_that_failed_is_made_again():
    bench = filled(3, stored=True, window=1)
    assert isinstance(bench, DurableBench)
    bench.is_prompt = False
    reader = reads(bench, x_stream_offset="timestamp=1")
    gone = reads(bench, x_stream_offset="timestamp=1")
    bench.turn()
    wanted = bench.log.take_reads()
    gone.unsubscribes()
    for each in wanted:
        each.take(None, bench.now)
    assert len(bench.log.reads) == 1
    bench.is_prompt = True
    assert offsets(reader.reads()) == [0, 1, 2]
    for each in wanted:
        each.take(0, bench.now)
    assert gone.reads() == []


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("ack", ["auto", "client", "client-individual"])
def test_the_end_marker_has_the_offset_for_the_next_reader(stored, version, ack):
    bench = filled(5, stored=stored)
    reader = reads(bench, version, ack, from_seq="1", x_stream_until="3")
    *frames, end = reader.reads()
    assert offsets(frames) == [1, 2]
    assert end.body == b""
    pairs = {name: text for name, text in end.headers if name.startswith("x-stream")}
    assert pairs == {
        "x-stream-end": "true",
        "x-stream-offset": "3",
        "x-stream-first": "0",
        "x-stream-next": "5",
        "x-stream-epoch": stream_of(bench).epoch,
    }
    assert end.get("destination") == STREAM
    assert len({frame.get("message-id") for frame in (*frames, end)}) == 3
    following = reads(bench, last_message_id=end.get("message-id") or "")
    assert offsets(following.reads()) == [3, 4]
    following = reads(bench, last_message_id=frames[-1].get("message-id") or "")
    assert offsets(following.reads()) == [3, 4]
    writes(bench, 1)
    if ack != "auto":
        for frame in (*frames, end):
            if ack != "client" or frame is end:
                reader.acks(frame)
        assert reader.consumer().unacked == {}
        assert reader.consumer().count_left == reader.consumer().options.prefetch_count
    assert reader.reads() == []


@pytest.mark.parametrize(
    ("start", "until", "given", "expected"),
    [
        ("0", "0", [], 0),
        ("next", "2", [], 2),
        ("4", "2", [], 2),
        ("first", "5", [0, 1, 2, 3, 4], 5),
    ],
)
def test_existing_end_is_reported_immediately(stored, start, until, given, expected):
    bench = filled(5, stored=stored)
    *frames, end = reads(bench, x_stream_offset=start, x_stream_until=until).reads()
    assert offsets(frames) == given
    assert (end.get("x-stream-end"), end.get("x-stream-offset")) == ("true", str(expected))


def test_an_end_in_the_future_is_waited_for(stored):
    bench = DurableBench(book=BOOK) if stored else Bench(book=BOOK)
    reader = reads(bench, from_seq="0", x_stream_until="2")
    assert reader.reads() == []
    writes(bench, 3)
    frames = reader.reads()
    assert offsets(frames) == [0, 1, 2]
    assert frames[-1].get("x-stream-end") == "true"


@pytest.mark.parametrize("start", ["1", "first", "timestamp=1"])
def test_another_epoch_ends_before_it_begins(stored, start):
    bench = filled(5, stored=stored)
    (end,) = reads(
        bench, x_stream_offset=start, x_stream_epoch="old", replay_delay="9", x_stream_until="4"
    ).reads()
    assert end.get("x-stream-end") == "true"
    assert end.get("x-stream-epoch") == stream_of(bench).epoch
    assert stream_of(bench).lost == 0
    same = reads(bench, from_seq="3", x_stream_epoch=stream_of(bench).epoch)
    assert offsets(same.reads()) == [3, 4]


@pytest.mark.parametrize("ack", ["auto", "client"])
def test_the_first_message_tells_if_the_start_is_gone(stored, ack):
    bench = filled(9, stored=stored, window=3)
    if stored:
        trim(bench, 6)
    reader = reads(bench, ack=ack, from_seq="2")
    frames = reader.reads()
    assert offsets(frames) == [6, 7, 8]
    assert [frame.get("x-stream-first") for frame in frames] == ["6", None, None]
    assert stream_of(bench).lost == 4


def test_a_range_that_is_gone_ends_where_it_was_to_end(stored):
    bench = filled(9, stored=stored, window=3)
    if stored:
        trim(bench, 6)
    (end,) = reads(bench, from_seq="2", x_stream_until="4").reads()
    assert (end.get("x-stream-offset"), end.get("x-stream-first")) == ("4", "6")
    frames = reads(bench, from_seq="2", x_stream_until="7").reads()
    assert offsets(frames) == [6, 7]


def test_a_delay_puts_the_first_message_off(stored):
    bench = filled(3, stored=stored)
    for headers in ({"from_seq": "1"}, {"x_stream_offset": "timestamp=1.0"}, {}):
        reader = reads(bench, replay_delay="2500", **headers)
        gone = reads(bench, replay_delay="2500")
        assert gone.reads() == []
        gone.is_gone()
        bench.passes(2.4)
        assert reader.reads() == []
        bench.passes(0.1)
        assert offsets(reader.reads())[-1] == 2
        reader.unsubscribes()
        assert len(bench.broker.timers) == 0
