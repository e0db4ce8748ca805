"""The differences between SQLite and PostgreSQL. Needs SQLAlchemy."""

import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Protocol

import sqlalchemy as sql
from attrs import define
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.exc import (
    ArgumentError,
    DataError,
    DBAPIError,
    InterfaceError,
    OperationalError,
    SQLAlchemyError,
    TimeoutError,
)

from trio_stomp.store._port import StoreError, StoreLocked, StoreUnavailable
from trio_stomp.store.disk import LOCK_FLAGS

URLS = "give sqlite:////path/to/file or postgresql://user:password@host/database"
CONNECT_TIMEOUT_S = 10

# Possibly temporary errors: no connection, no disk space, a lock.
PASSING = (OperationalError, InterfaceError, TimeoutError)

ADVISORY_LOCK = (
    "SELECT pg_try_advisory_lock(hashtext('trio_stomp'), hashtext(coalesce(current_schema(), '')))"
)

# Error texts of databases, with the remedy for each.
REMEDIES = {
    "is locked": "another program keeps a transaction open: let it end the transaction",
    "is full": "make room on its disk",
    "no space left": "make room on its disk",
    "readonly": "let this user write to the file and its directory",
    "unable to open": "the directory must exist, and this user must be able to write to it",
    "not a database": "name another file, or restore this one from a backup",
    "malformed": "restore it from a backup",
    "no schema": "grant this user what docs/operate/sql.md says",
    "permission denied": "grant this user what docs/operate/sql.md says",
    "password": "put the right user and password into the URL",
    "does not exist": "create it, as docs/operate/sql.md says",
}
ELSE = "check that the database is up, and read its log"


class Database(Protocol):
    """The operations that differ between databases."""

    name: str
    """The name in RECEIPTs, such as ``stored:sqlite``."""

    shown: str
    """The path or URL for error texts, without the password."""

    engine: sql.Engine

    def lock(self) -> None:
        """Lock the database against other brokers. Call this before all other methods.

        Raises:
          StoreLocked: another broker uses the database.
        """

    def open_writer(self) -> sql.Connection:
        """Open and return the connection for writing, which locks out other brokers.

        Raises:
          StoreLocked: another broker uses the database.
        """

    def begin(self, writer: sql.Connection, is_urgent: bool) -> None:
        """Set whether the commit of the next transaction waits for the disk."""

    def insert(self, writer: sql.Connection, table: sql.Table, rows: Sequence[Any]) -> None:
        """Insert rows, which are tuples of all columns in order."""

    def is_among(self, column: sql.Column[int], ids: Sequence[int]) -> sql.ColumnElement[bool]:
        """Return the condition that a column's value is one of ``ids``."""

    def free(self) -> int:
        """Return the free bytes on the database's disk, or -1 if unknown."""

    def size(self, connection: sql.Connection) -> int:
        """Return the size on disk, in bytes."""

    def close(self, writer: sql.Connection | None) -> None:
        """Close all connections and release the lock."""


def open_database(text: str) -> Database:
    """Return the database of a URL, without connecting to it.

    Raises:
      StoreError: the URL is not supported, or the driver is not installed.
    """
    try:
        url = sql.make_url(text)
        backend = url.get_backend_name()
    except (ArgumentError, ValueError):
        # The cause is omitted: it may quote the URL with the password.
        raise StoreError(f"this is not the URL of a database: {URLS}") from None
    if backend == "sqlite":
        return _open_sqlite(url)
    if backend == "postgresql":
        return _open_postgresql(url)
    raise StoreError(f"{backend} is not a database that can be used: {URLS}")


@contextmanager
def explained(
    database: Database, doing: str, kind: type[StoreError] | None = None
) -> Iterator[None]:
    """Convert errors of SQLAlchemy and of the driver into ``StoreError``.

    Args:
      database: The database in use.
      doing: The failure in words, such as "cannot be read".
      kind: The class to raise; None = ``StoreUnavailable`` if temporary, else ``StoreError``.
    """
    try:
        yield
    except DataError:
        raise  # the fault of a value, not of the database
    except (SQLAlchemyError, database.engine.dialect.loaded_dbapi.Error) as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        message = " ".join(str(cause).split())
        remedy = next((text for word, text in REMEDIES.items() if word in message.lower()), ELSE)
        if kind is None:
            kind = StoreUnavailable if isinstance(error, PASSING) else StoreError
        raise kind(f"{database.shown}: {doing}: {message}; {remedy}") from error


