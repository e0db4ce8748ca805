"""The streams of a broker: their destinations, records, permissions and retention."""

import pytest

from tests.support.core import Actor, Bench, Received, pairs, run_of, texts
from tests.support.durable_fakes import WALL_OFFSET_S, DurableBench
from trio_stomp.broker import DestinationPolicy, Retention
from trio_stomp.broker.streams import Stream, _streams
from trio_stomp.frames import Head
from trio_stomp.protocol import Subscribed
from trio_stomp.store import Append, Begin, StreamState

TOPIC, STREAM = "/topic/t", "/stream/topic/t"
POLICY = DestinationPolicy(stream=True)
BOOK = {TOPIC: POLICY, "/queue/q": POLICY}


@pytest.fixture(params=[False, True], ids=["memory", "store"])
def bench(request: pytest.FixtureRequest) -> Bench:
    return DurableBench(book=BOOK) if request.param else Bench(book=BOOK)


def slow() -> DurableBench:
    """Return a bench whose store answers on request."""
    bench = DurableBench(book=BOOK)
    stream_of(bench)
    bench.turn()
    bench.is_prompt = False
    return bench


def stream_of(bench: Bench, name: str = STREAM) -> Stream:
    return bench.broker.streams.find(name, bench.broker.destinations.open)


def reads(bench: Bench, destination: str = STREAM, **headers: str) -> Actor:
    actor = bench.actor()
    actor.subscribes(destination, **({"from_seq": "0"} | headers))
    return actor


def offsets(frames: list[Received]) -> list[int]:
    return [int(frame.get("x-stream-offset") or "") for frame in frames]


def timestamps(frames: list[Received]) -> list[int]:
    return [int(frame.get("x-stream-timestamp") or "") for frame in frames]


# Destinations with a stream.


def test_a_stream_is_there_before_anything_was_sent(bench):
    reader = reads(bench)
    assert reader.reads() == []
    bench.actor().sends(TOPIC, "a")
    assert texts(reader.reads()) == ["a"]


@pytest.mark.parametrize(
    ("topic", "stream"),
    [("/topic/t", "/stream/topic/t"), ("news", "/stream/news"), ("/news/x", "/stream/news/x")],
)
def test_a_stream_is_called_after_its_topic(topic, stream):
    bench = Bench(book={topic: POLICY})
    by_stream = reads(bench, stream)
    bench.actor().sends(topic, "a")
    assert texts(by_stream.reads()) == ["a"]
    assert texts(reads(bench, topic).reads()) == ["a"]


def test_without_a_header_of_streams_a_topic_is_a_topic(bench):
    bench.actor().sends(TOPIC, "a")
    actor = bench.actor()
    actor.subscribes(TOPIC)
    bench.actor().sends(TOPIC, "b", x_stream_offset="8")
    (frame,) = actor.reads()
    assert frame.text == "b"
    assert frame.get("x-stream-epoch") is None


def test_a_pattern_gives_each_of_its_topics_a_stream_up_to_a_limit(monkeypatch):
    monkeypatch.setattr(_streams, "MAX_STREAMS", 2)
    bench = Bench(book={"/topic/>": POLICY})
    for name in "abca":
        bench.actor().sends(f"/topic/{name}", name)
    names = [stream.name for stream in bench.broker.streams.in_use.values()]
    assert names == ["/stream/topic/a", "/stream/topic/b"]
    assert texts(reads(bench, "/stream/topic/a").reads()) == ["a", "a"]
    assert reads(bench, "/stream/topic/c").error().get("code") == "unknown-stream"


@pytest.mark.parametrize("destination", ["/queue/q", "/temp-topic/x", "#work", "DIAG/session"])
def test_only_topics_have_streams(bench, destination):
    assert reads(bench, destination).error().get("code") == "unknown-stream"
    assert not bench.broker.streams.in_use


@pytest.mark.parametrize(
    "destination", ["/stream/", "/stream/nothing", "/stream/queue/q", "/topic/other"]
)
def test_a_stream_that_is_not_there_is_an_error(bench, destination):
    error = reads(bench, destination).error()
    assert error.get("code") == "unknown-stream"
    assert "stream = true" in (error.get("message") or "")


@pytest.mark.parametrize(
    "destination",
    ["/stream/topic/*", "/stream/>", "/topic/*", f"{STREAM},/topic/x", f"/topic/x,{STREAM}"],
)
def test_several_streams_at_once_are_an_error(bench, destination):
    assert reads(bench, destination).error().get("code") == "invalid-destination"
    assert not bench.broker.streams.in_use


