"""The interfaces between a client's session at an owner and its link to this owner."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from trio_stomp.broker import Client, Outbox
from trio_stomp.cluster.routing._frames import Piece
from trio_stomp.protocol import Event, Opened

BEAT_S = 5.0
"""Owners of other processes and their peers send something at least this often."""
SILENT_S = 3 * BEAT_S
"""The silence after which an owner's connection counts as lost."""


def heart_beat(*, sends: bool) -> str:
    """Return the header ``heart-beat`` for an owner: it sends, and, if asked, expects them."""
    every_ms = round(1000 * BEAT_S)
    return f"{every_ms if sends else 0},{every_ms}"


T = TypeVar("T")


class Turns(Protocol):
    """The dispatcher, in whose turns the state of clients changes."""

    def call_now(self, action: Callable[[], T]) -> T:
        """Call what changes nothing but the output of clients, send that, and return the result."""

    def call_soon(self, call: Callable[[float], None]) -> None:
        """Call a function in the next turn."""


class Link(Protocol):
    """The way to an owner, once it is known who that is. For turns of the dispatcher."""

    def send(self, events: Sequence[Event], size: int) -> None:
        """Send events, and release their bytes when the owner has accepted them."""

    def finish(self) -> None:
        """End once everything is sent: the session ``is_finishing``."""

    def make_room(self) -> None:
        """Go on with deliveries, since the client has room."""


class Sender(Protocol):
    """A client's session at an owner, as its link sees it: ``Upstream``."""

    client: Client
    outbox: Outbox
    opened: Opened
    turns: Turns
    is_noted: bool
    is_over: bool
    is_full: bool
    is_finishing: bool

    def charge(self, size: int) -> None:
        """Charge bytes of output."""

    def release(self, size: int) -> None:
        """Release the charge of output that the owner has accepted."""

    def tell_drained(self) -> None:
        """Tell the router, in its turn, if most of the output is accepted."""

    def receive(self, pieces: Sequence[Piece]) -> bool:
        """Take frames of the owner, and return whether the client has room for more."""

    def note(self, message: bytes) -> None:
        """See a MESSAGE of the owner in this process, in its turn."""

    def hold(self, *, held: bool) -> None:
        """Read no more from the client, or go on, in the owner's turn."""

    def cancel(self) -> None:
        """End the session at once."""
