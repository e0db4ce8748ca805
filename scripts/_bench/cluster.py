"""A cluster of three nodes under load, alone or beside one of RabbitMQ, in turn.

Clients are spread over the nodes. The nodes, the servers of the log and the loads share this
machine, so figures show what it costs, not what three machines do. Each side is started again for
each round. RabbitMQ uses a quorum queue, its equivalent with the same guarantee.
"""

import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

from _cluster.machines import running_cluster

from _bench.load import Load, Shape, Visitors
from _bench.others import LOGIN, PASSCODE, rabbitmq_cluster
from _bench.process import BenchError, Broker
from _bench.queues import Place, QueueLoad, QueueShape
from _bench.tables import percentile
from _bench.wire import HOST, PATIENCE_S, STRANGER, Visitor

NODES = 3
RATE = 100.0
"""Persistent messages a second of each client whose RECEIPTs are timed."""
LIMIT_S = 180.0
QUEUE = QueueShape(
    NODES, NODES, 60_000, at_once=32, window=512, lag=4096, ack="client-individual",
    prefetch=256, persistent=True,
)  # fmt: skip
TOPIC = Shape(NODES, 8 * NODES, 20_000, receipt_every=64, window=512, lag=2048)
QUICK = 50
"""The factor by which a quick run sends less."""


class Side(NamedTuple):
    """A running cluster.

    Args:
      ports, nodes: The addresses and processes of its nodes.
      engine: Processes that are no nodes, but keep their log; none = the nodes do.
      more: Lines of headers that make a queue one that outlives a node.
    """

    ports: Sequence[int]
    nodes: Sequence[int]
    engine: Sequence[int] = ()
    visitor: Visitor = STRANGER
    more: Sequence[str] = ()

    @property
    def broker(self) -> Broker:
        """Return it as one broker, to which clients connect at all ports."""
        return Broker(self.ports[0], self.nodes[0], others=self.ports[1:])


class Figures(NamedTuple):
    """One run of one load.

    Args:
      rate: Deliveries, or RECEIPTs, a second.
      nodes_us, engine_us: Processor time for each, of all nodes and all servers of the log.
      p50_ms, p99_ms: Of RECEIPTs; 0 = not measured.
    """

    rate: float
    nodes_us: float
    engine_us: float
    p50_ms: float = 0.0
    p99_ms: float = 0.0


Results = dict[tuple[str, str], list[Figures]]


