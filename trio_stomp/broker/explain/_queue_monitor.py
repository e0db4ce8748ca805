"""stompserver's ``/queue/monitor``: figures of each queue, as text."""

from collections.abc import Callable, Sequence

from attrs import define

from trio_stomp.broker.delivery import Turns, Work
from trio_stomp.broker.names import MONITOR
from trio_stomp.broker.queues import Queue, queue_of
from trio_stomp.broker.routing import Destinations

STEP = 32
"""Destinations checked in one piece of work."""


@define(eq=False, repr=False)
class Monitor:
    """Publishes the figures of all queues in one text, which is composed in pieces.

    Figures of different queues may be from different moments.

    Args:
      destinations: All destinations.
      turns: Provides the time of the turn.
      publish: Sends a message of the broker to a topic.
    """

    destinations: Destinations
    turns: Turns
    publish: Callable[[str, bytes, Sequence[tuple[str, str]], float], object]
    is_busy: bool = False
    """A text is being composed."""

    def work(self) -> Work:
        """Compose the text, and publish it unless there are no queues."""
        self.is_busy = True
        try:
            blocks: list[str] = []
            for count, destination in enumerate(list(self.destinations), 1):
                queue = queue_of(destination)
                if queue is not None:
                    blocks.append(_block(queue))
                if count % STEP == 0:
                    yield
            if blocks:
                self.publish(MONITOR, "".join(blocks).encode(), (), self.turns.now)
        finally:
            self.is_busy = False


def _block(queue: Queue) -> str:
    """Return the figures of a queue in the format of stompserver's man page.

    ``size`` counts waiting messages, ``enqueued`` and ``dequeued`` all messages since the start.
    """
    return (
        f"Queue: {queue.name}\nsize: {queue.depth}\ndequeued: {queue.dequeued}\n"
        f"enqueued: {queue.enqueued}\n\n"
    )
