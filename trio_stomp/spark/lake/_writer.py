"""The one writer of tables: for Spark's micro-batches and for readers without Java.

A commit is some messages of one epoch: their rows go to the table of their kind, those that no
table can hold to ``raw``, and the last step is a row of ``progress``. Each table keeps how far it
is. So after a kill at any moment the same messages may come again, in other pieces too: each table
appends what it lacks.

How far messages are written is a position in an epoch of a stream of a broker, in one table: that
of a user's stream keeps its own, and ``progress`` that of the statistics, which have many tables.
"""

import json
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
from trio_stomp.spark._messages import EPOCH, GAP_UNTIL
from trio_stomp.spark._messages import GAP as X_GAP
from trio_stomp.spark.lake._place import LakeError
from trio_stomp.spark.lake._records import Split, chosen, split
from trio_stomp.spark.lake._store import Source, Store

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

    ``broker_id`` is the broker, once it is known.

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
        self.stream, self.broker_id = stream, broker_id
        self._store, self._table = store, table
        self._batches: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0
        self._last: tuple[str, int] = ("", -1)

    @property
    def is_statistics(self) -> bool:
        """Whether the messages are the broker's statistics, which have tables of their own."""
        return self.stream == DIAG

    @property
    def _home(self) -> str:
        """The table that has the position."""
        return PROGRESS_TABLE if self.is_statistics else self._table

    def position(self, epoch: str) -> int | None:
        """Return the offset up to which an epoch of the stream is written; None = nothing is.

        Raises:
          LakeError: the storage refuses.
        """
        return self._store.next(self._home, self._source(epoch))

    def previous_epoch(self, epoch: str) -> str | None:
        """Return the epoch that this table has of the broker's stream from before ``epoch``."""
        commits = self._store.dataset(PROGRESS_TABLE)
        if commits is None:
            return None
        is_own = (pc.field("stream") == self.stream) & (pc.field("broker_id") == self.broker_id)
        found = commits.to_table(
            filter=is_own & (pc.field("epoch") != epoch), columns=["epoch", "written_at"]
        ).sort_by([("written_at", "descending")])
        known = pc.unique(found.column("epoch")).to_pylist()
        return next((each for each in known if self.position(each) is not None), None)

    def _source(self, epoch: str) -> Source:
        """Return what offsets are in. Brokers that start in the same moment have the same epochs.

        Tables of an earlier version have those of users' streams by epoch and broker only.
        """
        name = f"{epoch}@{self.broker_id}"
        if self.is_statistics:
            return Source(name)
        return Source(f"{name}{self.stream}#{self._table}", (name,))

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
        if self.is_statistics:
            self._note_broker(epoch, messages)
        source, gap = self._source(epoch), self._last_gap(messages)
        if gap is not None and gap[0] == EPOCH:
            self._check_stream(epoch)
            # Its row takes no offset: if the log is not lost, but that of another broker, it goes
            # on there.
            count = messages.num_rows - 1
            self._append(source, messages.slice(0, count))
            source = Source(f"{source.name}!end", (*source.others, source.name))
            messages = messages.slice(count)
        self._append(source, messages)

    def _append(self, source: Source, messages: pa.Table) -> None:
        """Append the messages that the tables lack."""
        messages = since(messages, self._store.next(self._home, source) or 0)
        if not messages.num_rows:
            return
        if self.is_statistics:
            parts = split(messages)
        else:
            parts = Split({self._table: messages}, messages.slice(0, 0))
        following = int(messages.column("offset")[-1].as_py()) + 1
        # A gap at the end goes on behind its row. That of a lost epoch does not: nothing follows.
        gap = self._last_gap(messages)
        reached = gap[1] if gap else following
        following = max(following, reached)
        rows = 0
        for name, table in {**parts.tables, RAW: parts.rest}.items():
            rows += self._store.append(name, source, following, lacking(table))
        done = self._progress(messages, reached)
        self._store.append(PROGRESS_TABLE, Source(source.name), following, lambda _: done)
        new = (messages.num_rows, rows, parts.rest.num_rows)
        self.totals = Totals(*map(add, self.totals, new))

    def _note_broker(self, epoch: str, messages: pa.Table) -> None:
        """Learn the broker of messages. A row for lost messages may not tell it."""
        known = (each for each in pc.unique(messages.column("broker_id")).to_pylist() if each)
        self.broker_id = next(known, self.broker_id)
        if not self.broker_id:
            brokers = [broker for stream, broker in self._known(epoch) if stream == self.stream]
            self.broker_id = brokers[0] if len(brokers) == 1 else ""

    def _check_stream(self, epoch: str) -> None:
        """Refuse a lost epoch that is not lost, but another stream's: the checkpoint is its."""
        streams = {stream for stream, _ in self._known(epoch)}
        if streams and self.stream not in streams:
            raise LakeError(
                f"the checkpoint is of {min(streams)}, not of {self.stream}: name another with"
                " --checkpoint, or leave it out: each stream has its own"
            )

    def _known(self, epoch: str) -> list[tuple[str, str]]:
        """Return the streams and brokers that have an epoch, as far as it was read."""
        commits = self._store.dataset(PROGRESS_TABLE)
        if commits is None:
            return []
        names = ["stream", "broker_id"]
        found = commits.to_table(filter=pc.field("epoch") == epoch, columns=names)
        return [
            (row["stream"], row["broker_id"])
            for row in found.group_by(names).aggregate([]).to_pylist()
        ]

    def _last_gap(self, messages: pa.Table) -> tuple[str, int] | None:
        """Return the reason of the gap that the last row tells of, and the offset after it."""
        last = messages.slice(messages.num_rows - 1).to_pylist()[0]
        if not self.is_statistics:
            headers = dict(last["headers"] or ())
            return (headers[X_GAP], int(headers[GAP_UNTIL])) if X_GAP in headers else None
        if last["kind"] != GAP:
            return None
        gap = json.loads(last["body"])
        return gap["reason"], gap["hi"]

    def _progress(self, messages: pa.Table, following: int) -> pa.Table:
        """Return the row of a commit."""
        row = {
            "broker_id": self.broker_id,
            "epoch": messages.column("epoch")[0].as_py(),
            "stream": self.stream,
            "table": "" if self.is_statistics else self._table,
            "first": messages.column("offset")[0].as_py(),
            "next": following,
            "messages": messages.num_rows,
            STORED_AT.name: messages.column(STORED_AT.name)[-1].as_py(),
            "written_at": datetime.now(UTC),
        }
        return dated(pa.Table.from_pylist([row], schema_of(PROGRESS)))

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


def days_of(store: Store) -> list[date]:
    """Return the days that have rows in a table of the statistics, in order."""
    found: set[date] = set()
    for kind in KINDS:
        table = store.dataset(kind)
        if table is not None:
            found.update(pc.unique(table.to_table(columns=[DATE.name]).column(0)).to_pylist())
    return sorted(found)
