"""A synchronous publisher: sends messages until the broker has confirmed each, and each once.

Messages go in pieces, each confirmed by receipts before the next one. When the connection breaks,
the piece is sent again on another one: each message has an ``x-dedup-id``, so the broker takes it
once, as long as it remembers the id. That is checked, because the broker reports how many ids of a
destination it remembers.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from trio_stomp.frames import V1_2, encode_header
from trio_stomp.spark._address import StreamAddress, StreamError
from trio_stomp.spark._client import Connection, Patience
from trio_stomp.spark._frames import FrameError, header

PIECE_MESSAGES = 500
PIECE_BYTES = 256 * 1024


class Outgoing(NamedTuple):
    """A message to be sent.

    Args:
      destination: Where it goes.
      head: The frame up to its last header, without a receipt.
    """

    destination: str
    head: bytes
    body: bytes


class Publisher:
    """Sends messages with ids, so that each is taken once.

    ``counts`` are the messages of each destination, ``windows`` the ids that the broker remembers
    for it. Limits: holds one piece of messages, and these two numbers for each destination.

    Args:
      address: The broker.
    """

    def __init__(self, address: StreamAddress) -> None:
        self._address = address
        self.counts: Counter[str] = Counter()
        self.windows: dict[str, int] = {}

    def publish(self, messages: Iterable[Outgoing]) -> None:
        """Send messages, and return when all of them are confirmed.

        Raises:
          StreamError: the broker refuses one, or does not remember as many ids as there are
            messages: the next one would make it forget the first.
          StreamAway: the broker was away for longer than ``retry_s``.
        """
        patience = Patience(self._address)
        rest = self._pieces(messages)
        piece = next(rest, None)
        while piece is not None:
            try:
                with Connection(self._address) as connection:
                    while piece is not None:
                        self._send(connection, piece)
                        patience.restore()
                        piece = next(rest, None)
            except (OSError, FrameError) as error:
                patience.wait(error)

    def _pieces(self, messages: Iterable[Outgoing]) -> Iterator[list[Outgoing]]:
        """Yield messages in pieces, with at most one for a destination whose window is unknown."""
        piece: list[Outgoing] = []
        size, unknown = 0, set[str]()
        for message in messages:
            name = message.destination
            if name in unknown or len(piece) >= PIECE_MESSAGES or size >= PIECE_BYTES:
                yield piece
                piece, size, unknown = [], 0, set()
            if name not in self.windows:
                unknown.add(name)
            elif self.counts[name] >= self.windows[name]:
                # What was sent is remembered until another id follows.
                if piece:
                    yield piece
                raise _too_many(name, self.windows[name])
            self.counts[name] += 1
            piece.append(message)
            size += len(message.head) + len(message.body)
        if piece:
            yield piece

    def _send(self, connection: Connection, piece: list[Outgoing]) -> None:
        data = []
        awaited: dict[bytes, str] = {}
        for number, (name, head, body) in enumerate(piece):
            receipt = b""
            if name not in self.windows or number == len(piece) - 1:
                awaited[b"%d" % number] = name
                receipt = b"receipt:%d\n" % number
            data.append(b"%bcontent-length:%d\n%b\n%b\0" % (head, len(body), receipt, body))
        connection.send_bytes(b"".join(data))
        windows: dict[str, int] = {}
        for frames in connection.answers(b"RECEIPT"):
            for head, _ in frames:
                name = awaited.pop(header(head, b"receipt-id") or b"", "")
                windows[name] = int(header(head, b"dedup-window") or 0)
            if not awaited:
                break
        self.windows |= {name: window for name, window in windows.items() if name}
        for name, window in windows.items():
            if not window:
                raise _too_many(name, 0)


def send_head(destination: str, headers: Mapping[str, str]) -> bytes:
    """Return the head of a SEND.

    Raises:
      StreamError: a text has a NUL.
    """
    lines = {"destination": destination, **headers}.items()
    return b"SEND\n" + b"".join(header_line(name, text) for name, text in lines)


def header_line(name: str, text: str) -> bytes:
    """Return the line of a header.

    Raises:
      StreamError: a text has a NUL.
    """
    line = encode_header(name, text, V1_2)
    if not line:
        raise StreamError(f"header {name!r} has a NUL, which no frame can carry: remove it")
    return line


def _too_many(destination: str, window: int) -> StreamError:
    return StreamError(
        f"{destination}: more than {window} messages of one partition of a batch, and the broker"
        f" remembers the ids of {window}, so a repetition would not be recognized: raise"
        " dedup_window in the destination's policy, or make batches smaller (maxOffsetsPerTrigger)"
    )
