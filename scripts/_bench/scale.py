"""The cost of a message while a broker is filled with other objects, which must not grow."""

import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from typing import NamedTuple

from _bench.idle import SPARE_FILES, open_idle, raise_file_limit
from _bench.load import Load, Run, Shape
from _bench.pauses import Phase, Watcher
from _bench.process import Broker, Cpu, cpu_of, rss_bytes, running_broker
from _bench.queues import QueueLoad, QueueShape
from _bench.scale_fill import (
    DEEP_QUEUE,
    LIMIT_S,
    STALE_TOPICS,
    DeepQueue,
    Fill,
    IdleConnections,
    Matched,
    Messages,
    Probe,
    RoundSends,
    Subscriptions,
    Walk,
    pattern_of,
    subscribe_to,
)
from _bench.scale_herd import Herd, measure_herd, measure_leaving
from _bench.scenarios import IDLE_AT_ONCE
from _bench.spread import Row
from _bench.wire import Connection

INTERVAL_S, QUICK_INTERVAL_S = 0.5, 0.02
"""Short, so that the longest turn of a short phase is reported soon. Without the DIAG stream and
without subscribers, these intervals cost nothing else."""
SETTLE_S = 0.1
TOLD = ("session", "ws_buffer", "stale", "queues", "destinations", "latency", "connections")
"""DIAG topics besides the watcher's own. Not as DIAG*: a new wildcard has the broker look again for
the subscribers of every destination."""
RUNS = 7
SHAPE = Shape(1, 1, 128_000, 64, window=256, lag=1024)
QUICK = Shape(1, 1, 640, 64, window=256, lag=1024)
QUEUE_MESSAGES, QUICK_QUEUE_MESSAGES = 64_000, 640
BODY_BYTES = 117
WALK_NAMES, QUICK_WALK_NAMES = 3008, 640
"""Fewer than the header blocks that the broker caches: parsing others would cost more."""
MEMORY = ("--max-memory-bytes", str(16 << 30))
STALE = (
    *("--ttl-ms", "3600000"),
    *("--max-stale-queue-size", "2000000"),
    *("--max-stale-queue-bytes", str(8 << 30)),
)
FLAT = 1.5
"""Maximum cost of a message at any size, relative to the smallest. The size grows by 1,000 or more,
its logarithm by 2 or more."""
MATCHED = 2.0
"""Maximum cost of a subscription among many patterns, relative to an exact one."""
STALL_MS = 100.0
CONNECTIONS = 19_000
IDLE, QUICK_IDLE = 5000, 100

now = time.perf_counter
Opened = tuple[Probe, Fill]


class Dimension(NamedTuple):
    """A load that grows by factors of ten.

    Args:
      what: Its description in the table.
      sizes: The amounts at which the probe runs, ascending.
      quick: The amounts of a quick check.
      options: Options of the broker, where the defaults would refuse or not hold it.
      promised: The largest permitted ratio of the cost at any size to that at the first.
    """

    name: str
    what: str
    sizes: Sequence[int]
    quick: Sequence[int]
    open: Callable[[Broker, bool], Opened]
    options: Sequence[str] = ()
    promised: float = FLAT


class Point(NamedTuple):
    """The probe at one size.

    Args:
      runs: The runs of the probe.
      rss_bytes: RSS of the broker after the fill.
      added: The number added since the previous size.
      filled: The broker's cost of adding them.
      filling, probing, telling: The broker's figures for these phases. In the last one a client was
        subscribed to all DIAG topics, and the probe did not run.
      rest_share: Processor time of the broker divided by the time, while all clients are idle.
      told_s: Additional processor time of each interval while all DIAG topics were published.
    """

    dimension: Dimension
    size: int
    runs: Sequence[Run]
    rss_bytes: int
    added: int
    filled: Cpu
    filling: Phase
    probing: Phase
    telling: Phase
    rest_share: float
    told_s: float

    @property
    def million_s(self) -> float:
        """Processor time of the broker for a million deliveries, in the cheapest of the runs.

        The other runs contain more of the broker's periodic work, which does not depend on
        messages, and of the neighbours' effect on its caches.
        """
        return min(self.costs)

    @property
    def costs(self) -> list[float]:
        """Return the processor time of each run for a million deliveries."""
        return [run.broker.exact * 1e6 / run.deliveries for run in self.runs]


def options_of(quick: bool) -> tuple[str, ...]:
    """Return the options of every broker."""
    return ("--diag-interval-s", str(interval_s(quick)), "--no-diag-stream")


