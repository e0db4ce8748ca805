"""Writes changes as the statements of one transaction, which begins by claiming its commit number.

The row of ``STATE`` names the current writer and the last commit. Needs SQLAlchemy.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Any, TypeVar, assert_never

import sqlalchemy as sql
from attrs import define, evolve, field, frozen

from trio_stomp.store._changes import Changes, StreamRecord
from trio_stomp.store._port import StoreError, StreamState
from trio_stomp.store._records import Append, Begin, DropStream, Put, Trim
from trio_stomp.store.sql._database import Database
from trio_stomp.store.sql._tables import (
    MESSAGES,
    SCHEMA_VERSION,
    SETTINGS,
    STATE,
    STREAM_MESSAGES,
    STREAMS,
    TABLES,
    to_digest,
    to_head,
    to_place,
    to_text,
)

CHUNK = 1000
"""Maximum number of ids in one statement."""

T = TypeVar("T")

# Built once: building a statement costs more than running it.
_NEXT = sql.bindparam("next", type_=sql.BigInteger)
_CLAIM = (
    STATE.update()
    .where(
        STATE.c.writer == sql.bindparam("token"),
        STATE.c.last_commit.between(sql.bindparam("from"), sql.bindparam("to")),
    )
    .values(
        last_commit=sql.bindparam("commit"),
        next_id=sql.case((STATE.c.next_id < _NEXT, _NEXT), else_=STATE.c.next_id),
    )
)


@frozen
class StreamEntry:
    """A stream and its id in the tables."""

    id: int
    state: StreamState


@frozen
class Written:
    """The result of changes, once they are committed.

    Args:
      live: By how much the number of messages in places grew.
      streams: All streams afterwards.
    """

    live: int
    streams: Mapping[str, StreamEntry]


def prepare(writer: sql.Connection, shown: str, token: str) -> None:
    """Create missing tables, take them over, and delete transient messages.

    Args:
      writer: The connection for writing.
      shown: Name of the database in error texts.
      token: Unique word of this broker, which alone can ``claim`` from now on.

    Raises:
      StoreError: a later version of the program created the tables.
    """
    is_new = not sql.inspect(writer).has_table(STATE.name)
    found = SCHEMA_VERSION if is_new else writer.scalar(sql.select(STATE.c.schema_version))
    if found is not None and found > SCHEMA_VERSION:
        raise StoreError(
            f"{shown}: its tables are of version {found}, and this program knows "
            f"{SCHEMA_VERSION}: update the program, or name another database"
        )
    TABLES.create_all(writer)
    taken = writer.execute(STATE.update().values(writer=token)).rowcount
    if not taken:
        row = {"last_commit": 0, "next_id": 1, "writer": token}
        writer.execute(STATE.insert(), {"schema_version": SCHEMA_VERSION, **row})
    writer.execute(MESSAGES.delete().where(MESSAGES.c.transient))


def claim(
    writer: sql.Connection, token: str, last_range: tuple[int, int], commit: int, next_id: int
) -> bool:
    """Begin the transaction of a commit, and return whether it may continue.

    Args:
      writer: The connection for writing.
      token: This broker's token.
      last_range: Inclusive range of the last commit. A crash of the database may undo commits that
        did not wait for the disk.
      commit: Number of the new commit.
      next_id: Lower bound of the next id.
    """
    values = {
        "token": token,
        "from": last_range[0],
        "to": last_range[1],
        "commit": commit,
        "next": next_id,
    }
    return writer.execute(_CLAIM, values).rowcount == 1


def last_commit(writer: sql.Connection, token: str) -> int | None:
    """Return the number of the last commit, or None if another broker has taken over."""
    return writer.scalar(sql.select(STATE.c.last_commit).where(STATE.c.writer == token))


def touch(writer: sql.Connection) -> None:
    """Write a row unchanged, so that the next commit has something to sync."""
    writer.execute(STATE.update().values(writer=STATE.c.writer))


def write(
    writer: sql.Connection, database: Database, changes: Changes, streams: Mapping[str, StreamEntry]
) -> Written:
    """Apply changes within the writer's transaction, and return their result."""
    deleted = _delete(writer, database, changes)
    _count_deliveries(writer, database, changes)
    if rows := list(_rows(changes)):
        database.insert(writer, MESSAGES, rows)
    _change_settings(writer, database, changes.settings)
    log = _StreamWriter(writer, database, dict(streams))
    for record in changes.streams:
        log.apply(record)
    log.finish()
    return Written(len(rows) - deleted, log.streams)


def _delete(writer: sql.Connection, database: Database, changes: Changes) -> int:
    deleted = 0
    for place in changes.dropped:
        is_there = MESSAGES.c.place == to_place(place)[0]
        deleted += writer.execute(MESSAGES.delete().where(is_there)).rowcount
    for ids in _chunks(changes.done):
        is_done = database.is_among(MESSAGES.c.id, ids)
        deleted += writer.execute(MESSAGES.delete().where(is_done)).rowcount
    return deleted


def _count_deliveries(writer: sql.Connection, database: Database, changes: Changes) -> None:
    by_count = defaultdict(list)
    for id, count in changes.delivered.items():
        if id not in changes.puts:
            by_count[count].append(id)
    for count, delivered in by_count.items():
        update = MESSAGES.update().values(deliveries=MESSAGES.c.deliveries + count)
        for ids in _chunks(delivered):
            writer.execute(update.where(database.is_among(MESSAGES.c.id, ids)))


def _rows(changes: Changes) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of MESSAGES. The columns that one Put shares are computed once."""
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
    remaining = [
        (digests[key], to_text(key), to_text(text))
        for key, text in settings.items()
        if text is not None
    ]
    if remaining:
        database.insert(writer, SETTINGS, remaining)


def _chunks(items: Collection[T]) -> Iterator[list[T]]:
    rest = list(items)
    for start in range(0, len(rest), CHUNK):
        yield rest[start : start + CHUNK]


@define(eq=False)
class _StreamWriter:
    """Writes the records of streams in order, consecutive appends in bulk."""

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
                result = self._writer.execute(STREAMS.insert().returning(STREAMS.c.id), row)
                self.streams[stream] = StreamEntry(result.scalar_one(), state)
            case DropStream(stream):
                self._drop(stream)
            case _:
                assert_never(record)

    def finish(self) -> None:
        """Insert the remaining rows, and update the streams' offsets and sizes."""
        self._insert()
        for stream in self._changed & self.streams.keys():
            entry = self.streams[stream]
            update = STREAMS.update().where(STREAMS.c.id == entry.id)
            self._writer.execute(update.values(**_columns(entry.state)))

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
        is_trimmed = sql.and_(table.stream_id == entry.id, table.stream_offset < before)
        size = sql.func.coalesce(sql.func.sum(sql.func.length(table.body)), 0)
        freed = int(self._writer.execute(sql.select(size).where(is_trimmed)).scalar_one())
        self._writer.execute(STREAM_MESSAGES.delete().where(is_trimmed))
        state = entry.state
        first = max(state.first, min(before, state.next))
        self._change(stream, entry, evolve(state, first=first, bytes=state.bytes - freed))

    def _drop(self, stream: str) -> None:
        self._insert()
        if (entry := self.streams.pop(stream, None)) is not None:
            is_of_stream = STREAM_MESSAGES.c.stream_id == entry.id
            self._writer.execute(STREAM_MESSAGES.delete().where(is_of_stream))
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
