"""Changes, as the statements of one transaction. Needs SQLAlchemy."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Any, TypeVar, assert_never

import sqlalchemy as sql
from attrs import define, evolve, field, frozen

from trio_stomp.store._changes import Changes, StreamRecord
from trio_stomp.store._port import StreamState
from trio_stomp.store._records import Append, Begin, DropStream, Put, Trim
from trio_stomp.store.sql._database import Database
from trio_stomp.store.sql._tables import (
    MESSAGES,
    SETTINGS,
    STREAM_MESSAGES,
    STREAMS,
    to_digest,
    to_head,
    to_place,
    to_text,
)

CHUNK = 1000
"""Ids in one statement."""

T = TypeVar("T")


@frozen
class StreamEntry:
    """A stream, and the number that stands for it in the tables."""

    id: int
    state: StreamState


@frozen
class Written:
    """The effect of changes, once they are committed.

    Args:
      live: How many messages more there are in places.
      streams: All there are now.
    """

    live: int
    streams: Mapping[str, StreamEntry]


def write(
    writer: sql.Connection,
    database: Database,
    changes: Changes,
    streams: Mapping[str, StreamEntry],
) -> Written:
    """Make the changes within the writer's transaction."""
    gone = _delete(writer, database, changes)
    _count_deliveries(writer, database, changes)
    if rows := list(_rows(changes)):
        database.insert(writer, MESSAGES, rows)
    _change_settings(writer, database, changes.settings)
    log = _StreamWriter(writer, database, dict(streams))
    for record in changes.streams:
        log.apply(record)
    log.finish()
    return Written(len(rows) - gone, log.streams)


def _delete(writer: sql.Connection, database: Database, changes: Changes) -> int:
    gone = 0
    for place in changes.dropped:
        is_there = MESSAGES.c.place == to_place(place)[0]
        gone += writer.execute(MESSAGES.delete().where(is_there)).rowcount
    for ids in _chunks(changes.done):
        is_done = database.is_among(MESSAGES.c.id, ids)
        gone += writer.execute(MESSAGES.delete().where(is_done)).rowcount
    return gone


def _count_deliveries(writer: sql.Connection, database: Database, changes: Changes) -> None:
    by_count = defaultdict(list)
    for id, count in changes.delivered.items():
        if id not in changes.puts:
            by_count[count].append(id)
    for count, delivered in by_count.items():
        more = MESSAGES.update().values(deliveries=MESSAGES.c.deliveries + count)
        for ids in _chunks(delivered):
            writer.execute(more.where(database.is_among(MESSAGES.c.id, ids)))


def _rows(changes: Changes) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of MESSAGES, computing once what the messages of one Put share."""
    last: Put | None = None
    shared: tuple[Any, ...] = ()
    for id, (put, body) in changes.puts.items():
        if put is not last:
            last = put
            shared = (*to_place(put.place), put.level, *to_head(put.head))
        deliveries = put.deliveries + changes.delivered.get(id, 0)
        times = put.received_ms, put.expires_ms
        yield (id, *shared, body, *times, deliveries, put.transient)


def _change_settings(
    writer: sql.Connection, database: Database, settings: Mapping[str, str | None]
) -> None:
    if not settings:
        return
    digests = {key: to_digest(key) for key in settings}
    for chunk in _chunks(digests.values()):
        writer.execute(SETTINGS.delete().where(SETTINGS.c.digest.in_(chunk)))
    kept = [
        (digests[key], to_text(key), to_text(text))
        for key, text in settings.items()
        if text is not None
    ]
    if kept:
        database.insert(writer, SETTINGS, kept)


def _chunks(items: Collection[T]) -> Iterator[list[T]]:
    rest = list(items)
    for start in range(0, len(rest), CHUNK):
        yield rest[start : start + CHUNK]


@define(eq=False)
class _StreamWriter:
    """Writes the records of streams in order, in bulk where nothing stands between them."""

    _writer: sql.Connection
    _database: Database
    streams: dict[str, StreamEntry]
    _rows: list[tuple[Any, ...]] = field(factory=list)
    _changed: set[str] = field(factory=set)

    def apply(self, record: StreamRecord) -> None:
        match record:
            case Append():
                self._append(record)
            case Trim(stream, before):
                self._trim(stream, before)
            case Begin(stream, epoch, first):
                self._drop(stream)
                state = StreamState(epoch, first, first, 0)
                row = {"name": to_text(stream), "epoch": to_text(epoch), **_columns(state)}
                made = self._writer.execute(STREAMS.insert().returning(STREAMS.c.id), row)
                self.streams[stream] = StreamEntry(made.scalar_one(), state)
            case DropStream(stream):
                self._drop(stream)
            case _:
                assert_never(record)

    def finish(self) -> None:
        """Insert what is left, and note where the streams begin and end."""
        self._insert()
        for stream in self._changed & self.streams.keys():
            entry = self.streams[stream]
            to = STREAMS.update().where(STREAMS.c.id == entry.id)
            self._writer.execute(to.values(**_columns(entry.state)))

    def _append(self, record: Append) -> None:
        entry = self.streams[record.stream]
        head = to_head(record.head)
        self._rows += [
            (entry.id, offset, *head, body, record.written_ms)
            for offset, body in enumerate(record.bodies, record.first)
        ]
        size = entry.state.bytes + sum(map(len, record.bodies))
        end = record.first + len(record.bodies)
        self._change(record.stream, entry, evolve(entry.state, next=end, bytes=size))

    def _trim(self, stream: str, before: int) -> None:
        self._insert()
        entry = self.streams[stream]
        table = STREAM_MESSAGES.c
        is_gone = sql.and_(table.stream_id == entry.id, table.stream_offset < before)
        size = sql.func.coalesce(sql.func.sum(sql.func.length(table.body)), 0)
        less = int(self._writer.execute(sql.select(size).where(is_gone)).scalar_one())
        self._writer.execute(STREAM_MESSAGES.delete().where(is_gone))
        state = entry.state
        first = max(state.first, min(before, state.next))
        self._change(stream, entry, evolve(state, first=first, bytes=state.bytes - less))

    def _drop(self, stream: str) -> None:
        self._insert()
        if (entry := self.streams.pop(stream, None)) is not None:
            its = STREAM_MESSAGES.c.stream_id == entry.id
            self._writer.execute(STREAM_MESSAGES.delete().where(its))
            self._writer.execute(STREAMS.delete().where(STREAMS.c.id == entry.id))

    def _change(self, stream: str, entry: StreamEntry, state: StreamState) -> None:
        self.streams[stream] = evolve(entry, state=state)
        self._changed.add(stream)

    def _insert(self) -> None:
        if self._rows:
            self._database.insert(self._writer, STREAM_MESSAGES, self._rows)
            self._rows = []


def _columns(state: StreamState) -> dict[str, int]:
    return {"first_offset": state.first, "next_offset": state.next, "bytes": state.bytes}
