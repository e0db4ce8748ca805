"""Tables of the statistics: each message once, whatever ends or accompanies a writer."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="the extra tables is not installed")

import pyarrow as pa
from deltalake import DeltaTable

from tests.support.diag_bodies import DATE, KINDS, PROGRESS, Row, message, schema_of
from tests.support.lake import STREAM, batch, offsets, split_of, write
from trio_stomp.spark.lake import DeltaStore, LakeError, Source, Store, Writer, days_of, open_store

MIDNIGHT_S = 16 * 3600
NORTH = Source("e1@north")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def session(offset: int, **known: Any) -> Row:
    return message("session", offset, **known)


def several(first: int, count: int) -> list[Row]:
    """Return messages of three kinds, over midnight, with one that no table can hold."""
    rows = []
    for offset in range(first, first + count):
        kind = ("session", "queue", "process", "session")[offset % 4]
        items = [{"destination": f"/queue/{name}"} for name in "ab"] if kind == "queue" else []
        row = message(kind, offset, *items, at_s=MIDNIGHT_S - 4 + offset)
        rows.append(row | ({"kind": "novelty"} if offset % 4 == 3 else {}))
    return rows


class Killed(Exception):
    pass


class Mortal:
    """A store whose process is killed before one of its commits."""

    def __init__(self, store: Store, commits: int) -> None:
        self.place, self.next, self.dataset = store.place, store.next, store.dataset
        self._append, self._left = store.append, commits

    def append(self, *words: Any) -> int:
        if self._left == 0:
            raise Killed
        self._left -= 1
        return self._append(*words)


@pytest.mark.parametrize("wanted", ["delta", "parquet"])
@pytest.mark.parametrize("commits", range(5))
def test_a_kill_before_any_commit_loses_and_doubles_nothing(
    tmp_path: Path, wanted: str, commits: int
) -> None:
    write(tmp_path, several(0, 4), wanted)
    killed: Any = Mortal(open_store(tmp_path), commits)
    writer = Writer(killed, STREAM)
    writer.add(batch(several(4, 8)))
    with pytest.raises(Killed):
        writer.flush()
    # The next one sees other batches: more has been sent, and some of it is gone.
    write(tmp_path, several(0, 9))
    write(tmp_path, several(9, 7))
    store = open_store(tmp_path)
    assert offsets(store, "session") == [n for n in range(16) if n % 4 == 0]
    assert offsets(store, "queue") == [n for n in range(16) if n % 4 == 1 for _ in "ab"]
    assert offsets(store, "process") == [n for n in range(16) if n % 4 == 2]
    assert offsets(store, "raw") == [n for n in range(16) if n % 4 == 3]
    assert store.next("progress", NORTH) == 16
    assert [str(day) for day in days_of(store)] == ["2026-03-14", "2026-03-15"]


def test_two_writers_of_the_same_messages_write_them_once(tmp_path: Path) -> None:
    write(tmp_path, several(0, 4))
    first, second = open_store(tmp_path), open_store(tmp_path)
    writers = [Writer(store, STREAM) for store in (first, second)]
    for store in (first, second):
        # Both know the table as it is now, as if they worked at the same time.
        assert store.next("session", NORTH) == 4
        assert store.next("progress", NORTH) == 4
    for writer, count in zip(writers, (8, 12), strict=True):
        writer.add(batch(several(4, count)))
        writer.flush()
    assert offsets(first, "session") == [0, 4, 8, 12]
    assert offsets(first, "raw") == [3, 7, 11, 15]
    assert writers[1].totals.rows < writers[0].totals.rows


def test_brokers_share_a_root_even_if_their_epochs_have_one_name(tmp_path: Path) -> None:
    write(tmp_path, [session(n) for n in range(3)])
    write(tmp_path, [session(n, broker="south") for n in range(5)])
    store = open_store(tmp_path)
    assert offsets(store, "session") == [0, 0, 1, 1, 2, 2, 3, 4]
    south = Writer(store, STREAM, "south")
    assert (south.previous_epoch("e2"), south.position("e1")) == ("e1", 5)
    assert south.previous_epoch("e1") is None


def users_batch(first: int, end: int) -> pa.RecordBatch:
    """Return messages of a user's stream as its source yields them."""
    count = end - first
    columns = {
        "body": pa.array([b"\xff\x00"] * count, pa.binary()),
        "headers": pa.array([[("color", "red")]] * count, pa.map_(pa.string(), pa.string())),
        "offset": pa.array(range(first, end), pa.int64()),
        "epoch": ["e1"] * count,
        "stored_at": pa.array([EPOCH] * count, pa.timestamp("us", "UTC")),
    }
    return pa.RecordBatch.from_pydict(columns)


