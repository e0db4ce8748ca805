"""Behaviour of the SQL store alone: tables, errors, locks, commits with an unknown outcome."""

import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.stores import QUERIES, Directory, Opened, ignore
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
    Trim,
    Turn,
)

sql = pytest.importorskip("sqlalchemy", reason="pip install 'trio-stomp[sql]'")

HEAD = b"destination:/queue/a\n"
PASSWORD = "se#cret"


def put(first: int, *bodies: bytes, place: str = "queue:/queue/a", **options) -> Put:
    return Put(place, first, options.pop("head", HEAD), bodies, **options)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "broker.db"


@pytest.fixture
def opened(file: Path) -> Iterator[Opened]:
    found = Opened(Directory(file.parent, "sqlite"))
    yield found
    found.store.close()


def ask(file: Path, statement: str, *values: object) -> list[tuple[Any, ...]]:
    """Execute a statement as another application would."""
    connection = sqlite3.connect(file)
    try:
        with connection:
            return connection.execute(statement, values).fetchall()
    finally:
        connection.close()


@pytest.fixture
def statements() -> Iterator[list[str]]:
    """The statements sent to any database during the test."""
    sent: list[str] = []

    def note(connection, cursor, statement, parameters, context, many) -> None:
        sent.append(statement)

    def note_commit(connection) -> None:
        sent.append("COMMIT")

    sql.event.listen(sql.Engine, "before_cursor_execute", note)
    sql.event.listen(sql.Engine, "commit", note_commit)
    yield sent
    sql.event.remove(sql.Engine, "before_cursor_execute", note)
    sql.event.remove(sql.Engine, "commit", note_commit)


# Requirements


def test_the_port_needs_no_sqlalchemy() -> None:
    program = (
        "import sys; sys.modules['sqlalchemy'] = None\n"
        "from trio_stomp import store\n"
        "assert not any(name.startswith('trio_stomp.store.sql._store') for name in sys.modules)\n"
        "try: store.SqlStore\n"
        "except store.StoreError as error: print(error)\n"
    )
    root = Path(__file__).parents[3]
    found = subprocess.run(
        [sys.executable, "-c", program], cwd=root, check=True, capture_output=True, text=True
    )
    assert "pip install 'trio-stomp[sql]'" in found.stdout


def test_a_missing_name_cannot_be_imported() -> None:
    assert stores.SqlStore.__name__ == "SqlStore"
    with pytest.raises(AttributeError, match="NoStore"):
        _ = getattr(stores, "NoStore")  # noqa: B009 - the type checker knows that it is not there


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "trio_stomp.store.sql", None)
    with pytest.raises(StoreError, match=r"pip install 'trio-stomp\[sql\]'"):
        _ = stores.SqlStore


def test_a_driver_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(StoreError, match=r"pip install 'trio-stomp\[postgresql\]'"):
        stores.SqlStore("postgresql://localhost/x")


@pytest.mark.parametrize(
    "url",
    [
        "",
        f"user:{PASSWORD}@host",
        f"postgresql://user:{PASSWORD}@host:port/x",
        f"mysql://user:{PASSWORD}@host/x",
        f"nothing+known://user:{PASSWORD}@host/x",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///file:x?uri=true",
    ],
)
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(StoreError, match="give sqlite:") as caught:
        stores.SqlStore(url)
    assert PASSWORD not in f"{caught.value!r} {caught.value.__cause__!r}"


def test_a_password_is_not_shown() -> None:
    pytest.importorskip("psycopg", reason="pip install 'trio-stomp[postgresql]'")
    query = f"connect_timeout=2&password={PASSWORD}"
    for url in (
        f"postgresql://me:{PASSWORD.replace('#', '%23')}@127.0.0.1:1/x",
        f"postgresql://me@127.0.0.1:1/x?{query.replace('#', '%23')}",
    ):
        store = stores.SqlStore(url)
        with pytest.raises(StoreUnavailable, match=r"me.*@127\.0\.0\.1:1/x: cannot") as caught:
            store.recover(ignore)
        assert PASSWORD not in f"{store!r} {caught.value} {caught.value.__cause__}"


