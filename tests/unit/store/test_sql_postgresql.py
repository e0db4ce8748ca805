"""The SQL store with a server that is stopped and restarted, and with two brokers on it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.stores import QUERIES, Opened, Schema, cut_connections, execute, make_place
from tests.support.stores import numbers as numbers
from tests.support.stores import postgres as postgres
from trio_stomp import store as stores
from trio_stomp.store import (
    Append,
    Begin,
    Delivered,
    Done,
    Keep,
    Put,
    StaleSequence,
    StoreBroken,
    StoreError,
    StoreLocked,
    StoreUnavailable,
)

HEAD = b"destination:/queue/a\n"


def put(first: int, *bodies: bytes) -> Put:
    return Put("queue:/queue/a", first, HEAD, bodies)


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Schema:
    found = make_place("postgresql", tmp_path, request)
    assert isinstance(found, Schema)
    return found


@pytest.fixture
def opened(place: Schema) -> Iterator[Opened]:
    found = Opened(place)
    yield found
    found.store.close()


def test_other_applications_read_the_messages(opened: Opened, place: Schema) -> None:
    opened.append(put(1, b"one"), Delivered([1]), Keep("a", "1"))
    columns = "id, place, destination, priority, headers, body, deliveries, transient"
    found = execute(place.server, f"SELECT {columns} FROM trio_stomp_messages", place.name)
    assert found == [(1, "queue:/queue/a", "/queue/a", 4, HEAD.decode(), b"one", 1, False)]


@pytest.mark.parametrize("query", [query for query in QUERIES if "datetime" not in query])
def test_the_queries_of_the_documentation_run(opened: Opened, place: Schema, query: str) -> None:
    opened.append(Put("queue:/queue/orders", 1, HEAD, [b"x"], deliveries=2))
    opened.append(Begin("/stream/DIAG", "e"), Append("/stream/DIAG", 0, HEAD, [b"x"], 7))
    assert len(execute(place.server, query, place.name)) == 1


def test_its_size_is_known(opened: Opened) -> None:
    opened.append(put(1, *[bytes([n]) * 100_000 for n in range(10)]))
    assert opened.restart()
    assert opened.store.statistics().bytes > 10_000


def test_a_second_broker_is_refused(opened: Opened, place: Schema) -> None:
    with pytest.raises(StoreLocked, match="another broker uses it"):
        place.make().recover(lambda done, size: None)
    opened.append(put(1, b"1"))


def test_each_schema_may_have_its_broker(
    opened: Opened, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    other = Opened(make_place("postgresql", tmp_path, request))
    opened.append(put(1, b"1"))
    assert other.read("queue:/queue/a") == {}
    other.store.close()


def test_connections_that_were_cut_are_replaced(opened: Opened, place: Schema) -> None:
    opened.append(put(1, b"1"), Begin("s", "e"), Append("s", 0, HEAD, [b"x"], 1))
    assert list(opened.read("queue:/queue/a")) == [1]
    cut_connections(place.server)
    assert list(opened.read("queue:/queue/a")) == [1]
    cut_connections(place.server)
    opened.append(put(2, b"2"), Done([1]))
    assert list(opened.read_stream("s")) == [0]
    with pytest.raises(StoreLocked):
        place.make().recover(lambda done, size: None)


def test_a_server_that_is_away_is_waited_for(opened: Opened, place: Schema) -> None:
    opened.append(put(1, b"1"))
    place.server.stop()
    try:
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="cannot be written to"):
                opened.append(put(2, b"2"))
        with pytest.raises(StoreUnavailable, match="cannot be read"):
            opened.store.read("queue:/queue/a", 4, 0, 100)
    finally:
        place.server.start()
    assert list(opened.read("queue:/queue/a")) == [1]
    opened.append(put(2, b"2"))
    assert list(opened.read("queue:/queue/a")) == [1, 2]


def test_a_connection_that_is_cut_in_the_middle(
    opened: Opened, place: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    """COPY uses the driver directly, but its errors become store errors all the same."""
    import psycopg

    copy = psycopg.Cursor.copy

    def cut_and_copy(self, *arguments, **options):
        monkeypatch.setattr(psycopg.Cursor, "copy", copy)
        cut_connections(place.server)
        return copy(self, *arguments, **options)

    opened.append(put(1, b"1"))
    monkeypatch.setattr(psycopg.Cursor, "copy", cut_and_copy)
    with pytest.raises(StoreUnavailable):
        opened.append(Done([1]), put(2, b"2"))
    opened.append(put(3, b"3"))
    assert list(opened.read("queue:/queue/a")) == [1, 3]


def cut_at_commit(place: Schema, monkeypatch: pytest.MonkeyPatch, is_done: bool, then) -> None:
    """Cut the connection of the next commit, before or after the server has done it."""
    from sqlalchemy.engine.default import DefaultDialect

    commit = DefaultDialect.do_commit

    def do_commit(self, connection) -> None:
        monkeypatch.setattr(DefaultDialect, "do_commit", commit)
        if is_done:
            commit(self, connection)
        cut_connections(place.server)
        then()
        connection.execute("SELECT 1")

    monkeypatch.setattr(DefaultDialect, "do_commit", do_commit)


@pytest.mark.parametrize("is_done", [True, False])
def test_the_end_of_a_commit_is_found_out(
    opened: Opened, place: Schema, monkeypatch: pytest.MonkeyPatch, is_done: bool
) -> None:
    opened.append(put(1, b"1"))
    cut_at_commit(place, monkeypatch, is_done, lambda: None)
    if is_done:
        opened.append(put(2, b"2"))
    else:
        with pytest.raises(StoreUnavailable):
            opened.append(put(2, b"2"))
    opened.append(put(3, b"3"))
    assert list(opened.read("queue:/queue/a")) == ([1, 2, 3] if is_done else [1, 3])


def test_an_end_that_cannot_be_found_out_breaks_the_store(
    opened: Opened, place: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_at_commit(place, monkeypatch, True, place.server.stop)
    try:
        with pytest.raises(StoreBroken):
            opened.append(put(1, b"1"))
    finally:
        place.server.start()
    with pytest.raises(StoreBroken):
        opened.append(put(1, b"1"))
    assert opened.restart().commit == 1


def test_overtaken_broker_gives_up(opened: Opened, place: Schema) -> None:
    opened.append(put(1, b"1"))
    cut_connections(place.server)
    other = Opened(place)
    with pytest.raises(StoreUnavailable, match="another broker uses it"):
        opened.append(put(2, b"mine"))
    other.append(put(2, b"theirs"))
    other.store.close()
    with pytest.raises(StaleSequence, match="another broker has written"):
        opened.append(put(2, b"mine"))
    assert opened.bodies("queue:/queue/a") == {1: b"1", 2: b"theirs"}


def test_commits_that_a_crash_of_the_server_undid_are_counted_on(
    opened: Opened, place: Schema
) -> None:
    """Deferred records may be lost with the server; the store continues to work."""
    opened.append(put(1, b"1"))
    opened.append(Delivered([1]), is_urgent=False)
    execute(place.server, "UPDATE trio_stomp_state SET last_commit = 1", place.name)
    opened.append(put(2, b"2"))
    assert opened.restart().commit == 3
    execute(place.server, "UPDATE trio_stomp_state SET last_commit = 2", place.name)
    with pytest.raises(StaleSequence):
        opened.append(put(3, b"3"))


@pytest.mark.parametrize("grant", ["", "GRANT USAGE ON SCHEMA {} TO guest"])
def test_missing_right_to_create_tables_is_reported(place: Schema, grant: str) -> None:
    execute(place.server, "CREATE ROLE guest LOGIN;" + grant.format(place.name))
    try:
        store = stores.SqlStore(place.server.url(place.name).replace("tester@", "guest@"))
        with pytest.raises(StoreError, match=r"grant this user what docs/operate/sql\.md says"):
            store.recover(lambda done, size: None)
    finally:
        execute(place.server, "DROP OWNED BY guest; DROP ROLE guest")
