"""Windows: pages of stored messages that consumers examine where they are.

A queue loads its first messages only. Consumers that have examined these without a match examine
the others page by page, and those that they get leave the store's part of the queue out of order.
"""

from collections import OrderedDict
from collections.abc import Generator, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.broker.delivery import NEVER, Work
from trio_stomp.broker.queues._message import MESSAGE_OVERHEAD_BYTES, Message, force, refund
from trio_stomp.broker.queues._queue import LOW_COUNT, SWEEP_S, Queue
from trio_stomp.broker.queues._scan_positions import Taken, Window
from trio_stomp.broker.queues._waiting import LEVELS, Paged

if TYPE_CHECKING:
    from trio_stomp.broker.queues._consumer import Consumer
    from trio_stomp.broker.queues._storage import Storage
    from trio_stomp.store import Page, Stored

MAX_WINDOWS, WINDOW_BYTES = 16, 64 * 1024
"""Limit of windows at the same time, and the approximate size of one."""
SWEPT_S = 0.02
"""Pause between two pages of a sweep, which take a millisecond each: 1,000,000 small messages are
looked at in about 20 s."""
MAX_SHOWN = 8
"""Limit of queues of a consumer that ``searches`` looks at."""


@define(eq=False, repr=False)
class Windows:
    """The windows of all queues.

    Args:
      storage: Reads and makes messages.
    """

    storage: "Storage"
    swept: "StoredSweep | None" = None
    """The sweep of one queue at a time: it has a page in memory."""
    _count: int = 0
    """Windows, including those that are being read."""
    _held: OrderedDict[Queue, None] = field(factory=OrderedDict)
    """Queues that wait until another window ends."""

    def look_ahead(self, queue: Queue) -> None:
        """Start reading messages that will be needed soon.

        The first messages are loaded. Consumers that have examined these without a match examine
        others where they are, as far as they need to: memory would not hold all.
        """
        level = queue.waiting.wanted(LOW_COUNT)
        if level >= 0 and self.storage.page_in(queue, level):
            return
        if queue.sought is None or queue.window is not None:
            return
        level, after = queue.sought
        paged = queue.waiting.paging(level)
        if paged is None or paged.is_loading:
            return
        is_front = after <= paged.after and queue.waiting.has_few(level, LOW_COUNT)
        if not (is_front and self.storage.page_in(queue, level)):
            self._search(queue, level, after, paged.last)

    def _search(self, queue: Queue, level: int, after: int, last: int) -> None:
        """Request a page that consumers examine. If there are many already, do so later."""
        if self._count >= MAX_WINDOWS:
            self._held[queue] = None
            return
        self._count += 1
        # Its messages are made one after the other, perhaps in later turns.
        window = queue.window = Window(level, after, self.storage.begin(queue))
        self.storage.read(
            queue, level, after, partial(self._found, queue, window, last), WINDOW_BYTES
        )

    def _found(
        self, queue: Queue, window: Window, last: int, page: "Page | None", _now: float
    ) -> None:
        """Show a page to consumers, unless the queue loads or removes these messages meanwhile."""
        if queue.window is not window:
            return
        queue.host.mark(queue)
        if page is None:
            self.end(queue)
            return
        self.storage.note_lost(queue, window.level, page.lost)
        window.upto = last if page.is_last else min(page.next, last)
        runs = page.runs
        window.charged = sum(
            sum(map(len, run.bodies)) + len(run.ids) * MESSAGE_OVERHEAD_BYTES for run in runs
        )
        self.storage.memory.force_kept(window.charged)
        level = window.level  # the generator must not refer to its window: a cycle is never freed
        window.runs = (self._examined(queue, run, level, last) for run in runs)

    def end(self, queue: Queue) -> None:
        """Free the page that consumers examine, if any. It can be read again."""
        window, queue.window = queue.window, None
        if window is not None:
            self._count -= 1
            self.storage.end(queue, window.known)
            self.storage.memory.give_kept(window.charged)
            for _ in range(min(len(self._held), MAX_WINDOWS - self._count)):
                held, _ = self._held.popitem(last=False)
                held.host.mark(held)

    def take(self, queue: Queue, message: Message) -> None:
        """Take a message of such a page from among those left in the store."""
        paged, origin = queue.waiting.paging(message.level), message.publication
        size = len(message.body)
        assert paged is not None
        assert origin.stake is not None
        force(self.storage.memory, origin.head, 1, size, origin.quota)
        paged.uncharge(self.storage.memory, origin.stake.quota, size + origin.stake.each)
        queue.waiting.remove_paged(message.level, 1, size)
        self.storage.log.deliveries.pop(message.stored, None)
        queue.taken = queue.taken or Taken()
        queue.taken.ids.add(message.stored)

    def remove(self, queue: Queue, level: int, messages: list[Message]) -> None:
        """Remove messages that were read from the store and not loaded.

        The queue must not be loading those of the level.
        """
        memory, paged = self.storage.memory, queue.waiting.paging(level)
        assert paged is not None
        queue.host.finish([message.stored for message in messages])
        for message in messages:
            stake, size = message.publication.stake, len(message.body)
            assert stake is not None
            paged.uncharge(memory, stake.quota, size + stake.each)
            memory.give_stored(size + stake.each, stake.quota)
        size = sum(len(message.body) for message in messages)
        queue.size -= size
        queue.waiting.remove_paged(level, len(messages), size)
        if paged.count <= 0:
            queue.forget_paged(level)
        queue.host.note_idle(queue)

    def page_back(self, queue: Queue, message: Message) -> bool:
        """Return a message to those left in the store, if it is such. Return whether it is."""
        paged, taken = queue.waiting.paging(message.level), queue.taken
        origin = message.publication
        if paged is None or taken is None or message.number not in taken.ids:
            return False
        if message.number <= paged.after:
            return False
        size = len(message.body)
        assert origin.stake is not None
        refund(self.storage.memory, origin.head, 1, size, origin.quota)
        paged.charge(origin.stake.quota, size + origin.stake.each)
        queue.waiting.remove_paged(message.level, -1, -size)
        paged.expires_at = min(paged.expires_at, origin.ends_at)
        self.storage.log.deliveries[message.stored] = message.deliveries
        taken.ids.discard(message.stored)
        if queue.window is not None and queue.window.upto:
            self.end(queue)  # it was made without this message
        return True

    def watch_expired(self, queue: Queue, now: float) -> None:
        """Load messages that may have expired in the store, or sweep when the first of them does.

        Consumers may load none, or look for other ones.
        """
        for level, paged in queue.waiting.paged_levels():
            if not paged.is_due(now, queue.host.timers.wall.offset_s):
                queue.sweep_later(paged.expires_at, paged.day_s)
            elif self._is_held:
                queue.sweep_later(now + SWEEP_S, NEVER)
            elif not self._loads(queue, level):
                queue.sweep_later(now, NEVER)  # memory first, to keep the order

    def sweep(self, queue: Queue, now: float) -> None:
        """Look for messages that have expired in the store behind others that stay in memory."""
        for level, paged in queue.waiting.paged_levels():
            is_due = paged.is_due(now, queue.host.timers.wall.offset_s)
            if is_due and not self._is_held and not self._loads(queue, level):
                paged.expires_at = paged.day_s = NEVER  # messages that enter now may lower them
                self.swept = StoredSweep(
                    self, queue, level, paged=paged, after=paged.after, last=paged.last
                )
                self.swept.look(now)

    def _loads(self, queue: Queue, level: int) -> bool:
        """Return whether the queue loads the next messages of a level, as few are in memory."""
        return queue.waiting.has_few(level, LOW_COUNT) and self.storage.page_in(queue, level)

    @property
    def _is_held(self) -> bool:
        """Return whether no sweep may begin: another one has a page, or dead letters no room."""
        return self.swept is not None or self.storage.memory.is_short

    def note_end(self, queue: Queue, messages: list[Message]) -> None:
        """Note that messages ended, some of which may be such."""
        assert queue.taken is not None
        for message in messages:
            queue.taken.end(message.number, self.storage.log.turn + 1)

    def _examined(self, queue: Queue, run: "Stored", level: int, last: int) -> list[Message]:
        """Return the messages of a run that consumers examine. A reader pays for what they get."""
        origin = self.storage.origin(queue, run)
        if origin is None:
            return []
        origin.quota = self.storage.readers.payer(queue)
        return self.storage.made(queue, origin, run, level, last)


