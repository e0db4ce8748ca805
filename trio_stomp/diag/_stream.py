"""The stream of DIAG messages: who speaks, in which epoch, and the number of each message."""

import json
import socket
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.diag._schema import SCHEMA_VERSION, Table

if TYPE_CHECKING:
    from trio_stomp.broker import Broker

Record = dict[str, object]
"""The fields of one table, by name."""


def timestamp(seconds: float) -> str:
    """Unix time as ISO 8601 in UTC, with microseconds: ``2026-03-01T12:00:00.000000Z``."""
    text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")
    return text.replace("+00:00", "Z")


@define(eq=False)
class DiagStream:
    """Publishes records, numbered without a gap over all topics since this start of the broker.

    Args:
      broker_id: The same for every start of this broker; "" = the name of the machine.
      wall: Unix time.
      epoch: A word for this start that no other has.
    """

    broker_id: str
    wall: Callable[[], float]
    epoch: str = field(factory=lambda: uuid.uuid4().hex)
    next_offset: int = 0
    lost: int = 0
    """Copies that subscribers of the stream did not get because they were too slow. The broker
    tells of no single one: that would be one more message for them to miss."""

    def __attrs_post_init__(self) -> None:
        if not self.broker_id:
            self.broker_id = socket.gethostname()

    def publish(
        self,
        broker: "Broker",
        table: Table,
        record: Mapping[str, object],
        *,
        ts: str,
        interval_s: float,
        now: float,
    ) -> None:
        """Publish one message.

        Args:
          record: The body, but for what all have.
          ts: Of the figures, as ``timestamp`` writes it.
          interval_s: Time between such messages; 0 = they come as things happen.
        """
        prefix: Record = {
            "v": SCHEMA_VERSION,
            "broker_id": self.broker_id,
            "epoch": self.epoch,
            "offset": self.next_offset,
            "ts": ts,
            "interval_s": interval_s,
        }
        # Neither NaN nor infinity is JSON; pure ASCII is safe whatever a client's text holds.
        body = json.dumps(prefix | dict(record), separators=(",", ":"), allow_nan=False).encode()
        headers = [("content-type", "application/json")]
        headers += [(name, str(record[key])) for name, key in table.headers]
        topic = table.topic
        if topic.endswith("/"):
            topic += str(record["name"])
        self.next_offset += 1
        drops = broker.fan_out.drops
        lost_before = drops.slow_consumer
        broker.publish(topic, body, headers, now)
        self.lost += drops.slow_consumer - lost_before
