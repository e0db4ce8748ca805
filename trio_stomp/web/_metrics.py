"""``/metrics``: the broker's counters in the formats of Prometheus and OpenMetrics.

The broker keeps plain integers for its own use, which are read here on request, so metrics cost
nothing per message. Needs prometheus-client.

Destinations, queues and connections are read in pieces, each once. The figures of one item are of
the same moment, and so is its part of the totals; those of two items may be some moments apart.
"""

import os
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from attrs import define, field, frozen
from prometheus_client import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    SummaryMetricFamily,
)

from trio_stomp._version import __version__
from trio_stomp.base import ANONYMOUS, LOOKS, Identity, Pieces
from trio_stomp.broker import BOUNDS_MS, Histogram, queue_of
from trio_stomp.transport import HttpRequest
from trio_stomp.web._health import files_limit
from trio_stomp.web._query import NOT_KEPT, Answer, Query
from trio_stomp.web._ranking import Counts, QueueCount, QueueFigures, Ranking

if TYPE_CHECKING:
    from trio_stomp.diag import Figures, Present
    from trio_stomp.server import Server

PREFIX = "trio_stomp_"
MAX_ACCEPT_BYTES = 1024

# A client's transport, with its metric labels: what carries it, and whether it is encrypted.
_TRANSPORTS = (
    ("tcp", "tcp", "false"),
    ("tls", "tcp", "true"),
    ("ws", "ws", "false"),
    ("wss", "ws", "true"),
)
_VERSIONS = ("1.0", "1.1", "1.2", "none")

_LE = (*(f"{bound / 1000:g}" for bound in BOUNDS_MS), "+Inf")

Labelled = Iterable[tuple[tuple[str, ...], float]]

Families = Iterator[Metric | None]
"""Metrics; None = the end of a piece."""

_OPENMETRICS, _END = "application/openmetrics-text", b"# EOF\n"
"""The media type that has an end marker, and the marker. The encoder appends it to each piece."""

_STAT, _SYSTEM = Path("/proc/self/stat"), Path("/proc/stat")
_USER, _KERNEL, _START, _VIRTUAL, _RESIDENT = 11, 12, 19, 20, 21
"""Indices of the fields after the name of the program (proc_pid_stat(5))."""
_BOOT = "btime "

PARTITION = "partition"

Owned = Callable[[], "Mapping[int, tuple[Server, Figures]]"]
"""Returns the brokers of the partitions that a node owns at the moment, by partition."""


def counter(name: str, help: str, value: float) -> Metric:
    """Return a counter without labels."""
    return CounterMetricFamily(PREFIX + name, help, value=value)


def counters(name: str, help: str, labels: tuple[str, ...], values: Labelled) -> Families:
    """Return a counter for each set of labels."""
    return _filled(CounterMetricFamily(PREFIX + name, help, labels=labels), values)


def gauge(name: str, help: str, value: float) -> Metric:
    """Return a gauge without labels."""
    return GaugeMetricFamily(PREFIX + name, help, value=value)


def gauges(name: str, help: str, labels: tuple[str, ...], values: Labelled) -> Families:
    """Return a gauge for each set of labels."""
    return _filled(GaugeMetricFamily(PREFIX + name, help, labels=labels), values)


def _filled(family: CounterMetricFamily | GaugeMetricFamily, values: Labelled) -> Families:
    for number, (said, value) in enumerate(values, 1):
        family.add_metric(said, value)
        if number % LOOKS == 0:
            yield None
    yield family


def histogram(name: str, help: str, times: Histogram) -> Metric:
    """Return a histogram with cumulative buckets, as Prometheus requires."""
    buckets: list[tuple[str, float]] = []
    below = 0
    for bound, count in zip(_LE, times.buckets, strict=True):
        below += count
        buckets.append((bound, below))
    return HistogramMetricFamily(PREFIX + name, help, buckets=buckets, sum_value=times.sum_s)


@frozen(eq=False)
class Counted:
    """The counts of connections, destinations and queues for one answer.

    Args:
      times: Delivery times, from socket to socket, of all messages since the start.
      counted: The counters of the busiest destinations by name, and of the others together.
    """

    present: "Present"
    times: Histogram
    queues: QueueFigures
    counted: Mapping[str, Counts]


