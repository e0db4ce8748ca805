"""Has a large COMMIT seen as a whole when the store has it, though that is done bit by bit."""

from typing import TYPE_CHECKING

from attrs import define

from trio_stomp.broker._turns import Stop

if TYPE_CHECKING:
    from collections.abc import Collection

    from trio_stomp.broker._lines import Lines
    from trio_stomp.broker._queue import Queue
    from trio_stomp.broker._queues import QueueBook
    from trio_stomp.broker._route import Route
    from trio_stomp.broker._subscription import Client
    from trio_stomp.broker._turns import Work


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
    topics: "Collection[Route]"
    is_over: bool = False

    def begin(self, now: float) -> None:
        """Nothing of it is seen from now on."""
        self.queues.freeze(self.frozen)
        for route in self.topics:
            current = self.lines.routes.known(route.name) or route
            self.lines.put(self.client, current, self._until_over, 0)

    def end(self, now: float) -> None:
        """All of it is there."""
        self.queues.thaw(self.frozen)
        self.is_over = True

    def _until_over(self) -> "Work":
        while not self.is_over:
            self.lines.turns.stop(Stop.BEHIND)
            yield
