"""Who reads a stream: from where to where, as fast as it likes, with or without acknowledgement."""

import pytest

from tests._core_fakes import Received, run_of
from tests._durable_fakes import WALL_OFFSET_S, DurableBench
from tests._queue_fakes import Actor, Bench, texts
from trio_stomp.broker import DestinationPolicy, StreamWanted
from trio_stomp.broker._stream import Stream, StreamRun

TOPIC, STREAM = "/topic/t", "/stream/topic/t"
BOOK = {TOPIC: DestinationPolicy(stream=True)}
VERSIONS = ["1.0", "1.1", "1.2"]
CHARGED = 257
"""What a message of one byte is charged."""


def stream_of(bench: Bench) -> Stream:
    return bench.broker.streams.find(STREAM, bench.broker.routes.open)


def filled(count: int, *, stored: bool = False, window: int = 0) -> Bench:
    """A bench whose stream has bodies 0, 1, …; of these so many in memory, if told."""
    bench = DurableBench(BOOK) if stored else Bench(BOOK)
    if window:
        stream_of(bench).window_limit_bytes = window * CHARGED
    writes(bench, count)
    return bench


def writes(bench: Bench, count: int) -> None:
    """So many more messages, each with its offset as body."""
    sender = bench.actor()
    start = stream_of(bench).next
    for number in range(start, start + count):
        sender.sends(TOPIC, str(number), kind="n")
        bench.turn()


def reads(bench: Bench, version: str = "1.2", ack: str = "auto", **headers: str) -> Actor:
    """A new reader."""
    actor = bench.actor(version)
    actor.subscribes(STREAM, ack=ack, **headers)
    return actor


def offsets(frames: list[Received]) -> list[int]:
    return [int(frame.get("x-stream-offset") or "") for frame in frames]


def trim(bench: Bench, before: int) -> None:
    assert isinstance(bench, DurableBench)
    state = bench.store.stream_state(STREAM)
    assert state is not None
    bench.broker.streams.retain(STREAM, state, before)
    bench.turn()


@pytest.fixture(params=[False, True], ids=["memory", "store"])
def stored(request: pytest.FixtureRequest) -> bool:
    return request.param


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
    assert all(frame.get("x-stream-first") is None for frame in frames)
    assert len({frame.get("message-id") for frame in frames}) == 7


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("length", [-1, 1])
def test_headers_are_escaped_as_the_readers_version_wants_it(stored, version, length):
    bench = DurableBench(BOOK) if stored else Bench(BOOK)
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
    bench = Bench(BOOK) if not stored else DurableBench(BOOK)
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


def test_a_search_that_failed_is_made_again():
    bench = filled(3, stored=True, window=1)
    assert isinstance(bench, DurableBench)
    bench.is_prompt = False
    reader = reads(bench, x_stream_offset="timestamp=1")
    gone = reads(bench, x_stream_offset="timestamp=1")
    bench.turn()
    wanted = bench.log.take_pages()
    gone.unsubscribes()
    for each in wanted:
        assert isinstance(each, StreamWanted)
        bench.broker.loaded_stream(each, None, bench.now)
    assert len(bench.log.pages) == 1
    bench.is_prompt = True
    assert offsets(reader.reads()) == [0, 1, 2]
    for each in wanted:
        assert isinstance(each, StreamWanted)
        bench.broker.loaded_stream(each, 0, bench.now)
    assert gone.reads() == []


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("ack", ["auto", "client", "client-individual"])
def test_the_end_marker_tells_where_the_next_reader_goes_on(stored, version, ack):
    bench = filled(5, stored=stored)
    reader = reads(bench, version, ack, from_seq="1", x_stream_until="3")
    *frames, end = reader.reads()
    assert offsets(frames) == [1, 2]
    assert end.body == b""
    told = {name: text for name, text in end.headers if name.startswith("x-stream")}
    assert told == {
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
    ("start", "until", "given", "told"),
    [
        ("0", "0", [], 0),
        ("next", "2", [], 2),
        ("4", "2", [], 2),
        ("first", "5", [0, 1, 2, 3, 4], 5),
    ],
)
def test_an_end_that_is_there_already_is_told_at_once(stored, start, until, given, told):
    bench = filled(5, stored=stored)
    *frames, end = reads(bench, x_stream_offset=start, x_stream_until=until).reads()
    assert offsets(frames) == given
    assert (end.get("x-stream-end"), end.get("x-stream-offset")) == ("true", str(told))


