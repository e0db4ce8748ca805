"""Who is charged for what queues read back from the store, and which of them must wait for room.

A page is charged to one who consumes its queue, and has room for it in his share. Where nobody has,
one page of each user is read at a time all the same, so that everybody gets on who acknowledges.
"""

from collections.abc import Iterator
from itertools import islice

from attrs import define, field

from trio_stomp.base import MemoryBudget, Quota
from trio_stomp.broker.queues._message import LEVELS, MESSAGE_OVERHEAD_BYTES, Paged
from trio_stomp.broker.queues._queue import Queue

PAGE_BYTES = 256 * 1024
"""Of bodies; what is read at once, about."""
MOST_ASKED = 16
"""Consumers of a queue of whom one may be charged."""
MANY = 1024
"""Users beyond their share who are remembered before those are forgotten who are not any more."""


@define(eq=False, repr=False)
class PageRead:
    """Messages of a queue that are only in the store, and are about to be needed.

    Args:
      last: The last of them, as far as was known when they were wanted.
      reader: The quota charged for them in memory; None = nobody's.
      kept: Bytes of room that are reserved for them meanwhile.
    """

    queue: Queue
    level: int
    last: int
    reader: Quota | None = None
    kept: int = 0


@define(eq=False, repr=False)
class Readers:
    """The users who read back, and their queues that wait for room."""

    memory: MemoryBudget
    held: dict[Quota, dict[Queue, None]] = field(factory=dict)
    """Queues that go on when one of their readers has room."""
    _beyond: dict[Quota, Queue] = field(factory=dict)
    """Of which queue the page is that a user has beyond his share."""

    def let_in(self, wanted: PageRead, paged: Paged) -> bool:
        """Find who is charged for a page, and keep room for it. Return False if it must wait."""
        queue = wanted.queue
        readers = list(dict.fromkeys(_readers(queue)))
        if not readers or None in readers:
            return True
        cost = min(PAGE_BYTES, paged.size + MESSAGE_OVERHEAD_BYTES * paged.count)
        for quota in readers:
            if quota is not None and self._admits(quota, queue, cost):
                if cost > self.memory.kept_room_for(quota):
                    self._note_beyond(quota, queue)
                wanted.reader, wanted.kept = quota, cost
                self.memory.force_kept(cost, quota)
                return True
        for quota in readers:
            if quota is not None:  # pragma: no branch (else it was let in)
                self.held.setdefault(quota, {})[queue] = None
        return False

    def end(self, wanted: PageRead) -> None:
        """Give back the room of a page that was read, or could not be."""
        if wanted.kept:
            self.memory.give_kept(wanted.kept, wanted.reader)

    def go_on(self) -> None:
        """Let one queue of each user try again who has room by now."""
        for quota, queues in list(self.held.items()):
            queue = next(iter(queues))
            if self._admits(quota, queue, PAGE_BYTES):
                del queues[queue]
                if not queues:
                    del self.held[quota]
                queue.host.mark(queue)

    def _note_beyond(self, quota: Quota, queue: Queue) -> None:
        if len(self._beyond) >= MANY:
            self._beyond = {who: each for who, each in self._beyond.items() if _is_busy(each)}
        self._beyond[quota] = queue

    def _admits(self, quota: Quota, queue: Queue, cost: int) -> bool:
        if cost <= self.memory.kept_room_for(quota):
            return True
        other = self._beyond.get(quota)
        return other is None or not _is_busy(other)


def _readers(queue: Queue) -> Iterator[Quota | None]:
    return (each.subscription.quota for each in islice(queue.consumers, MOST_ASKED))


def _is_busy(queue: Queue) -> bool:
    """Return whether anything of a queue is in memory, or on its way there."""
    if queue.waiting.count or queue.unacked:
        return True
    return any(
        paged is not None and paged.is_loading for paged in map(queue.waiting.paging, range(LEVELS))
    )
