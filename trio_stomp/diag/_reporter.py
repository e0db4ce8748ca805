"""Publishes the broker's statistics and events on DIAG topics that have subscribers."""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TypeVar

import trio
from attrs import asdict, define, field

from trio_stomp.base import LOOKS, RECORDS, Greatest, Table, greatest, slices
from trio_stomp.base import schema as _schema
from trio_stomp.broker import BrokerEvent, Census, Destination, Histogram, Queue, queue_of
from trio_stomp.diag._changes import Changes, Touched, destination_mark
from trio_stomp.diag._drops import DropReporter
from trio_stomp.diag._figures import Figures
from trio_stomp.diag._options import DiagOptions
from trio_stomp.diag._process import PauseMeter
from trio_stomp.diag._records import (
    Stage,
    buffers_record,
    connection_record,
    destination_record,
    latency_record,
    queue_record,
    stages,
    stale_record,
    websocket_record,
)
from trio_stomp.diag._stream import DiagStream, Record, encode_items, timestamp
from trio_stomp.server import TURN, Server

logger = logging.getLogger("trio_stomp")

T = TypeVar("T")

MAX_ITEMS = 1_000
"""Maximum number of items in a message."""
MAX_LISTED = 10_000
"""Maximum number of connections or destinations listed in an interval. The next interval continues
where this one ended."""
MAX_TURN_EVENTS = 50
"""Maximum number of events published in a turn."""
MAX_PUT_OFF = 8
"""Maximum number of turns by which a slice of a list is delayed while the broker is busy."""

_WITH_CENSUS = frozenset({_schema.SESSION, _schema.STALE, _schema.WS})
_OF_ROUTES = frozenset({_schema.DESTINATION, _schema.LATENCY})
_DONE = object()


