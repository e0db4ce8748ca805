"""Eviction when memory is short, so that active clients can continue."""

from typing import TYPE_CHECKING

from attrs import define

from trio_stomp.base import CloseReason, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trio_stomp.broker import Broker
    from trio_stomp.server._dispatcher import Dispatcher
    from trio_stomp.server.connection import Connection
    from trio_stomp.server.io import OutboxShared

PAUSE_S = 0.1
"""Minimum interval between two evictions."""
SPARE_HISTORY_BYTES = 256 * 1024
"""Stream history of at most this size is kept."""


@define(eq=False, repr=False)
class Relief:
    """Frees memory, one step at a time."""

    connections: "Mapping[Connection, None]"
    broker: "Broker"
    outboxes: "OutboxShared"
    dispatcher: "Dispatcher"
    _relieved_at: float = -1.0
    _history_bytes: int = 0

    def relieve(self, now: float) -> None:
        """Free stream history first, then the stuck connection with the largest backlog.

        Otherwise all producers would wait until the write stall ends that connection.
        """
        if now < self._relieved_at + PAUSE_S:
            return
        self._relieved_at = now
        history = self.broker.streams.window_bytes
        if history > SPARE_HISTORY_BYTES and history != self._history_bytes:
            self._history_bytes = history  # if this frees nothing, do not try it again
            self.dispatcher.call_soon(self._forget_history)
            return
        stuck = [each for each in self.connections if each.outbox.is_stuck(now)]
        if not stuck:
            return
        worst = max(stuck, key=lambda each: each.outbox.waiting_bytes)
        self.outboxes.unsent += worst.outbox.discard()
        worst.outbox.is_over = True  # or the client would get later messages without these
        worst.end(
            ProtocolError(
                "memory-limit",
                "the connection takes its messages too slowly while the broker is short of memory"
                " (option max_memory_bytes)",
                reason=CloseReason.MEMORY_LIMIT,
            )
        )

    def _forget_history(self, now: float) -> None:
        self.broker.streams.expire(now)  # the rest expires as time passes
