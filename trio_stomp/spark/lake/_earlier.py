"""The import of what earlier versions wrote: ``raw/q=…/batch=…`` and ``stats/KIND/date=…``.

Raw messages come first, as they are complete. Of days whose raw was removed, the typed rows are
taken. A message that a table has is left out, so an import may be repeated, and may come after new
messages. It deletes nothing.
"""

import logging
from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from trio_stomp.spark._client import DIAG
from trio_stomp.spark._columns import DATE, KINDS, columns, schema_of
from trio_stomp.spark._columns import RAW as RAW_COLUMNS
from trio_stomp.spark.lake._place import LakeError, Place
from trio_stomp.spark.lake._records import split
from trio_stomp.spark.lake._store import DeltaStore, Store, delta
from trio_stomp.spark.lake._writer import (
    PROGRESS_TABLE,
    RAW,
    Totals,
    dated,
    now,
    progress,
    source_of,
)

logger = logging.getLogger("trio_stomp.spark")


def has_earlier(place: Place) -> bool:
    """Return whether a root has files of an earlier version."""
    is_raw = any(name.startswith("q=") for name in place.names("raw"))
    return is_raw or "_compacted" in place.names("stats")


def _whatever(row: pa.Table, _at: int) -> pa.Table:
    return row


class Import:
    """Imports an earlier root.

    Limits: holds the messages of one file, and the offsets of all messages by table.

    Args:
      store: The tables to fill.
      earlier: The earlier root, which may be the same.
    """

    def __init__(self, store: DeltaStore, earlier: Place) -> None:
        self.totals = Totals()
        self._store, self._earlier = store, earlier
        self._known: dict[str, dict[str, np.ndarray]] = {}
        self._ends: dict[str, pa.Table] = {}

    def run(self) -> Totals:
        """Import all files.

        Raises:
          LakeError: the storage refuses.
        """
        for messages in self._raw_files():
            parts = split(messages)
            rows = sum(self._append(kind, table) for kind, table in parts.tables.items())
            rest = self._append(RAW, parts.rest)
            self.totals = self.totals.plus(messages.num_rows, rows + rest, rest)
            self._note_ends(messages)
        for kind, table in self._stats_files():
            self.totals = self.totals.plus(0, self._append(kind, table), 0)
        for source, row in self._ends.items():
            # Whoever reads the stream from its start leaves out what is imported.
            following = row.column("next")[0].as_py()
            self._store.append(PROGRESS_TABLE, source, following, partial(_whatever, row))
        return self.totals

    def _raw_files(self) -> Iterator[pa.Table]:
        """Yield the messages of each batch. Incomplete files are reported and left out."""
        root, files = self._earlier.below("raw"), self._earlier.files
        for query in root.names():
            for batch in root.names(query):
                for name in root.names(query, batch):
                    if not (batch.startswith("batch=") and name.endswith(".parquet")):
                        continue
                    path = f"{root.path}/{query}/{batch}/{name}"
                    try:
                        table = pq.read_table(path, filesystem=files, partitioning=None)
                    except (pa.ArrowInvalid, FileNotFoundError) as error:
                        logger.warning("left out: %s: %s", path, error)
                        continue
                    yield with_columns(table)

    def _stats_files(self) -> Iterator[tuple[str, pa.Table]]:
        """Yield the typed rows of each day."""
        root = self._earlier.below("stats")
        for kind, table in KINDS.items():
            schema = schema_of(field for field in columns(table) if field is not DATE)
            for day in root.names(kind):
                if day.startswith("date="):
                    path = f"{root.path}/{kind}/{day}"
                    files = [f"{path}/{each}" for each in root.names(kind, day)]
                    whole = [each for each in files if each.endswith(".parquet")]
                    found = ds.dataset(
                        whole, schema, format="parquet", filesystem=self._earlier.files
                    )
                    yield kind, found.to_table()

    def _append(self, name: str, rows: pa.Table) -> int:
        """Append the rows of messages that a table does not have yet."""
        if not rows.num_rows:
            return 0
        rows = dated(rows)
        known = self._known.setdefault(name, self._offsets(name))
        is_new = np.zeros(rows.num_rows, bool)
        epochs, offsets = rows.column("epoch"), np.asarray(rows.column("offset"))
        for epoch in pc.unique(epochs).to_pylist():
            is_own = np.asarray(pc.equal(epochs, epoch))
            had = known.get(epoch, offsets[:0])
            is_new |= is_own & ~np.isin(offsets, had)
            known[epoch] = np.union1d(had, offsets[is_own])
        new = rows.filter(pa.array(is_new))
        if new.num_rows:
            self._store.insert(name, new)
        return int(new.num_rows)

    def _offsets(self, name: str) -> dict[str, np.ndarray]:
        """Return the offsets of the messages that a table has, by epoch."""
        table = self._store.dataset(name)
        if table is None:
            return {}
        found = table.to_table(columns=["epoch", "offset"])
        epochs, offsets = found.column("epoch"), np.asarray(found.column("offset"))
        return {
            epoch: np.unique(offsets[np.asarray(pc.equal(epochs, epoch))])
            for epoch in pc.unique(epochs).to_pylist()
        }

    def _note_ends(self, messages: pa.Table) -> None:
        """Note the last message of each source."""
        ends = messages.group_by(["broker_id", "epoch"]).aggregate([("offset", "max")])
        for broker_id, epoch, last in zip(*ends.columns, strict=True):
            offsets = messages.column("offset")
            is_last = pc.and_(pc.equal(offsets, last), pc.equal(messages.column("epoch"), epoch))
            row = messages.filter(is_last).slice(0, 1)
            topic = row.column("topic")[0].as_py() or ""
            stream = DIAG if row.column("kind")[0].as_py() else f"/stream{topic}"
            source = source_of(broker_id.as_py() or "", epoch.as_py())
            before = self._ends.get(source)
            if before is None or before.column("next")[0].as_py() <= last.as_py():
                known = progress(stream, broker_id.as_py() or "", row, last.as_py() + 1, now())
                self._ends[source] = known


def with_columns(messages: pa.Table) -> pa.Table:
    """Return messages with all columns, as older sidecars knew fewer."""
    return pa.table(
        [
            messages.column(field.name).cast(field.type)
            if field.name in messages.column_names
            else pa.nulls(messages.num_rows, field.type)
            for field in schema_of(RAW_COLUMNS)
        ],
        schema=schema_of(RAW_COLUMNS),
    )


def import_earlier(store: Store, root: str) -> Totals:
    """Add the files of an earlier root to the tables.

    Raises:
      LakeError: there are none, the tables are plain Parquet, or the storage refuses.
    """
    place = Place.of(root)
    if not has_earlier(place):
        raise LakeError(
            f"{place.uri} has no files of an earlier version: neither raw/q=… nor stats"
        )
    return Import(delta(store), place).run()