@define(eq=False, repr=False)
class BrokerCollector:
    """Collects the metrics of a broker.

    Args:
      server: The server.
      figures: The figures that DIAG topics publish, too.
      limit: The number of destinations, and of queues, to report by name.
    """

    server: "Server"
    figures: "Figures"
    limit: int
    _ranking: Ranking = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._ranking = Ranking(self.limit)

    def collecting(self) -> Pieces[Families]:
        """Implement ``Collector.collecting``: all metrics of a broker."""
        return self.collect((yield from self.counting()))

    def collect(self, counted: Counted) -> Families:
        """Yield all metrics: those of ``counted``, and the others as of this moment."""
        yield from self.of_process(counted.present)
        yield from self.of_messages(counted)

    def of_process(self, present: "Present") -> Families:
        """Yield the metrics of the process and its connections, without those of ``of_rooms``."""
        yield from self._about()
        yield from self._connections(present)
        yield from process_figures(self.figures.open_files())

    def of_messages(self, counted: Counted) -> Families:
        """Yield the metrics of messaging: destinations, queues, the store, memory."""
        yield from self._messages(counted.times)
        yield from self._fates()
        yield from self._queues(counted.queues)
        yield from self._stale()
        yield from self._destinations(counted.counted)
        yield from self.of_rooms()
        yield from self._store()
        yield from self._cluster()

    def counting(self) -> Pieces[Counted]:
        """Count connections, destinations and queues in pieces. Only one count runs at a time."""
        present = yield from self.figures.counting()
        statistics = self.server.broker.statistics()
        # Taken together, so that a destination removed meanwhile is counted once.
        destinations, past = list(statistics.destinations), statistics.past
        ranking, queues = self._ranking.begin(past), QueueCount(self.limit)
        for start in range(0, len(destinations), LOOKS):
            # DIAG destinations would only measure the diagnostics.
            some = [
                destination
                for destination in destinations[start : start + LOOKS]
                if not destination.reserved
            ]
            ranking.add(some)
            queues.add([queue for each in some if (queue := queue_of(each)) is not None])
            yield
        counted = yield from self._ranking.end(ranking)
        times = (yield from self.figures.latencies())["delivery"]
        return Counted(present, times, (yield from queues.figures()), counted)

    def _about(self) -> Families:
        said = (__version__, platform.python_version())
        yield from gauges("build_info", "What runs.", ("version", "python"), [(said, 1)])
        is_ready = not self.server.why_unready()
        yield gauge("ready", "Whether the broker is ready for more clients (/readyz).", is_ready)
        yield from counters(
            "bugs",
            "Faults of the broker itself; kind invariant: restart it.",
            ("kind",),
            [((kind,), count) for kind, count in self.server.bugs.counts.items()],
        )

    def _connections(self, present: "Present") -> Families:
        server = self.server
        attempts = server.authenticator.attempts
        traffic = present.traffic
        yield from gauges(
            "connections",
            "Open connections; version none = no session is open.",
            ("transport", "tls", "version"),
            _kinds(present.kinds),
        )
        yield counter("connections_accepted", "Connections accepted.", server.accepted)
        yield counter(
            "connections_refused",
            "Connections refused by a limit on connections.",
            server.admission.refused,
        )
        yield from counters(
            "connections_opened",
            "Connections that sent CONNECT.",
            ("transport", "tls"),
            [((way, tls), traffic.opened.get(name, 0)) for name, way, tls in _TRANSPORTS],
        )
        ended = [((reason.text,), count) for reason, count in server.ended.items()]
        yield from counters(
            "connections_closed", "Connections that have ended.", ("reason",), ended
        )
        yield counter("frames_received", "Frames, heart-beats not counted.", traffic.frames_in)
        sent = [(("MESSAGE",), traffic.frames_out)]
        yield from counters("frames_sent", "Frames written, by command.", ("command",), sent)
        yield counter("bytes_received", "Bytes received.", traffic.bytes_in)
        yield counter("bytes_sent", "Bytes sent.", traffic.bytes_out)
        late = traffic.heartbeats_missed
        yield counter("heartbeats_late", "Silences longer than the negotiated heart-beat.", late)
        yield gauge("transactions_open", "Open transactions.", present.transactions)
        yield gauge("outbox_bytes", "Bytes waiting to be written.", present.waiting_bytes)
        yield from counters(
            "auth_attempts",
            "Logins.",
            ("result",),
            [
                (("succeeded",), attempts.succeeded),
                (("failed",), attempts.failed),
                (("throttled",), attempts.throttled),
                (("anonymous",), attempts.anonymous),
                (("not_anonymous",), attempts.not_anonymous),
            ],
        )

    def _messages(self, times: Histogram) -> Families:
        statistics = self.server.broker.statistics()
        messages, count = statistics.messages, len(statistics.destinations)
        unroutable = messages.drops["no-subscriber"]
        yield gauge("subscriptions", "Active subscriptions.", statistics.subscriptions)
        yield gauge("destinations", "Destinations remembered.", count)
        yield counter("messages_received", "Messages sent to a destination.", messages.received)
        yield counter(
            "messages_duplicate", "Duplicates of messages that were discarded.", messages.duplicates
        )
        yield counter("messages_unroutable", "Messages without a subscriber.", unroutable)
        yield counter(
            "messages_delivered",
            "Copies delivered to subscribers, DIAG messages included.",
            messages.delivered,
        )
        yield counter(
            "messages_redelivered", "Messages returned by consumers.", messages.redelivered
        )
        yield counter("messages_acked", "Deliveries acknowledged.", messages.acked)
        yield counter("messages_nacked", "Deliveries refused.", messages.nacked)
        yield histogram("delivery_seconds", "From the sender's socket to the receiver's.", times)

    def _fates(self) -> Families:
        statistics = self.server.broker.statistics()
        dropped = [((reason,), count) for reason, count in self.figures.drops().items()]
        yield from counters("messages_dropped", "Messages dropped.", ("reason",), dropped)
        yield from counters(
            "messages_expired",
            "Messages that expired, by where they waited.",
            ("place",),
            [((place,), count) for place, count in self.figures.expired().items()],
        )
        dead = [((reason,), count) for reason, count in statistics.messages.dead_letters.items()]
        yield from counters(
            "messages_dead_lettered", "Messages that became dead letters.", ("reason",), dead
        )
        refused = statistics.quota_refusals
        errors = [((code,), count) for code, count in sorted(statistics.refusals.items())]
        yield from counters("errors", "ERRORs sent, by code.", ("code",), errors)
        yield counter("quota_refusals", "ERRORs for want of room in a user's share.", refused)
        lost = statistics.lost_events
        yield counter("diag_events_lost", "Events of one turn beyond the reporting limit.", lost)

    def _queues(self, queues: QueueFigures) -> Families:
        states = ((("ready",), queues.ready), (("unacked",), queues.unacked))
        yield gauge("queues", "Queues.", queues.count)
        yield from gauges("queue_messages", "Messages in all queues.", ("state",), states)
        yield gauge("queue_bytes", "Bytes of the bodies of messages in all queues.", queues.bytes)
        yield from gauges(
            "queue_depth",
            "Messages in the fullest queues.",
            ("queue", "state"),
            (
                ((name, state), count)
                for name, each in queues.fullest.items()
                for state, count in (("ready", each.ready), ("unacked", each.unacked))
            ),
        )
        consumers = [((name,), each.consumers) for name, each in queues.fullest.items()]
        yield from gauges(
            "queue_consumers", "Consumers of the fullest queues.", ("queue",), consumers
        )

    def _stale(self) -> Families:
        stale = self.server.broker.statistics().stale
        yield gauge("stale_messages", "Messages parked for late subscribers.", stale.size)
        yield gauge("stale_bytes", "Memory used by parked messages.", stale.bytes)
        yield counter("stale_parked", "Messages parked.", stale.parked)
        yield counter(
            "stale_revived", "Parked messages delivered to late subscribers.", stale.revived
        )

    def _destinations(self, counted: Mapping[str, Counts]) -> Families:
        for index, (name, help) in enumerate(
            (
                ("destination_messages_received", "Messages sent to the busiest destinations."),
                (
                    "destination_messages_delivered",
                    "Copies delivered to subscribers of the busiest destinations.",
                ),
                (
                    "destination_messages_dropped",
                    "Messages or copies dropped at the busiest destinations.",
                ),
            )
        ):
            values = [((each,), counts[index]) for each, counts in counted.items()]
            yield from counters(name, help, ("destination",), values)

    def of_rooms(self) -> Families:
        """Yield the metrics of the dispatcher, and of its memory and input."""
        server = self.server
        times = self.figures.turns()
        yield histogram(
            "event_loop_lag_seconds", "Time for which turns occupied the event loop.", times
        )
        memory, inbox = server.memory, server.inbox
        yield gauge("memory_budget_bytes", "Limit on bytes of messages.", memory.limit_bytes)
        yield gauge("memory_used_bytes", "Bytes of messages.", memory.charged_bytes)
        yield gauge("memory_kept_bytes", "Bytes of waiting messages.", memory.kept_bytes)
        yield gauge("input_queue_frames", "Frames waiting for the dispatcher.", inbox.frames)
        yield gauge("input_queue_bytes", "Bytes of frames waiting for the dispatcher.", inbox.bytes)

    def _store(self) -> Families:
        committer = self.server.committer
        if committer is None:
            return
        store = committer.store.statistics()
        yield SummaryMetricFamily(
            PREFIX + "journal_fsync_seconds",
            "Number of syncs of the disk.",
            count_value=store.syncs,
            sum_value=store.sync_s,
        )
        yield gauge("journal_bytes", "Size of the store on disk.", store.bytes)
        yield gauge(
            "journal_messages", "Stored messages that are not finished.", store.live_messages
        )
        yield counter("journal_commits", "Turns appended.", store.commits)
        yield counter("journal_damaged", "Records found to be damaged.", store.damaged)

    def _cluster(self) -> Families:
        if self.server.cluster is None:
            return
        figures = self.server.cluster.figures()
        nodes, label = figures.nodes, ("node",)
        epoch = "Entry of the cluster's log with which its owner began."
        yield gauge("cluster_epoch", epoch, figures.epoch)
        yield SummaryMetricFamily(
            PREFIX + "cluster_append_seconds",
            "Appends to the cluster's log.",
            count_value=figures.appends,
            sum_value=figures.append_s,
        )
        yield counter("cluster_records", "Records appended to the cluster's log.", figures.records)
        # Imported late: a broker that is no node does not load it.
        from trio_stomp.cluster.routing import forwards_of

        forwards = forwards_of(self.server.broker)
        waiting = 0 if forwards is None else len(forwards.waiting)
        text = "SENDs whose messages other partitions do not have yet."
        yield gauge("cluster_forwards_waiting", text, waiting)
        owns = [((each.node,), each.role == "owner") for each in nodes]
        yield from gauges("cluster_node_owner", "Whether a node is the owner.", label, owns)
        follows = [((each.node,), each.role in ("standby", "reading")) for each in nodes]
        text = "Whether a node copies the owner's messages."
        yield from gauges("cluster_node_follows", text, label, follows)
        behind = [((each.node,), each.behind) for each in nodes]
        text = "Entries of the log that a node had not applied."
        yield from gauges("cluster_node_behind", text, label, behind)
        clients = [((each.node,), each.clients) for each in nodes]
        yield from gauges("cluster_node_clients", "Clients that a node relays.", label, clients)
        differs = [((each.node,), bool(each.differs)) for each in nodes]
        text = "Whether a node has other users, rules, policies or followers than the owner."
        yield from gauges("cluster_node_differs", text, label, differs)


