"""Stores of every kind, over data that outlive them, and shared helpers of the tests of their
contract."""

import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest
from attrs import define, field

from tests.support.cluster import Node
from tests.support.postgres import PostgresServer, postgres_server
from trio_stomp import store as stores
from trio_stomp.store import (
    Append,
    Begin,
    Delivered,
    Done,
    Keep,
    MemoryStore,
    Put,
    Record,
    Recovered,
    Store,
    StoreError,
    Streamed,
    Turn,
)

KINDS = ("memory", "sqlite", "postgresql", "journal", "replicated")
EVERYTHING = 1 << 30

DOCUMENT = Path(__file__).parents[2] / "docs" / "operate" / "sql.md"
QUERIES = re.findall(r"^```sql\n(.*?)^```$", DOCUMENT.read_text("utf-8"), re.MULTILINE | re.DOTALL)


class Message(NamedTuple):
    """A message of a place, as read back."""

    body: bytes
    head: bytes
    received_ms: int
    expires_ms: int
    deliveries: int


class Place(Protocol):
    """The place of a store's data, by kind."""

    def make(self) -> Store:
        """Return a new store, not yet recovered."""

    def crash(self, store: Store) -> None:
        """Simulate the death of the process of ``store``: it is not closed, the data stay."""


@define
class Memory:
    """The store is its own disk."""

    store: MemoryStore = field(factory=MemoryStore)

    def make(self) -> Store:
        return self.store

    def crash(self, store: Store) -> None:
        pass


@define
class Directory:
    """Files. After a crash, a copy is used that was made while the store was open."""

    path: Path
    kind: str
    copies: Iterator[int] = field(factory=count)

    def make(self) -> Store:
        if self.kind == "sqlite":
            return stores.SqlStore(f"sqlite:///{self.path}/broker.db")
        return stores.JournalStore(str(self.path))

    def crash(self, store: Store) -> None:
        copy = self.path.parent / f"copy-{next(self.copies)}"
        shutil.copytree(self.path, copy)
        store.close()
        self.path = copy


@define
class Schema:
    """A schema of a PostgreSQL database. At a crash the server sees the connections end."""

    server: PostgresServer
    name: str

    def make(self) -> Store:
        return stores.SqlStore(self.server.url(self.name))

    def crash(self, store: Store) -> None:
        cut_connections(self.server)
        with suppress(StoreError):
            store.close()


def execute(
    server: PostgresServer, statement: str, schema: str = "public"
) -> list[tuple[Any, ...]]:
    """Execute a statement outside of the store. Return the rows, if there are any."""
    import psycopg

    with psycopg.connect(server.url(schema), autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def cut_connections(server: PostgresServer) -> None:
    """End all connections to the server, and wait until they are."""
    execute(
        server,
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
        "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'",
    )


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="session")
def numbers() -> Iterator[int]:
    """Return the numbers of the schemas: each test has its own."""
    return count()


def make_place(kind: str, path: Path, request: pytest.FixtureRequest) -> Place:
    """Return an empty place for a kind of store. Skip the test if the kind is not available."""
    if kind == "memory":
        return Memory()
    if kind == "replicated":
        return Node(path)
    if kind != "journal":
        pytest.importorskip("sqlalchemy", reason="pip install 'trio-stomp[sql]'")
    if kind == "postgresql":
        pytest.importorskip("psycopg", reason="pip install 'trio-stomp[postgresql]'")
        server = request.getfixturevalue("postgres")
        name = f"test_{next(request.getfixturevalue('numbers'))}"
        execute(server, f"CREATE SCHEMA {name}")
        return Schema(server, name)
    data = path / "data"
    data.mkdir()
    return Directory(data, kind)


@define
class Opened:
    """An open store, and the result of opening it."""

    place: Place
    store: Store = field(init=False)
    recovered: Recovered = field(init=False)
    commit: int = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.open()

    def open(self) -> None:
        self.store = self.place.make()
        self.recovered = self.store.recover(lambda done, size: None)
        self.commit = self.recovered.commit

    def restart(self) -> Recovered:
        """Close the store, and open it again."""
        self.store.close()
        self.open()
        return self.recovered

    def crash(self) -> Recovered:
        """Open the store again without closing it."""
        self.place.crash(self.store)
        self.open()
        return self.recovered

    def append(self, *records: Record, is_urgent: bool = True) -> int:
        """Append one turn."""
        return self.append_turns(Turn(records, is_urgent))

    def append_turns(self, *turns: Turn) -> int:
        commit = self.store.append(turns, self.commit)
        assert commit == self.commit + len(turns)
        self.commit = commit
        return commit

    def read(
        self, place: str, level: int = 4, after: int = 0, limit_bytes: int = EVERYTHING
    ) -> dict[int, Message]:
        """Read all pages. Return the messages by id, in order."""
        found: dict[int, Message] = {}
        last = after
        while True:
            page = self.store.read(place, level, last, limit_bytes)
            assert page.lost == 0
            for run in page.runs:
                shared = run.head, run.received_ms, run.expires_ms, run.deliveries
                assert len(run.ids) == len(run.bodies) > 0
                for id, body in zip(run.ids, run.bodies, strict=True):
                    assert id > last
                    found[id] = Message(bytes(body), *shared)
                    last = id
            assert page.next >= last
            if page.is_last:
                return found
            last = page.next

    def bodies(self, place: str, level: int = 4) -> dict[int, bytes]:
        return {id: message.body for id, message in self.read(place, level).items()}

    def read_stream(
        self, stream: str, first: int = 0, limit_bytes: int = EVERYTHING
    ) -> dict[int, tuple[bytes, bytes, int]]:
        """Read to the end. Return (body, head, written_ms) by offset."""
        found: dict[int, tuple[bytes, bytes, int]] = {}
        while runs := self.store.read_stream(stream, first, limit_bytes):
            for run in runs:
                found.update(by_offset(run))
                assert run.first >= first
                first = run.first + len(run.bodies)
        return found


def by_offset(run: Streamed) -> dict[int, tuple[bytes, bytes, int]]:
    return {
        offset: (bytes(body), run.head, run.written_ms)
        for offset, body in enumerate(run.bodies, run.first)
    }


HEAD = b"destination:/queue/a\npersistent:true\n"
BODIES = [b"one", "zwei ü\n".encode(), b"\xff\x00three"]


def ignore(done: int, total: int) -> None:
    """Ignore the progress."""


def fill(store: Store) -> None:
    """Fill two places in turn, a stream that began late, settings and deliveries; finish some."""
    commit = store.recover(ignore).commit
    records: list[Record] = [
        Put("queue:/queue/a", 1, HEAD, BODIES, received_ms=5, expires_ms=9),
        Put("queue:/queue/b", 4, HEAD, [b"four", b"gone"], level=9),
        Put("queue:/queue/a", 6, b"\xff:x\n", [b"six"], deliveries=2),
        Put("queue:/queue/a", 7, HEAD, [b"passing"], transient=True),
        Done([5]),
        Delivered([1]),
        Keep("durable:x", "so\n"),
        Begin("/stream/s", "e1", 7),
        Append("/stream/s", 7, HEAD, [b"a", b"b"], 100),
        Append("/stream/s", 9, HEAD, [b"\xfe"], 200),
    ]
    store.append([Turn(records)], commit)
