"""Makes a large stored COMMIT visible as a whole, though it is carried out in pieces."""

from typing import TYPE_CHECKING

from attrs import define

from trio_stomp.broker.delivery import Stop

if TYPE_CHECKING:
    from collections.abc import Collection

    from trio_stomp.broker.delivery import Client, Destination, Work
    from trio_stomp.broker.queues import Queue, QueueBook
    from trio_stomp.broker.routing import Lines


@define(eq=False, repr=False)
class Revealing:
    """Hides the effects of a stored COMMIT until all of them have been carried out.

    Its queues are frozen until the last message is in them. Its topics have lines, in which its
    messages wait without any others in between.
    """

    queues: "QueueBook"
    lines: "Lines"
    client: "Client"
    frozen: "Collection[Queue]"
    topics: "Collection[Destination]"
    is_over: bool = False

    def begin(self, _now: float) -> None:
        """Freeze the queues, and open lines in front of the topics."""
        self.queues.freeze(self.frozen)
        for destination in self.topics:
            current = self.lines.destinations.find(destination.name) or destination
            self.lines.put(self.client, current, self._until_over, 0)

    def end(self, _now: float) -> None:
        """Thaw the queues and release the lines."""
        self.queues.thaw(self.frozen)
        self.is_over = True

    def _until_over(self) -> "Work":
        while not self.is_over:
            self.lines.turns.stop(Stop.BEHIND)
            yield
