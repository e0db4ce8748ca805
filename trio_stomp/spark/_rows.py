"""Converts messages of a stream to Arrow batches of the raw table.

A pattern reads broker, time and version from the start of a DIAG message's JSON; the rest is parsed
later, in the JVM. Messages of other streams keep their body as arbitrary text.
"""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime

import pyarrow as pa

from trio_stomp.base import PREFIX, SCHEMA_VERSION, TABLES
from trio_stomp.spark._client import Message
from trio_stomp.spark._columns import RAW, schema_of
from trio_stomp.spark._frames import header, unescaped

ARROW_SCHEMA = schema_of(RAW)

GAP = "_gap"
RETENTION = "retention"
EPOCH = "epoch"

BATCH_ROWS = 10_000
BATCH_BYTES = 8 * 1024 * 1024

MAX_TOPICS = 10_000
"""Most names of topics to remember, with their kinds."""

# The format that trio_stomp/diag writes; other formats are parsed as a whole.
_HEADING = re.compile(
    rb'\{"v": ?(\d+), ?"broker_id": ?"([^"\\]*)", ?"epoch": ?"[^"\\]*", ?"offset": ?\d+,'
    rb' ?"ts": ?"([^"\\]*)"'
)

Heading = tuple[bytes | str | None, bytes | str | None, int | None]
"""broker_id, ts in ISO 8601, and v."""


def kind_of(topic: str) -> str:
    """Return the table that a topic's messages belong to, or "" if no table is known."""
    for table in TABLES:
        if table.topic and (
            topic.startswith(table.topic) if table.topic.endswith("/") else topic == table.topic
        ):
            return table.name
    return ""


class RowBuilder:
    """Builds the rows of one range, and detects gaps.

    Args:
      stream: The topic of gap rows.
      epoch: The epoch of the whole range.
      lo: The first expected offset.
      planned_at: The time of a gap that no message follows, in ISO 8601, by the reader's clock.
      broker_id: The id for rows whose message has none.
    """

    def __init__(self, stream: str, epoch: str, lo: int, planned_at: str, broker_id: str) -> None:
        self.expected = lo
        self._stream, self._epoch, self._planned_at = stream, epoch, planned_at
        self._broker_id = broker_id
        self._topics: dict[bytes, tuple[str, str, bool]] = {}
        self._columns: tuple[list[object], ...] = tuple([] for _ in RAW)
        self._size = 0

    def add(self, messages: list[Message]) -> Iterator[pa.RecordBatch]:
        """Add messages, and yield a batch whenever there are enough rows."""
        brokers, epochs, offsets, topics, kinds, stored, times, versions, bodies = self._columns
        for offset, stored_ms, head, body in messages:
            destination = header(head, b"destination") or b""
            topic, kind, is_diag = self._topics.get(destination) or self._learn(destination)
            broker, ts, version = heading(body) if is_diag else (None, sent_at(head), None)
            if offset != self.expected:
                self.gap(offset, RETENTION, stored_ms)
            self.expected = offset + 1
            brokers.append(broker or self._broker_id)
            epochs.append(self._epoch)
            offsets.append(offset)
            topics.append(topic)
            kinds.append(kind)
            stored.append(stored_ms)
            times.append(ts)
            versions.append(version)
            bodies.append(body)
            self._size += len(body)
            if len(offsets) >= BATCH_ROWS or self._size >= BATCH_BYTES:
                yield from self.flush()

    def gap(self, hi: int, reason: str, stored_ms: int | None = None) -> None:
        """Add a gap row for the missing messages before ``hi``.

        Args:
          hi: The offset after the last missing message.
          reason: Why they are missing.
          stored_ms: The time of the next message.
        """
        lo = self.expected
        if stored_ms is None:
            stored_ms = int(datetime.fromisoformat(self._planned_at).timestamp() * 1000)
        moment = _iso(stored_ms)
        own = {"lo": lo, "hi": hi, "prev_epoch": self._epoch, "reason": reason}
        common = {
            "v": SCHEMA_VERSION,
            "broker_id": self._broker_id,
            "epoch": self._epoch,
            "offset": lo,
            "ts": moment,
            "interval_s": 0.0,
        }
        # The common fields of all records have no meaning for a gap.
        record = {field.name: "" for field in PREFIX} | common | own
        body = json.dumps(record, separators=(",", ":"))
        row = (self._broker_id, self._epoch, lo, self._stream, GAP, stored_ms, moment)
        for column, value in zip(self._columns, (*row, SCHEMA_VERSION, body.encode()), strict=True):
            column.append(value)
        self.expected = hi

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Yield the remaining rows, if any."""
        if not self._columns[0]:
            return
        arrays = [
            _array(column, field.type)
            for column, field in zip(self._columns, ARROW_SCHEMA, strict=True)
        ]
        for column in self._columns:
            column.clear()
        self._size = 0
        yield pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)

    def _learn(self, destination: bytes) -> tuple[str, str, bool]:
        if len(self._topics) >= MAX_TOPICS:
            self._topics.clear()
        topic = unescaped(destination)
        parsed = (topic, kind_of(topic), topic.startswith("DIAG"))
        self._topics[destination] = parsed
        return parsed


def heading(body: bytes) -> Heading:
    """Return the envelope of a DIAG message, with None for missing fields."""
    found = _HEADING.match(body)
    if found is not None:
        version, broker_id, ts = found.groups()
        return broker_id, ts, int(version)
    try:
        record = json.loads(body)
    except ValueError:
        return None, None, None
    if not isinstance(record, dict):
        return None, None, None
    broker, ts, version = record.get("broker_id"), record.get("ts"), record.get("v")
    return (
        broker if isinstance(broker, str) else None,
        ts if isinstance(ts, str) else None,
        version if isinstance(version, int) else None,
    )


def sent_at(head: bytes) -> str | None:
    """Return the ``timestamp`` header of a message, in ms since 1970, or None."""
    stamp = header(head, b"timestamp")
    if stamp is None or not stamp.isdigit() or len(stamp) > 14:
        return None
    return _iso(int(stamp))


def _iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")


def _array(values: list[object], kind: pa.DataType) -> pa.Array:
    """Return a column with null for values of the wrong type."""
    if values and isinstance(values[0], int) and pa.types.is_timestamp(kind):
        return pa.array(values, pa.timestamp("ms", "UTC")).cast(kind)
    try:
        if pa.types.is_timestamp(kind):
            return pa.array(values, pa.string()).cast(kind)
        return pa.array(values, kind)
    except (pa.ArrowInvalid, UnicodeDecodeError):
        if pa.types.is_timestamp(kind):
            return pa.array([_moment(value) for value in values], kind)
        decoded = (v.decode("utf-8", "replace") if isinstance(v, bytes) else v for v in values)
        return pa.array(list(decoded), kind)


def _moment(value: object) -> datetime | None:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
