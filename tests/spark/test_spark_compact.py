"""Compaction: doubles, days, late messages, days that cannot be made any more, raw that may go."""

import json
import os
import shutil
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.spark import require
from tests.support.spark import spark as spark

require("pyspark")

import pyarrow.parquet as pq  # noqa: E402

from tests.support.diag_bodies import commit, message, write_batch  # noqa: E402
from trio_stomp.spark._compact import (  # noqa: E402
    compact,
    compact_closed,
    compacted,
    drop_raw,
    expire_raw,
    stale_days,
)
from trio_stomp.spark._raw import committed, local_root, raw_files  # noqa: E402
from trio_stomp.spark._tables import open_tables, read_table  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.full]

DAY, NEXT, LATER = date(2026, 3, 14), date(2026, 3, 15), date(2026, 3, 20)
MIDNIGHT_S = 16 * 3600
KEEP = timedelta(days=3)
NOW = datetime(2026, 3, 20, 12, tzinfo=UTC)


def session(offset: int, at_s: float = 0.0, **known: object) -> dict[str, object]:
    return message("session", offset, at_s=at_s, **known)  # type: ignore[arg-type]


def files_of(root: Path, kind: str) -> list[Path]:
    return sorted((root / "stats" / kind).glob("date=*/*.parquet"))


def age(path: Path) -> None:
    """Make a file older than whatever is made now."""
    os.utime(path, (1_000_000_000, 1_000_000_000))


def test_a_day_is_made_once_and_the_same(spark: "SparkSession", tmp_path: Path) -> None:
    queues = [{"destination": f"/queue/{name}"} for name in "cab"]
    rows = [session(1, clients=3), message("queue", 2, *queues), session(3, MIDNIGHT_S + 5)]
    write_batch(tmp_path, 0, rows)
    write_batch(tmp_path, 7, rows[:2], query="ffffffff")

    (made,) = compact(spark, tmp_path, [DAY])
    assert (made.messages, made.doubled, made.files) == (2, 2, 2)
    assert made.tables == {"queue": 3, "session": 1}
    assert read_table(spark, tmp_path, "session").first()["clients"] == 3  # type: ignore[index]
    (file,) = files_of(tmp_path, "queue")
    assert pq.read_table(file).column("destination").to_pylist() == [
        "/queue/a",
        "/queue/b",
        "/queue/c",
    ]

    (again,) = compact(spark, tmp_path, [DAY])
    assert again.tables == made.tables
    assert len(files_of(tmp_path, "queue")) == 1
    assert not (tmp_path / "stats" / "_staging").exists()


def test_files_can_be_read_by_other_programs(spark: "SparkSession", tmp_path: Path) -> None:
    write_batch(tmp_path, 0, [session(1)])
    compact(spark, tmp_path, [DAY])
    (file,) = files_of(tmp_path, "session")
    schema = pq.read_schema(file)
    assert str(schema.field("ts").type) == "timestamp[us, tz=UTC]"
    assert pq.read_metadata(file).row_group(0).column(0).compression == "ZSTD"
    assert "date" not in schema.names
    duckdb = pytest.importorskip("duckdb")
    glob = f"{tmp_path}/stats/session/date=*/*.parquet"
    assert duckdb.sql(f"SELECT count(*), min(date)::VARCHAR FROM '{glob}'").fetchall() == [
        (1, "2026-03-14")
    ]


def test_closed_days_are_made_and_late_messages_added(
    spark: "SparkSession", tmp_path: Path
) -> None:
    write_batch(tmp_path, 0, [session(1), session(2, MIDNIGHT_S)])
    assert [made.day for made in compact_closed(spark, tmp_path, NEXT)] == ["2026-03-14"]
    assert compact_closed(spark, tmp_path, NEXT) == []

    write_batch(tmp_path, 1, [session(3, 60)])
    assert stale_days(tmp_path) == [DAY, NEXT]
    (made,) = compact_closed(spark, tmp_path, NEXT)
    assert made.tables == {"session": 2}


def test_raw_goes_when_it_is_old_committed_and_in_the_tables(
    spark: "SparkSession", tmp_path: Path
) -> None:
    for batch in range(3):
        age(write_batch(tmp_path, batch, [session(batch)]))
    age(write_batch(tmp_path, 0, [session(9)], query="ffffffff"))
    checkpoint = commit(tmp_path, [0, 1, 2])
    assert expire_raw(spark, tmp_path, checkpoint, KEEP, NOW) == 0, "nothing is in the tables yet"
    compact(spark, tmp_path, [DAY])
    assert expire_raw(spark, tmp_path, checkpoint, timedelta(days=9), NOW) == 0, "too young"
    assert expire_raw(spark, tmp_path, checkpoint, KEEP, NOW) == 2
    left = [(file.query, file.batch) for file in raw_files(tmp_path)]
    assert left == [("0a1b2c3d", 2), ("ffffffff", 0)]
    known = compacted(tmp_path, DAY)
    assert known is not None
    assert known.expired

    # The rest of the day must not replace the whole day.
    assert compact(spark, tmp_path, [DAY]) == []
    assert stale_days(tmp_path) == []
    assert read_table(spark, tmp_path, "session").count() == 4


def test_a_late_message_keeps_its_batch(spark: "SparkSession", tmp_path: Path) -> None:
    for batch in range(2):
        age(write_batch(tmp_path, batch, [session(batch)]))
    compact(spark, tmp_path, [DAY])
    age(write_batch(tmp_path, 2, [session(5)]))
    assert expire_raw(spark, tmp_path, commit(tmp_path, range(4)), KEEP, NOW) == 2
    assert [file.batch for file in raw_files(tmp_path)] == [2]