def _kinds(kinds: Mapping[tuple[str, str], int]) -> Iterator[tuple[tuple[str, ...], float]]:
    """Yield connections by transport, secrecy and version, zeros too: no series disappears."""
    for name, way, tls in _TRANSPORTS:
        for version in _VERSIONS:
            yield (way, tls, version), kinds.get((name, version), 0)


def process_figures(open_files: int) -> Iterator[Metric]:
    """Yield the standard process metrics of Prometheus clients, or nothing without ``/proc``.

    prometheus-client's own collector lists all open files, which takes 16 ms for 19,000.
    """
    try:
        fields = _STAT.read_text().rpartition(")")[2].split()
        lines = _SYSTEM.read_text().splitlines()
    except OSError:
        return
    booted = next((line for line in lines if line.startswith(_BOOT)), f"{_BOOT}0")
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    cpu_s = (int(fields[_USER]) + int(fields[_KERNEL])) / ticks
    started_s = int(fields[_START]) / ticks + int(booted.removeprefix(_BOOT))
    for name, help, value in (
        ("virtual_memory_bytes", "Virtual memory size in bytes.", int(fields[_VIRTUAL])),
        ("resident_memory_bytes", "Resident memory size in bytes.", int(fields[_RESIDENT]) * page),
        ("start_time_seconds", "Start time of the process since unix epoch in seconds.", started_s),
        ("open_fds", "Number of open file descriptors.", open_files),
        ("max_fds", "Maximum number of open file descriptors.", files_limit()),
    ):
        yield GaugeMetricFamily(f"process_{name}", help, value=value)
    help = "Total user and system CPU time spent in seconds."
    yield CounterMetricFamily("process_cpu_seconds", help, value=cpu_s)


