"""The stream of DIAG messages: the broker's id, the epoch, and the number of each message."""

import json
import socket
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.base import SCHEMA_VERSION, Table

if TYPE_CHECKING:
    from trio_stomp.broker import Broker, Stream

Record = dict[str, object]
"""The fields of one table, by name."""


def timestamp(seconds: float) -> str:
    """Format Unix time as ISO 8601 in UTC, with microseconds: ``2026-03-01T12:00:00.000000Z``."""
    text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")
    return text.replace("+00:00", "Z")


def encode(value: object) -> str:
    """Encode as JSON in ASCII, which is safe for any text of a client. NaN is refused."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def encode_items(records: Sequence[Mapping[str, object]]) -> str:
    """Return some of the ``items`` of a message, as ``DiagStream.publish`` joins them."""
    return encode(records)[1:-1]


@define(eq=False)
class DiagStream:
    """Publishes records, numbered without a gap over all topics since this start of the broker.

    Args:
      broker_id: The id of the broker, the same after restarts; "" = the host name.
      wall: Returns the time of day, in seconds since 1970.
      boot: A unique id of this start.
    """

    broker_id: str
    wall: Callable[[], float]
    boot: str = field(factory=lambda: uuid.uuid4().hex)
    log: "Stream | None" = None
    """The log that numbers and keeps messages for replay; None = they are only published."""
    count: int = 0
    """The number of messages since this start."""
    lost: int = 0
    """Copies that subscribers of the stream did not get because they were too slow. No event
    reports a single loss, as slow subscribers would miss that, too."""

    def __attrs_post_init__(self) -> None:
        if not self.broker_id:
            self.broker_id = socket.gethostname()

    @property
    def epoch(self) -> str:
        """The epoch of the numbers. Within an epoch, no number is used twice."""
        return self.boot if self.log is None else self.log.epoch

    @property
    def next_offset(self) -> int:
        """The number of the next message."""
        return self.count if self.log is None else self.log.coming

    def publish(
        self,
        broker: "Broker",
        table: Table,
        record: Mapping[str, object],
        *,
        ts: str,
        interval_s: float,
        now: float,
        items: Sequence[str] | None = None,
    ) -> None:
        """Publish one message.

        Args:
          broker: The core.
          table: The table of the record.
          record: The body without the common fields.
          ts: Time of the figures, as formatted by ``timestamp``.
          interval_s: The interval of such messages; 0 = they are events.
          now: The time, in seconds of the broker's clock.
          items: The list ``items`` at its end, encoded by ``encode_items`` in pieces, none of them
            empty; None = it has none.
        """
        prefix: Record = {
            "v": SCHEMA_VERSION,
            "broker_id": self.broker_id,
            "epoch": self.epoch,
            "offset": self.next_offset,
            "ts": ts,
            "interval_s": interval_s,
            "boot": self.boot,
        }
        text = encode(prefix | dict(record))
        if items is not None:
            text = f'{text[:-1]},"items":[{",".join(items)}]}}'
        body = text.encode()
        headers = [("content-type", "application/json")]
        headers += [(name, str(record[key])) for name, key in table.headers]
        topic = table.topic
        if topic.endswith("/"):
            topic += str(record["name"])
        self.count += 1
        self.lost += broker.publish(topic, body, headers, now, self.log)
