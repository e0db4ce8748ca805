"""The broker's present figures for pages and metrics, the same as on the DIAG topics.

They are computed on request from the broker's own state. Nothing is counted only for them.
"""

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING

import trio
from attrs import define, field, frozen

from trio_stomp.base import LOOKS, slices
from trio_stomp.broker import (
    Binding,
    Census,
    Destination,
    Histogram,
    ParkedDestination,
    Queue,
    Statistics,
    Subscription,
)
from trio_stomp.diag._drops import with_server
from trio_stomp.diag._process import PauseMeter, TaskMeter, open_files, process_record
from trio_stomp.diag._records import (
    connection_record,
    connection_state,
    destination_record,
    durable_record,
    queue_record,
    session_record,
    stages,
    stale_record,
    subscription_record,
    times_record,
    websocket_record,
)
from trio_stomp.diag._stream import DiagStream, Record, timestamp
from trio_stomp.server import Connection, Server

if TYPE_CHECKING:
    from trio_stomp.server import Traffic

UNKNOWN_VERSION = "none"
"""The version of a connection without an open session."""


@frozen(eq=False)
class Present:
    """Totals of the present connections.

    Args:
      traffic: The traffic of all connections since the start. Its figures only grow.
      kinds: The number of connections by transport and STOMP version.
      transactions: The number of open transactions.
      waiting_bytes: The bytes waiting in all outboxes.
    """

    traffic: "Traffic"
    kinds: Mapping[tuple[str, str], int]
    transactions: int
    waiting_bytes: int


def summed(histograms: Sequence[Histogram]) -> Histogram:
    """Return the sum of histograms. There must be at least one."""
    return Histogram(
        list(map(sum, zip(*[each.buckets for each in histograms], strict=True))),
        sum([each.count for each in histograms]),
        sum([each.sum_s for each in histograms]),
        max([each.max_s for each in histograms]),
    )


