"""Frames as values: a header block, and the bodies that came under it."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.base import value

if TYPE_CHECKING:
    from trio_stomp.base import Quota

CONNECT = "CONNECT"
STOMP = "STOMP"
SEND = "SEND"
SUBSCRIBE = "SUBSCRIBE"
UNSUBSCRIBE = "UNSUBSCRIBE"
ACK = "ACK"
NACK = "NACK"
BEGIN = "BEGIN"
COMMIT = "COMMIT"
ABORT = "ABORT"
DISCONNECT = "DISCONNECT"
DIAG = "DIAG"

CONNECTED = "CONNECTED"
MESSAGE = "MESSAGE"
RECEIPT = "RECEIPT"
ERROR = "ERROR"

CLIENT_COMMANDS = frozenset(
    {CONNECT, STOMP, SEND, SUBSCRIBE, UNSUBSCRIBE, ACK, NACK, BEGIN, COMMIT, ABORT, DISCONNECT}
)
"""Commands of the specifications; DIAG is an extension of stompica's."""

UNESCAPED = frozenset({CONNECT, STOMP, CONNECTED})
"""Commands whose headers are never escaped (STOMP 1.2, "Value Encoding")."""

UNTIL_NUL = -1
"""``Head.content_length`` of a frame whose body ends at the first NUL."""

Headers = tuple[tuple[str, str], ...]

SECRET_HEADERS = ("passcode", "authorization", "access-token", "token", "password")
"""Never quoted, logged or shown (R13)."""
_SECRET = re.compile(rf"(?i)\s*(?:{'|'.join(SECRET_HEADERS)})\b")


def shown(headers: Headers) -> str:
    """Headers for a ``repr``, which ends up in logs and in traces of errors: without secrets."""
    return repr(tuple((name, "***" if _SECRET.match(name) else text) for name, text in headers))


@define(eq=False)
class Head:
    """A parsed header block, shared by all frames that came with the same bytes. Not to be changed.

    Args:
      command: The command word.
      headers: Name and value, unescaped, in order; of a repeated name only the first (F36).
        ``receipt`` is not among them: it stands beside the frame, since it changes each time.
      content_length: Octets of the body, or ``UNTIL_NUL``.
    """

    command: str
    headers: Headers = field(repr=shown)
    content_length: int = UNTIL_NUL
    destination: str | None = None
    message_blocks: "tuple[bytes, bytes, bytes] | None" = field(default=None, repr=False)
    """What a MESSAGE made of this SEND says after its message-id; filled by the encoder."""
    plan: object = None
    """What it means for routing; filled by the core."""
    stored: bytes | None = field(default=None, repr=False)
    """How a store keeps it; filled by the core."""
    cost: int = 0
    """Bytes that it is charged for where messages are kept; filled by ``head_cost``."""
    kept: int = 0
    """Messages that wait in queues with it, and are charged for it together; counted by the
    core."""
    payer: "Quota | None" = field(default=None, repr=False)
    """Who is charged for it while any of them waits: whose message came first."""

    def get(self, name: str) -> str | None:
        """Return the value of header ``name``, or None."""
        for key, text in self.headers:
            if key == name:
                return text
        return None


@value
class Frame:
    """One frame, for those who want them one by one.

    Args:
      headers: Name and value, unescaped, in order.
      receipt: What it asks for, ready for the wire, or None.
    """

    command: str
    headers: Headers = field(repr=shown)
    body: bytes = b""
    receipt: bytes | None = None

    def get(self, name: str) -> str | None:
        """Return the value of the first header ``name``, or None."""
        return next((text for key, text in self.headers if key == name), None)


@define(eq=False)
class FrameRun:
    """Consecutive frames with one header block: what the decoder yields.

    A publisher's frames mostly differ in body and receipt alone, so whatever the broker does for
    a run it does once instead of once a frame.

    Args:
      head: The block that the frames share.
      bodies: One for each frame, in order; never empty.
      receipts: ``(frames of this run up to and with the asker, wire-ready receipt id)``.
    """

    head: Head
    bodies: list[bytes]
    receipts: list[tuple[int, bytes]]

    def frames(self) -> Iterator[Frame]:
        """Yield the run, frame by frame."""
        asked = dict(self.receipts)
        for number, body in enumerate(self.bodies, 1):
            yield Frame(self.head.command, self.head.headers, body, asked.get(number))


@define(eq=False)
class AckRun:
    """Consecutive ACKs of STOMP 1.2 that say nothing but an id: the other hot frame.

    Args:
      ids: What each acknowledges, plain text that no escape changes.
    """

    ids: list[bytes]