@define(eq=False, repr=False)
class NodeCollector:
    """Collects the metrics of a node of a cluster with partitions: of its clients and what it owns.

    Implements ``Collector``. Prometheus asks each node, and adds up: so each figure is that of one
    node. Figures of a partition have the label ``partition``; those of the node's own part do not.

    Args:
      router: Collects those of its router.
      owned: Returns the brokers of its partitions.
    """

    router: BrokerCollector
    owned: Owned
    _collectors: dict[int, BrokerCollector] = field(factory=dict)
    """Those of the partitions: each keeps what it has reported by name."""

    def collecting(self) -> Pieces[Families]:
        """Implement ``Collector.collecting``."""
        counted: dict[int, Counted] = {}
        collectors = self._collectors = dict(self._owned())
        for number, each in collectors.items():
            counted[number] = yield from each.counting()
        present = yield from self.router.figures.counting()
        return self._together(
            [
                (None, self.router.of_process(present)),
                (None, self.router.of_rooms()),
                *(
                    (number, each.of_messages(counted[number]))
                    for number, each in collectors.items()
                ),
            ]
        )

    def _owned(self) -> Iterator[tuple[int, BrokerCollector]]:
        for number, (server, figures) in self.owned().items():
            found = self._collectors.get(number)
            if found is None or found.server is not server:
                found = BrokerCollector(server, figures, self.router.limit)
            yield number, found

    def _together(self, parts: "list[tuple[int | None, Families]]") -> Families:
        """Yield each metric once, with the samples of all parts."""
        found: dict[str, Metric] = {}
        for number, families in parts:
            for each in families:
                if each is not None:
                    if number is not None:
                        yield from _label(each, f"{number}")
                    known = found.setdefault(each.name, each)
                    if known is not each:
                        known.samples += each.samples
                yield None
        yield from found.values()