def keep(root: Path, stream: str, end: int, *, table: str = "messages", wanted: str = "") -> None:
    """Write the messages of a user's stream up to ``end`` as a new process does."""
    writer = Writer(open_store(root, wanted), stream, table=table)
    writer.add(users_batch(0, end))
    writer.flush()


@pytest.mark.parametrize("wanted", ["delta", "parquet"])
def test_each_stream_is_whole_in_each_table_even_if_epochs_have_one_name(
    tmp_path: Path, wanted: str
) -> None:
    long = f"/stream/topic/{'ü' * 150}"
    for end in (2, 5):
        for stream in ("/stream/topic/a", "/stream/topic/b", long):
            for table in ("messages", "others"):
                keep(tmp_path, stream, end, table=table, wanted=wanted)
    store = open_store(tmp_path)
    for table in ("messages", "others"):
        assert offsets(store, table) == sorted([*range(5)] * 3)
    progress = store.dataset("progress")
    assert progress is not None
    rows = progress.to_table(columns=["stream", "table", "next"]).to_pylist()
    assert {(row["stream"], row["table"]) for row in rows if row["next"] == 5} == {
        (stream, table)
        for stream in ("/stream/topic/a", "/stream/topic/b", long)
        for table in ("messages", "others")
    }


@pytest.mark.parametrize("wanted", ["delta", "parquet"])
def test_tables_of_an_earlier_version_go_on_where_they_are(tmp_path: Path, wanted: str) -> None:
    """It noted positions by epoch and broker, and one for all tables of a stream."""
    store = open_store(tmp_path, wanted)
    earlier, rows = Source("e1@"), pa.Table.from_batches([users_batch(0, 3)])
    dated = rows.append_column("date", rows.column("stored_at").cast(pa.date32()))
    row = {"broker_id": "", "epoch": "e1", "stream": "/stream/topic/a", "first": 0, "next": 3}
    row |= {"messages": 3, "stored_at": EPOCH, "written_at": EPOCH, "date": EPOCH.date()}
    schema = pa.schema(each for each in schema_of((*PROGRESS, DATE)) if each.name != "table")
    store.append("first", earlier, 3, lambda _: dated)
    store.append("progress", earlier, 3, lambda _: pa.Table.from_pylist([row], schema))
    for table in ("first", "second"):
        keep(tmp_path, "/stream/topic/a", 5, table=table)
        assert offsets(open_store(tmp_path), table) == [*range(5)]
    keep(tmp_path, "/stream/topic/a", 5, table="first")
    assert offsets(open_store(tmp_path), "first") == [*range(5)]


@pytest.mark.parametrize("wanted", ["delta", "parquet"])
def test_messages_of_users_keep_their_bytes_and_headers(tmp_path: Path, wanted: str) -> None:
    for broker_id, count in (("north", 2), ("north", 3), ("south", 2)):
        writer = Writer(open_store(tmp_path, wanted), "/stream/topic/t", broker_id)
        writer.add(users_batch(0, count))
        writer.flush()
    table = open_store(tmp_path).dataset("messages")
    assert table is not None
    rows = table.to_table().to_pylist()
    assert sorted(row["offset"] for row in rows) == [0, 0, 1, 1, 2]
    assert {(row["body"], *row["headers"]) for row in rows} == {(b"\xff\x00", ("color", "red"))}


def test_a_gap_belongs_to_the_broker_of_its_epoch(tmp_path: Path) -> None:
    """A batch may be repeated when the stream no longer has its messages."""
    write(tmp_path, [session(n) for n in range(3)])
    write(tmp_path, [message("_gap", 1, broker="", lo=1, hi=3)])
    assert offsets(open_store(tmp_path), "_gap") == []
    write(tmp_path, [message("_gap", 3, broker="", lo=3, hi=7)])
    write(tmp_path, [session(n) for n in range(5, 9)])
    assert offsets(open_store(tmp_path), "_gap") == [3]
    assert offsets(open_store(tmp_path), "session") == [0, 1, 2, 7, 8]


def test_an_epoch_that_was_taken_for_a_lost_one_goes_on(tmp_path: Path) -> None:
    """Its row takes no offset: the message there is not lost."""
    write(tmp_path, [session(n) for n in range(3)])
    for _ in range(2):
        write(tmp_path, [message("_gap", 3, lo=3, hi=7, reason="epoch")])
    write(tmp_path, [session(n) for n in range(9)])
    assert offsets(open_store(tmp_path), "_gap") == [3]
    assert offsets(open_store(tmp_path), "session") == [*range(9)]


