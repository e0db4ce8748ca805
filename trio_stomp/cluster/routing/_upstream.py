"""A client's connection to the owner of one partition."""

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING, Protocol

import trio
from attrs import define, field

from trio_stomp.cluster._gate import Contact, Gate
from trio_stomp.cluster.routing._frames import FrameCutter, Piece
from trio_stomp.transport import Voucher, Wire, relay_header, wire_over

if TYPE_CHECKING:
    from trio_stomp.base import MemoryBudget
    from trio_stomp.broker import Client
    from trio_stomp.cluster.routing._route import Awaited

logger = logging.getLogger("trio_stomp")

READ_BYTES = 256 * 1024
HIGH_BYTES = 256 * 1024
"""With more output than this for an owner, nothing is read from the client."""
LOW_BYTES = 64 * 1024
LINGER_S = 10.0
"""Maximum time for an owner to end a session that the client has ended."""


class Turns(Protocol):
    """The dispatcher, in whose turns the state of clients changes."""

    async def call(self, action: Callable[[float], bool]) -> bool:
        """Call a function in the next turn, and return its result."""

    def call_soon(self, call: Callable[[float], None]) -> None:
        """Call a function in the next turn."""


class Host(Protocol):
    """The router, as its connections to owners see it."""

    def receive(self, upstream: "Upstream", pieces: list[Piece], now: float) -> bool:
        """Take frames of an owner, and return whether the client has room for more."""

    def drained(self, upstream: "Upstream") -> None:
        """Handle that an owner has accepted most of the output."""

    def lost(self, upstream: "Upstream", now: float) -> None:
        """Handle the end of the connection."""


@define(eq=False, repr=False)
class Upstream:
    """A client's connection to the owner of one partition.

    Handles: bytes in both directions, with bounds; the outstanding confirmations.
    Does not handle: the meaning of frames; see ``Router``, in whose turns this state changes.

    Args:
      memory: Charged for the output.
      expected: The confirmations that the owner has not sent yet, in the order of the frames.
      unconfirmed: The number of SUBSCRIBEs among them.
    """

    partition: int
    gate: Gate
    host: Host
    turns: Turns
    client: "Client"
    memory: "MemoryBudget"
    expected: "deque[Awaited]" = field(factory=deque)
    unconfirmed: int = 0
    is_noted: bool = False
    """The router needs each MESSAGE as a piece of its own."""
    waiting_bytes: int = 0
    is_over: bool = False
    is_paused: bool = False
    """The output has exceeded HIGH_BYTES, and ``drained`` was not called since."""
    _is_finishing: bool = False
    _is_writing: bool = False
    """The writer has output that the owner did not accept at once."""
    _output: list[bytes | memoryview] = field(factory=list)
    _wire: Wire | None = None
    _wake: trio.Event = field(factory=trio.Event)
    _room: trio.Event = field(factory=trio.Event)
    _scope: trio.CancelScope = field(factory=trio.CancelScope)

    # In turns of the dispatcher.

    def write(self, data: bytes) -> None:
        """Add frames to the output; ``flush`` sends them."""
        if self.is_over:
            return
        self._output.append(data)
        self.waiting_bytes += len(data)
        self.memory.used_bytes += len(data)
        if self.waiting_bytes > HIGH_BYTES:
            self.is_paused = True

    def flush(self) -> None:
        """Send what the owner accepts at once, and leave the rest to the writer."""
        if self._wire is None or self._is_writing or not self._output:
            return
        data = b"".join(self._output)
        self._output.clear()
        try:
            sent = self._wire.send_nowait(data)
        except trio.BrokenResourceError:
            sent = len(data)  # the reader will notice the end of the connection
        self._release(sent)
        if sent < len(data):
            self._output.append(memoryview(data)[sent:])
            self._is_writing = True
            self._wake.set()
        elif self.is_paused:
            self.host.drained(self)

    def finish(self) -> None:
        """End the session once all output is sent. Frames of the owner are ignored."""
        self._is_finishing = True
        self._scope.deadline = trio.current_time() + LINGER_S
        self._wake.set()
        self.make_room()

    def make_room(self) -> None:
        """Resume reading from the owner, since the client has room."""
        self._room.set()

    def end(self) -> None:
        """Release the output of a connection that has ended."""
        self.is_over = True
        self._output.clear()
        self._release(self.waiting_bytes)

    def _release(self, size: int) -> None:
        self.waiting_bytes -= size
        self.memory.give(size)

    # Its tasks.

    async def run(self) -> None:
        """Exchange frames with the owner until both sides have ended or the connection is lost.

        Checkpoint: always. Cancel: it ends at once.
        """
        try:
            with self._scope:
                await self.gate.relay(self._speak)
        except* (trio.BrokenResourceError, OSError):
            pass
        except* Exception:
            logger.exception("a bug in the router ends the session of %s", self.client.remote)
        finally:
            self._wire = None
            self.turns.call_soon(partial(self.host.lost, self))

    async def _speak(self, stream: trio.SocketStream, contact: Contact) -> None:
        client, secret = self.client, contact.secret.encode()
        voucher = Voucher(client.identity, client.transport)
        await stream.send_all(relay_header(*_address(client), "off", secret, voucher))
        wire = self._wire = wire_over(stream)
        try:
            async with trio.open_nursery() as tasks:
                tasks.start_soon(self._write, wire)
                await self._read(wire)
                tasks.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                await wire.aclose()

    async def _read(self, wire: Wire) -> None:
        cutter = FrameCutter()
        is_plain = self.client.transport in ("tcp", "tls")
        while data := await wire.receive_some(READ_BYTES):
            if self._is_finishing:
                continue
            cutter.joins = is_plain and not self.is_noted
            pieces = cutter.feed(data)
            if not pieces:
                continue
            self._room = trio.Event()
            if not await self.turns.call(partial(self.host.receive, self, pieces)):
                await self._room.wait()

    async def _write(self, wire: Wire) -> None:
        while True:
            while self._output:
                self._is_writing = True
                data = self._output.pop(0)
                sent = await wire.wait_sent(data)
                if self.is_over:
                    return
                self._release(sent)
                if sent < len(data):
                    self._output.insert(0, memoryview(data)[sent:])
                if self.is_paused and self.waiting_bytes < LOW_BYTES:
                    self.turns.call_soon(lambda _: self.host.drained(self))
            self._is_writing = False
            if self._is_finishing:
                await wire.send_eof()
                return
            self._wake = trio.Event()
            await self._wake.wait()


def _address(client: "Client") -> tuple[str, int]:
    """Return the address and port of a client, or of this machine if it has none."""
    host, _, port = client.remote.rpartition(":")
    try:
        return str(ip_address(host.strip("[]").partition("%")[0])), int(port)
    except ValueError:
        return ("127.0.0.1" if not client.network else "0.0.0.0"), 0
