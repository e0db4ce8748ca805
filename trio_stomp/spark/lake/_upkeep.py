"""Compaction of tables into few files, and removal of old ones, beside writers and readers.

It works on Delta tables. Readers see the old files or the new one, and have an hour to finish with
the old ones.
"""

from collections import Counter
from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
from attrs import frozen
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError

from trio_stomp.spark._columns import DATE
from trio_stomp.spark.lake._store import FOLDER, WRITING, Store, delta
from trio_stomp.spark.lake._writer import MESSAGES, RAW

MANY_FILES = 50
"""Files of the present day that are worth to be merged before it is over."""
TARGET_BYTES = 256 << 20


@frozen
class Compacted:
    """The compaction of one table.

    Args:
      removed: The number of small files that were merged.
      added: The number of files that they became.
      deleted: The number of old files that were deleted.
    """

    table: str
    removed: int
    added: int
    deleted: int


def compact(store: Store, today: date | None = None) -> list[Compacted]:
    """Merge the small files of each table by day, and delete those merged an hour ago or earlier.

    A day that is over becomes one file for each 256 MB; the present one when it has many.

    Raises:
      LakeError: the tables are plain Parquet, or the storage refuses.
    """
    own = delta(store)
    today = today or datetime.now(UTC).date()
    done = []
    for name in store.place.names(FOLDER):
        table = own.table(name)
        if table is not None and table.metadata().partition_columns == [DATE.name]:
            try:
                done.append(_compact(name, table, today))
            except (DeltaError, OSError) as error:
                raise store.place.unwritable(error) from None
    return done


def _compact(name: str, table: DeltaTable, today: date) -> Compacted:
    removed = added = 0
    for day, files in _small(table).items():
        if files <= (MANY_FILES if day == today.isoformat() else 1):
            continue
        try:
            made = table.optimize.compact(
                [(DATE.name, "=", day)], target_size=TARGET_BYTES, writer_properties=WRITING
            )
        except CommitFailedError:
            # Another compaction has merged these files.
            table.update_incremental()
            continue
        removed += made["numFilesRemoved"]
        added += made["numFilesAdded"]
    # ``full`` finds also the files of writers that were killed before their commit.
    deleted = table.vacuum(dry_run=False, full=True)
    table.create_checkpoint()
    table.cleanup_metadata()
    return Compacted(name, removed, added, len(deleted))


def _small(table: DeltaTable) -> Counter[str]:
    """Return the number of files by day that a compaction would merge."""
    adds = pa.table(table.get_add_actions(flatten=True))
    columns = (adds.column(name).to_pylist() for name in ("partition.date", "size_bytes"))
    found: Counter[str] = Counter()
    for day, size in zip(*columns, strict=True):
        if day is not None and size < TARGET_BYTES // 2:
            found[str(day)] += 1
    return found


def drop_raw(
    store: Store, max_age: timedelta, *, messages: str = MESSAGES, now: datetime | None = None
) -> int:
    """Delete the days of messages that ended ``max_age`` ago, and return their number.

    A day is that of the broker's clock. The messages are in no other table.

    Args:
      store: The tables.
      max_age: The age.
      messages: The table of users' messages, beside ``raw``.
      now: The time.

    Raises:
      LakeError: the tables are plain Parquet, or the storage refuses.
    """
    before = ((now or datetime.now(UTC)) - max_age).date()
    days: set[str] = set()
    for name in (RAW, messages):
        table = delta(store).table(name)
        if table is not None:
            known = {part[DATE.name] for part in table.partitions()}
            gone = {day for day in known if day is not None and str(day) < before.isoformat()}
            if gone:
                table.delete(f"{DATE.name} < '{before}'")
            days |= gone
    return len(days)
