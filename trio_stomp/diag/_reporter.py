"""Publishes the broker's statistics and events, as far as anybody listens."""

import logging
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import TypeVar

import trio
from attrs import define, field

from trio_stomp import _schema
from trio_stomp._schema import Table
from trio_stomp.broker import DIAG_STREAM, Broker, BrokerEvent, Census, Histogram, Route
from trio_stomp.diag._changes import (
    Changes,
    Mark,
    connection_mark,
    destination_mark,
    stage_mark,
)
from trio_stomp.diag._drops import DropTeller
from trio_stomp.diag._figures import Figures
from trio_stomp.diag._options import DiagOptions
from trio_stomp.diag._process import PauseMeter
from trio_stomp.diag._records import (
    buffers_record,
    connection_record,
    destination_record,
    event_record,
    latency_record,
    queue_records,
    session_record,
    stages,
    stale_record,
    websocket_record,
)
from trio_stomp.diag._stream import DiagStream, Record, timestamp
from trio_stomp.server import Server

logger = logging.getLogger("trio_stomp")

T = TypeVar("T")
H = TypeVar("H", bound=Hashable)

MAX_ITEMS = 1_000
"""Items of one message. One such message takes some 10 ms, which is a turn of its own."""
MAX_LISTED = 10_000
"""Connections or destinations of one interval; the next interval goes on where this one ended."""
MAX_TURN_EVENTS = 500
"""Events of one turn; the next ones go on."""

_WITH_CENSUS = frozenset({_schema.SESSION, _schema.STALE, _schema.WS})