@define(eq=False)
class Reporter:
    """The diagnostics, which the server's dispatcher calls within its turns.

    Handles: which topics have subscribers, what is published on them and when, long lists in parts.
    Does not handle: stompica's requests (the broker answers those), storage of published messages.

    Args:
      options: The interval, the broker's id and other options.
      server: The server. Its broker is set later than this is created, so it is looked up on use.
      wall: Returns Unix time.
    """

    options: DiagOptions
    server: Server
    wall: Callable[[], float] = time.time
    interval_s: float = field(init=False)
    stream: DiagStream = field(init=False)
    figures: Figures = field(init=False)
    """The same figures for requests between intervals."""
    _started: float = field(factory=trio.current_time)
    _drops: DropReporter = field(factory=DropReporter)
    _pauses: PauseMeter = field(factory=PauseMeter)
    _events: deque[BrokerEvent] = field(factory=deque)
    _jobs: deque[Iterator[None]] = field(factory=deque)
    """Lists that are being published. Each step is a slice, done in a turn of its own."""
    _put_off: int = 0
    """Turns since the last slice."""
    _now: float = 0.0
    """The time of the current slice."""
    _changes: dict[Table, Changes] = field(factory=dict)
    """The changes of lists that had subscribers in the last interval."""
    _touched: Touched = field(factory=Touched)
    _starts: dict[Table, int] = field(factory=dict)
    """The position at which the next interval continues lists that are too long for one."""

    def __attrs_post_init__(self) -> None:
        self.interval_s = self.options.diag_interval_s
        self.stream = DiagStream(self.options.diag_broker_id, self.wall)
        self.figures = Figures(self.server, self.stream, self._started, self._pauses)

    def begin(self) -> None:
        """Open the stored DIAG stream if the options enable it. The broker must have recovered."""
        options = self.options
        if options.diag_stream and options.diag_interval_s:
            self.stream.log = self.server.broker.keep_events(
                options.diag_stream_max_bytes,
                options.diag_stream_max_age_s,
                options.diag_stream_memory_bytes,
            )

    def tick(self, now: float) -> None:
        """Publish the statistics of the last interval on topics that have subscribers.

        Lists follow at the end of this turn and the next ones, at most one message in each.
        """
        try:
            self._tick(now)
        except Exception:
            # A bug in statistics must not stop the broker: this runs in its only dispatcher task.
            text = "a bug in the broker: the statistics of this interval are incomplete"
            self.server.bugs.note(TURN, text)

    def end_turn(self, now: float) -> None:
        """Publish the events of this turn, and do the next slice of a long list."""
        if not self._events:
            # Only when empty, so that the broker's limit bounds events: it counts the excess.
            self._events.extend(self.server.broker.take_events())
        if not (self._events or self._jobs):
            return
        try:
            if self._events:
                self._publish_events(now)
            if self._jobs:
                self._go_on(now)
        except Exception:
            text = "a bug in the broker: events or statistics are incomplete"
            self.server.bugs.note(TURN, text)
        else:
            # Not after an error: a permanent one would cause endless turns.
            if self._events or self._jobs:
                self.server.inbox.wake()

    def _go_on(self, now: float) -> None:
        """Do the next slice, unless output of this turn is waiting to be sent."""
        if self.server.outboxes.dirty and self._put_off < MAX_PUT_OFF:
            self._put_off += 1
            return
        self._put_off = 0
        self._now = now
        job = self._jobs.popleft()
        if next(job, _DONE) is not _DONE:
            self._jobs.appendleft(job)

    def _tick(self, now: float) -> None:
        server = self.server
        dispatcher = server.dispatcher
        turns, dispatcher.turn_times = dispatcher.turn_times, Histogram()
        self.figures.end_interval(turns)
        self._drops.report(server, self.stream.lost, now)
        subscribed = {table for table in _schema.REPORTED if self._has_subscribers(table.topic)}
        self._pauses.turn(_schema.PROCESS in subscribed)
        # A new subscriber first gets full lists.
        self._changes = {
            table: each for table, each in self._changes.items() if table in subscribed
        }
        if not subscribed:
            return
        wall_now = self.wall()
        ts = timestamp(wall_now)
        census = server.census() if subscribed & _WITH_CENSUS else Census()
        statistics = server.broker.statistics()
        if _schema.SESSION in subscribed:
            self._publish(_schema.SESSION, self.figures.session(census), ts, now)
        if _schema.STALE in subscribed:
            self._publish(_schema.STALE, stale_record(statistics, census), ts, now)
        if _schema.PROCESS in subscribed:
            self._publish(_schema.PROCESS, self.figures.process(now), ts, now)
        if not self._jobs:
            # Otherwise the last interval's lists are still being published: skip those of this one.
            # Connections use Trio's clock, which stops while the machine is suspended.
            awake = now - server.clock.slept_s
            self._plan_connections(subscribed, buffers_record(server, census), ts, awake, wall_now)
            if _schema.QUEUE in subscribed:
                self._jobs.append(self._list_queues(ts, now))
            if subscribed & _OF_ROUTES:
                self._jobs.append(self._list_routes(subscribed & _OF_ROUTES, ts, now))

    def _plan_connections(
        self, subscribed: set[Table], buffers: Record, ts: str, now: float, wall_now: float
    ) -> None:
        connections = self.server.connections
        tables = subscribed & {_schema.CONNECTION, _schema.WS}
        if not tables:
            return
        if not all(table in self._changes for table in tables):
            # A table has its first subscriber, which needs all connections.
            self._touched.take_all(self.server)
        fits = len(connections) <= MAX_LISTED
        some = self._touched.take(self.server, MAX_LISTED if fits else MAX_LISTED - MAX_ITEMS)
        if not fits:
            again, _ = self._window(_schema.CONNECTION, connections, len(connections), MAX_ITEMS)
            some = list(dict.fromkeys([*some, *again]))
        for table in (_schema.CONNECTION, _schema.WS):
            if table in tables:
                full = self._changes_of(table).is_full(now) and fits
                listed = list(connections) if full else some
                if table is _schema.WS:
                    upgraded = [each for each in listed if each.websocket is not None]
                    job = self._list(
                        table,
                        things=upgraded,
                        describe=websocket_record,
                        ts=ts,
                        full=full,
                        beside=buffers,
                    )
                else:
                    describe = partial(connection_record, now=now, wall_now=wall_now)
                    job = self._list(table, listed, describe, ts, full=full)
                self._jobs.append(job)

    def _list_queues(self, ts: str, now: float) -> Iterator[None]:
        """Publish the input queue, the fullest queues and the largest parked destinations."""
        statistics = self.server.broker.statistics()
        best = Greatest[Queue](MAX_ITEMS // 2)
        for some in slices(list(statistics.destinations), LOOKS):
            queues = [queue for each in some if (queue := queue_of(each)) is not None]
            best.add([(queue.message_count, queue) for queue in queues])
            yield
        fullest = yield from best.found()
        left = MAX_ITEMS - 1 - len(fullest)
        parked = yield from greatest(statistics.parked(), lambda parked: parked.size, left)
        things = [None, *fullest, *parked]
        describe = partial(queue_record, self.server, statistics=statistics, now=now)
        yield from self._list(_schema.QUEUE, things, describe, ts, full=True)

    def _list_routes(self, tables: set[Table], ts: str, now: float) -> Iterator[None]:
        """Publish clients' destinations. Those of DIAG would only measure these messages."""
        statistics = self.server.broker.statistics()
        total = len(statistics.destinations)
        changes = {table: self._changes_of(table) for table in tables}
        full = {table: changes[table].is_full(now) and total <= MAX_LISTED for table in tables}
        destinations, is_last = self._window(
            _schema.DESTINATION, statistics.destinations, total, MAX_LISTED
        )
        chosen: list[Destination] = []
        observed: list[Stage] = []
        for index, looked in enumerate(slices(destinations, LOOKS)):
            some = [destination for destination in looked if not destination.reserved]
            for table in tables:
                change = changes[table]
                turn = change.passes % (MAX_LISTED // MAX_ITEMS)
                # Too many for a full list: each pass includes another part, changed or not.
                again = total > MAX_LISTED and index * LOOKS // MAX_ITEMS == turn
                everything = full[table] or again
                if table is _schema.DESTINATION:
                    marks = [destination_mark(destination, statistics) for destination in some]
                    chosen += change.pick(some, some, marks, everything=everything)
                else:
                    each = [stage for destination in some for stage in stages(destination)]
                    keys = [stage.times for stage in each]
                    counts = [times.count for times in keys]
                    observed += change.pick(each, keys, counts, everything=everything)
            yield
        if is_last:
            for change in changes.values():
                change.end_pass()
        if _schema.DESTINATION in tables:
            describe = partial(destination_record, statistics=statistics)
            whole = full[_schema.DESTINATION]
            yield from self._list(_schema.DESTINATION, chosen, describe, ts, full=whole)
        if _schema.LATENCY in tables:
            whole = full[_schema.LATENCY]
            yield from self._list(_schema.LATENCY, observed, latency_record, ts, full=whole)

    def _changes_of(self, table: Table) -> Changes:
        changes = self._changes.get(table)
        if changes is None:
            changes = self._changes[table] = Changes(self.options.diag_full_s)
        return changes

    def _window(
        self, table: Table, things: Iterable[T], total: int, size: int
    ) -> tuple[list[T], bool]:
        """Return the next ``size`` of ``things`` in rotation, and whether the last is in it."""
        if total <= size:
            return list(things), True
        start = self._starts.get(table, 0) % total
        window = list(islice(things, start, start + size))
        self._starts[table] = start + len(window)
        return window, start + len(window) >= total

    def _list(
        self,
        table: Table,
        things: Sequence[T],
        describe: Callable[[T], Record],
        ts: str,
        *,
        full: bool,
        beside: Record | None = None,
    ) -> Iterator[None]:
        """Publish messages on ``things``, at most one in a turn, while there are subscribers."""
        parts = max(1, -(-len(things) // MAX_ITEMS))
        for part in range(parts):
            items: list[str] = []
            listed = things[part * MAX_ITEMS : (part + 1) * MAX_ITEMS]
            for some in slices(listed, RECORDS):
                if not self._has_subscribers(table.topic):
                    return
                items.append(encode_items([describe(each) for each in some]))
                yield
            if not self._has_subscribers(table.topic):
                return
            page: Record = {"part": part + 1, "parts": parts, "full": full, **(beside or {})}
            self._publish(table, page, ts, self._now, items=items)
            yield

    def _publish_events(self, now: float) -> None:
        events, broker = self._events, self.server.broker
        ts = timestamp(self.wall())
        for _ in range(min(len(events), MAX_TURN_EVENTS)):
            event = events.popleft()
            if self._has_subscribers(_schema.EVENT.topic + event.name):
                record = asdict(event)
                self.stream.publish(broker, _schema.EVENT, record, ts=ts, interval_s=0.0, now=now)

    def _has_subscribers(self, topic: str) -> bool:
        return self.stream.log is not None or self.server.broker.has_subscribers(topic)

    def _publish(
        self,
        table: Table,
        record: Record,
        ts: str,
        now: float,
        items: Sequence[str] | None = None,
    ) -> None:
        """Publish figures of the last interval."""
        broker, interval_s = self.server.broker, self.interval_s
        self.stream.publish(
            broker, table, record, ts=ts, interval_s=interval_s, now=now, items=items
        )
