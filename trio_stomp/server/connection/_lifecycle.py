"""The end of a connection: its reason, its error, and stopping the reader."""

import trio
from attrs import field, frozen

from trio_stomp.base import CloseReason, RemoteError

_assign = object.__setattr__


@frozen(eq=False, repr=False)
class Lifecycle:
    """The stages of a connection: opening, open, disconnected, finished.

    Handles: the reason of the end, the error to be sent to the peer, stopping the reader. Others
    read this state and report events; only this class assigns it, so it is frozen for them. Does
    not handle: notifying the broker (``Connection``).
    """

    core_released: trio.Event | None = field(init=False, default=None)
    """Set when the broker has released the client. Created when the connection disconnects: an
    Event costs 300 bytes for each idle connection."""
    reading: trio.CancelScope = field(init=False, factory=trio.CancelScope)
    """Cancelled to stop the reader."""
    reason: CloseReason = field(init=False, default=CloseReason.CLIENT_CLOSED)
    """Why the connection ends, as far as is known."""
    pending_error: RemoteError | None = field(init=False, default=None)
    """An error found outside the core, sent once earlier input is processed."""
    is_open: bool = field(init=False, default=False)
    """The session was opened, or refused."""
    is_finished: bool = field(init=False, default=False)
    """The connection has ended."""

    def open(self) -> None:
        """Note that the session is open, or was refused."""
        _assign(self, "is_open", True)

    # The reader calls these, and then ends.

    def end(self, reason: CloseReason) -> None:
        """Record why the connection ends, unless the broker has already learned of its end."""
        if self.core_released is None:
            _assign(self, "reason", reason)

    def fail(self, error: RemoteError) -> None:
        """Record the error to send to the peer. Only the first one is kept."""
        if self.pending_error is None:
            _assign(self, "pending_error", error.without_traceback())

    # These are called by other tasks, so they stop the reader, too.

    def abort(self, error: RemoteError) -> None:
        """Stop reading, and send ``error`` once earlier input is processed."""
        self.fail(error)
        self.reading.cancel()

    def on_close(self, reason: CloseReason) -> None:
        """Stop reading: the core has ended the connection, or the wire is dead."""
        self.end(reason)
        self.reading.cancel()

    # The end.

    def disconnect(self, error: RemoteError | None) -> trio.Event:
        """Fix the reason of the end.

        Args:
          error: The error that the peer receives; None = no error.

        Returns:
          An event to be set when the core has released the client.
        """
        if error is not None:
            self.end(error.reason)
        released = trio.Event()
        _assign(self, "core_released", released)
        return released

    def release(self) -> None:
        """Note that the core has released the client."""
        if self.core_released is not None:
            self.core_released.set()

    def finish(self) -> None:
        """Note that the connection has ended."""
        _assign(self, "is_finished", True)
