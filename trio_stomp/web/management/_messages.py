"""Waiting messages as JSON."""

import base64
import codecs
import json
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.web._query import Number
from trio_stomp.web.management.requests import COUNT, FLAG, TEXT, Record, Schema

if TYPE_CHECKING:
    from trio_stomp.broker import Manager, Message

MAX_SHOWN_BYTES = 16 * 1024 * 1024
"""Bytes of all bodies in one answer."""

SHOWN = Number("limit", "the most to show", default=50, least=1, most=1_000)
SHOWN_BYTES = Number(
    "bytes", "the maximum bytes of a body to show", default=16 * 1024, most=MAX_SHOWN_BYTES
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
    """Collects records of messages as JSON.

    Args:
      offset: The number of messages to skip.
      shown_bytes: The limit of bytes to show of a body.
    """

    manager: "Manager"
    offset: int
    shown_bytes: int
    items: list[str] = field(factory=list)
    """The records as JSON."""
    _skipped: int = 0
    _bodies: "Bodies" = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._bodies = Bodies(self.shown_bytes)

    def take(self, message: "Message") -> None:
        """Add the record of a message, unless it is one of those to skip."""
        if self._skipped < self.offset:
            self._skipped += 1
            return
        self.items.append(
            json.dumps(
                {
                    "message_id": self.manager.id_of(message),
                    "headers": dict(message.publication.head.headers),
                    "priority": message.level,
                    "received_ms": self.manager.received_ms(message),
                    "deliveries": message.deliveries,
                    "stored": bool(message.stored),
                    "size": len(message.body),
                    **self._bodies.show(message.body),
                }
            )
        )


@define(eq=False, repr=False)
class Bodies:
    """Formats the bodies of an answer. Beyond ``MAX_SHOWN_BYTES`` in all, bodies are cut off.

    Args:
      shown_bytes: The limit of bytes to show of a body.
    """

    shown_bytes: int
    _size: int = 0

    def show(self, body: bytes) -> Record:
        """Return the field ``body`` or ``body_base64`` of a body, cut off at the limits."""
        shown = body[: min(self.shown_bytes, MAX_SHOWN_BYTES - self._size)]
        self._size += len(shown)
        return _body(shown, is_whole=len(shown) == len(body))


def _body(shown: bytes, *, is_whole: bool) -> Record:
    """Return the field of a body: text, or base64 if it is not UTF-8."""
    try:
        # Omit an incomplete character at the end.
        return {"body": codecs.getincrementaldecoder("utf-8")().decode(shown, is_whole)}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(shown).decode()}
