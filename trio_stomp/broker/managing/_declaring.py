"""Queues that stay without messages and consumers, until an operator deletes them."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.base import ProtocolError
from trio_stomp.broker.managing._operation import Operation
from trio_stomp.broker.managing._task import InSteps, Step, Steps
from trio_stomp.broker.names import MONITOR, PRIVATE_QUEUE, Kind, classify
from trio_stomp.broker.queues import Queue, QueueBook

if TYPE_CHECKING:
    from trio_stomp.base import Quota
    from trio_stomp.broker.delivery import Client
    from trio_stomp.broker.durability import Log

DECLARED = "declared:"
"""Prefix of the settings in the store that name such queues."""

Purge = Callable[[str], Operation]


def declaring(
    queues: QueueBook, log: "Log | None", names: Sequence[str], quota: "Quota | None"
) -> Iterator[int]:
    """Create queues that stay, and yield after each how many were not there.

    Args:
      queues: The queues of the broker.
      log: The log, if there is a store.
      names: The names of the queues.
      quota: The quota charged for their names.

    Raises:
      ProtocolError: There are too many destinations.
    """
    done = 0
    for name in names:
        queue = queues.open(name, quota)
        if not queue.is_declared:
            queue.is_declared = True
            if log is not None:
                log.keep(DECLARED + name, "{}")
            done += 1
        yield done


def check_declarable(name: str) -> None:
    """Check the name of a queue that is to stay.

    Raises:
      ProtocolError: It is not that of a queue, or of one that the broker makes.
    """
    if classify(name) is not Kind.QUEUE or name.startswith(PRIVATE_QUEUE) or name == MONITOR:
        raise ProtocolError(
            "invalid-destination", f"{name[:80]} is no queue; its name begins with /queue/"
        )


def restore(queues: QueueBook, key: str) -> None:
    """Restore a queue that a setting in the store names."""
    queues.open(key.removeprefix(DECLARED)).is_declared = True


@define(eq=False, repr=False)
class Deletion(InSteps):
    """A queue that is being deleted. It counts the waiting messages that are purged.

    Args:
      queues: The queues of the broker.
      queue: The queue.
      purge: Begins to remove the messages of a queue; None = the queue must have none.
      close: Closes the connection of a client.

    Raises:
      ProtocolError: It has messages or consumers that must not be lost.
    """

    queues: QueueBook
    queue: Queue
    purge: Purge | None
    close: "Callable[[Client], None]"
    held: int = field(init=False, default=0)
    """The number of messages that consumers held when it was deleted."""

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.check()
        self.total = self.queue.message_count

    def check(self) -> None:
        """Check that the queue may be deleted.

        Raises:
          ProtocolError: It has messages or consumers that must not be lost.
        """
        if self.purge is not None:
            return
        name = self.queue.name[:80]
        if self.queue.message_count:
            raise ProtocolError(
                "queue-not-empty",
                f"{name} has {self.queue.message_count} messages; purge it, or give force=1",
            )
        if self._consumers():
            raise ProtocolError(
                "queue-in-use",
                f"{name} has {len(self.queue.consumers)} consumers; force=1 closes them",
            )

    def work(self) -> Steps:
        """Implement ``InSteps.work``.

        A queue is deleted in one turn, with delayed messages, when nothing else waits in it.
        Unacknowledged messages end when they are acknowledged or returned.
        """
        queue, purged = self.queue, 0
        while True:
            if self.purge is not None and queue.depth > queue.delayed:
                purging = self.purge(queue.name)
                for step in self.within(purging):
                    self.seen = purged + purging.done
                    yield step
                purged += purging.done
            elif queue.arriving:
                yield Step.LATER  # they are on their way to the store
            else:
                break
        self.check()
        self.seen, self.held, self.done = purged + queue.depth, queue.unacked, 1
        for client in self._consumers():
            self.close(client)
        queue.is_declared = queue.is_paused = False
        self.queues.end(queue.name, self.turns.now)
        if self.log is not None:
            self.log.forget(DECLARED + queue.name)

    def _consumers(self) -> "list[Client]":
        """Return the clients that consume from it by its name. Wildcards go on without it."""
        found: dict[Client, None] = {}
        for consumer in self.queue.consumers:
            if (self.queue.name, None) in consumer.subscription.targets:
                found[consumer.subscription.client] = None
        return list(found)
