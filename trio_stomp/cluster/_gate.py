"""Relaying of clients: a node that does not own the cluster passes their bytes to the owner."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import trio
from attrs import define, field

from trio_stomp.base import CloseReason
from trio_stomp.broker import Guest
from trio_stomp.cluster._dial import Contact, Dialer
from trio_stomp.protocol import Event
from trio_stomp.transport import encode_response, relay_header

Stream = trio.abc.HalfCloseableStream

CHUNK_BYTES = 64 * 1024
WAIT_S = 10.0
"""How long a client may wait for an owner."""
RETRY_S = 0.05
LINGER_S = 5.0
"""How long a client may send after the owner has ended its session."""


class Session(Protocol):
    """A client of the owner in this process, without a socket."""

    def offer(self, events: Sequence[Event], size: int) -> bool:
        """Put events into the owner's inbox. Return False if it has no room.

        Raises:
          trio.ClosedResourceError, trio.BrokenResourceError: The owner has stopped.
        """

    async def put(self, events: Sequence[Event], size: int) -> None:
        """Put events into the owner's inbox, and wait for room. Raises: as ``offer``."""

    def resume(self) -> None:
        """Go on with deliveries."""

    async def leave(self, reason: CloseReason) -> None:
        """End the session, after all events that were put. Raises: as ``offer``."""


class Owner(Protocol):
    """The owner in this process."""

    ended: trio.Event

    def open(self, guest: Guest) -> Session:
        """Return a new client."""


