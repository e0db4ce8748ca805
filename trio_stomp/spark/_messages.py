"""Converts the messages of any stream to Arrow batches: a row for each, with its headers.

It needs no Spark. Whatever is not one of ``COLUMNS`` is a field of a JSON body.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from trio_stomp.spark._address import StreamError
from trio_stomp.spark._client import Message
from trio_stomp.spark._columns import DATE
from trio_stomp.spark._frames import unescaped
from trio_stomp.spark._json import objects
from trio_stomp.spark._types import fields_of

RETENTION = "retention"
EPOCH = "epoch"
"""The reasons of gaps."""

BATCH_ROWS = 10_000
BATCH_BYTES = 8 * 1024 * 1024

COLUMNS: dict[str, pa.DataType] = {
    "headers": pa.map_(pa.string(), pa.string()),
    "destination": pa.string(),
    "message_id": pa.string(),
    "offset": pa.int64(),
    "epoch": pa.string(),
    "stored_at": pa.timestamp("us", "UTC"),
}
"""The columns beside ``body``. ``message_id`` is epoch and offset: the header ``message-id`` names
a message for one reader only."""

BODIES: dict[str, pa.DataType | None] = {"binary": pa.binary(), "text": pa.string(), "json": None}
"""The type of the column ``body``, by option. A body of JSON is a column for each field instead."""

CORRUPT = "_corrupt_record"
"""The column for bodies that are not JSON of the schema, by Spark's name for it."""

GAP, GAP_UNTIL = "x-gap", "x-gap-until"
"""The headers of a row for lost messages, which no sender can give."""

_TIME = b"\nx-stream-timestamp:"
_NOT_THE_SENDERS = ("x-stream-", "destination", "content-length", GAP)
"""Beginnings of the names of headers that are no part of ``headers``."""

Pairs = list[tuple[str, str]]


class Layout(NamedTuple):
    """The columns of a table.

    Args:
      body: The option ``body``.
      schema: All columns in their order.
    """

    body: str
    schema: pa.Schema

    @classmethod
    def of(cls, body: str, schema: str = "") -> "Layout":
        """Return the layout with all columns, and those of JSON in SQL's words.

        Raises:
          StreamError: these are wrong, or one is called like another column.
        """
        own = {CORRUPT: pa.string()} if body == "json" else {"body": BODIES[body]}
        own |= COLUMNS
        fields = fields_of(schema) if schema else []
        taken = {name.casefold() for name in (*own, DATE.name)}
        for field in fields:
            if field.name.casefold() in taken:
                raise StreamError(f"there is a column {field.name}: body=text keeps such a field")
        return cls(body, pa.schema([*fields, *own.items()]))

    @property
    def fields(self) -> list[pa.Field]:
        """The columns that are fields of a JSON body."""
        own = {*COLUMNS, CORRUPT}
        return [each for each in self.schema if self.body == "json" and each.name not in own]


