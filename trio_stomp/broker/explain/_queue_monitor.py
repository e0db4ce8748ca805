"""stompserver's ``/queue/monitor``: a few figures of each queue, as text (SEEDS B8)."""

from collections.abc import Callable, Sequence

from attrs import define

from trio_stomp.broker.delivery import Turns, Work
from trio_stomp.broker.names import MONITOR
from trio_stomp.broker.queues import Queue, queue_of
from trio_stomp.broker.routing import Destinations

STEP = 32
"""Destinations that are looked at in one piece of work."""


@define(eq=False, repr=False)
class Monitor:
    """Tells of all queues at once, in a text that is made bit by bit.

    A queue's figures are of one moment, those of the next may be some moments later.

    Args:
      publish: Sends a message of the broker's own to a topic.
    """

    destinations: Destinations
    turns: Turns
    publish: Callable[[str, bytes, Sequence[tuple[str, str]], float], None]
    is_busy: bool = False
    """Whether a text is being made; to begin another is no use."""

    def work(self) -> Work:
        """Make the text, and publish it, unless there is no queue."""
        self.is_busy = True
        try:
            blocks: list[str] = []
            for place, destination in enumerate(list(self.destinations), 1):
                queue = queue_of(destination)
                if queue is not None:
                    blocks.append(_block(queue))
                if place % STEP == 0:
                    yield
            if blocks:
                self.publish(MONITOR, "".join(blocks).encode(), (), self.turns.now)
        finally:
            self.is_busy = False


def _block(queue: Queue) -> str:
    """Return a queue in the form of stompserver's man page.

    ``size`` counts the messages that wait, ``enqueued`` and ``dequeued`` all since the start.
    """
    return (
        f"Queue: {queue.name}\nsize: {queue.depth}\ndequeued: {queue.dequeued}\n"
        f"enqueued: {queue.enqueued}\n\n"
    )
