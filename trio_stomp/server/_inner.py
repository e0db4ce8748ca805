"""Clients of this process without a wire of their own: their frames come and go as objects.

A node of a cluster has a router and brokers in one process. For a client whose broker is here, the
router puts the frames into the broker's inbox, and the broker stages MESSAGEs in the outbox of the
client's connection to the router.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, cast

import trio
from attrs import define, field

from trio_stomp.base import CloseReason, RemoteError
from trio_stomp.broker import Client, Consumer, Delivery
from trio_stomp.broker import Outbox as AnyOutbox
from trio_stomp.frames import FrameRun
from trio_stomp.protocol import Acked, Event
from trio_stomp.server.io import Batch, ConnectionEnd, OutboxShared, Output

if TYPE_CHECKING:
    from trio_stomp.server._server import Server


class Guest(Protocol):
    """The router's side of such a client. Its methods are called in turns of the broker."""

    @property
    def client(self) -> Client:
        """Return the client of the router."""

    @property
    def outbox(self) -> AnyOutbox:
        """Return the outbox of the client's connection, which may have ended."""

    @property
    def is_noted(self) -> bool:
        """Return whether it wants to see each MESSAGE."""

    def take(self, frame: bytes) -> None:
        """Take a frame that is no MESSAGE."""

    def note(self, message: bytes) -> None:
        """See a MESSAGE that was staged."""

    def pause(self, *, paused: bool) -> None:
        """Read no more from the client, or go on."""

    def close(self) -> None:
        """Take note that the broker has ended the session."""


@define(eq=False, repr=False)
class InnerOutbox:
    """The output of a broker to such a client, which goes to the outbox of its connection.

    Implements ``io.Output``.

    Args:
      shared: What the outboxes of the broker share.
      real: The outbox of the connection.
      guest: The client, until it uses this broker no more.
      on_unsent: Gives messages back to the broker that expired before they were written.
    """

    shared: OutboxShared
    real: Output
    guest: Guest | None
    on_unsent: Callable[[Delivery], None]
    owner: None = None
    """Its traffic is that of the connection to the router."""
    _is_dirty: bool = False

    def stage(self, prefix: bytes, delivery: Delivery) -> bool:
        """Implement ``Outbox.stage``."""
        guest = self.guest
        if guest is None:
            return True
        if not self.real.stage(prefix, delivery):
            return False
        if guest.is_noted:
            for tail in delivery.tails[1:]:
                guest.note(prefix + tail)
        self._mark()
        return True

    def stage_frame(self, frame: bytes) -> None:
        """Implement ``Outbox.stage_frame``."""
        if self.guest is not None:
            self.guest.take(frame)
            self._mark()

    def drop_oldest(self, size: int) -> int:
        """Implement ``Outbox.drop_oldest``."""
        self._mark()
        return 0 if self.guest is None else self.real.drop_oldest(size)

    def discard(self) -> int:
        """Implement ``Outbox.discard``."""
        self._mark()
        return 0 if self.guest is None else self.real.discard()

    def has_room(self) -> bool:
        """Implement ``Outbox.has_room``."""
        return self.guest is not None and self.real.has_room()

    def pause_reading(self, *, paused: bool) -> None:
        """Implement ``Outbox.pause_reading``."""
        if self.guest is not None:
            self.guest.pause(paused=paused)

    def close(self, _reason: CloseReason) -> None:
        """Implement ``Outbox.close``."""
        guest, self.guest = self.guest, None
        if guest is not None:
            guest.close()

    def _mark(self) -> None:
        if not self._is_dirty:
            self._is_dirty = True
            self.shared.dirty.append(self)

    @property
    def remote(self) -> str:
        """Implement ``Output.remote``."""
        return self.real.remote

    def publish(self, now: float) -> None:
        """Implement ``Output.publish``: send with what else the connection has."""
        self._is_dirty = False
        self.real.publish(now)
        if self.guest is None:
            self.forget()

    def lose(self, reason: CloseReason) -> None:
        """Implement ``Output.lose``."""
        self.real.lose(reason)

    def forget(self) -> None:
        """Leave nothing behind where the broker counts traffic."""
        self.shared.touched.discard(self)


@define(eq=False, repr=False)
class InnerClient:
    """Such a client, as the broker sees it. Implements ``Source``."""

    server: "Server"
    client: Client
    outbox: InnerOutbox

    @classmethod
    def of(cls, server: "Server", guest: Guest) -> "InnerClient":
        """Return a new client of a running server."""
        # The router's clients have no others.
        real = cast("Output", guest.outbox)
        outbox = InnerOutbox(server.outboxes, real, guest, server.on_unsent)
        server.accepted += 1
        router = guest.client
        client = Client(router.session_id, outbox, router.remote, router.transport)
        client.network = router.network
        return cls(server, client, outbox)

    def end(self, error: RemoteError) -> None:
        """Implement ``Source.end``."""
        self.outbox.close(error.reason)

    def throttle_next_read(self) -> None:
        """Implement ``Source.throttle_next_read``: the router's connection is throttled."""

    def release(self) -> None:
        """Implement ``Source.release``."""
        self.outbox.forget()

    # The router's side.

    def offer(self, events: Sequence[Event], size: int) -> bool:
        """Put frames into the inbox. Return False if it is full: ``put`` waits.

        Raises:
          trio.ClosedResourceError, trio.BrokenResourceError: The server has stopped.
        """
        return self.server.inbox.offer(self._batch(events, size))

    async def put(self, events: Sequence[Event], size: int) -> None:
        """Put frames into the inbox, and wait for room.

        Raises: as ``offer``.

        Checkpoint: if it waits. Cancel: the frames are put all the same.
        """
        await self.server.inbox.put_batch(self._batch(events, size))

    def _batch(self, events: Sequence[Event], size: int) -> Batch:
        # Nobody hears what it costs: the router's connection has waited for its turn.
        return Batch(self, events, sum(map(_frames, events)), size, trio.current_time())

    def resume(self) -> None:
        """Have the broker deliver on: the connection has room again."""
        self.server.dispatcher.resume(self.client)

    async def leave(self, reason: CloseReason) -> None:
        """End the session, after all frames that were put.

        Raises: as ``offer``.
        """
        self.outbox.guest = None
        await self.server.inbox.put(ConnectionEnd(self, reason))


def _frames(event: Event) -> int:
    """Return the number of frames of an event."""
    if type(event) is FrameRun:
        return len(event.bodies)
    return len(event.ids) if isinstance(event, Acked) else 1


def is_given_back(delivery: Delivery, shared: OutboxShared) -> bool:
    """Give messages that expired back to their broker, if that is another one in this process.

    Args:
      delivery: The messages.
      shared: The part of the writing outbox that all outboxes of its server share.
    """
    consumer = delivery.ticket[0] if delivery.ticket is not None else None
    outbox = consumer.subscription.outbox if isinstance(consumer, Consumer) else None
    if not isinstance(outbox, InnerOutbox) or outbox.shared is shared:
        return False
    outbox.on_unsent(delivery)
    return True


@define(eq=False, repr=False)
class InnerServer:
    """A running server that takes such clients.

    Args:
      server: The server.
      ended: Set when it has ended.
    """

    server: "Server"
    ended: trio.Event = field(factory=trio.Event)

    def open(self, guest: Guest) -> InnerClient:
        """Return a new client."""
        return InnerClient.of(self.server, guest)
