"""Converts the messages of any stream to Arrow batches: a row for each, with its headers.

The reader of a table chooses its columns by the schema. Whatever is not one of ``COLUMNS`` is a
field of a JSON body.
"""

import io
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

import pyarrow as pa
import pyarrow.json
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DecimalType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from trio_stomp.spark._client import Message, StreamError
from trio_stomp.spark._frames import unescaped
from trio_stomp.spark._rows import BATCH_BYTES, BATCH_ROWS, RETENTION

COLUMNS: dict[str, DataType] = {
    "headers": MapType(StringType(), StringType()),
    "destination": StringType(),
    "message_id": StringType(),
    "offset": LongType(),
    "epoch": StringType(),
    "stored_at": TimestampType(),
}
"""The columns beside ``body``. ``message_id`` is epoch and offset: the header ``message-id`` names
a message for one reader only."""

CORRUPT = "_corrupt_record"
"""The column for bodies that are not JSON of the schema, by Spark's name for it."""

TYPES: dict[str, DataType] = {"binary": BinaryType(), "text": StringType()}
"""The type of ``body``, by option."""

ARROW_TYPES = {
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}
"""The types of columns, by Spark's names for them."""

_TIME = b"\nx-stream-timestamp:"
_OF_THE_DELIVERY = ("x-stream-", "destination", "content-length")
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

    @property
    def fields(self) -> list[pa.Field]:
        """The columns that are fields of a JSON body."""
        own = {*COLUMNS, CORRUPT}
        return [each for each in self.schema if self.body == "json" and each.name not in own]


def default_schema(body: str) -> StructType:
    """Return the schema of a table whose reader gives none.

    Raises:
      StreamError: the body is JSON, whose fields only the reader knows.
    """
    if body == "json":
        raise StreamError(
            "body=json needs a schema: .schema('price DOUBLE, offset BIGINT') has the fields of the"
            f" body, and any of {', '.join(COLUMNS)}, {CORRUPT}"
        )
    columns = {"body": TYPES[body]} | COLUMNS
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def layout_of(schema: StructType, body: str) -> Layout:
    """Return the layout of a table with this schema.

    Raises:
      StreamError: a column is unknown, or has another type.
    """
    known = COLUMNS | ({CORRUPT: StringType()} if body == "json" else {"body": TYPES[body]})
    for field in schema:
        if field.name not in known:
            if body == "json" and not isinstance(field.dataType, MapType):
                continue
            raise StreamError(
                f"there is no column {field.name}: with body={body} there are {', '.join(known)};"
                " with body=json, other columns are fields of the body, but no maps"
            )
        wanted = known[field.name].simpleString()
        if (found := field.dataType.simpleString()) != wanted:
            raise StreamError(f"column {field.name} should be {wanted}, not {found}")
    return Layout(body, pa.schema(list(arrow_type(schema))))


def arrow_type(kind: DataType) -> pa.DataType:
    """Return the type of Arrow's that Spark expects for one of its own.

    Raises:
      StreamError: no column can have it.
    """
    match kind:
        case StructType():
            return pa.struct([pa.field(each.name, arrow_type(each.dataType)) for each in kind])
        case ArrayType():
            return pa.list_(arrow_type(kind.elementType))
        case DecimalType():
            return pa.decimal128(kind.precision, kind.scale)
    name = kind.simpleString()
    if name not in ARROW_TYPES:
        raise StreamError(f"no column can be {name}: body=text and from_json can do more")
    return ARROW_TYPES[name]


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
        self._heads.append((self._stream, [("x-gap", reason), ("x-gap-until", str(hi))]))
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
        elif colon and not name.startswith(_OF_THE_DELIVERY):
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