@define(eq=False, repr=False)
class StoredSweep:
    """Looks through the stored messages of a queue's level for expired ones, page by page.

    Args:
      after: The id of the last message that was looked at.
      last: The id of the last message to look at.
    """

    windows: Windows
    queue: Queue
    level: int
    paged: Paged
    after: int
    last: int
    _soonest: float = NEVER
    _soonest_day_s: float = NEVER

    def look(self, now: float) -> None:
        """Request the next page."""
        if self._is_over:
            self.windows.swept = None
        elif self.paged.is_loading:  # or an operator removes messages: both have read them
            self.queue.host.timers.call_at(now + SWEEP_S, self.look)
        else:
            storage = self.windows.storage
            storage.look(self.queue, self.level, self.after, self.last, self._shown)

    @property
    def _is_over(self) -> bool:
        """Return whether the messages have been loaded, or have ended with their queue."""
        return self.queue.waiting.paging(self.level) is not self.paged

    def _shown(self, messages: list[Message], upto: int, now: float) -> None:
        self.queue.host.carry_out(self._dealing(messages, upto, now))

    def _dealing(self, messages: list[Message], upto: int, now: float) -> Work:
        """Remove what has expired of a page, and go on with the next one."""
        queue, paged, is_cut = self.queue, self.paged, True
        try:
            is_cut = yield from self._losing(messages, now)
        finally:  # after a bug, too
            self.after = self.after if is_cut else upto
            if self._is_over or self.after >= self.last:
                self.windows.swept = None
            else:
                queue.host.timers.call_at(now + SWEPT_S, self.look)
        if not self._is_over and self.after >= self.last:
            paged.expires_at = min(paged.expires_at, self._soonest)
            paged.day_s = min(paged.day_s, self._soonest_day_s)
            if paged.count <= 0:
                queue.forget_paged(self.level)
            at, offset_s = now + SWEEP_S, queue.host.timers.wall.offset_s
            queue.sweep_later(max(paged.expires_at, at), max(paged.day_s, at + offset_s))

    def _losing(self, messages: list[Message], now: float) -> Generator[None, None, bool]:
        """Remove expired messages. Return whether others than consumers have read the rest."""
        queue, paged = self.queue, self.paged
        for message in messages:
            if self._is_over or (paged.is_loading and message.number > paged.after):
                return True
            self.after, origin = message.number, message.publication
            is_there = message.number > paged.after
            is_there &= queue.taken is None or message.number not in queue.taken.ids
            if is_there and origin.is_over(now):
                if queue.window is not None:
                    self.windows.end(queue)  # it was made with this message
                self.windows.take(queue, message)
                queue.expire(message, now)
                yield
            elif origin.end is not None:
                self._soonest_day_s = min(self._soonest_day_s, origin.end.day_ms / 1000)
            else:
                self._soonest = min(self._soonest, origin.expires_at)
        return False


def searches(consumer: "Consumer") -> Iterator[tuple[str, int]]:
    """Yield the queues that a ready consumer still looks through, for ``explain``.

    Each comes with the number of the message up to which it has examined all of one priority.
    """
    for queue in islice(consumer.queues, MAX_SHOWN if consumer.is_ready else 0):
        if not isinstance(queue, Queue) or not (queue.is_marked or queue.window is not None):
            continue
        level, passed = LEVELS, queue.passed
        while passed is not None and (level := queue.waiting.level_beneath(level)) >= 0:
            at, paged = passed.of(level, consumer), queue.waiting.paging(level)
            if (paged is not None and at < paged.last) or queue.waiting.behind(level, at, 1):
                yield queue.name, at
                break
