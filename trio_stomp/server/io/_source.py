"""The interface to connections, used by the inbox and the dispatcher."""

from typing import TYPE_CHECKING, Protocol

from trio_stomp.base import RemoteError
from trio_stomp.broker import Client
from trio_stomp.server.io._outbox import Outbox
from trio_stomp.transport import Wire

if TYPE_CHECKING:
    from trio_stomp.server.io._inbox import Batch


class Source(Protocol):
    """The dispatcher's interface to a connection."""

    client: Client

    @property
    def outbox(self) -> Outbox:
        """Return the output queue of the peer."""

    @property
    def wire(self) -> Wire:
        """Return the wire, for its address in the log."""

    def end(self, error: RemoteError) -> None:
        """End the connection with ``error``, because of a bug."""

    def throttle_next_read(self) -> None:
        """Pause before the next read, because the last batch filled an outbox."""

    def finish(self, batch: "Batch", apply_s: float) -> None:
        """Note that a batch was applied, and how many seconds that took."""

    def release(self) -> None:
        """Note that the core has released the client."""