# The tables


def test_other_applications_read_the_messages(opened: Opened, file: Path) -> None:
    opened.append(
        put(1, b"one", received_ms=5, expires_ms=9, head="h:ž\n".encode()),
        put(2, b"\xff", place="durable:me:/topic/a", level=9, head=b"\xff", transient=True),
        Delivered([2]),
    )
    assert ask(file, "SELECT * FROM trio_stomp_messages ORDER BY id") == [
        (1, "queue:/queue/a", "/queue/a", 4, "h:ž\n", None, b"one", 5, 9, 0, 0),
        (2, "durable:me:/topic/a", "me:/topic/a", 9, None, b"\xff", b"\xff", 0, 0, 1, 1),
    ]


def test_other_applications_read_the_rest(opened: Opened, file: Path) -> None:
    opened.append(Keep("a", "1"), Begin("/stream/a", "e"), Append("/stream/a", 0, HEAD, [b"x"], 7))
    opened.append(Append("/stream/a", 1, HEAD, [b"yy"], 8), Trim("/stream/a", 1))
    assert ask(file, "SELECT key, value FROM trio_stomp_settings") == [("a", "1")]
    assert ask(file, "SELECT * FROM trio_stomp_streams") == [(1, "/stream/a", "e", 1, 2, 2)]
    assert ask(file, "SELECT * FROM trio_stomp_stream_messages") == [
        (1, 1, HEAD.decode(), None, b"yy", 8)
    ]
    state = "SELECT schema_version, last_commit, next_id FROM trio_stomp_state"
    assert ask(file, state) == [(1, 2, 1)]


def test_a_place_is_read_by_an_index(opened: Opened, file: Path) -> None:
    plan = ask(
        file,
        "EXPLAIN QUERY PLAN SELECT id FROM trio_stomp_messages "
        "WHERE place = ? AND priority = ? AND id > ? ORDER BY id",
        *("queue:/queue/a", 4, 0),
    )
    assert "COVERING INDEX trio_stomp_messages_order (place=? AND priority=? AND id>?)" in str(plan)


@pytest.mark.parametrize("query", [query for query in QUERIES if "to_timestamp" not in query])
def test_the_queries_of_the_documentation_run(opened: Opened, file: Path, query: str) -> None:
    opened.append(put(1, b"x", place="queue:/queue/orders", deliveries=2))
    opened.append(Begin("/stream/DIAG", "e"), Append("/stream/DIAG", 0, HEAD, [b"x"], 7))
    assert len(ask(file, query)) == 1


def test_an_append_is_one_transaction(opened: Opened, statements: list[str]) -> None:
    records = [put(id, b"x", place=f"queue:{id % 7}") for id in range(1, 1000)]
    opened.append_turns(*[Turn([record]) for record in records])
    opened.append_turns(*[Turn([Done([id]), Delivered([id + 1])]) for id in range(1, 900)])
    words = [statement.split()[0] for statement in statements]
    assert words == ["UPDATE", "INSERT", "COMMIT", "UPDATE", "DELETE", "UPDATE", "COMMIT"]


def test_short_lived_messages_are_not_written(opened: Opened, statements: list[str]) -> None:
    opened.append_turns(Turn([put(1, b"1", b"2")]), Turn([Delivered([1])]), Turn([Done([1, 2])]))
    assert [statement.split()[0] for statement in statements] == ["UPDATE", "COMMIT"]


def test_only_urgent_turns_wait_for_the_disk(opened: Opened, statements: list[str]) -> None:
    for is_urgent in (True, False, False, True, False):
        opened.append(is_urgent=is_urgent)
    full, normal, update = "PRAGMA synchronous=FULL", "PRAGMA synchronous=NORMAL", "UPDATE"
    opened.store.close()
    words = [text if text.startswith("PRAGMA") else text.split()[0] for text in statements]
    commit = [update, "COMMIT"]
    assert words == [
        *commit,
        *(normal, *commit, *commit),
        *(full, *commit),
        *(normal, *commit),
        *(full, *commit),
    ]


