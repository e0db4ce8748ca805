"""The one writer of tables: for Spark's micro-batches and for readers without Java.

A commit is some messages of one epoch: their rows go to the table of their kind, those that no
table can hold to ``raw``, and the last step is a row of ``progress``. Each table keeps how far it
is. So after a kill at any moment the same messages may come again, in other pieces too: each table
appends what it lacks.
"""

import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from operator import add
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trio_stomp.spark._address import DIAG
from trio_stomp.spark._columns import DATE, KINDS, PROGRESS, STORED_AT, schema_of
from trio_stomp.spark._messages import GAP_UNTIL
from trio_stomp.spark.lake._place import LakeError
from trio_stomp.spark.lake._records import Split, chosen, split
from trio_stomp.spark.lake._store import Store

RAW, GAP, PROGRESS_TABLE, MESSAGES = "raw", "_gap", "progress", "messages"

_NAME = re.compile(r"[a-z][a-z0-9_]*")

MAX_ROWS = 200_000
MAX_BYTES = 64 << 20
"""The size of a commit. It decides what a writer holds in memory."""


class Totals(NamedTuple):
    """The counts of messages and rows of a writer.

    Args:
      messages: The messages that were new.
      rows: The rows appended to all tables.
      rest: The rows among these that went into the table ``raw``.
    """

    messages: int = 0
    rows: int = 0
    rest: int = 0


class Writer:
    """Writes the messages of a stream, which come in the order of their offsets.

    Limits: holds the messages of one commit.

    Args:
      store: The tables.
      stream: The name of the stream.
      broker_id: The broker, if its messages do not tell it.
      table: The table of a user's stream.

    Raises:
      LakeError: another table has this name.
    """

    def __init__(
        self, store: Store, stream: str, broker_id: str = "", table: str = MESSAGES
    ) -> None:
        if not _NAME.fullmatch(table) or table in {*KINDS, RAW, PROGRESS_TABLE}:
            raise LakeError(
                f"a table of messages cannot be called {table!r}: take letters, digits and _, and"
                " no name of a table of the statistics"
            )
        self.totals = Totals()
        self.stream = stream
        self._store, self._table = store, table
        self._batches: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0
        self._last: tuple[str, int] = ("", -1)
        self._broker_id = broker_id

    @property
    def is_statistics(self) -> bool:
        """Whether the messages are the broker's statistics, which have tables of their own."""
        return self.stream == DIAG

    def add(self, batch: pa.RecordBatch) -> None:
        """Take messages, and commit whenever there are enough.

        Raises:
          LakeError: the storage refuses, or the messages are not in order.
        """
        self._batches.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= MAX_ROWS or self._bytes >= MAX_BYTES:
            self.flush()

    def flush(self) -> None:
        """Commit the rest.

        Raises:
          LakeError: the storage refuses, or the messages are not in order.
        """
        batches, self._batches = self._batches, []
        self._rows = self._bytes = 0
        if not batches:
            return
        messages = pa.Table.from_batches(batches)
        epochs = messages.column("epoch")
        for epoch in pc.unique(epochs).to_pylist():
            self._commit(epoch, chosen(messages, pc.equal(epochs, epoch)))

    def _commit(self, epoch: str, messages: pa.Table) -> None:
        """Commit messages of one epoch."""
        self._check_order(epoch, messages)
        source = source_of(self._note_broker(epoch, messages), epoch)
        at = self._store.next(PROGRESS_TABLE, source) or 0
        messages = since(messages, at)
        if not messages.num_rows:
            return
        if self.is_statistics:
            parts = split(messages)
        else:
            parts = Split({self._table: messages}, messages.slice(0, 0))
        last = int(messages.column("offset")[-1].as_py())
        # A gap at the end goes on behind its row. That of a lost epoch does not: nothing follows.
        gap = last_gap(parts, last) if self.is_statistics else gap_until(messages)
        following = max(last + 1, gap or 0)
        rows = 0
        for name, table in {**parts.tables, RAW: parts.rest}.items():
            rows += self._store.append(name, source, following, lacking(table))
        done = progress(self.stream, self._broker_id, messages, gap or following)
        self._store.append(PROGRESS_TABLE, source, following, lambda _: done)
        new = (messages.num_rows, rows, parts.rest.num_rows)
        self.totals = Totals(*map(add, self.totals, new))

    def _note_broker(self, epoch: str, messages: pa.Table) -> str:
        """Return the broker of messages. A row for lost messages may not tell it."""
        if self.is_statistics:
            known = (each for each in pc.unique(messages.column("broker_id")).to_pylist() if each)
            self._broker_id = next(known, self._broker_id)
            if not self._broker_id:
                brokers = brokers_of(self._store, self.stream, epoch)
                self._broker_id = brokers[0] if len(brokers) == 1 else ""
        return self._broker_id

    def _check_order(self, epoch: str, messages: pa.Table) -> None:
        """Refuse messages that a table would take for those that it has."""
        offsets = np.asarray(messages.column("offset"))
        last_epoch, last = self._last
        start = [last] if last_epoch == epoch else []
        if (np.diff(np.concatenate([start, offsets])) <= 0).any():
            raise LakeError(
                f"messages of {self.stream} are not in the order of their offsets: read it with"
                " one partition, or sort by offset"
            )
        self._last = (epoch, int(offsets[-1]))


