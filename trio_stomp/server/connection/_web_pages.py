"""The port to the web floor."""

from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import TYPE_CHECKING, Protocol

from trio_stomp.transport import HttpRequest

if TYPE_CHECKING:
    from trio_stomp.base import Identity
    from trio_stomp.broker import Action

API = "/api/v1/"
"""Where the addresses of the management interface begin. Its errors are JSON, with a code."""
Send = Callable[[bytes], Awaitable[None]]
"""Sends bytes of the answer to the client."""


class WebOperation(Protocol):
    """A request that changes the broker, or takes many turns."""

    @property
    def rights(self) -> "Sequence[tuple[Action, str]]":
        """Return the rights that it requires: actions and destinations."""

    async def run(self, identity: "Identity", send: Send) -> None:
        """Do it for a user, and send the whole answer.

        Checkpoint: always. Cancel: it ends where it is, as the client has gone.

        Raises:
          HttpError: it cannot begin; nothing was changed or sent.
        """


class Pages(Protocol):
    """The web floor, as the server sees it."""

    def is_private(self, request: HttpRequest) -> bool:
        """Return whether only clients that may monitor the broker may see the page."""

    def operation(self, request: HttpRequest) -> WebOperation | None:
        """Return the operation that is requested; None = the request is for a page.

        Raises:
          HttpError: its parameters are wrong.
        """

    def respond(self, request: HttpRequest) -> Generator[None, None, bytes]:
        """Make the whole answer, in steps of about 0.1 ms."""
