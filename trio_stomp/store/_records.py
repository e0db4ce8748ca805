"""The records that the core gives a store: changes of state, as plain values without STOMP.

A *place* is where messages wait: ``queue:/queue/orders``, ``durable:…``, ``retained:…``,
``scheduled:``, ``seen:…``. A message has an id that no other message of the store ever had; ids
grow in order of acceptance. A *stream* is a log of its own: messages with contiguous offsets, which
are read by offset and dropped from the front.
"""

from collections.abc import Sequence

from trio_stomp.base import value

CHARGED = b"x-trio-stomp-charged:"
"""How the first line of a header block begins that tells who is charged for its messages."""
RECORD_BYTES = 64
"""The approximate overhead of a message beside its body and header block."""


def charged_to(head: bytes) -> bytes:
    """Return the line of a header block that tells who is charged for it, or b"" if none does."""
    return head[: head.find(b"\n") + 1] if head.startswith(CHARGED) else b""


def stored_cost(head_bytes: int, count: int, size: int) -> int:
    """Return what messages are charged for in the store, as if each had a record of its own."""
    return size + count * (head_bytes + RECORD_BYTES)


@value
class Put:
    """New messages of a key, behind all earlier ones. Immutable.

    Args:
      place: The key; at most 4 KiB of UTF-8.
      first: Id of the first; the others follow without a gap.
      head: Their header block, as encoded by the core.
      bodies: One for each message.
      level: Priority, 0 to 9: each level of a key is read separately.
      received_ms: When they were received, in ms since 1970.
      expires_ms: When they expire, in ms since 1970; 0 = never.
      transient: They are stored only for want of memory: recovery drops them.
      deliveries: How often the messages had been delivered to a consumer.
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
    """Messages that are finished with: acknowledged, expired, dropped, or put elsewhere."""

    ids: Sequence[int]


@value
class Delivered:
    """Messages that were handed to a consumer once more."""

    ids: Sequence[int]


@value
class DropPlace:
    """Removes a place, with all messages in it."""

    place: str


@value
class Keep:
    """Stores a setting of the core's (a durable subscription, a schedule's progress)."""

    key: str
    text: str


@value
class Forget:
    """Removes a setting."""

    key: str


@value
class Begin:
    """Begins an empty stream. Its epoch is a word that no other beginning has.

    Args:
      first: Offset of the message to come; not 0 where a stream moves to another store.
    """

    stream: str
    epoch: str
    first: int = 0


@value
class Append:
    """Messages at the end of a stream. Not to be changed.

    Args:
      first: Offset of the first; it is the stream's next.
      head: Their header block.
      written_ms: In ms since 1970; within a stream it never falls.
    """

    stream: str
    first: int
    head: bytes
    bodies: Sequence[bytes]
    written_ms: int


@value
class Trim:
    """Allows the store to drop messages before an offset.

    Stores drop whole files, so some of the messages may stay.
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
    """Records that are stored together or not at all.

    Such are a transaction, and a move to the dead letters.
    """

    records: Sequence[Simple]


Record = Simple | Atomic


@value
class Turn:
    """The records of one dispatcher turn, with one commit number.

    Args:
      records: In order.
      is_urgent: Somebody waits for it. Other turns (transient messages, deliveries) need not be on
          disk when ``append`` returns, and are synced with the next urgent one.
    """

    records: Sequence[Record]
    is_urgent: bool = True