def source_of(broker_id: str, epoch: str) -> str:
    """Return the name of a source. Brokers that start in the same moment have the same epoch."""
    return f"{epoch}@{broker_id}"


def since(rows: pa.Table, at: int) -> pa.Table:
    """Return the rows from an offset on."""
    return chosen(rows, pc.greater_equal(rows.column("offset"), at))


def lacking(table: pa.Table) -> Callable[[int], pa.Table | None]:
    """Return a function for the rows from an offset on, as the store asks for them."""

    def rows(at: int) -> pa.Table | None:
        found = since(table, at)
        return dated(found) if found.num_rows else None

    return rows


def dated(rows: pa.Table) -> pa.Table:
    """Return rows with the day of ``stored_at``."""
    if DATE.name in rows.column_names:
        return rows
    return rows.append_column(DATE.name, rows.column(STORED_AT.name).cast(pa.date32()))


def last_gap(parts: Split, last: int) -> int | None:
    """Return the offset after the gap that the last message tells of, or None if it is none."""
    gaps = parts.tables.get(GAP)
    if gaps is None or gaps.column("offset")[-1].as_py() != last:
        return None
    return int(gaps.column("hi")[-1].as_py())


def gap_until(messages: pa.Table) -> int | None:
    """Return the offset after the gap that is the last row of a user's stream, or None."""
    headers = dict(messages.column("headers")[-1].as_py() or ())
    return int(headers[GAP_UNTIL]) if GAP_UNTIL in headers else None


def progress(stream: str, broker_id: str, messages: pa.Table, following: int) -> pa.Table:
    """Return the row of a commit."""
    row = {
        "broker_id": broker_id,
        "epoch": messages.column("epoch")[0].as_py(),
        "stream": stream,
        "first": messages.column("offset")[0].as_py(),
        "next": following,
        "messages": messages.num_rows,
        STORED_AT.name: messages.column(STORED_AT.name)[-1].as_py(),
        "written_at": datetime.now(UTC),
    }
    return dated(pa.Table.from_pylist([row], schema_of(PROGRESS)))


def brokers_of(store: Store, stream: str, epoch: str) -> list[str]:
    """Return the brokers of whose stream an epoch was read."""
    commits = store.dataset(PROGRESS_TABLE)
    if commits is None:
        return []
    is_own = (pc.field("stream") == stream) & (pc.field("epoch") == epoch)
    found = commits.to_table(filter=is_own, columns=["broker_id"])
    return [str(each) for each in pc.unique(found.column(0)).to_pylist()]


def previous_epoch(store: Store, stream: str, broker_id: str, epoch: str) -> tuple[str, int] | None:
    """Return the epoch that a broker's stream had before ``epoch``, and how far it was read."""
    commits = store.dataset(PROGRESS_TABLE)
    if commits is None:
        return None
    is_other = (pc.field("stream") == stream) & (pc.field("broker_id") == broker_id)
    found = commits.to_table(
        filter=is_other & (pc.field("epoch") != epoch), columns=["epoch", "next", "written_at"]
    ).sort_by("written_at")
    if not found.num_rows:
        return None
    last = found.slice(found.num_rows - 1).to_pylist()[0]
    return str(last["epoch"]), int(last["next"])


def days_of(store: Store) -> list[date]:
    """Return the days that have rows in a table of the statistics, in order."""
    found: set[date] = set()
    for kind in KINDS:
        table = store.dataset(kind)
        if table is not None:
            found.update(pc.unique(table.to_table(columns=[DATE.name]).column(0)).to_pylist())
    return sorted(found)
