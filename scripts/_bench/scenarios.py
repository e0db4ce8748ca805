"""The scenarios of ``scripts/bench.py``: the rows of its tables, and their loads."""

from collections.abc import Iterator
from typing import NamedTuple

from _bench.load import Load, Shape
from _bench.process import Broker
from _bench.queues import QueueLoad, QueueShape
from _bench.replay import ReplayLoad, ReplayShape

IDLE_AT_ONCE = 64


class Scenario(NamedTuple):
    """One line of the table.

    Args:
      what: Its description in the table.
      shape: The load; None = idle connections, ``idle`` of them.
      durable: The broker has a data directory.
    """

    name: str
    what: str
    websocket: bool
    shape: Shape | QueueShape | ReplayShape | None = None
    quick: Shape | QueueShape | ReplayShape | None = None
    idle: int = 0
    quick_idle: int = 0
    durable: bool = False


def open_load(broker: Broker, scenario: Scenario, *, quick: bool) -> Load | QueueLoad | ReplayLoad:
    """Open the connections of a scenario, which must have a load.

    Raises:
      BenchError: the broker refuses it.
    """
    shape = scenario.quick if quick else scenario.shape
    if isinstance(shape, QueueShape):
        return QueueLoad(broker, shape)
    if isinstance(shape, ReplayShape):
        return ReplayLoad(broker, shape)
    assert shape is not None
    return Load(broker, shape, websocket=scenario.websocket)


def scenarios() -> Iterator[Scenario]:
    """Yield all scenarios, in the order of the table."""
    for websocket in (True, False):
        end, by = ("ws", "WebSocket") if websocket else ("tcp", "TCP")
        yield Scenario(
            f"headline-{end}",
            f"1 publisher, 75 subscribers, {by}, window 2000",
            websocket,
            Shape(1, 75, 13_334, 500, window=2000, lag=8000),
            Shape(1, 75, 400, 50, window=200, lag=800),
        )
        yield Scenario(
            f"fanout-{end}",
            f"1 publisher, 75 subscribers, {by}, window 64",
            websocket,
            Shape(1, 75, 40_000, 16, window=64, lag=256),
            Shape(1, 75, 400, 16, window=64, lag=256),
        )
        yield Scenario(
            f"one-{end}",
            f"1 publisher, 1 subscriber, {by}, window 256",
            websocket,
            Shape(1, 1, 500_000, 64, window=256, lag=1024),
            Shape(1, 1, 10_000, 64, window=256, lag=1024),
        )
    yield Scenario(
        "thousand-tcp",
        "1 publisher, 1000 subscribers, TCP, window 16",
        False,
        Shape(1, 1000, 2000, 4, window=16, lag=64),
        Shape(1, 1000, 32, 4, window=16, lag=64),
    )
    yield Scenario(
        "pairs-tcp",
        "10 publishers, 1 subscriber each, TCP, window 256",
        False,
        Shape(10, 1, 50_000, 64, window=256, lag=1024),
        Shape(10, 1, 2000, 64, window=256, lag=1024),
    )
    for websocket in (False, True):
        end, by = ("ws", "WebSocket") if websocket else ("tcp", "TCP")
        yield Scenario(
            f"paced-{end}",
            f"1 publisher, 75 subscribers, {by}, 1000 messages/s",
            websocket,
            Shape(1, 75, 10_000, rate=1000),
            Shape(1, 75, 500, rate=1000),
        )
    yield from queue_scenarios()
    yield from durable_scenarios()
    for websocket in (False, True):
        end, by = ("ws", "WebSocket") if websocket else ("tcp", "TCP")
        yield Scenario(
            f"idle-{end}",
            f"idle connections, {by}, opened {IDLE_AT_ONCE} at once",
            websocket,
            idle=5000,
            quick_idle=200,
        )


