"""The port to the web floor."""

from collections.abc import Generator
from typing import Protocol

from trio_stomp.transport import HttpRequest


class Pages(Protocol):
    """The web floor, as the server sees it."""

    def is_private(self, request: HttpRequest) -> bool:
        """Return whether only clients that may monitor the broker may see the page."""

    def respond(self, request: HttpRequest) -> Generator[None, None, bytes]:
        """Make the whole answer, in steps of about 0.1 ms."""
