"""Tables of files: Delta Lake, or plain Parquet for those who want nothing else.

Either keeps the position in each source (an epoch of a broker's stream) in each table, in the same
atomic step as the rows. So whoever writes the same messages again, after a kill or beside another
writer, leaves out those that a table has.
"""

import os
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction, WriterProperties, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from trio_stomp.spark._columns import DATE
from trio_stomp.spark.lake._place import LakeError, Place, file_name, line_of

FOLDER = "tables"
"""The directory of all tables below the root."""

ATTEMPTS = 20
"""Commits that other writers may win before a writer gives up."""

PROPERTIES: Mapping[str, str | None] = {
    # Readers of an old version have this long to end. Nobody needs the versions of each minute.
    "delta.deletedFileRetentionDuration": "interval 1 hours",
    "delta.logRetentionDuration": "interval 1 hours",
    "delta.checkpointInterval": "100",
}
WRITING = WriterProperties(compression="ZSTD", compression_level=3)


class Source(NamedTuple):
    """An epoch of a stream, in which a table has a position.

    Args:
      name: The name, under which a table notes its position.
      others: Names under which it may have noted it, too. The furthest position counts.
    """

    name: str
    others: tuple[str, ...] = ()


Rows = Callable[[int], pa.Table | None]
"""Returns the rows to append, from an offset on; None = there are none."""


class Store(Protocol):
    """The tables below a root."""

    place: Place

    def next(self, name: str, source: Source) -> int | None:
        """Return the offset up to which a table has a source; None = it has nothing of it."""

    def append(self, name: str, source: Source, following: int, rows: Rows) -> int:
        """Append rows, and note that the table has their source up to ``following``.

        Args:
          name: The name of the table, which is made if there is none.
          source: What the offsets of the rows are in.
          following: The offset after the last one.
          rows: Returns the rows.

        Returns:
          The number of rows appended: 0 if the table has them.

        Raises:
          LakeError: the storage refuses.
        """

    def dataset(self, name: str) -> ds.Dataset | None:
        """Return the present content of a table for readers, or None if there is none."""

    def files(self, name: str) -> list[str]:
        """Return the present files of a table, as paths or URIs."""

    def size(self, name: str) -> int:
        """Return the bytes of the present files of a table."""


