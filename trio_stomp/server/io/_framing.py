"""The framing of STOMP frames on the wire, which WebSocket headers provide.

An outbox without a framing writes plain frames, as TCP mostly does, and has no overhead.
"""

from collections.abc import Iterator
from typing import Protocol

from attrs import define

from trio_stomp.broker import Delivery
from trio_stomp.transport import frame_message, sockjs_message, splice

JOIN_BYTES = 256 * 1024
"""Maximum number of bytes in one write, and in buffers that are not shared with others."""
BIG_TAIL_BYTES = 64 * 1024
"""Messages of this size or more are not joined, but sent from the subscribers' shared bytes."""


class Framing(Protocol):
    """The framing of a transport, in addition to the frames' NULs."""

    def frame(self, frame: bytes) -> bytes:
        """Return the bytes on the wire of the broker's own frame, which determine its charge."""

    def run(self, prefix: bytes, delivery: Delivery) -> bytes:
        """Return a run of MESSAGEs as bytes for the wire."""

    def pieces(self, prefix: bytes, delivery: Delivery) -> Iterator[bytes]:
        """Yield the same in pieces, with big tails uncopied, since all subscribers share them."""


@define(eq=False, repr=False)
class WebSocketMessages:
    """Each frame is a message of its own.

    Args:
      mode: ``auto``, ``text`` or ``binary``, the option ``websocket_frames``.
    """

    mode: str

    def frame(self, frame: bytes) -> bytes:
        """Implement ``Framing.frame``."""
        return frame_message(frame, self.mode)

    def run(self, prefix: bytes, delivery: Delivery) -> bytes:
        """Implement ``Framing.run``."""
        return prefix.join(self._tails(prefix, delivery))

    def pieces(self, prefix: bytes, delivery: Delivery) -> Iterator[bytes]:
        """Implement ``Framing.pieces``."""
        return cut(prefix, self._tails(prefix, delivery))

    def _tails(self, prefix: bytes, delivery: Delivery) -> list[bytes]:
        """Return the tails for ``prefix`` with WebSocket headers between them, cached."""
        spliced = delivery.spliced
        if spliced is None:
            spliced = delivery.spliced = {}
        length = len(prefix)
        tails = spliced.get(length)
        if tails is None:
            tails = spliced[length] = splice(delivery.tails, length, self.mode)
        return tails


@define(eq=False, repr=False)
class SockJsMessages:
    """The broker's own frames are messages of SockJS; MESSAGEs are staged as such."""

    def frame(self, frame: bytes) -> bytes:
        """Implement ``Framing.frame``."""
        return sockjs_message(frame)

    def run(self, prefix: bytes, delivery: Delivery) -> bytes:
        """Implement ``Framing.run``."""
        return prefix.join(delivery.tails)

    def pieces(self, prefix: bytes, delivery: Delivery) -> Iterator[bytes]:
        """Implement ``Framing.pieces``."""
        return cut(prefix, delivery.tails)


def cut(prefix: bytes, tails: list[bytes]) -> Iterator[bytes]:
    """Yield ``prefix.join(tails)`` in pieces, big tails as they are, since all share them."""
    parts = [tails[0]]
    size = 0
    for tail in tails[1:]:
        parts.append(prefix)
        if len(tail) >= BIG_TAIL_BYTES:
            yield b"".join(parts)
            yield tail
            parts, size = [], 0
        else:
            parts.append(tail)
            size += len(prefix) + len(tail)
            if size >= JOIN_BYTES:
                yield b"".join(parts)
                parts, size = [], 0
    if parts:
        yield b"".join(parts)
