"""The interface to the web floor."""

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Protocol

from trio_stomp.base import ANONYMOUS, Identity
from trio_stomp.transport import HttpRequest

if TYPE_CHECKING:
    from trio_stomp.broker import Action

API = "/api/v1/"
"""Path prefix of the management interface, whose errors are JSON with a code."""
ANSWER_BYTES = 4 * 1024 * 1024
"""The most bytes of an answer."""


class Send(Protocol):
    """Sends an answer to the client."""

    async def __call__(self, data: bytes) -> None:
        """Send bytes of the answer."""

    def hold(self, size: int) -> None:
        """Charge bytes that the answer is made of to its user, until the operation ends.

        Args:
          size: Their number; negative = they are not needed any more.

        Raises:
          HttpError: There is no room.
        """


class WebOperation(Protocol):
    """A request that changes the broker, or takes many turns."""

    @property
    def rights(self) -> "Sequence[tuple[Action, str]]":
        """Return the rights that it requires: actions and destinations."""

    @property
    def max_body_bytes(self) -> int:
        """Return the largest body of the request; 0 = it has none."""

    async def run(self, identity: Identity, send: Send, body: bytes) -> None:
        """Carry it out for a user, and send the whole answer.

        Checkpoint: always. Cancel: it ends at its current step, because the client has gone.

        Raises:
          HttpError: it cannot begin; nothing has been changed or sent.
        """


class Pages(Protocol):
    """The web floor's interface for the server."""

    def rights(self, request: HttpRequest) -> "Sequence[tuple[Action, str]] | None":
        """Return the rights that the page requires; None = it is public."""

    def operation(self, request: HttpRequest) -> WebOperation | None:
        """Return the requested operation, or None if the request is for a page.

        Raises:
          HttpError: its parameters are wrong.
        """

    def respond(
        self, request: HttpRequest, identity: Identity = ANONYMOUS
    ) -> Generator[None, None, bytes]:
        """Build the whole answer for a user, in steps of about 0.1 ms."""