def test_an_epoch_of_another_stream_is_not_taken_for_a_lost_one(tmp_path: Path) -> None:
    """A checkpoint of an earlier version does not tell its stream."""
    keep(tmp_path, "/stream/topic/a", 2)
    gap = [message("_gap", 2, broker="", lo=2, hi=2, reason="epoch")]
    with pytest.raises(LakeError, match="is of /stream/topic/a, not of /stream/DIAG: name another"):
        write(tmp_path, gap)
    assert offsets(open_store(tmp_path), "_gap") == []


def test_messages_out_of_order_are_refused(tmp_path: Path) -> None:
    writer = Writer(open_store(tmp_path), STREAM)
    writer.add(batch([session(0), session(2), session(1)]))
    with pytest.raises(LakeError, match="not in the order of their offsets: read it with one"):
        writer.flush()


def of_user(offset: int, ts: datetime | None, **known: object) -> Row:
    """Return a message of a user's stream whose sender set ``ts``."""
    row = session(offset) | {"topic": "/topic/t", "kind": "", "ts": ts, "v": None, "body": "a"}
    return row | known


def with_field(**more: object) -> Row:
    """Return a message of a newer broker: a known kind with another field."""
    row = session(0)
    return row | {"body": json.dumps(json.loads(str(row["body"])) | more)}


@pytest.mark.parametrize(
    ("row", "is_typed"),
    [
        (of_user(0, None), False),
        (of_user(0, EPOCH), False),
        (session(0) | {"kind": "novelty", "topic": "DIAG/novelty"}, False),
        (with_field(novelty=1), True),
        (with_field(clients="many"), False),
        (session(0) | {"body": "not JSON"}, False),
        (session(0) | {"body": "1}\n{"}, False),
        (session(0) | {"body": ""}, False),
        (session(0) | {"body": None}, False),
        (message("queue", 0, {"destination": "/queue/a", "novelty": 1}), True),
        (session(0) | {"stored_at": None}, False),
    ],
    ids=[
        *("no-time", "1970", "kind", "field", "type", "text", "two-values", "empty", "null"),
        *("field-of-item", "older-sidecar"),
    ],
)
def test_messages_that_fit_no_table_are_kept_unchanged_in_raw(
    tmp_path: Path, row: Row, is_typed: bool
) -> None:
    write(tmp_path, [row, *(session(n) for n in range(1, 9))])
    store = open_store(tmp_path)
    raw = store.dataset("raw")
    assert raw is not None
    (kept,) = raw.to_table().to_pylist()
    assert {name: kept[name] for name in row} == row
    typed = [n for kind in KINDS for n in offsets(store, kind)]
    assert sorted(typed) == [*([0] if is_typed else []), *range(1, 9)]


def test_the_time_of_a_sender_does_not_decide_the_day(tmp_path: Path) -> None:
    write(tmp_path, [session(0) | {"ts": EPOCH}, of_user(1, EPOCH)])
    store = open_store(tmp_path)
    for name in ("session", "raw"):
        table = store.dataset(name)
        assert table is not None
        assert str(table.to_table().column("date")[0]) == "2026-03-14"


def test_columns_of_a_newer_version_are_added_and_kept(tmp_path: Path) -> None:
    write(tmp_path, [session(0)])
    store = open_store(tmp_path)
    assert isinstance(store, DeltaStore)
    newer = split_of([session(1, clients=7)]).tables["session"]
    newer = newer.append_column("novelty", newer.column("clients"))
    store.append("session", NORTH, 2, lambda _: newer)
    # One of the version before writes beside it.
    write(tmp_path, [session(n) for n in range(4)])
    table = store.dataset("session")
    assert table is not None
    assert table.to_table().sort_by("offset").column("novelty").to_pylist() == [None, 7, None, None]


def test_a_root_has_one_format(tmp_path: Path) -> None:
    write(tmp_path, [session(0)], "parquet")
    assert type(open_store(tmp_path)).__name__ == "ParquetStore"
    with pytest.raises(LakeError, match="are in the format parquet: leave --format out"):
        open_store(tmp_path, "delta")


def test_other_programs_read_the_tables(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    write(tmp_path, several(0, 8))
    queue = DeltaTable(str(tmp_path / "tables" / "queue")).to_pyarrow_dataset()
    sql = "SELECT destination, count(*), min(date)::VARCHAR FROM queue GROUP BY ALL ORDER BY ALL"
    found = duckdb.connect().register("queue", queue).sql(sql).fetchall()
    assert found == [("/queue/a", 2, "2026-03-14"), ("/queue/b", 2, "2026-03-14")]
    write(tmp_path / "plain", several(0, 8), "parquet")
    glob = f"{tmp_path}/plain/tables/queue/*.parquet"
    assert duckdb.sql(f"SELECT count(*), max(date)::VARCHAR FROM '{glob}'").fetchall() == [
        (4, "2026-03-15")
    ]