def _label(metric: Metric, partition: str) -> Iterator[None]:
    """Give all samples of a metric the label of a partition."""
    samples = metric.samples
    for number, sample in enumerate(samples):
        samples[number] = sample._replace(labels={PARTITION: partition, **sample.labels})
        if number % LOOKS == LOOKS - 1:
            yield


class Collector(Protocol):
    """Collects metrics in pieces."""

    def collecting(self) -> Pieces[Families]:
        """Count in pieces. Return the metrics, each made when it is asked for."""


@define(eq=False, repr=False)
class Metrics:
    """The page ``/metrics``.

    Args:
      collector: Collects them.
    """

    collector: "Collector"

    def answer(self, request: HttpRequest, _identity: Identity = ANONYMOUS) -> Pieces[Answer]:
        """All metrics, in the format that the request accepts."""
        Query.of(request, ())
        accepted = b",".join(request.values(b"accept"))[:MAX_ACCEPT_BYTES].decode("latin-1")
        try:
            encode, content_type = choose_encoder(accepted)
        except (TypeError, ValueError):
            # An invalid version: answer in plain text, which every client understands.
            encode, content_type = choose_encoder("")
        yield
        families = yield from self.collector.collecting()
        pieces: list[bytes] = []
        for metric in families:
            if metric is not None:
                for piece in encoded(metric, encode):
                    pieces.append(piece.removesuffix(_END))
                    yield
            yield
        if content_type.startswith(_OPENMETRICS):
            pieces.append(_END)
        return 200, (("Content-Type", content_type), *NOT_KEPT), b"".join(pieces)


@frozen
class _Only:
    """The registry that an encoder asks for its metrics."""

    metric: Metric

    def collect(self) -> list[Metric]:
        """Return the metric."""
        return [self.metric]


def encoded(metric: Metric, encode: "Callable[[Any], bytes]") -> Iterator[bytes]:
    """Encode a metric, some of its samples at a time."""
    samples = metric.samples
    for start in range(0, max(1, len(samples)), LOOKS):
        metric.samples = samples[start : start + LOOKS]
        text = encode(_Only(metric))
        # Each piece begins with HELP and TYPE, which may appear only once.
        yield text.split(b"\n", 2)[2] if start else text