@define(eq=False, repr=False)
class Gate:
    """Relays clients to the owner, and answers load balancers' questions about this node.

    Args:
      first_s: How long a new client may be silent.
      max_clients: The number of clients above which no more are accepted.
      dialer: Connects to the owner.
      is_draining: Load balancers are told to send no clients. Clients that come are still relayed.
      is_silent: Returns whether nothing was heard from the engine for too long.
    """

    first_s: float
    max_clients: int
    owner: Contact | None = None
    is_draining: bool = False
    is_silent: Callable[[], bool] = lambda: False
    is_reading: Callable[[], bool] = lambda: False
    """Returns whether this node still reads its state, and can own nothing so long."""
    contact: Contact | None = None
    """This node's own."""
    dialer: Dialer = field(factory=Dialer)
    inside: Owner | None = None
    """The owner, while it serves in this process."""
    relays: dict[trio.CancelScope, Contact | None] = field(factory=dict)
    """The clients, each with the owner to which it is relayed."""
    _owner_changed: trio.Event = field(factory=trio.Event)

    def why_silent(self) -> str:
        """Return why nothing was heard from any owner for too long, or "" if it was."""
        if not self.is_silent():
            return ""
        if self.is_reading():  # as perhaps all nodes after a start, so that nobody has a lease
            return "this node reads its stored messages, and no other one owns the cluster"
        return "the servers of NATS do not answer"

    def point_to(self, owner: Contact | None) -> None:
        """Relay new clients to another owner, and disconnect those of the former one."""
        if owner == self.owner:
            return
        self.owner = owner
        for scope, contact in self.relays.items():
            if contact is not None and contact != owner:
                scope.cancel()
        self._owner_changed.set()
        self._owner_changed = trio.Event()

    async def serve(self, tls: str, client: trio.SocketStream) -> None:
        """Serve a client until it or the owner ends. Never raises.

        Args:
          tls: Whether it may or must use TLS: ``off``, ``optional`` or ``required``.
          client: Its connection, which is closed.
        """
        async with client:
            if len(self.relays) < self.max_clients:
                with self._counted() as scope:
                    try:
                        await self._serve(tls, client, scope)
                    except* (trio.BrokenResourceError, OSError):
                        pass  # the client or the owner is gone

    def settle(self, inside: Owner | None) -> None:
        """Take note that the owner begins or ends to serve in this process."""
        self.inside = inside
        self._owner_changed.set()
        self._owner_changed = trio.Event()

    async def relay(
        self,
        speak: Callable[[Stream, Contact], Awaitable[None]],
        meet: Callable[[Owner], Awaitable[None]] | None = None,
    ) -> None:
        """Speak to the owner on behalf of a client, until another node is the owner.

        Args:
          speak: Takes over the connection to the owner; it gets the owner's contact, too. It is not
            called if there is no owner for too long.
          meet: Called instead with the owner if it is in this process.

        Raises: as ``speak``.

        Checkpoint: always. Cancel: as ``speak``.
        """
        with self._counted() as scope:
            if meet is not None and (owner := await self._meet(scope)) is not None:
                await meet(owner)
                return
            reached = await self._reach(scope)
            if reached is not None:
                async with reached[0]:
                    await speak(*reached)

    async def _meet(self, scope: trio.CancelScope) -> Owner | None:
        """Return the owner in this process, perhaps after a wait; None = it is in another one."""
        with trio.move_on_after(WAIT_S):
            while self.owner is None or (self._is_here(self.owner) and self.inside is None):
                await self._owner_changed.wait()
        if self.owner is None or not self._is_here(self.owner):
            return None
        self.relays[scope] = self.owner
        return self.inside

    def _is_here(self, owner: Contact) -> bool:
        return self.contact is not None and owner.node == self.contact.node

    @contextmanager
    def _counted(self) -> Iterator[trio.CancelScope]:
        with trio.CancelScope() as scope:
            self.relays[scope] = None
            try:
                yield scope
            finally:
                del self.relays[scope]

    async def _serve(self, tls: str, client: trio.SocketStream, scope: trio.CancelScope) -> None:
        first = b""
        with trio.move_on_after(self.first_s):
            first = await client.receive_some(CHUNK_BYTES)
        if not first:
            return
        page = self._page(first)
        if page:
            await client.send_all(page)
            return
        host, port = client.socket.getpeername()[:2]
        owner = await self._reach(scope)
        if owner is None:
            return
        stream, contact = owner
        async with stream:
            header = relay_header(host, port, tls, contact.secret.encode())
            await stream.send_all(header + first)
            await _join(client, stream)

    def _page(self, first: bytes) -> bytes:
        """Return the response to a request for this node's health, or b"" if it is none."""
        words = first[:100].split(b" ", 2)
        if len(words) < 3 or words[0] not in (b"GET", b"HEAD"):
            return b""
        path = words[1].partition(b"?")[0]
        if path == b"/livez":
            return encode_response(200, (), b"ok\n")
        if path == b"/readyz":
            if self.is_draining:
                return encode_response(503, (), b"this node is being drained\n")
            if problem := self.why_silent():
                return encode_response(503, (), f"{problem}\n".encode())
            if self.owner is not None:
                return encode_response(200, (), f"ok, owner {self.owner.node}\n".encode())
            return encode_response(503, (), b"no node owns the cluster at the moment\n")
        return b""

    async def _reach(self, scope: trio.CancelScope) -> tuple[Stream, Contact] | None:
        """Return a connection to the owner, or None if there is none for too long."""
        with trio.move_on_after(WAIT_S):
            while True:
                owner = self.owner
                if owner is None:
                    await self._owner_changed.wait()
                elif (stream := await self.dialer.connect(owner)) is None:
                    await trio.sleep(RETRY_S)
                elif owner == self.owner:
                    self.relays[scope] = owner
                    return stream, owner
                else:
                    await trio.aclose_forcefully(stream)
        return None


async def _join(client: Stream, owner: Stream) -> None:
    """Copy bytes in both directions until both sides have ended or one is lost."""
    async with trio.open_nursery() as pumps:
        pumps.start_soon(_pump, client, owner)
        await _pump(owner, client)
        pumps.cancel_scope.deadline = trio.current_time() + LINGER_S


async def _pump(source: Stream, into: Stream) -> None:
    while data := await source.receive_some(CHUNK_BYTES):
        await into.send_all(data)
    await into.send_eof()