@define(eq=False, repr=False)
class Sqlite:
    """A local file in WAL mode, so that others can read while the broker writes."""

    shown: str
    engine: sql.Engine
    _path: str
    name: str = "stored:sqlite"
    _lock: int = -1
    _waits: bool = True

    def lock(self) -> None:
        """Implement ``Database.lock`` with a file beside the database, as SQLite locks that."""
        path = f"{self._path}.lock"
        try:
            self._lock = os.open(path, LOCK_FLAGS, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close(None)
            raise StoreLocked(f"{self._path}: another broker uses it ({path}): stop it") from None
        except OSError as error:
            remedy = REMEDIES["unable to open"]
            raise StoreError(f"{path}: cannot be opened: {error.strerror}; {remedy}") from error

    def open_writer(self) -> sql.Connection:
        """Implement ``Database.open_writer``. Only the owner may read a new file.

        SQLite gives its other files the same permissions.
        """
        with suppress(OSError):  # SQLite will report the cause
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        writer = self.engine.connect()
        writer.exec_driver_sql("PRAGMA journal_mode=WAL")
        writer.exec_driver_sql("PRAGMA synchronous=FULL")
        self._waits = True
        return writer

    def begin(self, writer: sql.Connection, is_urgent: bool) -> None:
        """Implement ``Database.begin``. A commit in FULL also syncs earlier ones in NORMAL."""
        if is_urgent is not self._waits:
            level = "FULL" if is_urgent else "NORMAL"
            writer.exec_driver_sql(f"PRAGMA synchronous={level}")
            self._waits = is_urgent

    def insert(self, writer: sql.Connection, table: sql.Table, rows: Sequence[Any]) -> None:
        """Implement ``Database.insert`` at half the cost of SQLAlchemy's ``insert``."""
        marks = ", ".join("?" * len(table.columns))
        writer.exec_driver_sql(f"INSERT INTO {table.name} VALUES ({marks})", rows)

    def is_among(self, column: sql.Column[int], ids: Sequence[int]) -> sql.ColumnElement[bool]:
        """Implement ``Database.is_among``."""
        return column.in_(ids)

    def free(self) -> int:
        """Implement ``Database.free``."""
        try:
            return shutil.disk_usage(os.path.dirname(self._path)).free
        except OSError:
            return -1

    def size(self, connection: sql.Connection) -> int:
        """Implement ``Database.size``."""
        pages = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
        return int(connection.exec_driver_sql(pages).scalar_one())

    def close(self, writer: sql.Connection | None) -> None:
        """Implement ``Database.close``."""
        if writer is not None:
            writer.close()
        self.engine.dispose()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _open_sqlite(url: sql.URL) -> Sqlite:
    if url.database in {None, "", ":memory:"} or "uri" in url.query:
        raise StoreError("sqlite needs a plain file: give sqlite:////path/to/file")
    path = os.path.realpath(str(url.database))
    engine = _engine(url, {"check_same_thread": False}, "sql")
    return Sqlite(path, engine, path)


@define(eq=False, repr=False)
class PostgreSql:
    """A server. An advisory lock for each schema locks out other brokers."""

    shown: str
    engine: sql.Engine
    name: str = "stored:postgresql"

    def lock(self) -> None:
        """Implement ``Database.lock`` by doing nothing: ``open_writer`` locks."""

    def open_writer(self) -> sql.Connection:
        """Implement ``Database.open_writer``."""
        writer = self.engine.connect()
        if not writer.exec_driver_sql(ADVISORY_LOCK).scalar_one():
            writer.close()
            raise StoreLocked(f"{self.shown}: another broker uses it (advisory lock): stop it")
        writer.commit()
        return writer

    def begin(self, writer: sql.Connection, is_urgent: bool) -> None:
        """Implement ``Database.begin``. A commit that waits also syncs earlier ones."""
        if not is_urgent:
            writer.exec_driver_sql("SET LOCAL synchronous_commit TO off")

    def insert(self, writer: sql.Connection, table: sql.Table, rows: Sequence[Any]) -> None:
        """Implement ``Database.insert`` with COPY, at a sixth of the cost of INSERT."""
        driver: Any = writer.connection.dbapi_connection
        with driver.cursor() as cursor, cursor.copy(f"COPY {table.name} FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)

    def is_among(self, column: sql.Column[int], ids: Sequence[int]) -> sql.ColumnElement[bool]:
        """Implement ``Database.is_among``."""
        return column == sql.any_(sql.literal(ids, ARRAY(sql.BigInteger)))

    def free(self) -> int:
        """Implement ``Database.free``: unknown for a server."""
        return -1

    def size(self, connection: sql.Connection) -> int:
        """Implement ``Database.size``."""
        tables = (
            "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r' "
            "AND left(relname, 11) = 'trio_stomp_' "
            "AND relnamespace = current_schema()::regnamespace"
        )
        return int(connection.exec_driver_sql(tables).scalar_one())

    def close(self, writer: sql.Connection | None) -> None:
        """Implement ``Database.close``. Unlock before the server notices the disconnection."""
        if writer is not None:
            with suppress(SQLAlchemyError):
                writer.rollback()
                writer.exec_driver_sql("SELECT pg_advisory_unlock_all()")
            writer.close()
        self.engine.dispose()


def _open_postgresql(url: sql.URL) -> PostgreSql:
    url = url.set(drivername="postgresql+psycopg")
    # The tables must be able to hold any Unicode destination.
    timeout_s = url.query.get("connect_timeout", CONNECT_TIMEOUT_S)
    engine = _engine(url, {"client_encoding": "utf8", "connect_timeout": timeout_s}, "postgresql")
    shown = url.set(drivername="postgresql", password=None, query={})
    return PostgreSql(shown.render_as_string(), engine)


def _engine(url: sql.URL, options: dict[str, Any], extra: str) -> sql.Engine:
    """Return an engine whose errors do not quote messages."""
    try:
        return sql.create_engine(
            url, connect_args=options, hide_parameters=True, pool_pre_ping=True
        )
    except ModuleNotFoundError as error:
        raise StoreError(f"{error}: pip install 'trio-stomp[{extra}]'") from error