def test_a_topic_and_a_stream_together_are_an_error_without_any_header(bench):
    actor = bench.actor()
    actor.subscribes(f"/topic/x,{STREAM}")
    assert actor.error().get("code") == "invalid-destination"


@pytest.mark.parametrize("destination", [STREAM, TOPIC])
@pytest.mark.parametrize(
    "headers",
    [
        {"selector": "a = 1"},
        {"no_local": "true"},
        {"browser": "true"},
        {"durable_subscription_name": "d"},
    ],
)
def test_a_stream_is_read_as_it_is(bench, destination, headers):
    actor = bench.actor()
    headers = {"from_seq": "0", **headers}
    given = (*pairs(headers), ("id", "0"))
    actor.does(Subscribed("0", destination, "auto", given, None))
    assert actor.error().get("code") == "unsupported"


# Records of a stream.


def test_offsets_continue_and_the_epoch_stays_over_a_restart():
    bench = DurableBench(book=BOOK)
    bench.actor().sends(TOPIC, "a", "b")
    bench.turn()
    epoch = stream_of(bench).epoch
    bench = bench.restarts()
    reader = reads(bench)
    bench.actor().sends(TOPIC, "c")
    frames = reader.reads()
    assert texts(frames) == ["a", "b", "c"]
    assert offsets(frames) == [0, 1, 2]
    assert {frame.get("x-stream-epoch") for frame in frames} == {epoch}


def test_messages_keep_the_time_at_which_they_were_stored_over_a_restart():
    bench = DurableBench(book=BOOK)
    start_ms = round((bench.now + WALL_OFFSET_S) * 1000)
    for step_s in (0, 1.5, -60, 61):  # a clock that is set back stands still
        bench.now += step_s
        bench.actor().sends(TOPIC, "a", timestamp="0")
        bench.turn()
    expected = [start_ms, start_ms + 1500, start_ms + 1500, start_ms + 2500]
    assert timestamps(reads(bench).reads()) == expected
    bench = bench.restarts()
    bench.actor().sends(TOPIC, "b")
    frames = reads(bench).reads()
    assert timestamps(frames) == [*expected, start_ms + 2500]
    assert {frame.get("timestamp") for frame in frames} == {"0", None}


def test_a_stream_whose_policy_is_gone_can_still_be_read():
    bench = DurableBench(book=BOOK)
    bench.actor().sends(TOPIC, "a")
    bench.turn()
    bench.book = {}
    bench = bench.restarts()
    assert texts(reads(bench).reads()) == ["a"]
    assert bench.broker.streams.retentions(bench.now) == []


def test_without_a_store_each_stream_has_an_epoch_of_its_own():
    bench = Bench(book={"/topic/>": POLICY})
    epochs = {stream_of(bench, f"/stream/topic/{name}").epoch for name in "abc"}
    assert len(epochs) == 3


def test_stream_headers_of_a_sender_are_ignored(bench):
    forged = {"x_stream_end": "true", "x_stream_offset": "77", "x_stream_epoch": "z", "a": "1"}
    bench.actor().sends(TOPIC, "a", x_stream_timestamp="86400000", **forged)
    (frame,) = reads(bench).reads()
    assert frame.get("x-stream-end") is None
    assert offsets([frame]) == [0]
    assert frame.get("x-stream-epoch") == stream_of(bench).epoch
    assert timestamps([frame]) == [stream_of(bench).newest_ms]
    assert frame.get("a") == "1"


def test_stream_headers_stored_by_an_older_broker_are_ignored(bench):
    """A schedule, say, that was stored before SENDs were cleaned: it has no client now."""
    run = run_of(
        TOPIC, headers=(("x-stream-timestamp", "1"), ("x-stream-offset", "99"), ("kept", "1"))
    )
    bench.broker.publisher.send_for(run, None, bench.now)
    (frame,) = reads(bench).reads()
    assert offsets([frame]) == [0]
    assert timestamps([frame]) == [stream_of(bench).newest_ms]
    assert frame.get("kept") == "1"


def test_the_receipt_tells_the_last_offset_where_that_is_certain(bench):
    sender = bench.actor()
    sender.sends(TOPIC, "a", "b", receipts=[(2, b"r")], persistent="true")
    sender.sends(TOPIC, "c", receipts=[(1, b"s")])
    certain, hasty = sender.frames()
    assert certain.get("x-stream-offset") == "1"
    assert hasty.get("x-stream-offset") == (None if isinstance(bench, DurableBench) else "2")