def queue_scenarios() -> Iterator[Scenario]:
    """Yield the loads on queues, all over TCP."""
    each = "client-individual"
    for name, what, shape in (
        (
            "queue-auto",
            "queue, 1 producer, 1 consumer, auto",
            QueueShape(1, 1, 320_000, 64, window=256, lag=1024),
        ),
        (
            "queue-ack-1000",
            f"queue, 1 producer, 1 consumer, {each}, prefetch-count 1000",
            QueueShape(1, 1, 320_000, 64, window=256, lag=1024, ack=each, prefetch=1000),
        ),
        (
            "queue-ack",
            f"queue, 1 producer, 1 consumer, {each}, default prefetch (100)",
            QueueShape(1, 1, 320_000, 64, window=256, lag=1024, ack=each),
        ),
        *(
            (
                f"queue-ack-{count}",
                f"queue, 1 producer, 1 consumer, {each}, prefetch-count {count}",
                QueueShape(1, 1, messages, 64, window=256, lag=1024, ack=each, prefetch=count),
            )
            for count, messages in ((10, 80_000), (1, 19_200))
        ),
        (
            "queue-4-4",
            f"queue, 4 producers, 4 consumers, {each}, prefetch-count 1000",
            QueueShape(4, 4, 80_000, 64, window=256, lag=4096, ack=each, prefetch=1000),
        ),
        (
            "queue-4-4-100",
            f"queue, 4 producers, 4 consumers, {each}, default prefetch (100)",
            QueueShape(4, 4, 80_000, 64, window=256, lag=4096, ack=each),
        ),
        (
            "transactions",
            "queue, 1 producer, 1 consumer, auto, transactions of 10 SENDs",
            QueueShape(1, 1, 160_000, 10, window=250, lag=1000, transaction="own"),
        ),
        (
            "transactions-1",
            "the same, all transactions with one name",
            QueueShape(1, 1, 160_000, 10, window=250, lag=1000, transaction="same"),
        ),
    ):
        yield Scenario(name, what, False, shape, shape._replace(messages=shape.at_once * 40))


def durable_scenarios() -> Iterator[Scenario]:
    """Yield the loads of durable messages, all over TCP: a RECEIPT means that a message is on the
    disk."""
    each = "client-individual"
    for name, what, shape in (
        (
            "durable-step",
            "queue, persistent, 1 producer in lock step (a receipt for each message), 1 consumer,"
            " auto",
            QueueShape(1, 1, 5000, 1, window=1, lag=1000),
        ),
        (
            "durable-step-100",
            "queue, persistent, 100 producers in lock step, 1 consumer, auto",
            QueueShape(100, 1, 500, 1, window=1, lag=50_000),
        ),
        (
            "durable-queue",
            "queue, persistent, 1 producer, 1 consumer, auto",
            QueueShape(1, 1, 320_000, 64, window=1024, lag=8192),
        ),
        (
            "durable-ack",
            f"queue, persistent, 1 producer, 1 consumer, {each}, prefetch-count 1000",
            QueueShape(1, 1, 320_000, 64, window=1024, lag=8192, ack=each, prefetch=1000),
        ),
        (
            "durable-4-4",
            f"queue, persistent, 4 producers, 4 consumers, {each}, prefetch-count 1000",
            QueueShape(4, 4, 80_000, 64, window=1024, lag=32_768, ack=each, prefetch=1000),
        ),
    ):
        durable = shape._replace(persistent=True)
        quick = durable._replace(messages=shape.at_once * 40)
        yield Scenario(name, what, False, durable, quick, durable=True)
    yield Scenario(
        "replay-tcp",
        "a stream's history to 1 subscriber, TCP",
        False,
        ReplayShape(2_000_000),
        ReplayShape(20_000),
        durable=True,
    )


PEERS = (
    *("fanout-tcp", "fanout-ws", "headline-tcp", "one-tcp", "pairs-tcp", "thousand-tcp"),
    *("queue-auto", "queue-ack-1000", "durable-queue", "idle-tcp"),
)


def peer_scenarios() -> Iterator[Scenario]:
    """Yield the scenarios for comparison with other brokers, in the order of the table."""
    known = {each.name: each for each in scenarios()}
    yield from (known[name] for name in PEERS[:-1])
    yield Scenario(
        "latency-tcp",
        "1 publisher, 1 subscriber, TCP, 1000 messages/s",
        False,
        Shape(1, 1, 10_000, rate=1000),
        Shape(1, 1, 200, rate=1000),
    )
    yield known[PEERS[-1]]


BESIDE = (
    Shape(1, 75, 60_000, 16, window=64, lag=256),
    QueueShape(1, 1, 120_000, 64, window=1024, lag=8192, persistent=True),
)
QUICK_BESIDE = (
    BESIDE[0]._replace(messages=400),
    BESIDE[1]._replace(messages=6400),
)
