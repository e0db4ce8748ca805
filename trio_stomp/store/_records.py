"""What the core tells a store: changes of state, as plain values. A store knows no STOMP.

A *place* is where messages wait: ``queue:/queue/orders``, ``durable:…``, ``retained:…``,
``scheduled:``, ``seen:…``. A message has an id that no other message of the store ever had; ids
grow in order of acceptance. A *stream* is a log of its own: messages with contiguous offsets, which
are read by offset and dropped from the front.
"""

from collections.abc import Sequence

from trio_stomp.base import value


@value
class Put:
    """Messages that come to a place, behind all that is there. Not to be changed.

    Args:
      place: Where; at most 4 KiB of UTF-8.
      first: Id of the first; the others follow without a gap.
      head: Their header block, of the core's own making.
      bodies: One for each message.
      level: Priority, 0 to 9: within a place, each level is read by itself.
      received_ms: When they were received, in ms since 1970.
      expires_ms: From when they are not to be delivered, likewise; 0 = no lifetime.
      transient: They are here only for want of memory: recovery forgets them.
      deliveries: How often the messages had been handed to a consumer.
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
    """A place is no more, nor is whatever waits in it."""

    place: str


@value
class Keep:
    """A setting of the core's (a durable subscription, a schedule's progress)."""

    key: str
    text: str


@value
class Forget:
    """A setting is no more."""

    key: str


@value
class Begin:
    """A stream begins, empty: its epoch is a word that no other beginning has.

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
    """What stands before an offset may go; a store drops whole files, so some of it may stay."""

    stream: str
    before: int


@value
class DropStream:
    """A stream is no more."""

    stream: str


Simple = Put | Done | Delivered | DropPlace | Keep | Forget | Begin | Append | Trim | DropStream


@value
class Atomic:
    """Records that hold together or not at all (a transaction, a move to the dead letters)."""

    records: Sequence[Simple]


Record = Simple | Atomic


@value
class Turn:
    """What one turn of the dispatcher came to; one commit number.

    Args:
      records: In order.
      is_urgent: Somebody waits for it. What nobody waits for (transient messages, deliveries) need
        not be on disk when ``append`` returns, and is with the next that is urgent.
    """

    records: Sequence[Record]
    is_urgent: bool = True