def test_each_receipt_of_a_run_tells_the_last_offset_that_it_covers(bench):
    sender = bench.actor()
    names = [(1, b"p"), (2, b"q"), (4, b"s")]
    sender.sends(TOPIC, *"abcd", receipts=names, persistent="true")
    found = {frame.get("receipt-id"): frame.get("x-stream-offset") for frame in sender.frames()}
    assert found == {"p": "0", "q": "1", "s": "3"}


def test_a_transaction_writes_all_or_nothing(bench):
    sender = bench.actor()
    reader = reads(bench)
    into = run_of(STREAM, ["x"])
    sender.commits(run_of(TOPIC, ["a"]), run_of(TOPIC, ["b"]))
    assert texts(reader.reads()) == ["a", "b"]
    sender.commits(run_of(TOPIC, ["c"]), into)
    assert sender.frames()[-1].get("code") == "reserved-destination"
    assert reader.reads() == []


def test_a_transaction_that_the_store_refuses_is_not_in_the_stream():
    bench = slow()
    reader, sender, other = reads(bench), bench.actor(), bench.actor()
    sender.commits(run_of(TOPIC, ["a"]), run_of(TOPIC, ["b"], (("persistent", "true"),)))
    other.sends(TOPIC, "c")
    bench.turn()
    bench.fails()
    assert sender.error().get("code") == "storage"
    bench.answers()
    frames = reader.reads()
    assert (texts(frames), offsets(frames)) == (["c"], [0])


def test_a_stream_that_begins_in_a_transaction_is_there_before_its_messages():
    bench = DurableBench(book=BOOK)
    with bench.log.atomically(must_retry=False):
        stream = bench.broker.streams.open("/stream/x", 0, 0)
        bench.broker.streams.append(stream, Head("SEND", (), -1, "x"), [b"a"], bench.now)
    bench.broker.end_turn(bench.now)
    turn = bench.log.take()
    assert turn is not None
    assert [type(record) for record in turn.records] == [Begin, Append]


def test_a_reader_sees_only_committed_messages():
    bench = slow()
    reader, live = reads(bench), bench.actor()
    live.subscribes(TOPIC)
    bench.actor().sends(TOPIC, "a")
    assert reader.reads() == []
    assert texts(live.reads()) == ["a"]
    assert stream_of(bench).coming == 1
    bench.answers()
    assert texts(reader.reads()) == ["a"]


def test_after_a_failure_offsets_are_given_again_without_a_gap():
    bench = slow()
    reader = reads(bench)
    safe, hasty, filtered = bench.actor(), bench.actor(), bench.actor()
    safe.sends(TOPIC, "0", persistent="true")
    bench.turn()
    bench.answers()
    hasty.sends(TOPIC, "1")
    filtered.sends(TOPIC, "lost", persistent="true", receipts=[(1, b"r")])
    hasty.sends(TOPIC, "2", "3")
    bench.turn()
    for _ in range(3):
        bench.fails("no room")
    error = filtered.error()
    assert (error.get("code"), error.get("receipt-id")) == ("storage", "r")
    assert hasty.frames() == []
    safe.sends(TOPIC, "4", persistent="true")
    bench.turn()
    assert texts(reader.reads()) == ["0"]
    bench.answers()
    frames = reader.reads()
    assert texts(frames) == ["1", "2", "3", "4"]
    assert offsets(frames) == [1, 2, 3, 4]
    found = bench.store.read_stream(STREAM, 0, 1 << 20)
    assert b"".join(body for run in found for body in run.bodies) == b"01234"


def test_a_retained_message_is_in_the_stream_and_the_last_value(bench):
    bench.actor().sends(TOPIC, "a", retain="true", persistent="true")
    bench.turn()
    live = bench.actor()
    live.subscribes(TOPIC)
    assert texts(live.reads()) == ["a"]
    assert texts(reads(bench).reads()) == ["a"]


# Retention.


def test_retention_is_bounded_by_policies():
    policies = {
        "/topic/a": DestinationPolicy(stream=True, stream_max_bytes=9, stream_max_age_ms=0),
        "/topic/b": DestinationPolicy(stream=True, stream_max_bytes=0, stream_max_age_ms=5000),
        "/topic/c": DestinationPolicy(stream=True, stream_max_bytes=0, stream_max_age_ms=0),
    }
    for kind in (Bench, DurableBench):
        bench = kind(book=policies)
        for name in "abc":
            stream_of(bench, f"/stream/topic/{name}")
        oldest = round((bench.now + WALL_OFFSET_S) * 1000) - 5000
        expected = [Retention("/stream/topic/a", 9, 0), Retention("/stream/topic/b", 0, oldest)]
        found = bench.broker.streams.retentions(bench.now)
        assert found == (expected if kind is DurableBench else [])


