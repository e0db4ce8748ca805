"""Compaction of ``raw`` into ``stats``: a wide, typed, sorted table for each kind, by day.

Handles: duplicates, lists, late messages (the day is rebuilt), removal of raw files. A day is
always rebuilt as a whole, so running twice changes nothing.

Does not handle: reading the broker (``_source``), days whose raw files are partly gone: they stay
unchanged.

``stats/_compacted/DATE.json`` holds the number of raw rows that a day was made from. If raw holds
another number, the day is rebuilt.
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
from functools import reduce
from pathlib import Path

import attrs
from attrs import frozen
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField

from trio_stomp.base import Table
from trio_stomp.spark._raw import (
    RawFile,
    batches,
    committed,
    local_root,
    raw_files,
    remove_batch,
)
from trio_stomp.spark._tables import (
    KEYS,
    KINDS,
    MESSAGE,
    RAW,
    columns,
    is_whole,
    read_table,
    records,
    struct,
)

logger = logging.getLogger("trio_stomp.spark")

BATCH = StructField("batch", StringType())
"""The batch that a row of raw belongs to, by its path below ``raw``."""

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    # Spark's default is INT96, which few readers support and which has no statistics.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Few large files, as they are read far more often than written.
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
}
"""Settings for all files below the root."""

COMPACTING = SETTINGS | {
    # Rows in a batch: a list of 1,000 items is half a megabyte, and no heap holds 4,096 of them.
    "spark.sql.parquet.columnarReaderBatchSize": "64",
    # Each part is sorted in memory; small parts are coalesced.
    "spark.sql.shuffle.partitions": "16",
    # A day of raw is thousands of small files in one directory; list them in the driver.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    # A file is too small for a task of its own.
    "spark.sql.files.openCostInBytes": str(256 << 10),
}
"""Settings for jobs that read bodies."""


@frozen
class Compacted:
    """The result of a day's compaction.

    Args:
      files: The number of raw files with messages of that day.
      raw_rows: The number of messages in them, including those of neighbouring days.
      messages: The number of distinct messages of that day.
      doubled: The number of duplicates.
      tables: The number of rows by kind.
      expired: Whether raw files are gone, so the day cannot be rebuilt.
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
    """Rebuild the tables of some days from raw.

    Args:
      spark: The Spark session.
      root: The directory of ``raw`` and ``stats``; the same path on all machines.
      days: In UTC. A day without messages in raw, or with missing raw files, is left unchanged.

    Returns:
      The results, in the order of the days.
    """
    root = local_root(root)
    files = raw_files(root)
    done = []
    with settings(spark, COMPACTING):
        for day in sorted(set(days)):
            some = [file for file in files if day in file.days]
            previous = compacted(root, day)
            if previous is not None and previous.expired:
                logger.warning("%s is left unchanged: some of its raw files are gone", day)
            elif some:
                done.append(_compact_day(spark, root, day, some))
    return done


def compact_closed(
    spark: SparkSession, root: Path | str, today: date | None = None
) -> list[Compacted]:
    """Rebuild every day before ``today`` (UTC) whose tables lack messages of raw."""
    today = today or datetime.now(UTC).date()
    return compact(spark, root, (day for day in stale_days(local_root(root)) if day < today))


def stale_days(root: Path) -> list[date]:
    """Return the days whose raw files have changed since their tables were made."""
    found: Counter[date] = Counter()
    for file in raw_files(root):
        found.update(dict.fromkeys(file.days, file.rows))
    made = {day: compacted(root, day) for day in found}
    return sorted(
        day
        for day, rows in found.items()
        if (previous := made[day]) is None or (previous.raw_rows != rows and not previous.expired)
    )


def expire_raw(
    spark: SparkSession,
    root: Path | str,
    checkpoint: Path | str,
    keep: timedelta,
    now: datetime | None = None,
) -> int:
    """Remove raw batches whose rows are all in the tables, and return the number of batches.

    A batch is removed if its query is the checkpoint's and has committed a later one, its days
    ended ``keep`` ago, and each of its rows is proven to be in a table. A row of an unknown kind or
    of a user's stream is in none, nor is a field without a column: they keep their batch.
    """
    root = local_root(root)
    before = ((now or datetime.now(UTC)) - keep).date()
    old = {
        name: files
        for name, files in _finished(root, checkpoint, others=False).items()
        if all(file.newest.date() < before for file in files)
    }
    if not old:
        return 0
    with settings(spark, COMPACTING):
        unproven = _unproven(spark, root, [file for files in old.values() for file in files])
    if unproven:
        logger.warning("%d old batches stay: some of their rows are in no table", len(unproven))
    return _remove(root, [files for name, files in old.items() if name not in unproven])


