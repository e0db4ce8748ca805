"""The choice of messages of a queue: by headers, body, time and id."""

from collections.abc import Set
from typing import TYPE_CHECKING

from attrs import frozen

from trio_stomp.broker.delivery import MessageNames, WallTime

if TYPE_CHECKING:
    from trio_stomp.broker.queues import Message
    from trio_stomp.broker.selectors import Selector, SelectorCompiler

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

    def conditions(
        self, compiler: "SelectorCompiler", names: MessageNames, wall: WallTime
    ) -> "Conditions | None":
        """Return the conditions; None = there are none.

        Raises:
          ProtocolError: The selector is invalid.
        """
        if self == Choice(self.queue, limit=self.limit):
            return None
        return Conditions(
            self,
            numbers=frozenset([names.number_of(each.encode()) for each in self.ids]) - {0},
            selector=compiler.compile(self.selector) if self.selector else None,
            wall=wall,
        )


@frozen
class Conditions:
    """The conditions of a choice.

    Args:
      choice: The choice.
      numbers: The numbers of the messages with its ids.
      selector: Its selector.
      wall: Converts times.
    """

    choice: Choice
    numbers: Set[int]
    selector: "Selector | None"
    wall: WallTime

    def hold(self, message: "Message") -> bool:
        """Return whether a message is chosen."""
        choice, publication = self.choice, message.publication
        if choice.ids and message.number not in self.numbers:
            return False
        if choice.since_ms or choice.until_ms:
            at_ms = self.wall.ms(publication.received_at)
            if at_ms < choice.since_ms or 0 < choice.until_ms <= at_ms:
                return False
        if choice.origins and publication.head.get(ORIGIN) not in choice.origins:
            return False
        if self.selector is not None and not self.selector.matches(publication.head):
            return False
        return choice.body in message.body
