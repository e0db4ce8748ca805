"""Waiting messages as JSON."""

from typing import TYPE_CHECKING

from attrs import define

from trio_stomp.web.declared import COUNT, FLAG, TEXT, Number, Schema
from trio_stomp.web.management.requests import Items, Record

if TYPE_CHECKING:
    from trio_stomp.broker import Manager, Message

SHOWN = Number("limit", "the most to show", default=50, least=1, most=1_000)
SHOWN_BYTES = Number(
    "bytes",
    "the maximum bytes of a body to show, of which an answer has at most 1 MiB",
    default=16 * 1024,
    most=16 * 1024 * 1024,
)
BODY: Schema = {"oneOf": [{"required": ["body"]}, {"required": ["body_base64"]}]}
MESSAGE: Schema = {
    "type": "object",
    "properties": {
        "message_id": TEXT,
        "headers": {"type": "object", "additionalProperties": TEXT},
        "priority": COUNT,
        "received_ms": COUNT,
        "deliveries": COUNT,
        "stored": FLAG,
        "size": COUNT,
        "body": TEXT,
        "body_base64": {**TEXT, "contentEncoding": "base64"},
    },
    **BODY,
}


@define(eq=False, repr=False)
class MessageList:
    """Takes messages for an answer.

    Args:
      items: The list in the answer.
      offset: The number of messages to skip.
    """

    manager: "Manager"
    items: Items
    offset: int
    _skipped: int = 0

    def take(self, message: "Message") -> bool:
        """Add a message, unless it is one of those to skip. Return as ``Items.take``."""
        if self._skipped < self.offset:
            self._skipped += 1
            return True
        record: Record = {
            "message_id": self.manager.id_of(message),
            "headers": dict(message.publication.head.headers),
            "priority": message.level,
            "received_ms": self.manager.received_ms(message),
            "deliveries": message.deliveries,
            "stored": bool(message.stored),
            "size": len(message.body),
        }
        return self.items.take(record, message.body)