def interval_s(quick: bool) -> float:
    """Return the time between two statistics, in seconds."""
    return QUICK_INTERVAL_S if quick else INTERVAL_S


def load_of(broker: Broker, quick: bool) -> Load:
    """Return the probe: a publisher, and the only subscriber of its topic."""
    return Load(broker, QUICK if quick else SHAPE, websocket=False)


def _connections(broker: Broker, quick: bool) -> Opened:
    return load_of(broker, quick), IdleConnections(broker)


def _subscriptions(broker: Broker, quick: bool) -> Opened:
    return load_of(broker, quick), Subscriptions(broker.port, lambda n: f"/topic/fill/{n}")


def _patterns(broker: Broker, quick: bool) -> Opened:
    load = load_of(broker, quick)
    return load, Matched(broker.port, pattern_of("/topic/bench"), load, "/topic/*/0")


def _walk(broker: Broker, quick: bool) -> Opened:
    count = QUICK_WALK_NAMES if quick else WALK_NAMES
    load = Load(broker, SHAPE._replace(messages=count), websocket=False)
    _spread(load, [f"/topic/walk/{n}" for n in range(count)], "/topic/*/>")
    return Walk(load), Subscriptions(broker.port, pattern_of("/topic/walk"))


def _destinations(broker: Broker, quick: bool) -> Opened:
    return load_of(broker, quick), Messages(broker.port, lambda n: f"/topic/fill/{n}")


class _Round(Messages):
    """The destinations that the probe rotates over."""

    def __init__(self, load: Load) -> None:
        super().__init__(load.broker.port, lambda n: f"/topic/round/{n}")
        self._load = load

    def to(self, size: int) -> None:
        """Use them once, and have the probe rotate over all of them."""
        subscribe_to(self._load, "/topic/bench/0")
        super().to(size)
        _spread(self._load, [self.name(n) for n in range(size)], "/topic/round/>")


def _round(broker: Broker, quick: bool) -> Opened:
    load = load_of(broker, quick)
    return load, _Round(load)


def _spread(load: Load, names: Sequence[str], pattern: str) -> None:
    load.groups[0].sends = RoundSends(names, BODY_BYTES)
    subscribe_to(load, pattern)


def _depth(broker: Broker, quick: bool) -> Opened:
    messages = QUICK_QUEUE_MESSAGES if quick else QUEUE_MESSAGES
    shape = QueueShape(1, 1, messages, 64, window=256, lag=1024, ack="client-individual")
    return QueueLoad(broker, shape), Messages(broker.port, lambda _: DEEP_QUEUE)


def _head(broker: Broker, quick: bool) -> Opened:
    queue = DeepQueue(broker, QUICK_QUEUE_MESSAGES if quick else QUEUE_MESSAGES)
    return queue, queue


def _stale(broker: Broker, quick: bool) -> Opened:
    fill = Messages(broker.port, lambda n: f"/topic/stale/{n % STALE_TOPICS}")
    return load_of(broker, quick), fill


def dimensions(connections: int) -> Iterator[Dimension]:
    """Yield all dimensions, in the order of the table.

    Args:
      connections: The largest number of connections.
    """
    thousands, quick = (0, 1000, 10_000, 100_000), (0, 100)
    millions = (1000, 10_000, 100_000, 1_000_000)
    sizes = [0, *sorted({min(connections, each) for each in (19, 190, 1900, CONNECTIONS)})]
    yield Dimension("connections", "idle TCP connections", sizes, quick, _connections)
    what = "subscriptions to other topics, 10 connections"
    yield Dimension("subscriptions", what, thousands, quick, _subscriptions)
    what = "subscriptions, ten per pattern; except at 0, the probe uses a pattern, too"
    yield Dimension("patterns", what, thousands, quick, _patterns, MEMORY, MATCHED)
    what = "the same; each message to another topic, matched against them"
    yield Dimension("patterns-walk", what, thousands, quick, _walk, MEMORY)
    sizes = [0, 100, *thousands[1:]]
    yield Dimension("destinations", "other topics in use", sizes, quick, _destinations)
    what = "topics in use, each message to the next of them"
    yield Dimension("destinations-round", what, sizes[1:], (10, 100), _round)
    what = "messages in another queue"
    yield Dimension("queue-depth", what, (0, *millions), quick, _depth, MEMORY)
    what = "messages in the queue itself"
    yield Dimension("queue-head", what, millions, (1000, 2000), _head, MEMORY)
    what = f"messages parked in {STALE_TOPICS} topics"
    yield Dimension("stale", what, (0, *millions), quick, _stale, (*MEMORY, *STALE))