class DeltaStore:
    """Tables of Delta Lake. Any number of writers, compactions and readers may work at a time."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._open: dict[str, DeltaTable] = {}

    def table(self, name: str) -> DeltaTable | None:
        """Return a table at its newest version, or None if there is none."""
        uri = self.place.below(FOLDER, name).uri
        try:
            return DeltaTable(uri)
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as error:
            raise LakeError(f"{uri} cannot be read: {line_of(error)}") from None

    def next(self, name: str, source: Source) -> int | None:
        """Implement ``Store.next``."""
        table = self._opened(name)
        return None if table is None else furthest(source, table.transaction_version)

    def append(self, name: str, source: Source, following: int, rows: Rows) -> int:
        """Implement ``Store.append``."""
        for _ in range(ATTEMPTS):
            at = self.next(name, source) or 0
            if at >= following:
                return 0
            new = rows(at)
            if new is None:
                return 0
            try:
                self._write(name, new, Transaction(source.name, following))
            except CommitFailedError:
                # Another writer was faster, perhaps with the same rows: look again.
                self._open.pop(name, None)
            except (DeltaError, OSError) as error:
                raise self.place.unwritable(error) from None
            else:
                return int(new.num_rows)
        raise LakeError(
            f"{self.place.uri}: other writers of {name} won {ATTEMPTS} times; try later"
        )

    def _write(self, name: str, rows: pa.Table, done: Transaction) -> None:
        table = self._opened(name)
        if table is None:
            uri = self.place.below(FOLDER, name).uri
            self._open[name] = table = DeltaTable.create(
                uri, rows.schema, "ignore", [DATE.name], configuration=PROPERTIES
            )
        known = {field.name: field.type for field in pa.schema(table.schema())}
        for field in rows.schema:
            if known.get(field.name, field.type) != field.type:
                raise LakeError(
                    f"table {name} has a column {field.name} of {known[field.name]}, not"
                    f" {field.type}: name another table"
                )
        write_deltalake(
            table,
            rows,
            mode="append",
            schema_mode=None if known.keys() == set(rows.column_names) else "merge",
            writer_properties=WRITING,
            commit_properties=CommitProperties(app_transactions=[done]),
        )

    def dataset(self, name: str) -> ds.Dataset | None:
        """Implement ``Store.dataset``."""
        table = self.table(name)
        return None if table is None else table.to_pyarrow_dataset()

    def files(self, name: str) -> list[str]:
        """Implement ``Store.files``."""
        table = self.table(name)
        return [] if table is None else sorted(table.file_uris())

    def size(self, name: str) -> int:
        """Implement ``Store.size``."""
        table = self.table(name)
        adds = None if table is None else pa.table(table.get_add_actions())
        return 0 if adds is None else int(pc.sum(adds.column("size_bytes")).as_py() or 0)

    def _opened(self, name: str) -> DeltaTable | None:
        if name not in self._open and (table := self.table(name)) is not None:
            self._open[name] = table
        return self._open.get(name)


_NAME = re.compile(r"(.+)-(\d{15})\.parquet")


class ParquetStore:
    """Tables of plain Parquet: a file for each commit, whose name says how far it goes.

    One writer at a time: files with the same messages would both count.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self._ends: dict[str, dict[str, int]] = {}

    def next(self, name: str, source: Source) -> int | None:
        """Implement ``Store.next``."""
        if name not in self._ends:
            found = map(_NAME.fullmatch, self.place.names(FOLDER, name))
            self._ends[name] = {}
            for end in sorted((each[1], int(each[2])) for each in found if each):
                self._ends[name].update([end])
        ends = self._ends[name]
        return furthest(source, lambda each: ends.get(file_name(each)))

    def append(self, name: str, source: Source, following: int, rows: Rows) -> int:
        """Implement ``Store.append``."""
        at = self.next(name, source) or 0
        new = rows(at) if at < following else None
        if new is None:
            return 0
        sink = pa.BufferOutputStream()
        pq.write_table(new, sink, compression="zstd")
        stem = file_name(source.name)
        file = f"{FOLDER}/{name}/{stem}-{following:015d}.parquet"
        self.place.write(file, sink.getvalue().to_pybytes())
        self._ends[name][stem] = following
        return int(new.num_rows)

    def dataset(self, name: str) -> ds.Dataset | None:
        """Implement ``Store.dataset``."""
        paths = [f"{self.place.path}/{path}" for path in self._paths(name)]
        if not paths:
            return None
        schemas = [pq.read_schema(path, filesystem=self.place.files) for path in paths]
        schema = pa.unify_schemas(schemas)
        return ds.dataset(paths, schema, format="parquet", filesystem=self.place.files)

    def files(self, name: str) -> list[str]:
        """Implement ``Store.files``."""
        return [f"{self.place.uri}/{path}" for path in self._paths(name)]

    def size(self, name: str) -> int:
        """Implement ``Store.size``."""
        paths = [f"{self.place.path}/{path}" for path in self._paths(name)]
        return sum(each.size or 0 for each in self.place.files.get_file_info(paths))

    def _paths(self, name: str) -> list[str]:
        names = self.place.names(FOLDER, name)
        return [f"{FOLDER}/{name}/{each}" for each in names if each.endswith(".parquet")]


def furthest(source: Source, noted: Callable[[str], int | None]) -> int | None:
    """Return the furthest position that is noted under the names of a source, or None."""
    found = map(noted, (source.name, *source.others))
    return max((at for at in found if at is not None), default=None)


FORMATS: Mapping[str, Callable[[Place], Any]] = {"delta": DeltaStore, "parquet": ParquetStore}


def format_of(place: Place) -> str | None:
    """Return the format of the tables of a root; None = it has none."""
    names = place.names(FOLDER)
    for name in names:
        return "delta" if "_delta_log" in place.names(FOLDER, name) else "parquet"
    return None


def open_store(root: os.PathLike[str] | str, wanted: str = "") -> Store:
    """Return the tables of a root.

    Args:
      root: A directory or URI.
      wanted: The format of new tables: ``delta`` or ``parquet``; "" = what is there, or delta.

    Raises:
      LakeError: the tables there have another format.
    """
    place = Place.of(root)
    found = format_of(place)
    if found and wanted and found != wanted:
        raise LakeError(
            f"the tables of {place.uri} are in the format {found}: leave --format out, or name"
            " another --root"
        )
    store: Store = FORMATS[found or wanted or "delta"](place)
    return store


def delta(store: Store) -> DeltaStore:
    """Return the tables of Delta Lake.

    Raises:
      LakeError: they are plain Parquet.
    """
    if not isinstance(store, DeltaStore):
        raise LakeError(
            f"{store.place.uri} has plain Parquet, which can only be appended to: name another"
            " --root, for tables with --format delta"
        )
    return store
