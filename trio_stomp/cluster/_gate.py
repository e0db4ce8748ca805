"""Relaying of clients: a node that does not own the cluster passes their bytes to the owner."""

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import trio
from attrs import define, field

from trio_stomp.base import CloseReason, OptionError, RemoteError, is_loopback
from trio_stomp.cluster._dial import Contact, Dialer
from trio_stomp.frames import ERROR, V1_2, encode_frame
from trio_stomp.protocol import Event
from trio_stomp.transport import Relayed, Wire, WireStream, encode_response, relay_header

if TYPE_CHECKING:
    from trio_stomp.cluster.routing import LocalLink

logger = logging.getLogger("trio_stomp")

Stream = trio.abc.HalfCloseableStream

CHUNK_BYTES = 64 * 1024
WAIT_S = 10.0
"""How long a client may wait for an owner."""
RETRY_S = 0.05
PROBE_S = 2.0
"""The interval at which a node checks that it reaches the owner, and the time for an answer."""
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

    def open(self, guest: "LocalLink") -> Session:
        """Return a new client."""


@define(eq=False, repr=False)
class Gate:
    """Relays clients to the owner, and answers load balancers' questions about this node.

    Args:
      first_s: How long a new client may be silent.
      dialer: Connects to the owner.
      is_draining: Load balancers are told to send no clients. Clients that come are still relayed.
      is_silent: Returns whether nothing was heard from the engine for too long.
    """

    first_s: float
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
    reached: Contact | None = None
    """The owner that answered last, while it does."""
    problem: str = ""
    """Why the owner in another process cannot be reached, or ""."""
    _owner_changed: trio.Event = field(factory=trio.Event)

    def why_unready(self) -> str:
        """Return why clients cannot be served through this node at the moment, or ""."""
        if self.is_draining:
            return "this node is being drained"
        if problem := self.why_silent():
            return problem
        if self.owner is None:
            return "no node owns the cluster at the moment"
        if self._is_here(self.owner):
            return "" if self.inside is not None else "this node begins to serve"
        if self.reached != self.owner:
            return self.problem or f"node {self.owner.node}, the owner, has not answered yet"
        return ""

    async def watch(self) -> None:
        """Check that this node reaches the owner, at once if it changes, until cancelled.

        Raises:
          OptionError: The first owner is on another machine, which cannot reach this one.
        """
        is_first = True
        while True:
            changed, owner = self._owner_changed, self.owner
            if owner is not None and not self._is_here(owner):
                if is_first:
                    self._check_address(owner)
                is_first = False
                self._note(owner, is_reached=await self._answers(owner))
            with trio.move_on_after(PROBE_S):
                await changed.wait()

    def _check_address(self, owner: Contact) -> None:
        ours = self.contact
        if ours is not None and is_loopback(ours.host) and not is_loopback(owner.host):
            raise OptionError(
                f"node_address is {ours.host}:{ours.port}, where node {owner.node} at {owner.host}"
                " cannot reach this one: give the address of this machine in the nodes' network"
            )

    async def _answers(self, owner: Contact) -> bool:
        """Return whether the owner answers a request that this node relays to it."""
        with trio.move_on_after(PROBE_S):
            try:
                stream = await self.dialer.connect(owner)
                if stream is not None:
                    async with stream:
                        header = relay_header("127.0.0.1", 0, "off", owner.secret.encode())
                        await stream.send_all(header + b"GET /livez HTTP/1.0\r\n\r\n")
                        return b" 200 " in await stream.receive_some(100)
            except (trio.BrokenResourceError, OSError):
                pass
        return False

    def _note(self, owner: Contact, *, is_reached: bool) -> None:
        if owner != self.owner:
            return
        self.reached, before = owner if is_reached else None, self.problem
        self.problem = ""
        if not is_reached:
            self.problem = (
                f"node {owner.node}, the owner, cannot be reached at its node_address"
                f" {owner.host}:{owner.port}"
            )
        if self.problem != before:
            logger.warning("%s", self.problem or f"node {owner.node} is reached again")

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

    async def serve(self, wire: Wire, refusal: RemoteError | None, introduced: Relayed) -> None:
        """Serve a client until it or the owner ends. Never raises.

        Args:
          wire: Its connection, which is closed.
          refusal: Why it is refused; None = it is not.
          introduced: What came with it.
        """
        async with WireStream(wire) as client:
            with self._counted() as scope:
                try:
                    await self._serve(client, refusal, introduced, scope)
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

    async def _serve(
        self,
        client: WireStream,
        refusal: RemoteError | None,
        introduced: Relayed,
        scope: trio.CancelScope,
    ) -> None:
        first = introduced.early
        with trio.move_on_after(self.first_s):
            first = first or await client.receive_some(CHUNK_BYTES)
        if not first:
            return
        page = self._page(first)
        if page:
            await client.send_all(page)
            return
        if refusal is not None:
            await client.send_all(_refusal(first, refusal.message, refusal.code))
            return
        owner = await self._reach(scope)
        if owner is None:
            await client.send_all(_refusal(first, self.why_unready() or "the owner is lost"))
            return
        stream, contact = owner
        async with stream:
            host, port = _address(client.wire)
            header = relay_header(host, port, introduced.tls, contact.secret.encode())
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
            if problem := self.why_unready():
                return encode_response(503, (), f"{problem}\n".encode())
            assert self.owner is not None
            return encode_response(200, (), f"ok, owner {self.owner.node}\n".encode())
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


def _address(wire: Wire) -> tuple[str, int]:
    """Return the address of a client, for the owner, who trusts loopback."""
    host, _, port = wire.remote.rpartition(":")
    host = host.strip("[]")
    if not port.isdecimal() or (is_loopback(host) and not wire.is_loopback):
        return "0.0.0.0", 0
    return host, int(port)


def _refusal(first: bytes, problem: str, code: str = "unavailable") -> bytes:
    """Return what tells a client why it is not served; b"" = it would not understand."""
    if first.lstrip(b"\r\n").startswith((b"CONNECT", b"STOMP")):
        headers = ("message", f"{problem}: connect to another node"), ("code", code)
        return encode_frame(ERROR, headers, V1_2)
    if first[:1].isupper():
        return encode_response(503, (), f"{problem}\n".encode())
    return b""


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