def test_statistics_count_bytes_messages_commits_and_syncs(opened: Opened, file: Path) -> None:
    opened.append(put(1, *[b"x" * 100_000] * 10))
    for _ in range(999):
        opened.append(is_urgent=False)
    found = opened.store.statistics()
    assert found.bytes > 1_000_000
    assert (found.live_messages, found.commits, found.syncs) == (10, 1000, 1)
    assert found.sync_s > 0


# Other brokers


def test_a_second_broker_is_refused(opened: Opened, file: Path) -> None:
    other = stores.SqlStore(f"sqlite:///{file}")
    with pytest.raises(StoreLocked, match=r"broker\.db: another broker uses it"):
        other.recover(ignore)
    other.close()
    opened.append(put(1, b"1"))
    assert opened.bodies("queue:/queue/a") == {1: b"1"}


def test_two_writers_never_both_win(opened: Opened, file: Path) -> None:
    opened.append(put(1, b"1"))
    Path(f"{file}.lock").unlink()
    other = Opened(Directory(file.parent, "sqlite"))
    try:
        # With equal commit numbers, the broker that opened the database last owns it.
        with pytest.raises(StaleSequence, match="another broker"):
            opened.append(put(2, b"mine"))
        other.append(put(2, b"theirs"))
        with pytest.raises(StaleSequence):
            opened.append(Done([1]))
        assert other.bodies("queue:/queue/a") == {1: b"1", 2: b"theirs"}
    finally:
        other.store.close()


def test_a_newer_schema_is_not_touched(opened: Opened, file: Path) -> None:
    opened.append(put(1, b"1", transient=True))
    opened.store.close()
    ask(file, "UPDATE trio_stomp_state SET schema_version = 2")
    before = ask(file, "SELECT * FROM trio_stomp_state, trio_stomp_messages")
    with pytest.raises(StoreError, match="version 2, and this program knows 1: update"):
        opened.store.recover(ignore)
    assert ask(file, "SELECT * FROM trio_stomp_state, trio_stomp_messages") == before
    ask(file, "UPDATE trio_stomp_state SET schema_version = 1")
    opened.open()


@pytest.mark.parametrize("mask", [0o000, 0o022])
def test_its_files_are_its_owners_alone(file: Path, mask: int) -> None:
    """Under the usual umask anyone could read the file, its -wal and its -shm (F12)."""
    before = os.umask(mask)
    try:
        opened = Opened(Directory(file.parent, "sqlite"))
        opened.append(put(1, b"secret"))
        modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in file.parent.iterdir()}
        opened.store.close()
    finally:
        os.umask(before)
    kinds = ("", "-shm", "-wal", ".lock")
    assert modes == {f"broker.db{kind}": 0o600 for kind in kinds}


def test_a_file_that_others_may_read_stays_so(file: Path) -> None:
    """The owner has given other applications access, as docs/operate/sql.md describes."""
    file.touch()
    file.chmod(0o640)
    opened = Opened(Directory(file.parent, "sqlite"))
    opened.append(put(1, b"a"))
    modes = {stat.S_IMODE(each.stat().st_mode) for each in file.parent.glob("broker.db-*")}
    opened.store.close()
    assert modes == {0o640}


def test_a_failed_start_lets_others_have_it(file: Path) -> None:
    def fail(done: int, size: int) -> None:
        raise KeyError

    with pytest.raises(KeyError):
        stores.SqlStore(f"sqlite:///{file}").recover(fail)
    Opened(Directory(file.parent, "sqlite")).store.close()


# Errors