def test_an_end_in_the_future_is_waited_for(stored):
    bench = DurableBench(BOOK) if stored else Bench(BOOK)
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


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("negative", [False, True])
def test_no_more_than_the_prefetch_is_on_its_way(stored, version, negative):
    bench = filled(9, stored=stored, window=3 if stored else 0)
    reader = reads(bench, version, "client-individual", from_seq="0", prefetch_count="3")
    say = reader.nacks if negative else reader.acks
    first, second, third = reader.reads()
    say(second)
    (fourth,) = reader.reads()
    say(first, third, fourth)
    assert offsets(reader.reads()) == [4, 5, 6]
    assert bench.broker.acks.redelivered == 0
    assert bench.broker.acks.nacked == (4 if negative else 0)


def test_an_acknowledgement_is_cumulative_where_its_mode_says_so(stored):
    bench = filled(9, stored=stored)
    reader = reads(bench, ack="client", from_seq="0", prefetch_count="4")
    frames = reader.reads()
    reader.nacks(frames[2], requeue=False)
    assert offsets(reader.reads()) == [4, 5, 6]
    assert bench.broker.acks.redelivered == 0


def test_bytes_bound_what_is_on_its_way(stored):
    bench = filled(9, stored=stored)
    reader = reads(bench, ack="client", from_seq="0", consumer_window_size="2")
    frames = reader.reads()
    assert offsets(frames) == [0, 1]
    reader.acks(frames[1])
    assert offsets(reader.reads()) == [2, 3]


def test_a_run_is_cut_where_the_credit_ends():
    bench = Bench(BOOK)
    bench.actor().sends(TOPIC, *"abcdef")
    for version in VERSIONS:
        reader = reads(bench, version, "client", from_seq="1", prefetch_count="2")
        given = ""
        while frames := reader.reads():
            given += "".join(texts(frames))
            reader.acks(frames[-1])
        assert given == "bcdef"


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("ack", ["auto", "client"])
def test_who_leaves_leaves_nothing(stored, ack, lost):
    bench = filled(6, stored=stored, window=2)
    readers = [
        reads(bench, ack=ack, from_seq="0"),
        reads(bench, ack=ack, from_seq="0", prefetch_count="1"),
        reads(bench, ack=ack, replay_delay="100000"),
        reads(bench, ack=ack),
    ]
    bench.turn()
    for reader in readers:
        if lost:
            reader.is_gone()
        else:
            reader.unsubscribes()
    bench.turn()
    stream = stream_of(bench)
    assert stream._waiting == {}
    assert len(bench.broker.timers) == 0
    assert bench.broker.acks.redelivered == 0
    stream.clear()
    assert bench.memory.used_bytes == 0


def test_a_slow_reader_keeps_its_place_and_slows_nobody(stored):
    bench = filled(0, stored=stored)
    slow = reads(bench, from_seq="0")
    slow.box.room = False
    writes(bench, 5)
    assert stream_of(bench).next == 5
    assert slow.reads() == []
    slow.opens_up()
    assert offsets(slow.reads()) == [0, 1, 2, 3, 4]


def test_from_disk_into_memory_nothing_is_missed_or_repeated():
    bench = filled(40, stored=True, window=3)
    reader = reads(bench, ack="client", from_seq="0", prefetch_count="7")
    given = []
    while frames := reader.reads():
        given += offsets(frames)
        reader.acks(frames[-1])
        if len(given) < 100:
            writes(bench, 2)
    assert given == list(range(stream_of(bench).next))


def test_what_was_read_ahead_is_given_up_when_memory_is_short():
    bench = filled(9, stored=True, window=1)
    reader = reads(bench, ack="client", from_seq="0", prefetch_count="2")
    frames = reader.reads()
    (source,) = reader.consumer().queues
    assert source._own  # type: ignore[attr-defined]
    bench.memory.limit_bytes = 1
    bench.broker.queues.mark(source)
    bench.turn()
    assert not source._own  # type: ignore[attr-defined]
    reader.acks(frames[-1])
    assert offsets(reader.reads()) == [2, 3]


