"""Builds the rows of the table ``raw`` from the messages of ``/stream/DIAG``.

A pattern reads broker, time and version from the start of a message's JSON; the rest is parsed when
the tables are written.
"""

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime

import pyarrow as pa

from trio_stomp.base import PREFIX, SCHEMA_VERSION, TABLES
from trio_stomp.spark._columns import RAW, schema_of
from trio_stomp.spark._messages import Layout, MessageBuilder, texts

RAW_LAYOUT = Layout("text", schema_of(RAW))

GAP_KIND = "_gap"

# The format that trio_stomp/diag writes; other formats are parsed as a whole.
_HEADING = re.compile(
    rb'\{"v": ?(\d+), ?"broker_id": ?"([^"\\]*)", ?"epoch": ?"[^"\\]*", ?"offset": ?\d+,'
    rb' ?"ts": ?"([^"\\]*)"'
)

Text = bytes | str | None
Heading = tuple[Text, Text, int | None]
"""broker_id, ts in ISO 8601, and v."""


def kind_of(topic: str) -> str:
    """Return the table that a topic's messages belong to, or "" if no table is known."""
    for table in TABLES:
        if table.topic and (
            topic.startswith(table.topic) if table.topic.endswith("/") else topic == table.topic
        ):
            return table.name
    return ""


class RowBuilder(MessageBuilder):
    """Builds the rows of one range of ``/stream/DIAG``, whose gaps are records of their own table.

    Args:
      stream: The topic of gap rows.
      epoch: The epoch of the whole range.
      lo: The first expected offset.
      planned_at: The time of a gap that no message follows, in ISO 8601, by the reader's clock.
      broker_id: The id for rows whose message has none.
    """

    def __init__(
        self, stream: str, epoch: str, lo: int, *, planned_at: str, broker_id: str
    ) -> None:
        super().__init__(RAW_LAYOUT, stream, epoch, lo, planned_at=planned_at, is_strict=False)
        self._broker_id = broker_id

    def own(self, head: bytes) -> bytes:
        """Return the destination: the other headers repeat what the body says."""
        at = head.index(b"\ndestination:") + 1
        return head[at : head.index(b"\n", at)]

    def gap_body(self, hi: int, reason: str, stored_ms: int) -> bytes:
        """Return the record of a gap."""
        own = {"lo": self.expected, "hi": hi, "prev_epoch": self._epoch, "reason": reason}
        common = {
            "v": SCHEMA_VERSION,
            "broker_id": self._broker_id,
            "epoch": self._epoch,
            "offset": self.expected,
            "ts": datetime.fromtimestamp(stored_ms / 1000, UTC).isoformat(timespec="milliseconds"),
            "interval_s": 0.0,
        }
        # The common fields of all records have no meaning for a gap.
        record = {field.name: "" for field in PREFIX} | common | own
        return json.dumps(record, separators=(",", ":")).encode()

    def columns(self) -> dict[str, pa.Array]:
        """Return the columns that no other stream has."""
        brokers, times, versions = list[Text](), list[Text](), list[int | None]()
        for body in self._bodies:
            broker, time, version = heading(body or b"")
            brokers.append(broker or self._broker_id)
            times.append(time)
            versions.append(version)
        kinds = [GAP_KIND if headers else kind_of(topic) for topic, headers in self._heads]
        return {
            "broker_id": texts(brokers),
            "topic": self.of_heads([topic for topic, _ in self._heads], pa.string()),
            "kind": self.of_heads(kinds, pa.string()),
            "ts": moments(times),
            "v": pa.array(versions, pa.int64()),
        }


def heading(body: bytes) -> Heading:
    """Return the envelope of a DIAG message, with None for missing fields."""
    found = _HEADING.match(body)
    if found is not None:
        version, broker_id, ts = found.groups()
        return broker_id, ts, int(version)
    try:
        record = json.loads(body)
    except ValueError:
        record = None
    known = record if isinstance(record, dict) else {}
    broker, time, number = (known.get(name) for name in ("broker_id", "ts", "v"))
    return (
        broker if isinstance(broker, str) else None,
        time if isinstance(time, str) else None,
        number if isinstance(number, int) else None,
    )


def moments(values: Sequence[Text]) -> pa.Array:
    """Return times in ISO 8601, by default in UTC; null for other texts."""
    kind = pa.timestamp("us", "UTC")
    try:
        return texts(values).cast(kind)
    except pa.ArrowInvalid:
        return pa.array([_moment(text or "") for text in texts(values).to_pylist()], kind)


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
