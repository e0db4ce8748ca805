"""From ``raw`` to ``stats``: one wide, typed, sorted table for each kind, a directory for a day.

Handles: messages that came twice, lists, late messages (the day is made anew), raw that is no
longer needed. A day is always made as a whole from raw, so running twice changes nothing.
Does not handle: reading the broker (``_source``), days whose raw is partly gone: they stay as
they are.

``stats/_compacted/DATE.json`` says from how many raw rows a day was made. Whatever differs from
what is found in raw is made again.
"""

import json
import logging
import os
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import attrs
from attrs import frozen
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from trio_stomp.base import Table
from trio_stomp.spark._raw import RawFile, committed, local_root, raw_files, remove_batch
from trio_stomp.spark._tables import KEYS, KINDS, RAW, read_table, records, struct

logger = logging.getLogger("trio_stomp.spark")

MESSAGE = ("broker_id", "epoch", "offset")
"""What names one message for ever."""

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    # Spark's default is INT96, which others read badly and which has no statistics.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Few large files: these are read far more often than written.
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
}
"""For all that is written below the root."""

COMPACTING = SETTINGS | {
    # Rows at once: a list of a thousand things is half a megabyte, and 4,096 of them no heap holds.
    "spark.sql.parquet.columnarReaderBatchSize": "64",
    # Each part is sorted in memory; what is small is put together again.
    "spark.sql.shuffle.partitions": "16",
    # A day of raw is thousands of small files in one directory: to list them is no cluster's job.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    # Nor is one of them worth a task of its own.
    "spark.sql.files.openCostInBytes": str(256 << 10),
}
"""For what reads bodies."""


@frozen
class Compacted:
    """The result of a day's compaction.

    Args:
      files: How many raw files held messages of that day.
      raw_rows: Messages in them, those of neighbouring days too.
      messages: Of that day, each counted once.
      doubled: Messages that came once more.
      tables: Rows by kind.
      expired: Whether some of its raw is gone, so that it can no longer be made.
    """

    day: str
    files: int
    raw_rows: int
    messages: int
    doubled: int
    tables: dict[str, int]
    started: float
    seconds: float
    expired: bool = False


def compact(spark: SparkSession, root: Path | str, days: Iterable[date]) -> list[Compacted]:
    """Make the tables of some days anew from raw.

    Args:
      spark: The Spark session.
      root: Where ``raw`` lies and ``stats`` goes; the same path on all machines.
      days: In UTC. One without a message in raw, or with some of its raw gone, stays as it is.

    Returns:
      What was made, in the order of the days.
    """
    root = local_root(root)
    files = raw_files(root)
    done = []
    with settings(spark, COMPACTING):
        for day in sorted(set(days)):
            some = [file for file in files if day in file.days]
            known = compacted(root, day)
            if known is not None and known.expired:
                logger.warning("%s stays as it is: some of its raw is gone", day)
            elif some:
                done.append(_compact_day(spark, root, day, some))
    return done


def compact_closed(
    spark: SparkSession, root: Path | str, today: date | None = None
) -> list[Compacted]:
    """Make every day before ``today`` (UTC) that raw tells more of than its tables do."""
    today = today or datetime.now(UTC).date()
    return compact(spark, root, (day for day in stale_days(local_root(root)) if day < today))


def stale_days(root: Path) -> list[date]:
    """Return the days of which raw holds other messages than their tables were made from."""
    found: Counter[date] = Counter()
    for file in raw_files(root):
        found.update(dict.fromkeys(file.days, file.rows))
    made = {day: compacted(root, day) for day in found}
    return sorted(
        day
        for day, rows in found.items()
        if (known := made[day]) is None or (known.raw_rows != rows and not known.expired)
    )


def expire_raw(
    root: Path | str, checkpoint: Path | str, keep: timedelta, now: datetime | None = None
) -> int:
    """Remove raw that the tables no longer need and return the number of batches removed.

    A batch goes when all of this is true: its query is the checkpoint's and has committed a later
    one; its days ended ``keep`` ago; they were compacted after it was written.
    """
    root = local_root(root)
    now = now or datetime.now(UTC)
    committing = committed(local_root(checkpoint))
    if committing is None:
        return 0
    query, last = committing
    before = (now - keep).date()
    removed = 0
    for file in raw_files(root):
        ours = query.startswith(file.query) and file.batch < last
        if ours and all(day < before and _is_in_tables(root, day, file) for day in file.days):
            for day in file.days:
                # First the mark: a day with a part of its raw must never be made anew.
                _mark_expired(root, day)
            remove_batch(file)
            removed += 1
    return removed