def test_a_hole_in_the_store_is_told_like_a_start_that_is_gone():
    bench = filled(9, stored=True, window=1)
    assert isinstance(bench, DurableBench)
    bench.is_prompt = False
    reader = reads(bench, from_seq="0")
    short = reads(bench, from_seq="0", x_stream_until="4")
    bench.turn()
    found = bench.store.read_stream(STREAM, 5, 2)
    for wanted in bench.log.take_pages():
        assert isinstance(wanted, StreamWanted)
        bench.broker.loaded_stream(wanted, found, bench.now)
    frames = reader.reads()
    assert offsets(frames) == [5, 6]
    assert [frame.get("x-stream-first") for frame in frames] == ["5", None]
    (end,) = short.reads()
    assert end.get("x-stream-offset") == "4"
    for wanted in bench.log.take_pages():
        assert isinstance(wanted, StreamWanted)
        bench.broker.loaded_stream(wanted, [], bench.now)
    (frame,) = reader.reads()
    assert (frame.text, frame.get("x-stream-first")) == ("8", "8")
    assert stream_of(bench).lost == 5 + 4 + 1


def test_an_answer_that_comes_late_harms_nobody():
    bench = filled(9, stored=True, window=1)
    assert isinstance(bench, DurableBench)
    bench.is_prompt = False
    reader, gone = reads(bench, from_seq="0"), reads(bench, from_seq="0")
    bench.turn()
    wanted = bench.log.take_pages()
    found = [bench.store.read_stream(STREAM, 0, 2), bench.store.read_stream(STREAM, 0, 99)]
    gone.is_gone()
    trim(bench, 5)
    bench.answers()
    assert bench.log.pages == []  # it waits for the first answer
    for each, runs in zip(wanted, found, strict=True):
        assert isinstance(each, StreamWanted)
        bench.broker.loaded_stream(each, runs, bench.now)
    bench.turn()
    bench.is_prompt = True
    frames = reader.reads()
    assert offsets(frames) == [5, 6, 7, 8]
    assert gone.reads() == []


def test_what_the_store_has_but_has_not_told_is_not_given():
    bench = filled(3, stored=True, window=1)
    assert isinstance(bench, DurableBench)
    bench = bench.restarts()
    bench.is_prompt = False
    bench.actor().sends(TOPIC, "3", kind="n")
    reader = reads(bench, from_seq="0")
    bench.turn()
    bench.commit = bench.store.append(bench.turns, bench.commit)
    bench.turns = []
    bench.loads()
    assert offsets(reader.reads()) == [0, 1, 2]
    bench.broker.committed(bench.commit, bench.now)
    assert offsets(reader.reads()) == [3]


def test_what_could_not_be_read_is_asked_for_again():
    bench = filled(9, stored=True, window=1)
    assert isinstance(bench, DurableBench)
    bench.is_prompt = False
    reader = reads(bench, from_seq="0")
    bench.turn()
    for _ in range(3):
        (wanted,) = bench.log.take_pages()
        reader.opens_up()
        bench.turn()
        assert bench.log.pages == []  # one question at a time
        assert isinstance(wanted, StreamWanted)
        bench.broker.loaded_stream(wanted, None, bench.now)
        assert reader.reads() == []
    bench.is_prompt = True
    assert offsets(reader.reads()) == list(range(9))


def test_what_was_written_one_by_one_is_read_in_one_piece():
    bench = filled(0, stored=True, window=1)
    for _ in range(9):
        bench.now += 1
        writes(bench, 1)
    reader = reads(bench, from_seq="0")
    assert offsets(reader.reads()) == list(range(9))
    assert len(reader.box.log) == 1
    found = bench.store.read_stream(STREAM, 0, 99) if isinstance(bench, DurableBench) else []
    assert [len(run.bodies) for run in found] == [1] * 9  # the store's own are left as they were


def test_a_delivery_has_a_bound():
    bench = Bench(BOOK)
    sender = bench.actor()
    for _ in range(5):
        sender.sends(TOPIC, "x" * 100_000)
    reader = reads(bench, from_seq="0")
    reader.box.asks_left = 1
    assert len(reader.reads()) == 3
    reader.box.asks_left = 9
    reader.opens_up()
    assert len(reader.reads()) == 2


def test_a_run_is_not_changed_by_what_is_read_of_it():
    bench = filled(2)
    run = stream_of(bench).run_at(0)
    assert isinstance(run, StreamRun)
    tails = list(run.tails(2, b"e"))
    reads(bench, from_seq="0").reads()
    assert run.tails(2, b"e") == tails