def allowed(connections: int) -> int:
    """Return ``connections``, or as many as the system allows both processes."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard == resource.RLIM_INFINITY:
        return connections
    return max(1, min(connections, hard - 2 * SPARE_FILES))


def measure(
    dimension: Dimension, say: Callable[[str], None], *, quick: bool
) -> Iterator[Point | Herd]:
    """Yield a point for each size, all with one broker, then the phases in which clients leave.

    Raises:
      BenchError: the broker refused something, or a message was lost.
    """
    raise_file_limit(max(dimension.sizes) if dimension.open is _connections else 0)
    with (
        running_broker((*options_of(quick), *dimension.options)) as broker,
        closing(Watcher(broker.port)) as watcher,
    ):
        probe, fill = dimension.open(broker, quick)
        with closing(probe), closing(fill):
            for size in dimension.quick if quick else dimension.sizes:
                point = _point(dimension, broker, watcher, probe, fill=fill, size=size, quick=quick)
                say(f"  {size}: {point.million_s:.3f} CPU s/M, {point.rss_bytes >> 20} MiB")
                yield point
            if isinstance(fill, IdleConnections):
                yield from measure_herd(broker, watcher, fill)
            elif isinstance(fill, Subscriptions):
                yield from measure_leaving(broker, watcher, fill, dimension.name)


def _point(
    dimension: Dimension,
    broker: Broker,
    watcher: Watcher,
    probe: Probe,
    *,
    fill: Fill,
    size: int,
    quick: bool,
) -> Point:
    began, cpu, before = now(), cpu_of(broker.pid), fill.size
    fill.to(size)
    filled = cpu_of(broker.pid).since(cpu)
    filling = watcher.phase(f"{dimension.name} {size}: filling", began)
    probe.run(LIMIT_S)  # The first one meets cold caches, and names not looked up yet.
    began = now()
    runs = [probe.run(LIMIT_S) for _ in range(1 if quick else RUNS)]
    time.sleep(SETTLE_S)  # acknowledgements arrive, and memory is freed
    cpu, rested = cpu_of(broker.pid), now()
    probing = watcher.phase(f"{dimension.name} {size}: probing", began)
    share = cpu_of(broker.pid).since(cpu).exact / (now() - rested)
    rss, added = rss_bytes(broker.pid), size - before
    telling, told_s = _told(broker, watcher, f"{dimension.name} {size}: telling", share, quick)
    return Point(
        dimension, size, runs, rss, added, filled, filling, probing, telling, share, told_s
    )


def _told(
    broker: Broker, watcher: Watcher, what: str, rest_share: float, quick: bool
) -> tuple[Phase, float]:
    """Publish all DIAG topics for a while. Return the phase and the processor time per interval."""
    with closing(Connection.open(broker.port, websocket=False)) as listener:
        began, cpu = now(), cpu_of(broker.pid)
        # No receipt: a message might come before it.
        topics = enumerate(TOLD)
        frames = [f"SUBSCRIBE\nid:{n}\ndestination:DIAG/{topic}\n\n\0" for n, topic in topics]
        listener.socket.sendall("".join(frames).encode())
        reading = threading.Thread(target=_read_on, args=(listener,))
        reading.start()
        telling = watcher.phase(what, began)
        wall_s = now() - began
        used_s = cpu_of(broker.pid).since(cpu).exact - rest_share * wall_s
        assert isinstance(listener.socket, socket.socket)
        listener.socket.shutdown(socket.SHUT_RDWR)
        reading.join()
    return telling, max(0.0, used_s) / max(1.0, wall_s / interval_s(quick))


def _read_on(listener: Connection) -> None:
    """Read and discard data until the end."""
    with suppress(OSError):
        while listener.socket.recv(1 << 20):
            pass


def measure_idle(connections: int, *, quick: bool) -> Iterator[Row]:
    """Yield the cost of idle connections over TCP and WebSocket, each with its own broker.

    Args:
      connections: The largest number of connections.

    Raises:
      BenchError: one was refused.
    """
    count = min(QUICK_IDLE if quick else IDLE, connections)
    for websocket in (False, True):
        with running_broker(options_of(quick)) as broker:
            idle = open_idle(broker, count, IDLE_AT_ONCE, LIMIT_S, websocket=websocket)
        yield {
            "what": "WebSocket" if websocket else "TCP",
            "connections": count,
            "rss_kib_per_connection": idle.rss_bytes / 1024 / count,
            "connects_per_s": count / idle.wall_s,
            "broker_cpu_us_per_connect": idle.broker.exact * 1e6 / count,
        }
