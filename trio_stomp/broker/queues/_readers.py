"""Quotas for pages that queues read back from the store.

A page is charged to a consumer of its queue whose quota has room. If none has, each user still
gets one page at a time, so that consumers that acknowledge make progress. All consumers without a
quota are one user, whose quota is the room for waiting messages.
"""

from collections.abc import Iterator
from itertools import islice

from attrs import define, field

from trio_stomp.base import MemoryBudget, Quota
from trio_stomp.broker.queues._message import MESSAGE_OVERHEAD_BYTES
from trio_stomp.broker.queues._queue import Queue
from trio_stomp.broker.queues._waiting import Paged

PAGE_BYTES = 256 * 1024
"""The approximate bytes of bodies in one page."""
MAX_READERS = 16
"""Consumers of a queue considered for the charge."""
MANY = 1024
"""Above this many users over quota, users that are within it again are removed."""


@define(eq=False, repr=False)
class PageRead:
    """A page of a queue's paged messages that is being read.

    Args:
      last: The id of the last paged message at the time of the request.
      reader: The quota charged for the page; None = no quota.
      reserved: The bytes of memory reserved for it.
    """

    queue: Queue
    level: int
    last: int
    reader: Quota | None = None
    reserved: int = 0


@define(eq=False, repr=False)
class Readers:
    """Decides which quota pays for a page, and which queues wait for room."""

    memory: MemoryBudget
    held: dict[Quota | None, dict[Queue, None]] = field(factory=dict)
    """Queues that wait until one of their readers has room."""
    _beyond: dict[Quota | None, Queue] = field(factory=dict)
    """The queue of the page that a user has over quota."""

    def let_in(self, request: PageRead, paged: Paged) -> bool:
        """Find a quota for a page and reserve memory. Return False if the page must wait."""
        queue = request.queue
        readers = list(dict.fromkeys(_readers(queue)))
        cost = min(PAGE_BYTES, paged.size + MESSAGE_OVERHEAD_BYTES * paged.count)
        if not readers:  # what it has is looked at again when it has none, or another arrives
            return not queue.waiting.count or cost <= self.memory.kept_room
        for quota in readers:
            if self._admits(quota, cost):
                if cost > self.memory.kept_room_for(quota):
                    self._note_beyond(quota, queue)
                request.reader, request.reserved = quota, cost
                self.memory.force_kept(cost, quota)
                return True
        for quota in readers:
            self.held.setdefault(quota, {})[queue] = None
        return False

    def payer(self, queue: Queue) -> Quota | None:
        """Return the quota charged for messages that consumers find in the store themselves."""
        return next(_readers(queue), None)

    def end(self, request: PageRead) -> None:
        """Release the memory reserved for a page, at the end of its read."""
        if request.reserved:
            self.memory.give_kept(request.reserved, request.reader)

    def go_on(self) -> None:
        """Let one queue of each user who has room again retry."""
        for quota, queues in list(self.held.items()):
            queue = next(iter(queues))
            if self._admits(quota, PAGE_BYTES):
                del queues[queue]
                if not queues:
                    del self.held[quota]
                queue.host.mark(queue)

    def _note_beyond(self, quota: Quota | None, queue: Queue) -> None:
        if len(self._beyond) >= MANY:
            self._beyond = {user: each for user, each in self._beyond.items() if _is_busy(each)}
        self._beyond[quota] = queue

    def _admits(self, quota: Quota | None, cost: int) -> bool:
        if cost <= self.memory.kept_room_for(quota):
            return True
        other = self._beyond.get(quota)
        return other is None or not _is_busy(other)


def _readers(queue: Queue) -> Iterator[Quota | None]:
    return (each.subscription.quota for each in islice(queue.consumers, MAX_READERS))


def _is_busy(queue: Queue) -> bool:
    """Return whether a queue has messages in memory or a page being read."""
    if queue.waiting.count or queue.unacked:
        return True
    return any(paged.is_loading for _, paged in queue.waiting.paged_levels())
