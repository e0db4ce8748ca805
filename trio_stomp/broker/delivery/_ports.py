"""Interfaces between the core and the floors above."""

from typing import Protocol

from trio_stomp.base import CloseReason, value
from trio_stomp.broker.delivery._delivery import Delivery


@value
class Census:
    """Figures of the server, for answers to stompica's requests.

    Args:
      clients: Open connections that have sent something.
      websockets: WebSockets among them.
      input_queue_size: Frames waiting for the dispatcher.
      output_queue_size: MESSAGEs waiting for the writers.
      ws_allocated: Bytes buffered for incomplete WebSocket frames.
      ws_hits: Reads that continued an incomplete WebSocket frame.
      ws_misses: Reads that began with a new WebSocket frame.
    """

    clients: int = 0
    websockets: int = 0
    input_queue_size: int = 0
    output_queue_size: int = 0
    ws_allocated: int = 0
    ws_hits: int = 0
    ws_misses: int = 0


class TakesCensus(Protocol):
    """The server, as the core sees it."""

    def census(self) -> Census:
        """Return the current figures."""


class NullOutbox:
    """The outbox of a client that has gone. Discards everything, so that the real one is freed."""

    def stage(self, _prefix: bytes, _delivery: Delivery) -> bool:
        """Implement ``Outbox.stage``."""
        return True

    def stage_frame(self, frame: bytes) -> None:
        """Implement ``Outbox.stage_frame``."""

    def drop_oldest(self, _size: int) -> int:
        """Implement ``Outbox.drop_oldest``."""
        return 0

    def has_room(self) -> bool:
        """Implement ``Outbox.has_room``."""
        return False

    def discard(self) -> int:
        """Implement ``Outbox.discard``."""
        return 0

    def pause_reading(self, *, paused: bool) -> None:
        """Implement ``Outbox.pause_reading``."""

    def close(self, reason: CloseReason) -> None:
        """Implement ``Outbox.close``."""
