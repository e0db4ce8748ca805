"""A store in a database, which other applications can query. Tables: docs/operate/sql.md."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from secrets import token_hex
from time import perf_counter

import sqlalchemy as sql
from attrs import define, field
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from trio_stomp.store._changes import changes_of
from trio_stomp.store._port import (
    Page,
    Progress,
    Recovered,
    StaleSequence,
    StoreBroken,
    StoreError,
    StoreLocked,
    StoreStatistics,
    StoreUnavailable,
    Streamed,
    StreamState,
)
from trio_stomp.store._records import Turn
from trio_stomp.store._runs import page_of, streamed_of
from trio_stomp.store.sql._database import Database, explained, open_database
from trio_stomp.store.sql._read import read, read_stream, recover, written_at
from trio_stomp.store.sql._write import (
    StreamEntry,
    Written,
    claim,
    last_commit,
    prepare,
    touch,
    write,
)

APPENDS_A_MEASURE = 1000
"""Appends between two queries of the database's size."""


@define(eq=False, repr=False)
class SqlStore:
    """Keeps messages, settings and streams in the tables of a database, with SQLAlchemy Core.

    All turns of an ``append`` are one transaction. Its first statement advances the commit number,
    provided that it is the expected one and no other broker has opened the database since. So two
    brokers can never both append, even if the lock fails.

    Args:
      url: ``sqlite:////path/to/file`` or ``postgresql://user:password@host/database``.

    Raises:
      StoreError: the URL is not supported, or its driver is not installed.
    """

    _url: str
    name: str = field(init=False)
    _database: Database = field(init=False)
    _writer: sql.Connection | None = None
    _token: str = ""
    _broken: str = ""
    # The last commit, and the last one that waited for the disk. A crash of the database (not of
    # the broker) may undo the commits between them.
    _commit: int = 0
    _durable: int = 0
    _streams: Mapping[str, StreamEntry] = field(factory=dict)
    _bytes: int = 0
    _live: int = 0
    _commits: int = 0
    _appends: int = 0
    _syncs: int = 0
    _sync_s: float = 0.0

    def __attrs_post_init__(self) -> None:
        self._database = open_database(self._url)
        self.name = self._database.name

    def recover(self, progress: Progress) -> Recovered:
        """Implement ``Store.recover``."""
        self._database.lock()
        try:
            with explained(self._database, "cannot be opened"):
                self._writer = writer = self._database.open_writer()
                self._token = token_hex(8)
                prepare(writer, self._database.shown, self._token)
                self._bytes = self._database.size(writer)
                progress(0, self._bytes)
                recovered, self._streams = recover(writer)
                writer.commit()
        except BaseException:
            self._release()
            raise
        progress(self._bytes, self._bytes)
        self._commit = self._durable = recovered.commit
        self._live = sum(place.count for place in recovered.places.values())
        self._broken = ""
        return recovered

    def append(self, turns: Sequence[Turn], expected: int) -> int:
        """Implement ``Store.append``."""
        if self._broken:
            raise StoreBroken(self._broken)
        if expected != self._commit:
            raise StaleSequence(f"the last commit is {self._commit}, not {expected}")
        commit = expected + len(turns)
        is_urgent = any(turn.is_urgent for turn in turns)
        changes = changes_of(turns)
        try:
            with explained(self._database, "cannot be written to", StoreUnavailable):
                writer = self._claim(commit, changes.next_id, is_urgent)
                written = write(writer, self._database, changes, self._streams)
        except BaseException as error:
            self._roll_back()
            if isinstance(error, StoreLocked):
                raise StoreUnavailable(str(error)) from error
            raise
        began = perf_counter()
        self._end(writer, commit)
        self._note(written, commit, perf_counter() - began if is_urgent else None)
        return commit

    def read(self, place: str, level: int, after: int, limit_bytes: int) -> Page:
        """Implement ``Store.read`` without waiting for ``append``."""
        with self._reading() as connection:
            rows, is_last = read(connection, place, level, after, limit_bytes)
        return page_of(rows, after, is_last)

    def read_stream(self, stream: str, first: int, limit_bytes: int) -> list[Streamed]:
        """Implement ``Store.read_stream`` without waiting for ``append``."""
        if (entry := self._streams.get(stream)) is None:
            return []
        with self._reading() as connection:
            return list(streamed_of(read_stream(connection, entry.id, first, limit_bytes)))

    def find_offset(self, stream: str, written_ms: int) -> int:
        """Implement ``Store.find_offset``, and return 0 if there is no such stream."""
        if (entry := self._streams.get(stream)) is None:
            return 0
        offsets = range(entry.state.first, entry.state.next)
        with self._reading() as connection:
            # Times never decrease, so a bisection of about twenty queries replaces an index.
            found = bisect_left(
                offsets, written_ms, key=lambda offset: written_at(connection, entry.id, offset)
            )
        return entry.state.first + found

    def stream_state(self, stream: str) -> StreamState | None:
        """Implement ``Store.stream_state``."""
        entry = self._streams.get(stream)
        return None if entry is None else entry.state

    def capacity(self) -> int:
        """Implement ``Store.capacity``. It is unknown for a server."""
        free = self._database.free()
        return 0 if free < 0 else self._bytes + free

    def statistics(self) -> StoreStatistics:
        """Implement ``Store.statistics``.

        The size is queried every ``APPENDS_A_MEASURE`` appends.
        """
        return StoreStatistics(
            bytes=self._bytes,
            live_messages=self._live,
            commits=self._commits,
            syncs=self._syncs,
            sync_s=self._sync_s,
        )

    def close(self) -> None:
        """Implement ``Store.close``. A store that is not open stays closed."""
        try:
            if self._writer is not None and self._commit != self._durable:
                with explained(self._database, "cannot be written to"):
                    # A commit that waits for the disk also syncs those before it.
                    self._database.begin(self._writer, True)
                    touch(self._writer)
                    self._writer.commit()
        finally:
            self._release()

    def _claim(self, commit: int, next_id: int, is_urgent: bool) -> sql.Connection:
        """Begin the transaction and return its connection, replacing a lost one once."""
        is_fresh = self._writer is None
        if self._writer is None:
            self._writer = self._database.open_writer()
        try:
            self._database.begin(self._writer, is_urgent)
            last_range = self._durable, self._commit
            is_ours = claim(self._writer, self._token, last_range, commit, next_id)
        except DBAPIError as error:
            if is_fresh or not error.connection_invalidated:
                raise
            self._roll_back()
            return self._claim(commit, next_id, is_urgent)
        if not is_ours:
            raise StaleSequence(f"{self._database.shown}: another broker has written to it")
        return self._writer

    def _end(self, writer: sql.Connection, commit: int) -> None:
        """Commit. If that fails, determine whether the commit took effect."""
        try:
            with explained(self._database, "cannot be written to", StoreUnavailable):
                writer.commit()
        except StoreUnavailable:
            self._roll_back()
            if not self._has_committed(commit):
                raise

    def _has_committed(self, commit: int) -> bool:
        doing = "the connection was lost in the middle of a commit, restart the broker"
        try:
            with explained(self._database, doing, StoreBroken):
                if self._writer is None:
                    self._writer = self._database.open_writer()
                found = last_commit(self._writer, self._token)
                self._writer.rollback()
        except StoreError as error:
            self._broken = str(error)
            raise StoreBroken(self._broken) from error
        if found is None:
            raise StaleSequence(f"{self._database.shown}: another broker has written to it")
        return found == commit

    def _note(self, written: Written, commit: int, sync_s: float | None) -> None:
        """Update the figures after a commit.

        Args:
          written: The result of ``write``.
          commit: Number of the commit.
          sync_s: Time of the sync; None if the commit did not wait for the disk.
        """
        self._commits += commit - self._commit
        self._commit = commit
        self._streams = written.streams
        self._live += written.live
        if sync_s is not None:
            self._durable = commit
            self._syncs += 1
            self._sync_s += sync_s
        self._appends += 1
        if self._appends % APPENDS_A_MEASURE == 0:
            self._measure()

    def _measure(self) -> None:
        with suppress(SQLAlchemyError), self._database.engine.connect() as connection:
            self._bytes = self._database.size(connection)

    @contextmanager
    def _reading(self) -> Iterator[sql.Connection]:
        with (
            explained(self._database, "cannot be read"),
            self._database.engine.connect() as connection,
        ):
            yield connection

    def _roll_back(self) -> None:
        """Roll back the transaction. Discard the connection if that fails."""
        if (writer := self._writer) is None:
            return
        # A connection that SQLAlchemy has invalidated would reconnect without the lock.
        is_lost = writer.invalidated
        try:
            writer.rollback()
            if not is_lost:
                writer.exec_driver_sql("SELECT 1")
                writer.rollback()
        except SQLAlchemyError:
            is_lost = True
        if is_lost:
            writer.invalidate()
            writer.close()
            self._writer = None

    def _release(self) -> None:
        self._database.close(self._writer)
        self._writer = None
