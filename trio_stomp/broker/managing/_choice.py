"""The choice of messages of a queue: by headers, body, time and id."""

from collections.abc import Set
from math import inf
from typing import TYPE_CHECKING

from attrs import frozen

from trio_stomp.broker.delivery import MessageNames, WallTime

if TYPE_CHECKING:
    from collections.abc import Callable

    from trio_stomp.broker.queues import Message
    from trio_stomp.broker.selectors import SelectorCompiler

ALL = 2**63
ORIGIN = "original-destination"
"""The header of a dead letter with the destination of its SEND, which only the broker writes."""


@frozen
class Choice:
    """Waiting messages of a queue: those that match each given condition.

    Args:
      queue: The name of the queue.
      selector: Chooses messages by their headers; "" = all.
      limit: The most messages to choose.
      body: A part of the body; b"" = any.
      since_ms: The earliest time of arrival, in ms since 1970.
      until_ms: The time before which they arrived; 0 = any.
      ids: The ids of messages; empty = any.
      origins: The original destinations of dead letters; empty = any.
    """

    queue: str
    selector: str = ""
    limit: int = ALL
    body: bytes = b""
    since_ms: int = 0
    until_ms: int = 0
    ids: Set[str] = frozenset()
    origins: Set[str] = frozenset()

    @property
    def most(self) -> int:
        """Return the most messages that there can be."""
        return min(self.limit, len(self.ids)) if self.ids else self.limit

    def condition(
        self, compiler: "SelectorCompiler", names: MessageNames, wall: WallTime
    ) -> "Callable[[Message], bool] | None":
        """Return a function that returns whether a message is chosen; None = all are.

        Raises:
          ProtocolError: The selector is invalid.
        """
        if self == Choice(self.queue, limit=self.limit):
            return None
        numbers = {names.number_of(each.encode()) for each in self.ids} - {0}
        selector = compiler.compile(self.selector) if self.selector else None
        until_ms = self.until_ms or inf

        def is_chosen(message: "Message") -> bool:
            publication = message.publication
            if self.ids and message.number not in numbers:
                return False
            at_ms = wall.ms(publication.received_at)
            if not self.since_ms <= at_ms < until_ms:
                return False
            if self.origins and publication.head.get(ORIGIN) not in self.origins:
                return False
            if selector is not None and not selector.matches(publication.head):
                return False
            return self.body in message.body

        return is_chosen