class MessageBuilder:
    """Builds the rows of one range, and detects gaps.

    Args:
      layout: The columns.
      stream: The destination of gap rows.
      epoch: The epoch of the whole range.
      lo: The first expected offset.
      planned_at: The time of a gap that no message follows, in ISO 8601.
      is_strict: Whether a gap is an error.
    """

    def __init__(
        self, layout: Layout, stream: str, epoch: str, lo: int, *, planned_at: str, is_strict: bool
    ) -> None:
        self.expected = lo
        self._layout, self._stream, self._epoch = layout, stream, epoch
        self._planned_at, self._is_strict = planned_at, is_strict
        self._clear()

    def _clear(self) -> None:
        self._offsets: list[int] = []
        self._times: list[int] = []
        self._bodies: list[bytes | None] = []
        self._head_of: list[int] = []
        self._size = 0
        # Most messages of a publisher have the same headers: they are parsed and built once.
        self._numbers: dict[bytes, int] = {}
        self._heads: list[tuple[str, Pairs]] = []

    def add(self, messages: list[Message]) -> Iterator[pa.RecordBatch]:
        """Add messages, and yield a batch whenever there are enough rows.

        Raises:
          StreamError: messages are missing before one of these, and that is an error.
        """
        own_of = self.own
        for offset, stored_ms, head, body in messages:
            if offset != self.expected:
                self.gap(offset, RETENTION, stored_ms)
            self.expected = offset + 1
            own = own_of(head)
            number = self._numbers.get(own)
            if number is None:
                number = self._numbers[own] = len(self._heads)
                self._heads.append(parse(own))
            self._offsets.append(offset)
            self._times.append(stored_ms)
            self._head_of.append(number)
            self._bodies.append(body)
            self._size += len(body) + len(own)
            if len(self._offsets) >= BATCH_ROWS or self._size >= BATCH_BYTES:
                yield from self.flush()

    def gap(self, hi: int, reason: str, stored_ms: int | None = None) -> None:
        """Add a row without a body for the missing messages before ``hi``.

        Args:
          hi: The offset after the last missing message.
          reason: Why they are missing.
          stored_ms: The time of the next message.

        Raises:
          StreamError: a gap is an error.
        """
        lo = self.expected
        if self._is_strict:
            some = f"{lo} to {hi - 1}" if hi > lo else f"from {lo} on"
            raise StreamError(
                f"messages {some} of {self._stream}, epoch {self._epoch}, are lost ({reason}):"
                " failOnDataLoss=false goes on, with a row for them"
            )
        if stored_ms is None:
            stored_ms = int(datetime.fromisoformat(self._planned_at).timestamp() * 1000)
        self._heads.append((self._stream, [(GAP, reason), (GAP_UNTIL, str(hi))]))
        body = self.gap_body(hi, reason, stored_ms)
        self._offsets.append(lo)
        self._times.append(stored_ms)
        self._head_of.append(len(self._heads) - 1)
        self._bodies.append(body)
        self.expected = hi

    def own(self, head: bytes) -> bytes:
        """Return the headers to parse: the sender's, as the broker writes its own first."""
        return head[head.index(b"\n", head.index(_TIME) + 1) :]

    def gap_body(self, hi: int, reason: str, stored_ms: int) -> bytes | None:  # noqa: ARG002
        """Return the body of a row for missing messages, which has none here."""
        return None

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Yield the remaining rows, if any."""
        if self._offsets:
            known = self.columns()
            arrays = [
                known[each.name] if each.name in known else self._column(each)
                for each in self._layout.schema
            ]
            self._clear()
            yield pa.RecordBatch.from_arrays(arrays, schema=self._layout.schema)

    def columns(self) -> dict[str, pa.Array]:
        """Return the columns that are made of bodies, by their names."""
        if self._layout.body != "json":
            return {}
        fields = self._layout.fields
        rows, corrupt = json_rows(self._bodies, pa.struct(fields))
        names = (each.name for each in fields)
        return dict(zip(names, rows.flatten(), strict=True)) | {CORRUPT: corrupt}

    def of_heads(self, values: Sequence[object], kind: pa.DataType) -> pa.Array:
        """Return a column, given the value of each different head."""
        return pa.array(values, kind).take(pa.array(self._head_of))

    def _column(self, field: pa.Field) -> pa.Array:
        match field.name:
            case "headers":
                return self.of_heads([pairs for _, pairs in self._heads], field.type)
            case "destination":
                return self.of_heads([name for name, _ in self._heads], field.type)
            case "message_id":
                return pa.array([f"{self._epoch}-{offset}" for offset in self._offsets], field.type)
            case "offset":
                return pa.array(self._offsets, field.type)
            case "epoch":
                return pa.repeat(pa.scalar(self._epoch, field.type), len(self._offsets))
            case "stored_at":
                return pa.array(self._times, pa.timestamp("ms", "UTC")).cast(field.type)
        if self._layout.body == "binary":
            return pa.array(self._bodies, field.type)
        return texts(self._bodies)


def parse(head: bytes) -> tuple[str, Pairs]:
    """Return the destination and the sender's headers of a head, the first of repeated names."""
    destination, headers = "", dict[str, str]()
    for line in head.split(b"\n"):
        raw, colon, value = line.partition(b":")
        name = unescaped(raw)
        if name == "destination":
            destination = destination or unescaped(value)
        elif colon and not name.startswith(_NOT_THE_SENDERS):
            headers.setdefault(name, unescaped(value))
    return destination, list(headers.items())


def texts(values: Sequence[bytes | str | None]) -> pa.Array:
    """Return values as texts; bytes that are not UTF-8 become U+FFFD."""
    try:
        return pa.array(values, pa.string())
    except (pa.ArrowInvalid, UnicodeDecodeError):
        decoded = [
            value.decode("utf-8", "replace") if isinstance(value, bytes) else value
            for value in values
        ]
        return pa.array(decoded, pa.string())


def json_rows(bodies: Sequence[bytes | None], kind: pa.StructType) -> tuple[pa.Array, pa.Array]:
    """Parse bodies as JSON objects.

    Returns:
      An array of ``kind``, and the bodies that are none as texts. Either is null in a row of the
      other, and both if there is no body.
    """
    try:
        known = pa.array(bodies, pa.string())
    except (pa.ArrowInvalid, UnicodeDecodeError):
        known = pa.array([body if _is_utf8(body) else None for body in bodies], pa.string())
    runs = list(objects(known, kind, "ignore"))
    place = np.full(len(bodies), -1)
    found = 0
    for first, rows in runs:
        place[first : first + len(rows)] = np.arange(found, found + len(rows))
        found += len(rows)
    rows = pa.concat_arrays([pa.nulls(0, kind), *(rows for _, rows in runs)])
    if found == len(bodies):
        return rows, pa.nulls(found, pa.string())
    wrong = [body if at < 0 else None for at, body in zip(place, bodies, strict=True)]
    return rows.take(pa.array(place, mask=place < 0)), texts(wrong)


def _is_utf8(body: bytes | None) -> bool:
    try:
        return body is not None and body.decode() is not None
    except UnicodeDecodeError:
        return False