def compacted(root: Path, day: date) -> Compacted | None:
    """Return the result of a day's compaction, or None if there was none."""
    try:
        text = _mark(root, day).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    return Compacted(**json.loads(text))


@contextmanager
def settings(spark: SparkSession, wanted: Mapping[str, str] = SETTINGS) -> Iterator[None]:
    """Have a session write what all can read, for as long as this takes."""
    before = {name: spark.conf.get(name, None) for name in wanted}
    for name, text in wanted.items():
        spark.conf.set(name, text)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


def _compact_day(spark: SparkSession, root: Path, day: date, files: Sequence[RawFile]) -> Compacted:
    started, clock = time.time(), time.monotonic()
    staging = root / "stats" / "_staging"
    shutil.rmtree(staging, ignore_errors=True)
    messages, doubled = _stage(spark, day, files, staging)
    tables = {}
    for kind in sorted(path.name.removeprefix("kind=") for path in staging.glob("kind=*")):
        _write(spark, root, staging / f"kind={kind}", KINDS[kind])
        tables[kind] = read_table(spark, root, kind).where(F.col("date") == day).count()
    shutil.rmtree(staging, ignore_errors=True)
    made = Compacted(
        day=day.isoformat(),
        files=len(files),
        raw_rows=sum(file.rows for file in files),
        messages=messages,
        doubled=doubled,
        tables=tables,
        started=started,
        seconds=round(time.monotonic() - clock, 3),
    )
    _save(root, day, made)
    return made


def _stage(
    spark: SparkSession, day: date, files: Sequence[RawFile], staging: Path
) -> tuple[int, int]:
    """Put a day's messages apart by kind and return how many there are, and how many came twice.

    Raw mixes the kinds in each of its many files; without this, each table would read all of it.
    """
    paths = [str(file.path) for file in files]
    raw = spark.read.schema(struct(RAW)).parquet(*paths).where(F.to_date("ts") == day)
    names = raw.select(*MESSAGE)
    total, messages = names.count(), names.distinct().count()
    if total != messages:
        # Rarely needed, and dear: it moves all bodies.
        raw = raw.dropDuplicates([*MESSAGE])
    # Kinds of a newer broker stay in raw, until somebody knows their columns.
    raw = raw.where(F.col("kind").isin(*KINDS))
    raw.write.partitionBy("kind").mode("overwrite").parquet(str(staging))
    return messages, total - messages


def _write(spark: SparkSession, root: Path, staged: Path, table: Table) -> None:
    fields = [field for field in RAW if field.name != "kind"]
    raw = spark.read.schema(struct(fields)).parquet(str(staged))
    keys = KEYS[table.name]
    spread = ("date", keys[0]) if table.is_list else ("date",)
    (
        records(raw, table)
        .repartition(*spread)
        .sortWithinPartitions("date", *keys, "ts", "offset")
        .write.mode("overwrite")
        .option("partitionOverwriteMode", "dynamic")
        .option("compression", "zstd")
        .partitionBy("date")
        .parquet(str(root / "stats" / table.name))
    )


def _mark(root: Path, day: date) -> Path:
    return root / "stats" / "_compacted" / f"{day.isoformat()}.json"


def _save(root: Path, day: date, made: Compacted) -> None:
    mark = _mark(root, day)
    mark.parent.mkdir(parents=True, exist_ok=True)
    part = mark.with_suffix(".part")
    part.write_text(json.dumps(attrs.asdict(made)) + "\n", encoding="utf-8")
    os.replace(part, mark)


def _is_in_tables(root: Path, day: date, file: RawFile) -> bool:
    made = compacted(root, day)
    return made is not None and file.changed < made.started


def _mark_expired(root: Path, day: date) -> None:
    made = compacted(root, day)
    if made is not None and not made.expired:
        _save(root, day, attrs.evolve(made, expired=True))