def test_unneeded_streams_are_dropped_from_the_store():
    bench = DurableBench(book=BOOK)
    bench.actor().sends(TOPIC, *"abcdef")
    bench.turn()
    streams = bench.broker.streams
    state = bench.store.stream_state(STREAM)
    assert state == StreamState(stream_of(bench).epoch, 0, 6, 6)
    streams.retain(STREAM, state, 0)
    assert bench.log.take() is None
    streams.retain(STREAM, state, 4)
    bench.turn()
    assert bench.store.stream_state(STREAM) == StreamState(state.epoch, 4, 6, 2)
    assert stream_of(bench).first == 4
    streams.retain("/stream/unknown", state, 4)
    assert bench.log.take() is None
    memory = Bench(book=BOOK)
    stream_of(memory)
    memory.broker.streams.retain(STREAM, state, 4)
    assert stream_of(memory).first == 0


def test_age_and_memory_trim_streams_in_memory():
    bench = Bench(book={TOPIC: DestinationPolicy(stream=True, stream_max_age_ms=5000)})
    bench.actor().sends(TOPIC, "a")
    bench.turn()
    bench.passes(5)
    assert texts(reads(bench).reads()) == ["a"]
    bench.passes(1)
    assert bench.memory.used_bytes == 0
    bench.actor().sends(TOPIC, "b")
    (frame,) = reads(bench).reads()
    assert (frame.text, frame.get("x-stream-first")) == ("b", "1")


def test_without_a_bound_memory_is_the_bound():
    policy = DestinationPolicy(stream=True, stream_max_bytes=0, stream_max_age_ms=0)
    bench = Bench(book={TOPIC: policy})
    bench.actor().sends(TOPIC, "a")
    bench.actor().sends(TOPIC, "b")
    assert texts(reads(bench).reads()) == ["a", "b"]


def test_a_stream_is_opened_once(bench):
    streams = bench.broker.streams
    assert streams.open("/stream/x", 1, 2, 3) is streams.open("/stream/x", 4, 5)
    (stream,) = streams.in_use.values()
    assert (stream.max_bytes, stream.max_age_ms, stream.window_limit_bytes) == (1, 2, 3)


def test_the_28th_subscription_is_no_stream():
    """Its number is ``s`` in base 36: its unacknowledged messages are returned nevertheless."""
    bench = Bench()
    bench.actor().sends("/queue/work", "a")
    for number in range(1, 60):
        actor = bench.actor()
        actor.subscribes("/queue/work", ack="client")
        assert texts(actor.reads()) == ["a"], number
        actor.unsubscribes()
        bench.turn()
        bench.passes(10)
        if number % 4 == 0:  # before it counts as poison
            fresh = bench.actor()
            fresh.subscribes("/queue/work")
            assert texts(fresh.reads()) == ["a"]
            fresh.is_gone()
            bench.actor().sends("/queue/work", "a")


def test_too_many_streams_are_logged_once(monkeypatch):
    monkeypatch.setattr(_streams, "MAX_STREAMS", 1)
    bench = Bench(book={"/topic/>": DestinationPolicy(stream=True)})
    reported: list[str] = []
    bench.broker.streams.warn = reported.append
    actor = bench.actor()
    for name in "abc":
        actor.sends(f"/topic/{name}", "x")
    (line,) = reported
    assert "/topic/b" in line
    assert "1 of them, which is the limit" in line
    assert bench.broker.streams.refused == 2
    assert texts(actor.reads()) == []
    actor.subscribes("/topic/b", x_stream_offset="first")
    assert "and there are not 1 others" in (actor.error().get("message") or "")


@pytest.mark.parametrize("kind", [Bench, DurableBench], ids=["memory", "store"])
def test_a_last_value_that_is_not_durable_is_in_the_stream_once(
    kind: type[Bench | DurableBench],
) -> None:
    bench = kind(book={"/topic/log": DestinationPolicy(stream=True)})
    bench.actor().sends("/topic/log", "x", retain="set")
    bench.turn()
    (stream,) = bench.broker.streams.in_use.values()
    assert stream.next == 1