def drop_raw(
    root: Path | str, checkpoint: Path | str, max_age: timedelta, now: datetime | None = None
) -> int:
    """Remove raw batches by age alone, in a table or not, and return the number of batches.

    A batch's age is that of its newest message, by the broker's clock; without one, that of its
    file. The last batch that the checkpoint has committed is kept.
    """
    root = local_root(root)
    before = (now or datetime.now(UTC)) - max_age
    finished = _finished(root, checkpoint, others=True).values()
    old = [files for files in finished if all(file.newest < before for file in files)]
    return _remove(root, old)


def compacted(root: Path, day: date) -> Compacted | None:
    """Return the result of a day's compaction, or None if there was none."""
    try:
        text = _mark(root, day).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    return Compacted(**json.loads(text))


@contextmanager
def settings(spark: SparkSession, wanted: Mapping[str, str] = SETTINGS) -> Iterator[None]:
    """Make a session write portable files within the block."""
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
    for kind, rows in _staged(spark, staging).items():
        _write(rows, root, KINDS[kind])
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
    """Split a day's messages by kind, and return the number of messages and of duplicates."""
    raw = _read(spark, files).where(F.to_date("stored_at") == day)
    names = raw.select(*MESSAGE)
    total, messages = names.count(), names.distinct().count()
    if total != messages:
        # Rarely needed, and expensive: it moves all bodies.
        raw = raw.dropDuplicates([*MESSAGE])
    _split(raw, staging)
    return messages, total - messages


def _read(spark: SparkSession, files: Sequence[RawFile]) -> DataFrame:
    return spark.read.schema(struct(RAW)).parquet(*(str(file.path) for file in files))


def _split(raw: DataFrame, staging: Path) -> None:
    """Write the messages of known kinds, each kind in a directory of its own.

    Every raw file mixes all kinds; without this, each table would read all of them.
    """
    # Unknown kinds of a newer broker stay in raw.
    raw = raw.where(F.col("kind").isin(*KINDS))
    raw.write.partitionBy("kind").mode("overwrite").parquet(str(staging))


def _staged(spark: SparkSession, staging: Path, *more: StructField) -> dict[str, DataFrame]:
    """Return what ``_split`` wrote by kind."""
    schema = struct([field for field in RAW if field.name != "kind"])
    for field in more:
        schema = schema.add(field)
    kinds = sorted(path.name.removeprefix("kind=") for path in staging.glob("kind=*"))
    return {
        kind: spark.read.schema(schema).parquet(str(staging / f"kind={kind}")) for kind in kinds
    }


def _unproven(spark: SparkSession, root: Path, files: Sequence[RawFile]) -> set[str]:
    """Return the batches that have a row whose content is not in a table.

    The rows of the tables are made anew from raw, and looked up in them by message and by a hash of
    all columns.
    """
    staging = root / "stats" / "_staging"
    name = F.regexp_extract("_metadata.file_path", "(q=[^/]+/batch=[^/]+)/[^/]+$", 1)
    raw = _read(spark, files).withColumn(BATCH.name, name)
    lacking = [raw.where(~F.coalesce(F.col("kind").isin(*KINDS), F.lit(False)))]
    _split(raw, staging)
    days = sorted({day for file in files for day in file.days})
    for kind, messages in _staged(spark, staging, BATCH).items():
        table = KINDS[kind]
        lacking.append(messages.where(~F.coalesce(is_whole(table), F.lit(False))))
        hashed = F.xxhash64(*(field.name for field in columns(table))).alias("hash")
        made = records(messages, table, BATCH.name).select(BATCH.name, *MESSAGE, hashed)
        held = read_table(spark, root, kind).where(F.col("date").between(days[0], days[-1]))
        lacking.append(made.join(held.select(*MESSAGE, hashed), [*MESSAGE, "hash"], "left_anti"))
    found = reduce(DataFrame.union, (frame.select(BATCH.name) for frame in lacking))
    unproven = {row[BATCH.name] for row in found.distinct().collect()}
    shutil.rmtree(staging, ignore_errors=True)
    return unproven


def _write(raw: DataFrame, root: Path, table: Table) -> None:
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


def _finished(root: Path, checkpoint: Path | str, *, others: bool) -> dict[str, list[RawFile]]:
    """Return the batches that the checkpoint's query will not write again.

    With ``others``, add those of queries whose checkpoint is lost.
    """
    committing = committed(local_root(checkpoint))
    if committing is None:
        return {}
    query, last = committing
    return {
        name: files
        for name, files in batches(raw_files(root)).items()
        if (files[0].batch < last if query.startswith(files[0].query) else others)
    }


def _remove(root: Path, gone: Sequence[Sequence[RawFile]]) -> int:
    for day in {day for files in gone for file in files for day in file.days}:
        # Mark the day first: with only a part of its raw files, it must never be rebuilt.
        _mark_expired(root, day)
    for files in gone:
        remove_batch(files)
    return len(gone)


def _mark_expired(root: Path, day: date) -> None:
    made = compacted(root, day)
    if made is not None and not made.expired:
        _save(root, day, attrs.evolve(made, expired=True))
