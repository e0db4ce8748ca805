"""The end of a connection: its reason, its error, and stopping the reader."""

import trio
from attrs import define, field

from trio_stomp.base import CloseReason, RemoteError


@define(eq=False, repr=False)
class Lifecycle:
    """The stages of a connection: opening, open, disconnected, finished.

    Handles: the reason of the end, the error to be sent to the peer, stopping the reader. Others
    read this state and report events; only this class assigns it. Does not handle: notifying the
    broker (``Connection``).
    """

    core_released: trio.Event | None = field(init=False, default=None)
    """Set when the broker has released the client. Created when the connection disconnects: an
    Event costs 300 bytes for each idle connection."""
    reading: trio.CancelScope = field(init=False, factory=trio.CancelScope)
    """Cancelled to stop the reader."""
    _reason: CloseReason = field(init=False, default=CloseReason.CLIENT_CLOSED)
    _pending_error: RemoteError | None = field(init=False, default=None)
    _is_open: bool = field(init=False, default=False)
    _is_finished: bool = field(init=False, default=False)

    @property
    def reason(self) -> CloseReason:
        """Return why the connection ends, as far as is known."""
        return self._reason

    @property
    def pending_error(self) -> RemoteError | None:
        """Return an error found outside the core, sent once earlier input is processed."""
        return self._pending_error

    @property
    def is_open(self) -> bool:
        """Return whether the session was opened."""
        return self._is_open

    @property
    def is_finished(self) -> bool:
        """Return whether the connection has ended."""
        return self._is_finished

    def open(self) -> None:
        """Note that the session is open, or was refused."""
        self._is_open = True

    # The reader calls these, and then ends.

    def end(self, reason: CloseReason) -> None:
        """Record why the connection ends, unless the broker has already learned of its end."""
        if self.core_released is None:
            self._reason = reason

    def fail(self, error: RemoteError) -> None:
        """Record the error to send to the peer. Only the first one is kept."""
        if self._pending_error is None:
            self._pending_error = error.without_traceback()

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
        self.core_released = trio.Event()
        return self.core_released

    def release(self) -> None:
        """Note that the core has released the client."""
        if self.core_released is not None:
            self.core_released.set()

    def finish(self) -> None:
        """Note that the connection has ended."""
        self._is_finished = True
