"""Queries of a stream by SEND, and refused SENDs into it."""

import json

import pytest

from tests.support.core import Bench, queue_head
from tests.support.durable_fakes import DurableBench
from tests.support.replay_fakes import BOOK, STREAM, TOPIC, reads, stream_of


@pytest.fixture(params=[False, True], ids=["memory", "store"])
def bench(request: pytest.FixtureRequest) -> Bench:
    return DurableBench(book=BOOK) if request.param else Bench(book=BOOK)


@pytest.mark.parametrize("reply_to", ["/temp-queue/answers", "/queue/answers", "/topic/answers"])
def test_a_question_is_answered_where_it_says(bench, reply_to):
    bench.actor().sends(TOPIC, "abc")
    bench.turn()
    actor = bench.actor()
    if not reply_to.startswith("/temp"):
        actor.subscribes(reply_to)
    actor.sends(STREAM, "", "", reply_to=reply_to, correlation_id="7:8")
    first, second = actor.reads()
    stream = stream_of(bench)
    headers = {
        "stream": STREAM,
        "epoch": stream.epoch,
        "first": 0,
        "next": 1,
        "bytes": 3 if stream.is_stored else 259 + queue_head(TOPIC),
    }
    for frame in (first, second):
        assert json.loads(frame.text) == headers
        assert frame.get("correlation-id") == "7:8"
        assert frame.get("content-type") == "application/json"
        assert frame.get("x-stream") == STREAM
        for name in ("epoch", "first", "next", "bytes"):
            assert frame.get(f"x-stream-{name}") == str(headers[name])


def test_a_question_needs_no_correlation(bench):
    actor = bench.actor()
    actor.sends(STREAM, reply_to="/temp-queue/a")
    (frame,) = actor.reads()
    assert frame.get("correlation-id") is None
    assert frame.get("x-stream-next") == "0"


@pytest.mark.parametrize(
    ("destination", "headers", "code"),
    [
        (STREAM, {}, "reserved-destination"),
        (STREAM, {"persistent": "true"}, "reserved-destination"),
        (STREAM, {"reply_to": STREAM}, "reserved-destination"),
        (STREAM, {"reply_to": "/topic/*"}, "wildcard-in-send"),
        ("/stream/nothing", {"reply_to": "/temp-queue/a"}, "unknown-stream"),
        ("/stream/nothing", {}, "reserved-destination"),
        (f"{TOPIC},{STREAM}", {}, "reserved-destination"),
    ],
)
def test_send_to_a_stream_is_refused(bench, destination, headers, code):
    reader, actor = reads(bench), bench.actor()
    actor.sends(destination, "x", **headers)
    assert actor.error().get("code") == code
    assert reader.reads() == []
