"""A read-only snapshot of a database, in one transaction, for tools. Needs SQLAlchemy."""

import os
from typing import TYPE_CHECKING

import sqlalchemy as sql
from sqlalchemy.exc import SQLAlchemyError

from trio_stomp.store._port import Page, Progress, Recovered, StoreError, Streamed
from trio_stomp.store._runs import page_of, streamed_of
from trio_stomp.store.sql import (
    MESSAGES,
    STATE,
    explained,
    open_database,
    read,
    read_stream,
    recover,
)

if TYPE_CHECKING:
    from trio_stomp.store.sql import StreamEntry

UNREADABLE = "cannot be read"


class SqlView:
    """The view of a broker's tables, without changes made after it was opened."""

    def __init__(self, url: str) -> None:
        self._database = open_database(url)
        self.name = self._database.name.removeprefix("stored:")
        self._is_sqlite = self._database.engine.dialect.name == "sqlite"
        path = self._database.engine.url.database or ""
        if self._is_sqlite and not os.path.exists(path):
            raise StoreError(f"{path} is not there: name the database of a broker")
        self._connection: sql.Connection | None = None
        self._streams: dict[str, StreamEntry] = {}
        self._transient: frozenset[int] = frozenset()
        self._damage: list[str] = []

    def fix(self) -> None:
        """Implement ``View.fix``: a transaction shows one moment anyway."""

    def recover(self, progress: Progress) -> Recovered:
        """Implement ``View.recover``."""
        with explained(self._database, UNREADABLE):
            connection = self._connection = self._begin()
            if not sql.inspect(connection).has_table(STATE.name):
                raise StoreError(f"{self._database.shown} holds no store of a broker's")
            recovered, self._streams = recover(connection)
            passing = sql.select(MESSAGES.c.id).where(MESSAGES.c.transient)
            self._transient = frozenset(connection.scalars(passing))
            if self._is_sqlite:
                lines = connection.exec_driver_sql("PRAGMA integrity_check").scalars()
                self._damage = [f"{self._database.shown}: {line}" for line in lines if line != "ok"]
        size = self._database.size(connection)
        progress(size, size)
        return recovered

    def _begin(self) -> sql.Connection:
        """Return a connection with a transaction that reads one snapshot."""
        connection = self._database.engine.connect()
        if self._is_sqlite:
            connection.exec_driver_sql("BEGIN")
            return connection
        return connection.execution_options(
            isolation_level="REPEATABLE READ", postgresql_readonly=True
        )

    def read(self, place: str, level: int, after: int, limit_bytes: int) -> Page:
        """Implement ``View.read``."""
        with explained(self._database, UNREADABLE):
            rows, is_last = read(self._opened, place, level, after, limit_bytes)
        end = page_of(rows, after, is_last).next
        durable = [row for row in rows if row.id not in self._transient]
        return Page(page_of(durable, after, is_last).runs, end, is_last)

    def read_stream(self, stream: str, first: int, limit_bytes: int) -> list[Streamed]:
        """Implement ``View.read_stream``."""
        entry = self._streams.get(stream)
        if entry is None:
            return []
        with explained(self._database, UNREADABLE):
            return list(streamed_of(read_stream(self._opened, entry.id, first, limit_bytes)))

    def take_damage(self) -> list[str]:
        """Implement ``View.take_damage``."""
        lines, self._damage = self._damage, []
        return lines

    def files(self) -> list[tuple[str, int]]:
        """Implement ``View.files`` with the SQLite file, or the size of a server's tables."""
        try:
            size = self._database.size(self._opened)
        except SQLAlchemyError:
            return []
        return [(os.path.basename(self._database.engine.url.database or ""), size)]

    @property
    def _opened(self) -> sql.Connection:
        if self._connection is None:
            raise StoreError(f"{self._database.shown} is not open")
        return self._connection

    def close(self) -> None:
        """Implement ``View.close``."""
        if self._connection is not None:
            self._connection.close()
        self._database.engine.dispose()