@contextmanager
def ours() -> Iterator[Side]:
    """Run three servers of NATS and three nodes."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as name,
        running_cluster(Path(name), has_wires=False) as found,
    ):
        nodes, servers = ([each.pid for each in side] for side in (found.nodes, found.servers))
        yield Side(found.ports, nodes, servers)


@contextmanager
def theirs() -> Iterator[Side]:
    """Run three nodes of RabbitMQ."""
    with rabbitmq_cluster(NODES) as found:
        ports, pids = [each.port for each in found], [each.pid for each in found]
        more = "x-queue-type:quorum", "durable:true", "auto-delete:false"
        yield Side(ports, pids, visitor=Visitor(LOGIN, PASSCODE, host="/"), more=more)


SIDES: dict[str, Callable[[], AbstractContextManager[Side]]] = {
    "trio_stomp": ours,
    "rabbitmq": theirs,
}


def measure_cluster(
    names: Sequence[str], rounds: int, seconds: float, say: Callable[[str], None], *, quick: bool
) -> Results:
    """Run all loads with each side, round after round.

    Raises:
      BenchError, OSError: a side does not start, or a load does not come through.
    """
    found: Results = {}
    for number in range(rounds):
        for name in names if number % 2 == 0 else reversed(names):
            with SIDES[name]() as side:
                for load, run in LOADS.items():
                    figures = run(side, 1 if not quick else QUICK, seconds)
                    found.setdefault((load, name), []).append(figures)
                    say(f"  {name}, {load}: {figures.rate:,.0f}/s")
    return found


def queue(side: Side, less: int, _seconds: float) -> Figures:
    """Measure one queue with three producers and three consumers."""
    shape = QUEUE._replace(messages=QUEUE.messages // less // QUEUE.at_once * QUEUE.at_once)
    place = Place("/queue/bench", side.more)
    load = QueueLoad(side.broker, shape, place=place, visitor=side.visitor, in_order=False)
    try:
        load.run(LIMIT_S)  # as long as the other, because some brokers compile code at run time
        return _metered(side, lambda: load.run(LIMIT_S).deliveries)
    finally:
        load.close()


def topic(side: Side, less: int, _seconds: float) -> Figures:
    """Measure a topic with three publishers and with subscribers of all nodes, without a store."""
    shape = TOPIC._replace(messages=TOPIC.messages // less // 64 * 64)
    visitors = Visitors(side.visitor, side.visitor)
    load = Load(side.broker, shape, websocket=False, visitors=visitors, topics="/topic/bench.")
    for group in load.groups:
        group.publisher.in_order = False
    try:
        load.run(LIMIT_S)
        return _metered(side, lambda: load.run(LIMIT_S).deliveries)
    finally:
        load.close()


def receipts(side: Side, less: int, seconds: float) -> Figures:
    """Measure RECEIPTs of persistent messages, which a client of each node sends at a pace."""
    times: list[float] = []
    wanted = max(10, int(seconds * RATE) // less)
    failures: list[Exception] = []

    def run(port: int) -> None:
        try:
            times.extend(_send_paced(port, side, wanted))
        except (OSError, BenchError) as error:
            failures.append(error)

    def run_all() -> int:
        clients = [threading.Thread(target=run, args=(port,)) for port in side.ports]
        for each in clients:
            each.start()
        for each in clients:
            each.join()
        if failures:
            raise BenchError(f"a client of the paced load failed: {failures[0]}")
        return len(times)

    figures = _metered(side, run_all)
    p50, p99 = (percentile(times, share) * 1000 for share in (0.5, 0.99))
    return figures._replace(p50_ms=p50, p99_ms=p99)


def _send_paced(port: int, side: Side, count: int) -> Iterator[float]:
    """Send messages, and yield the time from when each was due to its RECEIPT."""
    lines = Place("/queue/paced", side.more).lines
    frame = f"SEND\n{lines}\npersistent:true\nreceipt:r\n\n{'x' * 117}\0".encode()
    with socket.create_connection((HOST, port), timeout=PATIENCE_S) as connected:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.sendall(side.visitor.connect)
        _expect(connected, b"CONNECTED")
        due = time.perf_counter()
        for _ in range(count):
            time.sleep(max(0.0, due - time.perf_counter()))
            connected.sendall(frame)
            _expect(connected, b"RECEIPT")
            yield time.perf_counter() - due
            due = max(due + 1 / RATE, time.perf_counter())


def _expect(connected: socket.socket, command: bytes) -> None:
    data = b""
    while b"\0" not in data:
        more = connected.recv(4096)
        if not more:
            raise BenchError(f"the broker closed the connection: {data[:200]!r}")
        data += more
    if not data.lstrip().startswith(command):
        raise BenchError(f"expected {command!r}, got {data[:200]!r}")


def _metered(side: Side, run: Callable[[], int]) -> Figures:
    nodes, engine, start = _cpu(side.nodes), _cpu(side.engine), time.perf_counter()
    count = run()
    wall_s = time.perf_counter() - start
    used = (_cpu(side.nodes) - nodes, _cpu(side.engine) - engine)
    return Figures(count / wall_s, *(each / count * 1e6 for each in used))


def _cpu(pids: Sequence[int]) -> float:
    return sum(Broker(0, pid, family=True).cpu().exact for pid in pids)


LOADS: dict[str, Callable[[Side, int, float], Figures]] = {
    "queue": queue,
    "topic": topic,
    "receipts": receipts,
}
WHAT = {
    "queue": "one queue, persistent, 3 producers and 3 consumers",
    "topic": f"{TOPIC.groups} topics, {TOPIC.subscribers} subscribers each, not stored",
    "receipts": f"3 clients, {RATE:g} persistent messages a second each",
}


def cluster_table(found: Results) -> str:
    """Return the median of each figure as a table in Markdown."""
    rows = [
        "| load | cluster | deliveries/s | nodes, µs | engine, µs | RECEIPT p50, p99, ms |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for (load, name), runs in sorted(found.items()):
        rate, nodes, engine, p50, p99 = map(statistics.median, zip(*runs, strict=True))
        times = f"{p50:.1f}, {p99:.1f}" if p50 else "-"
        cells = WHAT[load], name, f"{rate:,.0f}", f"{nodes:.2f}", f"{engine:.2f}", times
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def cluster_rows(found: Results) -> list[dict[str, object]]:
    """Return all runs."""
    return [
        {"load": load, "cluster": name, **figures._asdict()}
        for (load, name), runs in found.items()
        for figures in runs
    ]
