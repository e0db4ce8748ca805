"""The records that the core gives to a store: changes of state as plain values, without STOMP.

A *place* holds waiting messages: ``queue:/queue/orders``, ``durable:…``, ``retained:…``,
``scheduled:``, ``seen:``. Message ids are never reused, and ascend in order of acceptance. A
*stream* is a log of its own: messages with contiguous offsets, read by offset and trimmed from the
front.
"""

from collections.abc import Sequence

from trio_stomp.base import value

CHARGED = b"x-trio-stomp-charged:"
"""Prefix of a header block's first line if it names the user charged for the messages."""
SMALL = "seen:"
"""Prefix of places with a few bytes in each message, all of which are read at the start."""
RECORD_BYTES = 64
"""Approximate overhead of a stored message in addition to its body and header block."""


def charged_to(head: bytes) -> bytes:
    """Return the line of a header block that names the charged user, or b"" if there is none."""
    return head[: head.find(b"\n") + 1] if head.startswith(CHARGED) else b""


def stored_cost(head_bytes: int, count: int, size: int) -> int:
    """Return the cost of messages in the store, as if each had a record of its own.

    Args:
      head_bytes: Size of their header block.
      count: Number of messages.
      size: Total size of their bodies.
    """
    return size + count * (head_bytes + RECORD_BYTES)


@value
class Put:
    """New messages at the end of a place. Immutable.

    Args:
      place: At most 4 KiB of UTF-8.
      first: Id of the first message; the others follow without gaps.
      head: Their header block, as encoded by the core.
      bodies: One for each message.
      level: Priority, 0 to 9; each level of a place is read separately.
      received_ms: Time of receipt, in ms since 1970.
      expires_ms: Time of expiry, in ms since 1970; 0 = never.
      transient: Stored only to save memory; dropped by recovery.
      deliveries: Number of earlier deliveries.
    """

    place: str
    first: int
    head: bytes
    bodies: Sequence[bytes]
    level: int = 4
    received_ms: int = 0
    expires_ms: int = 0
    transient: bool = False
    deliveries: int = 0


@value
class Done:
    """Messages that are finished: acknowledged, expired, dropped or moved."""

    ids: Sequence[int]


@value
class Delivered:
    """Messages that have been delivered once more."""

    ids: Sequence[int]


@value
class DropPlace:
    """Removes a place with all its messages."""

    place: str


@value
class Keep:
    """Stores a setting of the core, such as a durable subscription or a schedule's progress."""

    key: str
    text: str


@value
class Forget:
    """Removes a setting."""

    key: str


@value
class Begin:
    """Begins an empty stream. Its epoch is a word that is never used again.

    Args:
      first: Offset of the first message; not 0 if the stream comes from another store.
    """

    stream: str
    epoch: str
    first: int = 0


@value
class Append:
    """New messages at the end of a stream. Immutable.

    Args:
      first: Offset of the first message, which must be the stream's next offset.
      head: Their header block.
      written_ms: Time in ms since 1970, which never decreases within a stream.
    """

    stream: str
    first: int
    head: bytes
    bodies: Sequence[bytes]
    written_ms: int


@value
class Trim:
    """Allows the store to drop messages before an offset.

    Stores drop whole files, so some of these messages may stay.
    """

    stream: str
    before: int


@value
class DropStream:
    """Removes a stream."""

    stream: str


Simple = Put | Done | Delivered | DropPlace | Keep | Forget | Begin | Append | Trim | DropStream


@value
class Atomic:
    """Records that are stored as a whole or not at all.

    Used for transactions and for moves to dead-letter queues.
    """

    records: Sequence[Simple]


Record = Simple | Atomic


@value
class Turn:
    """The records of one dispatcher turn, with one commit number.

    Args:
      records: The records, in order.
      is_urgent: ``append`` syncs before it returns. Other turns (transient messages, deliveries)
        are synced with the next urgent one.
    """

    records: Sequence[Record]
    is_urgent: bool = True
