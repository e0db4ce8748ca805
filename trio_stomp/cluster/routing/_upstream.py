"""A client's session at the owner of one partition."""

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

import trio
from attrs import define, field

from trio_stomp.cluster._dial import Contact
from trio_stomp.cluster._gate import Gate, Owner
from trio_stomp.cluster.routing._encoder import size_of
from trio_stomp.cluster.routing._frames import Piece
from trio_stomp.cluster.routing._link import Link, Turns
from trio_stomp.cluster.routing._local import LocalLink
from trio_stomp.cluster.routing._remote import open_remote
from trio_stomp.protocol import Event, Opened

if TYPE_CHECKING:
    from trio_stomp.base import MemoryBudget
    from trio_stomp.broker import Client, Outbox
    from trio_stomp.cluster.routing._route import Awaited

HIGH_BYTES = 256 * 1024
"""With more output than this for an owner, nothing is read from the client."""
LOW_BYTES = 64 * 1024
LINGER_S = 10.0
"""Maximum time for an owner to end a session that the client has ended."""


class Host(Protocol):
    """The router, as its connections to owners see it."""

    def receive(self, upstream: "Upstream", pieces: Sequence[Piece]) -> bool:
        """Take frames of an owner, and return whether the client has room for more."""

    def note(self, upstream: "Upstream", message: bytes) -> None:
        """See a MESSAGE of the owner in this process, in its turn."""

    def drained(self, upstream: "Upstream") -> None:
        """Handle that an owner has accepted most of the output."""

    def regulate(self, upstream: "Upstream") -> None:
        """Read from the client, or not, as its owners accept what it sends."""

    def lost(self, upstream: "Upstream", now: float) -> None:
        """Handle the end of the connection."""


@define(eq=False, repr=False)
class Upstream:
    """A client's session at the owner of one partition.

    Handles: events to the owner, with bounds; the outstanding confirmations.
    Does not handle: the meaning of frames; see ``Router``, in whose turns this state changes.

    Args:
      opened: The client's CONNECT.
      memory: Charged for the output.
      expected: The confirmations that the owner has not sent yet, in the order of the frames.
      unconfirmed: The number of SUBSCRIBEs among them.
    """

    partition: int
    gate: Gate
    host: Host
    turns: Turns
    client: "Client"
    opened: Opened
    memory: "MemoryBudget"
    expected: "deque[Awaited]" = field(factory=deque)
    unconfirmed: int = 0
    is_noted: bool = False
    """The router needs each MESSAGE as a piece of its own."""
    waiting_bytes: int = 0
    is_over: bool = False
    is_full: bool = False
    """The output has exceeded HIGH_BYTES, and ``drained`` was not called since."""
    is_held: bool = False
    """The owner in this process wants no more for the moment."""
    is_finishing: bool = False
    """The client has ended: the session ends once everything is sent."""
    _events: list[Event] = field(factory=list)
    _size: int = 0
    """The bytes of ``_events``."""
    _link: Link | None = None
    _scope: trio.CancelScope = field(factory=trio.CancelScope)
    outbox: "Outbox" = field(init=False)
    """The client's, also when its connection has ended."""

    def __attrs_post_init__(self) -> None:
        self.outbox = self.client.outbox

    # In turns of the dispatcher.

    @property
    def is_paused(self) -> bool:
        """Return whether the client should send no more to this owner."""
        return self.is_full or self.is_held

    def add(self, event: Event) -> None:
        """Add an event to the output; ``flush`` sends it."""
        if not self.is_over:
            size = size_of(event)
            self._events.append(event)
            self._size += size
            self.charge(size)

    def charge(self, size: int) -> None:
        """Charge bytes of output."""
        self.waiting_bytes += size
        self.memory.used_bytes += size
        if self.waiting_bytes > HIGH_BYTES:
            self.is_full = True

    def release(self, size: int) -> None:
        """Release the charge of output that the owner has accepted."""
        if not self.is_over:
            self.waiting_bytes -= size
            self.memory.give(size)

    def tell_drained(self) -> None:
        """Tell the router, in its turn, if most of the output is accepted."""
        if self.is_full and self.waiting_bytes < LOW_BYTES:
            self.turns.call_soon(lambda _: self.host.drained(self))

    def flush(self) -> None:
        """Pass the events on, if it is known where to."""
        if self._link is not None and self._events:
            events, size = self._events, self._size
            self._events, self._size = [], 0
            self._link.send(events, size)
            if self.is_full and self.waiting_bytes < LOW_BYTES:
                self.host.drained(self)

    def finish(self) -> None:
        """End the session once all output is sent. Frames of the owner are ignored."""
        self.is_finishing = True
        self._scope.deadline = trio.current_time() + LINGER_S
        if self._link is not None:
            self._link.finish()

    def make_room(self) -> None:
        """Go on with deliveries, since the client has room."""
        if self._link is not None:
            self._link.make_room()

    def receive(self, pieces: Sequence[Piece]) -> bool:
        """Implement ``Sender.receive``."""
        return self.host.receive(self, pieces)

    def note(self, message: bytes) -> None:
        """Implement ``Sender.note``."""
        self.host.note(self, message)

    def hold(self, *, held: bool) -> None:
        """Implement ``Sender.hold``."""
        if self.is_held != held:
            self.is_held = held
            self.turns.call_soon(lambda _: self.host.regulate(self))

    def cancel(self) -> None:
        """End the session at once."""
        self._scope.cancel()

    def end(self) -> None:
        """Release the output of a session that has ended."""
        self._events.clear()
        self.release(self.waiting_bytes)
        self.is_over = True

    # Its task.

    async def run(self) -> None:
        """Exchange frames with the owner until both sides have ended or the connection is lost.

        Checkpoint: always. Cancel: it ends at once.
        """
        try:
            with self._scope:
                await self.gate.relay(self._speak, self._meet)
        except* (trio.BrokenResourceError, OSError):
            pass
        except* Exception as errors:
            self.turns.call_soon(partial(self._tell, errors))
        finally:
            self._link = None
            self.turns.call_soon(partial(self.host.lost, self))

    def _tell(self, bug: Exception, _: float) -> None:
        """Raise a bug in a turn, where bugs are logged and counted."""
        remote = self.client.remote
        raise RuntimeError(f"a bug in the router ended the session of {remote}") from bug

    async def _speak(self, stream: trio.abc.HalfCloseableStream, contact: Contact) -> None:
        link = await open_remote(self, stream, contact)
        self._join(link)
        await link.run()

    async def _meet(self, owner: Owner) -> None:
        link = LocalLink(self, owner)
        self._join(link)
        await link.run()

    def _join(self, link: Link) -> None:
        self._link = link
        self.flush()
        if self.is_finishing:
            link.finish()
