"""Converts the messages of any stream to Arrow batches: a row for each, with its headers.

It needs no Spark. Whatever is not one of ``COLUMNS`` is a field of a JSON body.
"""

import io
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

import pyarrow as pa
import pyarrow.json

from trio_stomp.spark._client import Message, StreamError
from trio_stomp.spark._columns import DATE
from trio_stomp.spark._frames import unescaped
from trio_stomp.spark._rows import BATCH_BYTES, BATCH_ROWS, RETENTION
from trio_stomp.spark._types import fields_of

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
        for field in fields:
            if field.name in own or field.name == DATE.name:
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
        self._size = 0
        # Most messages of a publisher have the same headers: they are parsed and built once.
        self._numbers: dict[bytes, int] = {}
        self._heads: list[tuple[str, Pairs]] = []
        self._head_of: list[int] = []

    def add(self, messages: list[Message]) -> Iterator[pa.RecordBatch]:
        """Add messages, and yield a batch whenever there are enough rows.

        Raises:
          StreamError: messages are missing before one of these, and that is an error.
        """
        for offset, stored_ms, head, body in messages:
            if offset != self.expected:
                self.gap(offset, RETENTION, stored_ms)
            self.expected = offset + 1
            # The broker writes the headers of the delivery first.
            own = head[head.index(b"\n", head.index(_TIME) + 1) :]
            number = self._numbers.get(own)
            if number is None:
                number = self._numbers[own] = len(self._heads)
                self._heads.append(parse(own))
            self._append(offset, stored_ms, number, body)
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
        self._append(lo, stored_ms, len(self._heads) - 1, None)
        self.expected = hi

    def _append(self, offset: int, stored_ms: int, head: int, body: bytes | None) -> None:
        self._offsets.append(offset)
        self._times.append(stored_ms)
        self._head_of.append(head)
        self._bodies.append(body)

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Yield the remaining rows, if any."""
        if not self._offsets:
            return
        schema = self._layout.schema
        fields = self._layout.fields
        parsed: dict[str, pa.Array] = {}
        if self._layout.body == "json":
            struct, corrupt = json_rows(self._bodies, pa.struct(fields))
            parsed = dict(zip((each.name for each in fields), struct.flatten(), strict=True))
            parsed[CORRUPT] = corrupt
        arrays = [
            parsed[each.name] if each.name in parsed else self._column(each) for each in schema
        ]
        self._clear()
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _column(self, field: pa.Field) -> pa.Array:
        match field.name:
            case "headers":
                return pa.array([pairs for _, pairs in self._heads], field.type).take(
                    pa.array(self._head_of)
                )
            case "destination":
                return pa.array([name for name, _ in self._heads], field.type).take(
                    pa.array(self._head_of)
                )
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


def texts(bodies: Sequence[bytes | None]) -> pa.Array:
    """Return bodies as texts; bytes that are not UTF-8 become U+FFFD."""
    try:
        return pa.array(bodies, pa.string())
    except (pa.ArrowInvalid, UnicodeDecodeError):
        decoded = (None if body is None else body.decode("utf-8", "replace") for body in bodies)
        return pa.array(list(decoded), pa.string())


def json_rows(bodies: Sequence[bytes | None], kind: pa.StructType) -> tuple[pa.Array, pa.Array]:
    """Parse bodies as JSON objects.

    Returns:
      An array of ``kind``, and the bodies that are none as texts. Either is null in a row of the
      other, and both if there is no body.
    """
    parsed = [
        part
        for at in range(0, len(bodies), BATCH_ROWS)
        for part in _parsed(bodies[at : at + BATCH_ROWS], kind)
    ]
    rows = pa.concat_arrays(parsed)
    valid = rows.is_valid().to_pylist()
    wrong = [None if good else body for good, body in zip(valid, bodies, strict=True)]
    return rows, texts(wrong)


def _parsed(bodies: Sequence[bytes | None], kind: pa.StructType) -> Iterator[pa.Array]:
    """Yield the rows of some bodies; those of one wrong body are null, and no others."""
    # Each body is a member of an object of its own line, which nothing in it can leave: a line feed
    # is white space in JSON, or wrong, and so is CR. So as many objects as lines are one for each.
    lines = [
        b'{"v":%b}\n' % (b"null" if body is None else body.replace(b"\n", b"\r")) for body in bodies
    ]
    data = b"".join(lines)
    schema = pa.schema([pa.field("v", kind)])
    parsing = pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    reading = pyarrow.json.ReadOptions(use_threads=False, block_size=len(data) + 1)
    try:
        data.decode()  # the parser would take any bytes
        table = pyarrow.json.read_json(io.BytesIO(data), reading, parsing)
        if table.num_rows == len(bodies):
            yield table.column("v").combine_chunks()
            return
    except (pa.ArrowInvalid, UnicodeDecodeError):
        pass  # a body is wrong: halves lead to it
    if len(bodies) == 1:
        yield pa.nulls(1, kind)
        return
    middle = len(bodies) // 2
    yield from _parsed(bodies[:middle], kind)
    yield from _parsed(bodies[middle:], kind)