def of_user(offset: int, ts: datetime | None, **known: object) -> dict[str, object]:
    """Return a message of a user's stream whose sender set ``ts``."""
    row = session(offset) | {"topic": "/topic/t", "kind": "", "ts": ts, "v": None, "body": "a"}
    return row | known


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NOVEL = {"kind": "novelty", "topic": "DIAG/novelty"}


def whole_but(**more: object) -> dict[str, object]:
    """Return a message of a newer broker: a known kind with another field."""
    row = session(0)
    return row | {"body": json.dumps(json.loads(str(row["body"])) | more)}


@pytest.mark.parametrize(
    "row",
    [
        of_user(0, None),
        of_user(0, datetime(2026, 3, 14, 8, tzinfo=UTC)),
        of_user(0, EPOCH),
        session(0) | NOVEL,
        whole_but(novelty=1),
        session(0) | {"body": "not JSON"},
        message("queue", 0, {"destination": "/queue/a", "novelty": 1}),
        session(0) | {"stored_at": None},
    ],
    ids=["no-time", "time", "1970", "kind", "field", "text", "field-of-item", "older-sidecar"],
)
def test_raw_that_is_in_no_table_stays_until_its_age_is_reached(
    spark: "SparkSession", tmp_path: Path, row: dict[str, object]
) -> None:
    age(write_batch(tmp_path, 0, [row, session(1)]))
    age(write_batch(tmp_path, 1, [session(2)]))
    write_batch(tmp_path, 2, [session(3)])
    compact_closed(spark, tmp_path, LATER)
    checkpoint = commit(tmp_path, range(3))
    assert expire_raw(spark, tmp_path, checkpoint, KEEP, NOW) == 1
    assert [file.batch for file in raw_files(tmp_path)] == [0, 2]
    assert drop_raw(tmp_path, checkpoint, timedelta(days=9), NOW) == 0
    assert drop_raw(tmp_path, checkpoint, KEEP, NOW) == 1
    assert [file.batch for file in raw_files(tmp_path)] == [2]


def test_raw_whose_rows_were_lost_from_a_table_stays(spark: "SparkSession", tmp_path: Path) -> None:
    rows = [session(0), message("queue", 1, {"destination": "/queue/a"}), message("queue", 2)]
    for batch in range(2):
        age(write_batch(tmp_path, batch, rows))
    checkpoint = commit(tmp_path, range(2))
    compact(spark, tmp_path, [DAY])
    shutil.rmtree(tmp_path / "stats" / "queue")
    assert expire_raw(spark, tmp_path, checkpoint, KEEP, NOW) == 0
    (tmp_path / "stats" / "_compacted" / f"{DAY}.json").unlink()
    age(write_batch(tmp_path, 0, [session(0, clients=5), *rows[1:]]))
    compact(spark, tmp_path, [DAY])
    age(write_batch(tmp_path, 0, [session(0, clients=6), *rows[1:]]))
    assert expire_raw(spark, tmp_path, checkpoint, KEEP, NOW) == 0, "its content differs"
    compact(spark, tmp_path, [DAY])
    age(write_batch(tmp_path, 1, rows[1:]))
    compact(spark, tmp_path, [DAY])
    assert expire_raw(spark, tmp_path, checkpoint, KEEP, NOW) == 1


def test_a_sender_that_says_1970_decides_no_day(spark: "SparkSession", tmp_path: Path) -> None:
    write_batch(tmp_path, 0, [of_user(0, EPOCH), session(1) | {"ts": EPOCH}, of_user(2, None)])
    (file,) = raw_files(tmp_path)
    assert list(file.days) == [DAY]
    assert [made.day for made in compact_closed(spark, tmp_path, NEXT)] == [str(DAY)]
    assert read_table(spark, tmp_path, "session").first()["date"] == DAY  # type: ignore[index]


def test_raw_is_deleted_only_by_age_after_a_lost_checkpoint(tmp_path: Path) -> None:
    for query in ("0a1b2c3d", "ffffffff"):
        write_batch(tmp_path, 0, [session(0)], query=query)
    assert drop_raw(tmp_path, commit(tmp_path, [0]), KEEP, NOW) == 1
    assert [file.query for file in raw_files(tmp_path)] == ["0a1b2c3d"]


def test_nothing_goes_without_a_checkpoint(spark: "SparkSession", tmp_path: Path) -> None:
    write_batch(tmp_path, 0, [session(1)])
    compact(spark, tmp_path, [DAY])
    assert committed(tmp_path) is None
    assert drop_raw(tmp_path, tmp_path / "none", KEEP, NOW) == 0
    assert expire_raw(spark, tmp_path, tmp_path / "none", KEEP, NOW) == 0


def test_a_file_that_is_not_whole_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_batch(tmp_path, 0, [session(1)])
    torn = write_batch(tmp_path, 1, [session(2)])
    torn.write_bytes(b"")
    assert [file.batch for file in raw_files(tmp_path)] == [0]
    assert "left out" in caplog.text


def test_a_batch_over_midnight_belongs_to_both_days(tmp_path: Path) -> None:
    write_batch(tmp_path, 0, [session(1), session(2, MIDNIGHT_S)])
    write_batch(tmp_path, 1, [])
    first, second = raw_files(tmp_path)
    assert list(first.days) == [DAY, NEXT]
    assert list(second.days) == []


def test_roots_are_directories() -> None:
    assert local_root("file:///data/diag") == Path("/data/diag")
    with pytest.raises(ValueError, match="mounted"):
        local_root("s3://bucket/diag")


def test_tables_that_were_never_made_are_empty(spark: "SparkSession", tmp_path: Path) -> None:
    tables = open_tables(spark, tmp_path)
    assert all(table.isEmpty() for table in tables.values())
    assert spark.sql("SELECT count(*) AS n FROM metrics_long").first()["n"] == 0  # type: ignore[index]
