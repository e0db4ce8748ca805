"""Queues that stay without messages and consumers, until an operator deletes them."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from attrs import define

from trio_stomp.base import ProtocolError, noop
from trio_stomp.broker.durability import Callback, Log
from trio_stomp.broker.managing._operation import Operation, Step
from trio_stomp.broker.names import MONITOR, PRIVATE_QUEUE, Kind, classify
from trio_stomp.broker.queues import Queue, QueueBook

if TYPE_CHECKING:
    from trio_stomp.base import Quota
    from trio_stomp.broker.delivery import Client

DECLARED = "declared:"
"""Prefix of the settings in the store that name such queues."""

Purge = Callable[[str], Operation]


def declare(queues: QueueBook, log: Log | None, name: str, quota: "Quota | None") -> Iterator[int]:
    """Create a queue that stays, and yield 1 unless there was one.

    Args:
      queues: The queues of the broker.
      log: The log, if there is a store.
      name: The name of the queue.
      quota: The quota charged for its name.

    Raises:
      ProtocolError: There are too many destinations.
    """
    queue = queues.open(name, quota)
    if not queue.is_declared:
        queue.is_declared = True
        if log is not None:
            log.keep(DECLARED + name, "{}")
        yield 1


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
class Deletion:
    """A queue that is being deleted. Implements ``InSteps``.

    Args:
      queues: The queues of the broker.
      log: The log, if there is a store.
      queue: The queue.
      purge: Begins to remove the messages of a queue; None = the queue must have none.
      close: Closes the connection of a client.
    """

    queues: QueueBook
    log: Log | None
    queue: Queue
    purge: Purge | None
    close: "Callable[[Client], None]"
    done: int = 0
    """1 = it is deleted."""
    purged: int = 0
    """The number of waiting messages removed."""
    held: int = 0
    """The number of messages that consumers held when it was deleted."""
    problem: ProtocolError | None = None
    woken: Callable[[], None] = noop
    _purging: Operation | None = None
    _is_stored: bool = False

    def __attrs_post_init__(self) -> None:
        self.check()

    @property
    def total(self) -> int:
        """Return how many messages were purged or are still there."""
        return self.seen + self.queue.message_count

    @property
    def seen(self) -> int:
        """Return the number of messages purged."""
        return self.purged + (self._purging.done if self._purging is not None else 0)

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

    def step(self, now: float) -> Step:
        """Implement ``InSteps.step``."""
        if self._is_stored or self.done:
            return Step.DONE if self._is_stored or self.log is None else Step.WAIT
        queue = self.queue
        if self._purging is None and self.purge is not None and queue.depth > queue.delayed:
            self._purging = self.purge(queue.name)
        if self._purging is not None:
            self._purging.woken = self.woken
            step = self._purging.step(now)
            if step is Step.DONE:
                self.purged += self._purging.done
                self._purging = None
                return Step.MORE
            return step
        if queue.arriving:
            return Step.LATER  # they are on their way to the store
        return self._end(now)

    def end(self, now: float = 0.0) -> None:
        """Implement ``InSteps.end``. A queue that is not deleted yet stays, with what is left."""
        if self._purging is not None:
            self._purging.end(now)

    def _end(self, now: float) -> Step:
        """Delete the queue in this turn, with delayed messages.

        Unacknowledged ones end when they are acknowledged or returned.
        """
        try:
            self.check()
        except ProtocolError as error:
            self.problem = error.without_traceback()
            return Step.DONE
        name = self.queue.name
        self.purged += self.queue.depth
        self.held = self.queue.unacked
        for client in self._consumers():
            self.close(client)
        self.queue.is_declared = self.queue.is_paused = False
        self.queues.end(name, now)
        self.done = 1
        if self.log is None:
            return Step.DONE
        self.log.forget(DECLARED + name)
        self.log.when_safe(Callback(None, self._go_on))
        return Step.WAIT

    def _consumers(self) -> "list[Client]":
        """Return the clients that consume from it by its name. Wildcards go on without it."""
        found: dict[Client, None] = {}
        for consumer in self.queue.consumers:
            if (self.queue.name, None) in consumer.subscription.targets:
                found[consumer.subscription.client] = None
        return list(found)

    def _go_on(self, _now: float) -> None:
        self._is_stored = True
        self.woken()
