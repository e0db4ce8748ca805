"""Splits the bytes of an owner into frames, and encodes the frames of clients for owners.

Owners are brokers of this package, so their frames have a known form: lines end with a line feed,
frames with NUL and a line feed, and ``content-length`` is the last header of a frame with a body.
A line feed between two frames is a heart-beat.
"""

from collections.abc import Sequence

from attrs import define, field

from trio_stomp.base import value
from trio_stomp.frames import (
    ACK,
    MESSAGE,
    NACK,
    SEND,
    V1_0,
    FrameRun,
    Head,
    HeaderRules,
    encode_header,
)
from trio_stomp.protocol import Acked

_BEAT = b"\n"[0]
_LENGTH = b"\ncontent-length"
_MESSAGE = MESSAGE.encode() + b"\n"
_PLAIN_ACK = b"ACK\nid:"


@value
class Piece:
    """The bytes of one frame, or of several consecutive MESSAGEs.

    Args:
      data: The bytes.
      is_message: They are one or more MESSAGEs.
    """

    data: bytes
    is_message: bool


@define(eq=False)
class FrameCutter:
    """Splits bytes into frames, in linear time.

    Args:
      joins: Consecutive MESSAGEs become one piece.
    """

    joins: bool = True
    _incomplete: list[bytes] = field(factory=list)
    _size: int = 0
    _needed: int = 0

    def feed(self, data: bytes) -> list[Piece]:
        """Return the pieces that ``data`` completes, in order."""
        if self._incomplete:
            self._incomplete.append(data)
            self._size += len(data)
            if self._size < self._needed:
                return []
            data = b"".join(self._incomplete)
            self._incomplete = []
        pieces: list[Piece] = []
        rest = self._cut(data, pieces)
        if rest < len(data):
            self._incomplete, self._size = [data[rest:]], len(data) - rest
            self._needed -= rest
        return pieces

    def _cut(self, data: bytes, pieces: list[Piece]) -> int:
        """Append the pieces of ``data``, and return where the rest begins."""
        find, rfind, size, joins = data.find, data.rfind, len(data), self.joins
        begun = -1  # the beginning of the run of MESSAGEs
        position = 0
        self._needed = 0
        while position < size:
            if data[position] == _BEAT:
                position += 1
                continue
            end = blank = find(b"\n\n", position)
            if blank >= 0:
                end = blank + 4
                colon = rfind(b":", position, blank)
                if colon > 0 and data[colon - 15 : colon] == _LENGTH:
                    end += int(data[colon + 1 : blank])
            if not 0 <= end <= size:
                self._needed = end
                break
            if data.startswith(_MESSAGE, position):
                if begun < 0:
                    begun = position
                if not joins:
                    pieces.append(Piece(data[position:end], True))
                    begun = -1
            else:
                if begun >= 0:
                    pieces.append(Piece(data[begun:position], True))
                    begun = -1
                pieces.append(Piece(data[position:end], False))
            position = end
        if begun >= 0:
            pieces.append(Piece(data[begun:position], True))
        return position


def receipt_id(frame: bytes) -> bytes:
    """Return the encoded id of a RECEIPT of an owner."""
    return frame[19 : frame.find(b"\n", 19)]


def encode_lead(command: str, headers: Sequence[tuple[str, str]], rules: HeaderRules) -> bytes:
    """Return a command with the headers of a client's frame, without the blank line."""
    if rules is V1_0:  # encode_header drops empty values, which owners must get as this node did
        lines = [f"{name}:{text}\n".encode() for name, text in headers]
    else:
        lines = [encode_header(name, text, rules) for name, text in headers]
    return b"%b\n%b" % (command.encode(), b"".join(lines))


def encode_run(lead: bytes, run: FrameRun) -> bytes:
    """Return the frames of a run of SENDs."""
    start, bodies = lead + b"\n", run.bodies
    between = b"\0" + start
    parts: list[bytes] = []
    done = 0
    for number, receipt in run.receipts:  # in order
        if plain := bodies[done : number - 1]:
            parts += (start, between.join(plain), b"\0")
        parts += (lead, b"receipt:%b\n\n" % receipt, bodies[number - 1], b"\0")
        done = number
    if plain := bodies[done:]:
        parts += (start, between.join(plain), b"\0")
    return b"".join(parts)


def encode_bare(heads: Sequence[Head], rules: HeaderRules) -> bytes:
    """Return SENDs without their bodies."""
    leads = [
        encode_lead(SEND, [pair for pair in head.headers if pair[0] != "content-length"], rules)
        for head in heads
    ]
    return b"".join(map(closed, leads))


def encode_acks(event: Acked, rules: HeaderRules, transaction: str = "") -> bytes:
    """Return the frames of a run of ACKs or NACKs."""
    headers: list[tuple[str, str]] = []
    if event.subscription is not None:
        headers.append(("subscription", event.subscription))
    if transaction:
        headers.append(("transaction", transaction))
    if not event.requeue:
        headers.append(("requeue", "false"))
    if not (headers or event.negative or event.receipts) and event.header == "id":
        ids = event.ids
        if len(ids) > 1:  # a run made by the decoder, whose ids need no escapes
            return b"%b%b\n\n\0" % (_PLAIN_ACK, (b"\n\n\0" + _PLAIN_ACK).join(ids))
    command = NACK if event.negative else ACK
    receipts = dict(event.receipts)
    frames: list[bytes] = []
    for number, name in enumerate(event.ids, 1):
        lead = encode_lead(command, ((event.header, name.decode()), *headers), rules)
        frames.append(closed(lead, receipts.get(number)))
    return b"".join(frames)


def closed(lead: bytes, receipt: bytes | None = None) -> bytes:
    """Return a frame without a body.

    Args:
      lead: Its command and headers.
      receipt: The encoded value of the header ``receipt``; None = no such header.
    """
    if receipt is None:
        return lead + b"\n\0"
    return b"%breceipt:%b\n\n\0" % (lead, receipt)