@define(eq=False, repr=False)
class Figures:
    """Reads the present figures of a server.

    Args:
      server: The server. Its broker is set later than this is created, so it is looked up on use.
      stream: The DIAG stream, which identifies the broker.
      started: The start of the broker, in seconds of its clock.
      pauses: The pauses of garbage collections.
    """

    server: Server
    stream: DiagStream
    started: float
    pauses: PauseMeter
    tasks: TaskMeter = field(factory=TaskMeter)
    past_turns: Histogram = field(factory=Histogram)
    """The dispatcher's turns in all finished intervals."""
    last_turns: Histogram | None = None
    """The turns in the last finished interval; None = no interval has ended."""

    def end_interval(self, turns: Histogram) -> None:
        """End an interval of the statistics with the dispatcher's ``turns``."""
        self.past_turns = summed([self.past_turns, turns])
        self.last_turns = turns
        self.pauses.end_interval()

    def turns(self) -> Histogram:
        """Return all turns of the dispatcher since the start."""
        return summed([self.past_turns, self.server.dispatcher.turn_times])

    @property
    def longest_turn_s(self) -> float:
        """The longest turn of the last interval and of this one."""
        last = self.last_turns.max_s if self.last_turns is not None else 0.0
        return max(last, self.server.dispatcher.turn_times.max_s)

    def open_files(self) -> int:
        """Return the number of open files of the process, or 0 if unknown."""
        return open_files()

    def head(self) -> Record:
        """Return the first fields of every answer: the broker, and the time."""
        stream = self.stream
        return {"broker_id": stream.broker_id, "boot": stream.boot, "ts": timestamp(stream.wall())}

    def process(self, now: float | None = None) -> Record:
        """Return the fields of the table ``process``, with turns of the last whole interval."""
        committer = self.server.committer
        turns = self.last_turns if self.last_turns is not None else self.turns()
        return process_record(
            turns,
            self.pauses,
            self.tasks.count(),
            (self.server.clock.now() if now is None else now) - self.started,
            None if committer is None else committer.store.statistics(),
        )

    def session_and_stale(self) -> tuple[Record, Record]:
        """Return the fields of these two tables, from one census."""
        census = self.server.census()
        return self.session(census), stale_record(self.server.broker.statistics(), census)

    def session(self, census: Census) -> Record:
        """Return the fields of the table ``session``."""
        dropped = sum(self.drops().values())
        return session_record(self.server.broker.statistics(), census, dropped)

    def drops(self) -> dict[str, int]:
        """Return the messages dropped since the start, by reason. Each figure only grows."""
        return with_server(self.server.broker.statistics().messages.drops, self.server)

    def expired(self) -> dict[str, int]:
        """Return the expired messages, by where they expired. Each figure only grows.

        A message of a queue that expires unacknowledged in an outbox is counted for both.
        """
        expired = self.server.broker.statistics().messages.expired
        return {**expired, "outbox": self.server.outboxes.expired}

    def state(self, connection: Connection) -> str:
        """Return ``opening``, ``open`` or ``closed``."""
        return connection_state(connection)

    def connection(self, each: Connection) -> Record:
        """Return the fields of the table ``connection``, and of ``ws`` if it is a WebSocket."""
        record = connection_record(each, trio.current_time(), self.stream.wall())
        record["pending_bytes"] = each.outbox.waiting_bytes
        if each.websocket is not None:
            record |= websocket_record(each)
        return record

    def subscription(self, thing: Subscription | Binding) -> Record:
        """Return the fields of a subscription, durable or not."""
        return durable_record(thing) if isinstance(thing, Binding) else subscription_record(thing)

    def queue(self, thing: Queue | ParkedDestination | None, statistics: Statistics) -> Record:
        """Return the fields of the table ``queue``, or of the input queue for None.

        Those of a queue are followed by some that are only on pages.
        """
        record = queue_record(self.server, thing, statistics, self.server.clock.now())
        if isinstance(thing, Queue):
            record["consumers"] = len(thing.consumers)
            record["paused"] = thing.is_paused
            record["declared"] = thing.is_declared
            record["dead_letters"] = statistics.takes_dead_letters(thing.name)
        return record

    def destination(self, thing: Destination, statistics: Statistics) -> Record:
        """Return the fields of the table ``destination``, and the latencies, only on pages."""
        record = destination_record(thing, statistics)
        record["latency"] = {each.name: times_record(each.times) for each in stages(thing)}
        return record

    def latency(self) -> Generator[None, None, Record]:
        """Return the fields of the summed latencies by stage, in pieces."""
        found = yield from self.latencies()
        return {name: times_record(each) for name, each in found.items()}

    def latencies(self) -> Generator[None, None, Mapping[str, Histogram]]:
        """Sum the latencies of clients' messages since the start by stage, in pieces."""
        statistics = self.server.broker.statistics()
        # Taken together, so that a destination removed meanwhile is counted once.
        destinations = list(statistics.destinations)
        found = {each.name: summed([each.times]) for each in stages(statistics.past)}
        for some in slices(destinations, LOOKS):
            for destination in some:
                # DIAG destinations would only measure the diagnostics.
                for each in () if destination.reserved else stages(destination):
                    found[each.name].add(each.times)
            yield
        return found

    def counting(self) -> Generator[None, None, Present]:
        """Count the present connections, in pieces."""
        server = self.server
        # Taken together, so that a connection that ends meanwhile is counted once.
        connections, traffic = list(server.connections), server.past.copy()
        kinds: Counter[tuple[str, str]] = Counter()
        transactions = waiting_bytes = 0
        for some in slices(connections, LOOKS):
            for each in some:
                version = each.session.version.name if each.is_open else UNKNOWN_VERSION
                kinds[each.client.transport, version] += 1
                traffic.add(each)
                begun = each.session.transactions
                transactions += 0 if begun is None else begun.count
                waiting_bytes += each.outbox.waiting_bytes
            yield
        return Present(traffic, kinds, transactions, waiting_bytes)
