"""A stream and its readers: shared helpers of the tests of replay."""

import pytest

from tests.support.core import Actor, Bench, Received, queue_head
from tests.support.durable_fakes import DurableBench
from trio_stomp.broker import DestinationPolicy
from trio_stomp.broker.streams import Stream

TOPIC, STREAM = "/topic/t", "/stream/topic/t"
BOOK = {TOPIC: DestinationPolicy(stream=True)}
VERSIONS = ["1.0", "1.1", "1.2"]
CHARGED = 257 + queue_head(TOPIC, ("kind", "n"))
"""Bytes charged for a message of one byte in a run of its own."""


def stream_of(bench: Bench) -> Stream:
    return bench.broker.streams.find(STREAM, bench.broker.destinations.open)


def filled(count: int, *, stored: bool = False, window: int = 0) -> Bench:
    """Return a bench with bodies 0, 1, … in its stream, ``window`` of them in memory."""
    bench = DurableBench(book=BOOK) if stored else Bench(book=BOOK)
    if window:
        stream_of(bench).window_limit_bytes = window * CHARGED
    writes(bench, count)
    return bench


def writes(bench: Bench, count: int) -> None:
    """Send ``count`` more messages, each with its offset as body."""
    sender = bench.actor()
    start = stream_of(bench).next
    for number in range(start, start + count):
        sender.sends(TOPIC, str(number), kind="n")
        bench.turn()


def reads(bench: Bench, version: str = "1.2", ack: str = "auto", **headers: str) -> Actor:
    """Return a new reader."""
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
