"""Frames as values: a header block and the bodies that share it."""

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
"""Commands of the specifications; DIAG is an extension of stompica."""

UNESCAPED = frozenset({CONNECT, STOMP, CONNECTED})
"""Commands whose headers are never escaped (STOMP 1.2, "Value Encoding")."""

UNTIL_NUL = -1
"""``Head.content_length`` of a frame whose body ends at the first NUL."""
TEXT = 0
"""``Head.content_length`` of texts, which the core sets: their MESSAGEs have no such header."""

DEDUP_HEADERS = ("x-dedup-id", "_AMQ_DUPL_ID")
"""Headers with an id for duplicate detection."""

Headers = tuple[tuple[str, str], ...]

SECRET_HEADERS = ("passcode", "authorization", "access-token", "token", "password")
"""Never quoted, logged or shown (R13)."""
_SECRET = re.compile(rf"(?i)\s*(?:{'|'.join(SECRET_HEADERS)})\b")


def shown(headers: Headers) -> str:
    """Return headers for a ``repr``, without secrets, as it may appear in logs and tracebacks."""
    return repr(tuple((name, "***" if _SECRET.match(name) else text) for name, text in headers))


@define(eq=False)
class Head:
    """A parsed header block, shared by all frames with the same bytes. Immutable.

    Args:
      command: The command word.
      headers: Names and values, unescaped, in order; only the first of a repeated name (F36).
        A client's ``receipt``, which differs each time, is kept beside the frame instead.
      content_length: Octets of the body, ``UNTIL_NUL``, or ``TEXT``.
      destination: The header ``destination``, or None.
      is_single: It has an id for duplicate detection: frames that share it differ in their
        outcome, so each is a run of its own.
    """

    command: str
    headers: Headers = field(repr=shown)
    content_length: int = UNTIL_NUL
    destination: str | None = None
    is_single: bool = False
    message_blocks: "tuple[bytes, bytes, bytes] | None" = field(default=None, repr=False)
    """The part of a MESSAGE between message-id and body, by version; set by the encoder."""
    plan: object = None
    """The ``SendPlan``; set by the core."""
    stored: bytes | None = field(default=None, repr=False)
    """The encoding for the store; set by the core."""
    cost: int = 0
    """Bytes to charge for it; set by ``head_cost``."""
    waiting_count: int = 0
    """Number of waiting messages that share it and its charge; counted by the core."""
    payer: "Quota | None" = field(default=None, repr=False)
    """The quota that is charged for it while messages wait: that of the first one."""

    def get(self, name: str) -> str | None:
        """Return the value of header ``name``, or None."""
        for key, text in self.headers:
            if key == name:
                return text
        return None


@value
class Frame:
    """One frame.

    Args:
      headers: Names and values, unescaped, in order.
      receipt: The id of the requested receipt, encoded, or None.
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
    """Consecutive frames with one header block, as the decoder returns them.

    A publisher's frames mostly differ in body and receipt only, so the broker does most work once
    for a run.

    Args:
      head: The header block.
      bodies: One for each frame, in order; never empty.
      receipts: Requested receipts: the number of the frame in this run, from 1, and the encoded id.
    """

    head: Head
    bodies: list[bytes]
    receipts: list[tuple[int, bytes]]

    def frames(self) -> Iterator[Frame]:
        """Yield the frames of the run."""
        receipts = dict(self.receipts)
        for number, body in enumerate(self.bodies, 1):
            yield Frame(self.head.command, self.head.headers, body, receipts.get(number))


@define(eq=False)
class AckRun:
    """Consecutive ACKs of STOMP 1.2 without other headers than ``id``.

    Args:
      ids: The acknowledged ids, without characters that need escapes.
    """

    ids: list[bytes]
