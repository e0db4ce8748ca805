"""Tables of the statistics in a temporary directory, without Spark."""

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from tests.support.diag_bodies import RAW, Row, schema_of
from trio_stomp.spark.lake import Store, Writer, open_store
from trio_stomp.spark.lake._records import Split, split

STREAM = "/stream/DIAG"


def batch(rows: Iterable[Row]) -> pa.RecordBatch:
    """Return messages as the source of Spark yields them."""
    return pa.RecordBatch.from_pylist(list(rows), schema_of(RAW))


def split_of(rows: Iterable[Row]) -> Split:
    """Return messages divided into the tables of their kinds, and the rest."""
    return split(pa.Table.from_pylist(list(rows), schema_of(RAW)))


def write(root: Path | str, rows: Iterable[Row], wanted: str = "") -> Writer:
    """Write messages as a new process does, in one commit."""
    writer = Writer(open_store(root, wanted), STREAM)
    writer.add(batch(rows))
    writer.flush()
    return writer


def offsets(store: Store, name: str) -> list[int]:
    """Return the offsets of the rows of a table, in order."""
    table = store.dataset(name)
    return [] if table is None else sorted(table.to_table().column("offset").to_pylist())
