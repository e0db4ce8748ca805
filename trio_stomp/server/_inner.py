"""Clients of this process without a wire of their own: their frames come and go as objects.

A node of a cluster has a router and brokers in one process. For a client whose broker is here, the
router puts the frames into the broker's inbox, and the broker stages MESSAGEs in the outbox of the
client's connection to the router.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import trio
from attrs import define, field

from trio_stomp.base import CloseReason, RemoteError
from trio_stomp.broker import Client, Consumer, Delivery
from trio_stomp.broker import Outbox as AnyOutbox
from trio_stomp.frames import FrameRun
from trio_stomp.protocol import Acked, Event
from trio_stomp.server.io import Batch, ConnectionEnd, Outbox, OutboxShared

if TYPE_CHECKING:
    from trio_stomp.server._server import Server
    from trio_stomp.transport import Wire


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


class InnerOutbox(Outbox):
    """The output of a broker to such a client, which goes to the outbox of its connection.

    Args:
      server: The server of the broker.
      real: The outbox of the connection.
      guest: The client.

    Attributes:
      on_unsent: Gives messages back to the broker that expired before they were written.
      is_left: The client uses this broker no more.
    """

    def __init__(self, server: "Server", real: Outbox, guest: Guest) -> None:
        super().__init__(
            server.outboxes,
            wire=real.wire,
            on_blocked=real.on_blocked,
            on_close=real.on_close,
            on_room=real.on_room,
        )
        self.guest = guest
        self.real = real
        self.on_unsent: Callable[[Delivery], None] = server.on_unsent
        self.is_left = False
        self._is_dirty = False

    def stage(self, prefix: bytes, delivery: Delivery) -> bool:
        """Implement ``Outbox.stage``."""
        if self.is_left:
            return True
        if not self.real.stage(prefix, delivery):
            return False
        if self.guest.is_noted:
            for tail in delivery.tails[1:]:
                self.guest.note(prefix + tail)
        self._mark()
        return True

    def stage_frame(self, frame: bytes) -> None:
        """Implement ``Outbox.stage_frame``."""
        if not self.is_left:
            self.guest.take(frame)
            self._mark()

    def _mark(self) -> None:
        if not self._is_dirty:
            self._is_dirty = True
            self.shared.dirty.append(self)

    def drop_oldest(self, size: int) -> int:
        """Implement ``Outbox.drop_oldest``."""
        self._mark()
        return 0 if self.is_left else self.real.drop_oldest(size)

    def discard(self) -> int:
        """Implement ``Outbox.discard``."""
        self._mark()
        return 0 if self.is_left else self.real.discard()

    def has_room(self) -> bool:
        """Implement ``Outbox.has_room``."""
        return not self.is_left and self.real.has_room()

    def pause_reading(self, *, paused: bool) -> None:
        """Implement ``Outbox.pause_reading``."""
        if not self.is_left:
            self.guest.pause(paused=paused)

    def close(self, _reason: CloseReason) -> None:
        """Implement ``Outbox.close``."""
        if not self.is_left:
            self.is_left = True
            self.guest.close()

    def publish(self, now: float) -> None:
        """Implement ``Outbox.publish``: send with what else the connection has."""
        self._is_dirty = False
        self.real.publish(now)


@define(eq=False, repr=False)
class InnerClient:
    """Such a client, as the broker sees it. Implements ``Source``."""

    server: "Server"
    client: Client
    outbox: InnerOutbox

    @classmethod
    def of(cls, server: "Server", guest: Guest) -> "InnerClient":
        """Return a new client of a running server."""
        real = guest.outbox
        assert isinstance(real, Outbox)
        outbox = InnerOutbox(server, real, guest)
        server.accepted += 1
        router = guest.client
        client = Client(router.session_id, outbox, router.remote, router.transport)
        client.network = router.network
        return cls(server, client, outbox)

    @property
    def wire(self) -> "Wire":
        """Implement ``Source.wire``."""
        return self.outbox.wire

    def end(self, error: RemoteError) -> None:
        """Implement ``Source.end``."""
        self.outbox.close(error.reason)

    def throttle_next_read(self) -> None:
        """Implement ``Source.throttle_next_read``: the router's connection is throttled."""

    def finish(self, batch: Batch, apply_s: float) -> None:
        """Implement ``Source.finish``: the router's connection waited for its turn."""

    def release(self) -> None:
        """Implement ``Source.release``."""

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
        return Batch(self, events, sum(map(_frames, events)), size, trio.current_time())

    def resume(self) -> None:
        """Have the broker deliver on: the connection has room again."""
        self.server.dispatcher.resume(self.client)

    async def leave(self, reason: CloseReason) -> None:
        """End the session, after all frames that were put.

        Raises: as ``offer``.
        """
        self.outbox.is_left = True
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