@define(eq=False)
class Reporter:
    """The diagnostics, as the server's dispatcher calls them within its turns.

    Handles: which topics are heard, what is told on them and when, long lists in parts.
    Does not handle: stompica's requests (the broker answers those), keeping what was published.

    Args:
      options: How often, under which name.
      server: Its broker is looked up late, for the server is given one after it is given this.
      wall: Unix time.
    """

    options: DiagOptions
    server: Server
    wall: Callable[[], float] = time.time
    interval_s: float = field(init=False)
    stream: DiagStream = field(init=False)
    figures: Figures = field(init=False)
    """The same figures for whoever asks at another time."""
    _started: float = field(factory=trio.current_time)
    _drops: DropTeller = field(factory=DropTeller)
    _pauses: PauseMeter = field(factory=PauseMeter)
    _events: deque[BrokerEvent] = field(factory=deque)
    _parts: deque[Callable[[float], None]] = field(factory=deque)
    """Messages of long lists, each for a turn of its own."""
    _changes: dict[str, Changes] = field(factory=dict)
    _places: dict[str, int] = field(factory=dict)
    """Where the next interval goes on in lists that are too long for one, by table."""

    def __attrs_post_init__(self) -> None:
        self.interval_s = self.options.diag_interval_s
        self.stream = DiagStream(self.options.diag_broker_id, self.wall)
        self.figures = Figures(self.server, self.stream, self._started, self._pauses)

    def begin(self) -> None:
        """Open the stream, where the options want one. The broker has what the store held."""
        options = self.options
        if options.diag_stream and options.diag_interval_s:
            self.stream.log = self.server.broker.streams.open(
                DIAG_STREAM,
                options.diag_stream_max_bytes,
                round(options.diag_stream_max_age_s * 1000),
                options.diag_stream_memory_bytes,
            )
            self.server.broker.events.are_kept = True

    def tick(self, now: float) -> None:
        """Publish the statistics of the last interval, as far as anybody listens.

        Lists follow with the ends of this turn and the next ones, a message each.
        """
        try:
            self._tick(now)
        except Exception:
            # Statistics are no reason to stop a broker: this runs in its one dispatcher task.
            logger.exception("a bug of the broker: the statistics of this interval are incomplete")

    def end_turn(self, now: float) -> None:
        """Publish what happened in this turn, and the next part of what was too much for one."""
        if not (self.server.broker.events.pending or self._events or self._parts):
            return
        try:
            if self.server.broker.events.pending or self._events:
                self._publish_events(now)
            if self._parts:
                self._parts.popleft()(now)
        except Exception:
            logger.exception("a bug of the broker: events or statistics are incomplete")
        else:
            # Not after an error, or one that stays would have turn follow turn for ever.
            if self._events or self._parts:
                self.server.inbox.wake()

    def _tick(self, now: float) -> None:
        server = self.server
        broker, dispatcher = server.broker, server.dispatcher
        turns, dispatcher.turn_times = dispatcher.turn_times, Histogram()
        self.figures.end_interval(turns)
        self._drops.tell(server, self.stream.lost)
        heard = {table for table in _schema.REPORTED if self._is_heard(table.topic)}
        self._pauses.turn(_schema.PROCESS in heard)
        if not heard:
            return
        wall_now = self.wall()
        ts = timestamp(wall_now)
        census = server.census() if heard & _WITH_CENSUS else Census()
        if _schema.SESSION in heard:
            self._publish(_schema.SESSION, session_record(broker, census), ts, now)
        if _schema.STALE in heard:
            self._publish(_schema.STALE, stale_record(broker, census), ts, now)
        if _schema.PROCESS in heard:
            self._publish(_schema.PROCESS, self.figures.process(now), ts, now)
        if not self._parts:
            # Else the last interval's lists are not out yet, and these would only come later still.
            self._plan_connections(heard, buffers_record(server, census), ts, now, wall_now)
            self._plan_destinations(heard, ts, now)

    def _plan_connections(
        self, heard: set[Table], buffers: Record, ts: str, now: float, wall_now: float
    ) -> None:
        connections = self.server.connections
        if _schema.CONNECTION in heard:
            listed = self._window(_schema.CONNECTION, connections, len(connections))
            listed, full = self._changed(_schema.CONNECTION, listed, connection_mark, now)
            describe = partial(connection_record, now=now, wall_now=wall_now)
            self._plan(_schema.CONNECTION, listed, describe, ts, {"full": full})
        if _schema.WS in heard:
            upgraded = [each for each in connections if each.websocket is not None]
            listed = self._window(_schema.WS, upgraded, len(upgraded))
            listed, full = self._changed(_schema.WS, listed, connection_mark, now)
            self._plan(_schema.WS, listed, websocket_record, ts, {"full": full, **buffers})

    def _plan_destinations(self, heard: set[Table], ts: str, now: float) -> None:
        broker = self.server.broker
        if _schema.QUEUE in heard:
            queues = broker.queues.largest(MAX_ITEMS // 2)
            parked = broker.stale.largest(MAX_ITEMS - 1 - len(queues))
            records = queue_records(self.server, queues, parked, now)
            self._plan(_schema.QUEUE, records, _as_it_is, ts, {"full": True})
        if _schema.DESTINATION in heard:
            routes = self._routes(_schema.DESTINATION, broker)
            mark = partial(destination_mark, broker=broker)
            routes, full = self._changed(_schema.DESTINATION, routes, mark, now)
            describe = partial(destination_record, broker=broker)
            self._plan(_schema.DESTINATION, routes, describe, ts, {"full": full})
        if _schema.LATENCY in heard:
            routes = self._routes(_schema.LATENCY, broker)
            observed = [stage for route in routes for stage in stages(route)]
            observed, full = self._changed(_schema.LATENCY, observed, stage_mark, now)
            self._plan(_schema.LATENCY, observed, latency_record, ts, {"full": full})

    def _routes(self, table: Table, broker: Broker) -> list[Route]:
        """The destinations of clients; telling of DIAG's own would only tell of the telling."""
        routes = self._window(table, broker.routes, len(broker.routes))
        return [route for route in routes if not route.reserved]

    def _changed(
        self, table: Table, things: Sequence[H], mark: Callable[[H], Mark], now: float
    ) -> tuple[list[H], bool]:
        changes = self._changes.get(table.name)
        if changes is None:
            changes = self._changes[table.name] = Changes(self.options.diag_full_s)
        return changes.select(things, mark, now)

    def _window(self, table: Table, things: Iterable[T], total: int) -> list[T]:
        """All of ``things``, or if these are too many, the next ones in turn."""
        if total <= MAX_LISTED:
            return list(things)
        start = self._places.get(table.name, 0) % total
        window = list(islice(things, start, start + MAX_LISTED))
        self._places[table.name] = start + len(window)
        return window

    def _plan(
        self,
        table: Table,
        things: Sequence[T],
        describe: Callable[[T], Record],
        ts: str,
        beside: Record | None = None,
    ) -> None:
        """Have messages on ``things`` published with the next ends of turns, one with each."""
        parts = max(1, -(-len(things) // MAX_ITEMS))
        for part in range(parts):
            some = things[part * MAX_ITEMS : (part + 1) * MAX_ITEMS]
            page: Record = {"part": part + 1, "parts": parts, **(beside or {})}
            self._parts.append(partial(self._publish_part, table, some, describe, page, ts))

    def _publish_part(
        self,
        table: Table,
        things: Sequence[T],
        describe: Callable[[T], Record],
        page: Record,
        ts: str,
        now: float,
    ) -> None:
        if self._is_heard(table.topic):
            page["items"] = [describe(thing) for thing in things]
            self._publish(table, page, ts, now)

    def _publish_events(self, now: float) -> None:
        events = self._events
        if not events:
            # Only then: what is beyond the broker's own bound is counted, not kept.
            events.extend(self.server.broker.events.take())
        ts = timestamp(self.wall())
        for _ in range(min(len(events), MAX_TURN_EVENTS)):
            event = events.popleft()
            if self._is_heard(_schema.EVENT.topic + event.name):
                self._publish(_schema.EVENT, event_record(event), ts, now, interval_s=0.0)

    def _is_heard(self, topic: str) -> bool:
        return self.stream.log is not None or self.server.broker.has_subscribers(topic)

    def _publish(
        self, table: Table, record: Record, ts: str, now: float, interval_s: float | None = None
    ) -> None:
        interval = self.interval_s if interval_s is None else interval_s
        broker = self.server.broker
        self.stream.publish(broker, table, record, ts=ts, interval_s=interval, now=now)


def _as_it_is(record: Record) -> Record:
    return record
