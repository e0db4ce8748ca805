"""How a connection ends: why, with which error, and when its reader stops."""

import trio
from attrs import define, field

from trio_stomp.base import CloseReason, RemoteError


@define(eq=False, repr=False)
class Lifecycle:
    """The stages of a connection: opening, open, disconnected, finished.

    Handles: the reason of the end, the error that the peer is still to receive, stopping the
    reader.
    Does not handle: the order in which the broker learns of it (``Connection``).
    """

    reason: CloseReason = CloseReason.CLIENT_CLOSED
    pending_error: RemoteError | None = None
    """An error found outside the core, which the core sends once earlier input is processed."""
    is_open: bool = False
    is_finished: bool = False
    core_released: trio.Event | None = None
    """Set when the broker has released the client. Created when the connection disconnects: an
    Event costs 300 bytes for each idle connection."""
    reading: trio.CancelScope = field(factory=trio.CancelScope)
    """Cancelled to stop the reader."""

    def end(self, error: RemoteError) -> None:
        """Stop reading, and send ``error`` once earlier input is processed."""
        if self.pending_error is None:
            self.pending_error = error.kept()
        self.reading.cancel()

    def on_close(self, reason: CloseReason) -> None:
        """Stop reading: the core has ended the connection, or the wire is dead."""
        if self.core_released is None:
            self.reason = reason
        self.reading.cancel()

    def disconnect(self) -> trio.Event:
        """Fix the reason of the end.

        Returns:
          An event to be set when the core has released the client.
        """
        self.core_released = trio.Event()
        return self.core_released

    def release(self) -> None:
        """Note that the core has released the client."""
        if self.core_released is not None:
            self.core_released.set()
