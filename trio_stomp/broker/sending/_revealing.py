"""Has a large COMMIT seen as a whole when the store has it, though that is done bit by bit."""

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
    """Stands around all that is to be done of a COMMIT when the store has answered.

    Its queues hand out nothing before the last is there. In front of its topics stands a line: what
    it sends them is seen, and nothing of others between, when the last has come to stand in it.
    """

    queues: "QueueBook"
    lines: "Lines"
    client: "Client"
    frozen: "Collection[Queue]"
    topics: "Collection[Destination]"
    is_over: bool = False

    def begin(self, _now: float) -> None:
        """Nothing of it is seen from now on."""
        self.queues.freeze(self.frozen)
        for destination in self.topics:
            current = self.lines.destinations.find(destination.name) or destination
            self.lines.put(self.client, current, self._until_over, 0)

    def end(self, _now: float) -> None:
        """All of it is there."""
        self.queues.thaw(self.frozen)
        self.is_over = True

    def _until_over(self) -> "Work":
        while not self.is_over:
            self.lines.turns.stop(Stop.BEHIND)
            yield