def test_a_directory_that_is_missing(tmp_path: Path) -> None:
    store = stores.SqlStore(f"sqlite:///{tmp_path}/none/x.db")
    with pytest.raises(StoreError, match="the directory must exist"):
        store.recover(ignore)


def test_a_file_that_is_no_database(file: Path) -> None:
    file.write_bytes(b"something else" * 100)
    with pytest.raises(StoreError, match=r"broker\.db: .* name another file") as caught:
        stores.SqlStore(f"sqlite:///{file}").recover(ignore)
    assert not isinstance(caught.value, StoreUnavailable)
    assert file.read_bytes() == b"something else" * 100


def test_a_locked_database_is_tried_again(file: Path) -> None:
    class Impatient(Directory):
        def make(self):
            return stores.SqlStore(f"sqlite:///{file}?timeout=0.01")

    opened = Opened(Impatient(file.parent, "sqlite"))
    opened.append(put(1, b"1"))
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="another program keeps a transaction open"):
        opened.append(put(2, b"2"))
    assert opened.bodies("queue:/queue/a") == {1: b"1"}
    other.close()
    opened.append(put(3, b"3"))
    assert opened.restart().commit == 2
    assert opened.bodies("queue:/queue/a") == {1: b"1", 3: b"3"}
    opened.store.close()


def test_a_full_disk_undoes_the_append(file: Path) -> None:
    def shrink(connection, record) -> None:
        connection.execute("PRAGMA max_page_count=30")

    sql.event.listen(sql.Engine, "connect", shrink)
    try:
        opened = Opened(Directory(file.parent, "sqlite"))
        opened.append(put(1, b"1"))
        with pytest.raises(StoreUnavailable, match="make room"):
            opened.append(put(2, b"2"), put(3, b"x" * 500_000), Keep("a", "1"))
        opened.append(put(4, b"4"))
        recovered = opened.restart()
        opened.store.close()
    finally:
        sql.event.remove(sql.Engine, "connect", shrink)
    assert recovered.commit == 2
    assert recovered.settings == {}
    assert recovered.places["queue:/queue/a", 4].count == 2


def test_a_table_that_is_lost(opened: Opened, file: Path) -> None:
    opened.append(put(1, b"1"))
    ask(file, "ALTER TABLE trio_stomp_messages RENAME TO elsewhere")
    with pytest.raises(StoreUnavailable, match="no such table"):
        opened.append(put(2, b"2"))
    with pytest.raises(StoreError, match="no such table"):
        opened.store.read("queue:/queue/a", 4, 0, 100)
    ask(file, "ALTER TABLE elsewhere RENAME TO trio_stomp_messages")
    opened.append(put(2, b"2"))
    assert list(opened.bodies("queue:/queue/a")) == [1, 2]


def test_errors_do_not_quote_messages(opened: Opened, file: Path) -> None:
    ask(file, "CREATE TRIGGER no BEFORE INSERT ON trio_stomp_messages "
              "BEGIN SELECT RAISE(FAIL, 'refused'); END")  # fmt: skip
    with pytest.raises(StoreUnavailable, match="refused") as caught:
        opened.append(put(1, b"what is private"))
    assert "private" not in f"{caught.value} {caught.value.__cause__}"


def test_deleted_rows_of_the_state_are_missed(opened: Opened, file: Path) -> None:
    ask(file, "DELETE FROM trio_stomp_state")
    with pytest.raises(StaleSequence):
        opened.append(put(1, b"1"))


# Commits with an unknown outcome


@pytest.fixture
def fail_commit(monkeypatch: pytest.MonkeyPatch):
    """Let the next commit fail, before or after it is done; then, perhaps, all connections."""
    from sqlalchemy.engine.default import DefaultDialect

    def fail(is_done: bool, then=lambda: None) -> None:
        commit = DefaultDialect.do_commit

        def do_commit(self, connection) -> None:
            if is_done:
                commit(self, connection)
            monkeypatch.setattr(DefaultDialect, "do_commit", commit)
            then()
            raise sqlite3.OperationalError("disk I/O error")

        monkeypatch.setattr(DefaultDialect, "do_commit", do_commit)

    return fail


