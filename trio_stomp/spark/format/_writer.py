"""The sink ``stomp``: writes the rows of a table to destinations of a broker, each once.

Each message has an ``x-dedup-id``: that of the column ``dedup_id``, or the query, batch, partition
and row, which are the same when Spark repeats a batch. The broker takes one message of each id.
"""

import logging
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from attrs import frozen
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from trio_stomp.spark._address import StreamError
from trio_stomp.spark.format._format_options import SinkOptions
from trio_stomp.spark.format._publish import Outgoing, Publisher, header_line, send_head

logger = logging.getLogger("trio_stomp.spark")

COLUMNS = {
    "body": ("binary", "string"),
    "destination": ("string",),
    "headers": ("map<string,string>",),
    "dedup_id": ("string",),
}
"""The columns of a table to be written, and their types."""

QUERY = "sql.streaming.queryId"
BATCH = "streaming.sql.batchId"
"""Properties that Spark sets for the tasks of a micro-batch."""

OF_ONE_HOP = {
    *("destination", "content-length", "receipt", "transaction", "persistent"),
    *("message-id", "subscription", "ack", "redelivered", "x-dedup-id", "_AMQ_DUPL_ID"),
}
"""Headers that the sink writes itself, or that belong to the message that a row was made from."""

MAX_HEADS = 10_000
"""Most encoded header blocks to keep: most rows have the headers of others."""

Headers = Sequence[tuple[str, str | None]]
Messages = list[WriterCommitMessage | None]


@frozen
class Commit(WriterCommitMessage):  # type: ignore[misc, unused-ignore]
    """The counts of messages that a partition has sent.

    Args:
      counts: The number of messages of each destination.
      windows: The number of ids that the broker remembers for it.
    """

    counts: Counter[str]
    windows: dict[str, int]


class _Writer:
    """The part of both writers that runs in the executors. It is pickled.

    Args:
      options: The options.
      schema: The columns of the table.
      overwrite: Spark asks to replace what is there, which a broker cannot.

    Raises:
      StreamError: the columns or the mode do not fit.
    """

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise StreamError('messages cannot be replaced: .mode("append")')
        check(schema, options)
        self.options, self.names = options, schema.names
        self.write_id = uuid.uuid4().hex
        """The first part of ids in a batch write, whose tasks Spark may repeat."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Commit:
        """Send the rows of a partition, and return when the broker has confirmed all.

        Raises:
          StreamError: the broker refuses a message, or would not recognize it if it came again.
          StreamAway: the broker was away for longer than ``retry_s``.
        """
        return self.publish(iterator, self.prefix())

    def prefix(self) -> str:
        """Return the part of ids that the rows of this partition share."""
        context = TaskContext.get()
        assert context is not None, "Spark writes in tasks"
        query, batch = context.getLocalProperty(QUERY), context.getLocalProperty(BATCH)
        of_all = f"{query}-{batch}" if query and batch else self.write_id
        return f"{of_all}-{context.partitionId()}"

    def publish(self, batches: Iterable[pa.RecordBatch], prefix: str) -> Commit:
        """Send rows with ids that begin with ``prefix``, as ``write`` does."""
        publisher = Publisher(self.options.address)
        publisher.publish(self._messages(batches, prefix))
        return Commit(publisher.counts, publisher.windows)

    def _messages(self, batches: Iterable[pa.RecordBatch], prefix: str) -> Iterator[Outgoing]:
        heads: dict[tuple[str, tuple[tuple[str, str | None], ...]], bytes] = {}
        number = 0
        for batch in batches:
            columns: dict[str, list[Any]] = {
                name: column.to_pylist()
                for name, column in zip(self.names, batch.columns, strict=True)
            }
            nothing = [None] * batch.num_rows
            for body, destination, headers, dedup_id in zip(
                columns["body"],
                columns.get("destination", nothing),
                columns.get("headers", nothing),
                columns.get("dedup_id", [f"{prefix}-{number + at}" for at in range(len(nothing))]),
                strict=True,
            ):
                name = destination or self.options.destination
                if not name or not dedup_id:
                    lacking = "dedup_id" if name else "destination"
                    raise StreamError(f"row {number} of partition {prefix} has no {lacking}")
                key = (name, tuple(headers or ()))
                head = heads.get(key)
                if head is None:
                    if len(heads) >= MAX_HEADS:
                        heads.clear()
                    head = heads[key] = self._head(name, headers or ())
                content = body.encode() if isinstance(body, str) else body or b""
                yield Outgoing(name, head + header_line("x-dedup-id", dedup_id), content)
                number += 1

    def _head(self, destination: str, headers: Headers) -> bytes:
        sent = {"persistent": "true"} if self.options.is_persistent else {}
        for name, text in headers:
            if name not in OF_ONE_HOP and not name.startswith("x-stream-"):
                sent.setdefault(name, text or "")
        return send_head(destination, sent)


class StompWriter(_Writer, DataSourceArrowWriter):  # type: ignore[misc, unused-ignore]
    """A writer of one table."""

    def commit(self, messages: Messages) -> None:
        """Warn if a repetition of the write might not have been recognized."""
        warn_of_sums(messages, "the table")


class StompStreamWriter(_Writer, DataSourceStreamArrowWriter):  # type: ignore[misc, unused-ignore]
    """A writer of micro-batches."""

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        """Warn if a repetition of the batch might not have been recognized."""
        warn_of_sums(messages, f"batch {batchId}")


def check(schema: StructType, options: SinkOptions) -> None:
    """Check the columns of a table.

    Raises:
      StreamError: one is missing, unknown, or has another type.
    """
    there_are = f"there are body, destination, headers and dedup_id, not {', '.join(schema.names)}"
    for field in schema:
        kinds = COLUMNS.get(field.name)
        if kinds is None:
            raise StreamError(f"unknown column {field.name}: {there_are}")
        if (found := field.dataType.simpleString()) not in kinds:
            raise StreamError(f"column {field.name} should be {' or '.join(kinds)}, not {found}")
    if "body" not in schema.names:
        raise StreamError(f"there is no column body: {there_are}")
    if not options.destination and "destination" not in schema.names:
        raise StreamError("where do the messages go? Give the option or the column destination")


def warn_of_sums(commits: Messages, what: str) -> None:
    """Warn of destinations that got more messages of all partitions than ids are remembered."""
    counts: Counter[str] = Counter()
    windows: dict[str, int] = {}
    for commit in commits:
        if isinstance(commit, Commit):
            counts += commit.counts
            windows |= commit.windows
    for name, count in counts.items():
        if count > windows[name]:
            logger.warning(
                "%s has %d messages for %s, of which the broker remembers %d ids: if Spark repeats"
                " it, some come twice; raise dedup_window in the destination's policy, or lower"
                " maxOffsetsPerTrigger",
                what,
                count,
                name,
                windows[name],
            )
