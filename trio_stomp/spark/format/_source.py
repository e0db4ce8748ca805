"""The Spark data source ``stomp``: a stream of the broker as a table, in batches or continuously.

The content of a micro-batch is decided once, as a range of offsets that Spark writes to its
checkpoint, and read from the broker as often as Spark likes. So nothing depends on ``commit``,
and several queries can read one stream. The table of ``/stream/DIAG`` is ``raw``, with a row of the
kind ``_gap`` for lost messages; that of other streams is in ``spark/_messages.py``.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from trio_stomp.spark._address import DIAG, StreamError
from trio_stomp.spark._client import Bounds, Following, StreamClient
from trio_stomp.spark._messages import COLUMNS, CORRUPT, EPOCH, RETENTION, Layout, MessageBuilder
from trio_stomp.spark._rows import RAW_LAYOUT, RowBuilder
from trio_stomp.spark._types import type_of
from trio_stomp.spark.format._format_options import Position, SinkOptions, SourceOptions
from trio_stomp.spark.format._writer import StompStreamWriter, StompWriter

Offset = dict[str, str | int]
"""The position that Spark stores for a query, compared as text, so the order of keys matters.

``epoch``, ``offset``: the next message to be read. ``next``: the end of the stream at that time;
if the epoch is lost, messages up to it are known to have existed. ``at``: the time. ``stream``: the
stream, which those of an earlier version lack.
"""

MIN_PARTITION_ROWS = 5_000
"""A partition with fewer rows is not worth a connection."""

SAMPLE_ROWS = 100
"""Messages from whose size that of a micro-batch is estimated."""


class Range(InputPartition):  # type: ignore[misc, unused-ignore]
    """The messages ``lo`` to ``hi`` - 1 of an epoch."""

    def __init__(self, epoch: str, lo: int, hi: int, planned_at: str) -> None:
        super().__init__((epoch, lo, hi))
        self.epoch, self.lo, self.hi, self.planned_at = epoch, lo, hi, planned_at


class StompDataSource(DataSource):  # type: ignore[misc, unused-ignore]
    """``spark.read`` or ``readStream`` with ``.format("stomp")`` (docs/operate/spark.md)."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format``."""
        return "stomp"

    def schema(self) -> StructType:
        """Return the columns for readers who choose none."""
        options = SourceOptions.of(self.options)
        if options.stream_address.stream == DIAG and options.body == "binary":
            return from_arrow_schema(RAW_LAYOUT.schema)
        if options.body == "json":
            raise StreamError(
                "body=json needs a schema: .schema('price DOUBLE, offset BIGINT') has the fields of"
                f" the body, and any of {', '.join(COLUMNS)}, {CORRUPT}"
            )
        return from_arrow_schema(Layout.of(options.body).schema)

    def reader(self, schema: StructType) -> "StompReader":
        """Return a reader of the current content of the stream."""
        options = SourceOptions.of(self.options)
        return StompReader(options, _layout(schema, options))

    def streamReader(self, schema: StructType) -> "StompStreamReader":
        """Return a reader that also follows new messages."""
        options = SourceOptions.of(self.options)
        return StompStreamReader(options, _layout(schema, options))

    def writer(self, schema: StructType, overwrite: bool) -> StompWriter:
        """Return a writer of a table."""
        return StompWriter(SinkOptions.of(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StompStreamWriter:
        """Return a writer of micro-batches."""
        return StompStreamWriter(SinkOptions.of(self.options), schema, overwrite=overwrite)


def _layout(schema: StructType, options: SourceOptions) -> Layout:
    """Return the layout of a table."""
    if options.stream_address.stream == DIAG and schema.names == RAW_LAYOUT.schema.names:
        return RAW_LAYOUT
    return layout_of(schema, options.body)


class _RangeReader:
    """The part of both readers that runs in the executors.

    It is pickled, so it holds no connection.

    Args:
      options: The options.
      layout: The columns.
    """

    def __init__(self, options: SourceOptions, layout: Layout) -> None:
        self.options, self.layout = options, layout

    @property
    def client(self) -> StreamClient:
        """Return a new client of the stream."""
        return StreamClient(self.options.stream_address)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range, in order, with a gap row for lost messages.

        Raises:
          StreamError: the broker refuses, or messages are lost and that is an error.
          StreamAway: the broker was away for longer than ``retry_s``.
        """
        assert isinstance(partition, Range)
        epoch, lo, hi = partition.epoch, partition.lo, partition.hi
        rows = self._builder(partition)
        replay = self.client.read(epoch, lo, hi)
        for messages in replay:
            yield from rows.add(messages)
        is_lost = replay.end is not None and replay.end.epoch != epoch
        # An empty range is that of a lost epoch, of which only the tail is known to be missing.
        if rows.expected < hi or (lo == hi and is_lost):
            rows.gap(hi, EPOCH if is_lost else RETENTION)
        yield from rows.flush()

    def _builder(self, part: Range) -> MessageBuilder:
        stream, at = self.options.stream_address.stream, part.planned_at
        if self.layout == RAW_LAYOUT:
            own = self.options.broker_id
            return RowBuilder(stream, part.epoch, part.lo, planned_at=at, broker_id=own)
        strict = self.options.is_strict
        return MessageBuilder(
            self.layout, stream, part.epoch, part.lo, planned_at=at, is_strict=strict
        )

    def locate(self, position: Position, bounds: Bounds) -> int:
        """Return the offset that ``position`` means."""
        if position.name == "timestamp":
            return self.client.offset_at(position.value / 1000)
        if position.name == "offset":
            return position.value
        return bounds.first if position.name == "earliest" else bounds.next

    def divided(self, epoch: str, lo: int, hi: int, planned_at: str) -> list[Range]:
        """Divide a range into at most ``partitions`` parts of a useful size.

        An empty range has none.
        """
        count = min(self.options.partitions, max(1, (hi - lo) // MIN_PARTITION_ROWS))
        edges = [lo + (hi - lo) * number // count for number in range(count + 1)]
        return [
            Range(epoch, start, end, planned_at) for start, end in pairwise(edges) if start < end
        ]


class StompReader(_RangeReader, DataSourceReader):  # type: ignore[misc, unused-ignore]
    """A batch reader from ``starting`` to ``ending``.

    It takes no filters: Spark 4.3 keeps the ranges of the first query that pushed some for all
    later queries of the same DataFrame, which then miss rows.
    """

    def partitions(self) -> list[Range]:
        """Return the ranges to read: at least one, as Spark demands."""
        bounds = self.client.bounds()
        lo = self.locate(self.options.starting, bounds)
        hi = max(lo, min(bounds.next, self.locate(self.options.ending, bounds)))
        now = _now()
        return self.divided(bounds.epoch, lo, hi, now) or [Range(bounds.epoch, lo, lo, now)]


class StompStreamReader(
    _RangeReader,
    DataSourceStreamReader,  # type: ignore[misc, unused-ignore]
    SupportsTriggerAvailableNow,  # type: ignore[misc, unused-ignore]
):
    """A reader of micro-batches of a limited size, from ``starting`` on.

    It has no ``commit``: only the broker's retention removes messages.
    """

    def __init__(self, options: SourceOptions, layout: Layout) -> None:
        super().__init__(options, layout)
        self._following = Following(self.client)
        self._target: Bounds | None = None
        self._latest: Bounds | None = None

    def initialOffset(self) -> Offset:
        """Return the start of a query without a checkpoint."""
        bounds = self.client.bounds()
        return self._offset(bounds.epoch, self.locate(self.options.starting, bounds), bounds.next)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return ``maxOffsetsPerTrigger`` as Spark's limit."""
        return ReadMaxRows(self.options.max_offsets)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the current end of the stream as the end of the query."""
        self._target = self.client.bounds()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return the end of the next micro-batch, or ``start`` if there are no new messages.

        Raises:
          StreamError: ``start`` is an offset of another stream.
        """
        self._check(start)
        self._latest = bounds = self._following.bounds()
        if self._target is not None:
            # If the epoch was lost meanwhile, the end is that of the new one.
            if self._target.epoch != bounds.epoch:
                self._target = bounds
            bounds = bounds._replace(next=min(bounds.next, self._target.next))
        same = bounds.epoch == start["epoch"]
        at = int(start["offset"]) if same else 0
        end = bounds.next
        if isinstance(limit, ReadMaxRows):
            # Removed messages count as one row, to catch up quickly after a long absence.
            end = min(end, max(at, bounds.first) + limit.max_rows)
        if self.options.max_bytes and end > at:
            end = self._within(bounds, max(at, bounds.first), end)
        if same and end <= at:
            return start
        return self._offset(bounds.epoch, end, bounds.next)

    def stop(self) -> None:
        """Close the connection, as the query has ended."""
        self._following.close()

    def _within(self, bounds: Bounds, at: int, end: int) -> int:
        """Return the end of about ``maxBytesPerTrigger`` from ``at`` on: at least one message."""
        sample = self.client.read(bounds.epoch, at, min(end, at + SAMPLE_ROWS))
        sizes = [len(head) + len(body) for messages in sample for _, _, head, body in messages]
        count = self.options.max_bytes * len(sizes) // max(1, sum(sizes))
        return min(end, at + max(1, count)) if sizes else end

    def reportLatestOffset(self) -> Offset | None:
        """Return the end of the stream at the last ``latestOffset``, for progress reports."""
        latest = self._latest
        return latest and self._offset(latest.epoch, latest.next, latest.next)

    def partitions(self, start: Offset, end: Offset) -> list[Range]:
        """Return the ranges between two offsets, the same on every call.

        Raises:
          StreamError: they are offsets of another stream.
        """
        for each in (start, end):
            self._check(each)
        epoch, planned_at = str(end["epoch"]), str(end["at"])
        if epoch == start["epoch"]:
            return self.divided(epoch, int(start["offset"]), int(end["offset"]), planned_at)
        lo = int(start["offset"])
        lost = Range(str(start["epoch"]), lo, max(lo, int(start["next"])), planned_at)
        return [lost, *self.divided(epoch, 0, int(end["offset"]), planned_at)]

    def _offset(self, epoch: str, offset: int, following: int) -> Offset:
        position: Offset = {"epoch": epoch, "offset": offset, "next": following, "at": _now()}
        return position | {"stream": self.options.stream_address.stream}

    def _check(self, offset: Offset) -> None:
        """Refuse the offset of another stream, whose epoch would be taken for a lost one."""
        own = self.options.stream_address.stream
        if (other := offset.get("stream", own)) != own:
            raise StreamError(
                f"the checkpoint is of {other}, not of {own}: give each stream a checkpoint of its"
                " own (checkpointLocation, or --checkpoint)"
            )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")


def layout_of(schema: StructType, body: str) -> Layout:
    """Return the layout of a table of a user's stream with this schema.

    Raises:
      StreamError: a column is unknown, or has another type.
    """
    known = {each.name: each.type for each in Layout.of(body).schema}
    columns = []
    for field in schema:
        found, kind = field.dataType.simpleString(), known.get(field.name)
        if kind is None and body != "json":
            raise StreamError(
                f"there is no column {field.name}: with body={body} there are {', '.join(known)};"
                " with body=json, other columns are fields of the body"
            )
        if kind is not None and found != (wanted := from_arrow_type(kind).simpleString()):
            raise StreamError(f"column {field.name} should be {wanted}, not {found}")
        columns.append(pa.field(field.name, kind or type_of(found)))
    return Layout(body, pa.schema(columns))