def test_a_commit_that_failed_does_not_hold(opened: Opened, fail_commit) -> None:
    opened.append(put(1, b"1"))
    fail_commit(False)
    with pytest.raises(StoreUnavailable, match="disk I/O error"):
        opened.append(put(2, b"2"))
    opened.append(put(3, b"3"))
    assert list(opened.bodies("queue:/queue/a")) == [1, 3]
    assert opened.store.statistics().live_messages == 2


def test_a_commit_that_only_seemed_to_fail_holds(opened: Opened, fail_commit) -> None:
    fail_commit(True)
    opened.append(put(1, b"1"))
    opened.append(put(2, b"2"))
    assert opened.restart().commit == 2
    assert list(opened.bodies("queue:/queue/a")) == [1, 2]


def test_a_commit_of_which_nothing_is_known_breaks_the_store(
    opened: Opened, file: Path, fail_commit
) -> None:
    def lose() -> None:
        ask(file, "ALTER TABLE trio_stomp_state RENAME TO elsewhere")

    fail_commit(True, lose)
    for _ in range(2):
        with pytest.raises(StoreBroken, match="restart the broker"):
            opened.append(put(1, b"1"))
    ask(file, "ALTER TABLE elsewhere RENAME TO trio_stomp_state")
    assert opened.restart().commit == 1
    opened.append(put(2, b"2"))


def test_a_commit_after_that_of_another_broker_is_stale(
    opened: Opened, file: Path, fail_commit
) -> None:
    fail_commit(True, lambda: ask(file, "UPDATE trio_stomp_state SET writer = 'somebody'"))
    with pytest.raises(StaleSequence, match="another broker"):
        opened.append(put(1, b"1"))


def test_the_last_write_may_fail_too(opened: Opened, file: Path) -> None:
    opened.append(put(1, b"1"), is_urgent=False)
    ask(file, "ALTER TABLE trio_stomp_state RENAME TO elsewhere")
    with pytest.raises(StoreError, match="no such table"):
        opened.store.close()
    ask(file, "ALTER TABLE elsewhere RENAME TO trio_stomp_state")
    opened.open()
    assert opened.bodies("queue:/queue/a") == {1: b"1"}


@pytest.fixture
def lose_connection(monkeypatch: pytest.MonkeyPatch):
    """Close the connection of the next statement that begins with a text."""

    def lose(start: str, times: int = 1) -> None:
        left = [times]

        def close(connection, cursor, statement, parameters, context, many) -> None:
            if statement.startswith(start) and left[0]:
                left[0] -= 1
                cursor.connection.close()

        sql.event.listen(sql.Engine, "before_cursor_execute", close)
        listeners.append(close)

    listeners: list[Any] = []
    yield lose
    for close in listeners:
        sql.event.remove(sql.Engine, "before_cursor_execute", close)


def test_a_lost_connection_is_replaced(opened: Opened, lose_connection) -> None:
    opened.append(put(1, b"1"))
    lose_connection("UPDATE trio_stomp_state")
    opened.append(put(2, b"2"))
    assert list(opened.bodies("queue:/queue/a")) == [1, 2]


def test_a_connection_that_is_lost_again_is_not(opened: Opened, lose_connection) -> None:
    lose_connection("UPDATE trio_stomp_state", 2)
    with pytest.raises(StoreUnavailable):
        opened.append(put(1, b"1"))
    opened.append(put(2, b"2"))
    assert opened.restart().commit == 1


def test_a_connection_that_is_lost_in_the_middle(opened: Opened, lose_connection) -> None:
    lose_connection("INSERT")
    with pytest.raises(StoreUnavailable):
        opened.append(put(1, b"1"), Keep("a", "1"))
    opened.append(put(2, b"2"))
    assert opened.restart().settings == {}
    assert list(opened.bodies("queue:/queue/a")) == [2]
