"""A walk: a position in one queue, from its first message to the last one of its beginning."""

from collections import deque
from functools import partial
from itertools import islice
from sys import maxsize
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.broker.queues import LEVELS, Message, Queue, cost_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from trio_stomp.broker.queues import Paged, Storage

PIECE = 64
"""Messages looked up in one step."""


@define(eq=False, repr=False)
class Walk:
    """A position in a queue that is walked through in order, each message at most once.

    It covers the messages that were in the queue at its beginning. Messages consumed meanwhile are
    skipped. So it needs no memory except for a page of the store.

    Args:
      queue: The queue.
      newest: The number of the last accepted message at the beginning.
      newest_stored: The last id in the store at the beginning.
      storage: Reads paged messages, if there is a store.
      claims: Keep the queue from loading paged messages while this walk has a page of them, so that
        they can be removed.
    """

    queue: Queue
    newest: int
    newest_stored: int
    storage: "Storage | None"
    claims: bool = False
    level: int = LEVELS
    """The priority of the messages that come next, or -1 at the end."""
    claimed: "Paged | None" = None
    """The paged messages that the queue does not load now."""
    _behind: int = 0
    """The number, or in the store the id, of the last message passed on this level."""
    _last: int = 0
    """The last id to read from the store on this level; 0 = still in memory."""
    _page: deque[Message] = field(factory=deque)
    _numbers: frozenset[int] = frozenset()
    """The numbers of the page's messages, also of those passed."""
    _page_end: int = 0
    """The last id that the page covers; 0 = no page."""
    _charged: int = 0
    _is_over: bool = False

    def __attrs_post_init__(self) -> None:
        self._descend()

    @property
    def is_done(self) -> bool:
        """Return whether all messages have been passed."""
        return self.level < 0

    @property
    def is_in_store(self) -> bool:
        """Return whether the next messages are read from the store."""
        return self._last > 0

    @property
    def has_page(self) -> bool:
        """Return whether it has a page of the store in memory."""
        return self._page_end > 0

    def following(self, most: int = PIECE) -> list[Message] | None:
        """Return up to ``most`` of the next messages, or None if it needs a page of the store.

        Returns [] after a move, and while the queue is loading the messages that come next.
        """
        if self.has_page:
            found = self._with_page(most)
            if not found:
                self._behind, self._last = self._page_end, 0
                self.forget_page()
            return found
        if self._last:
            return None
        found = self._in_memory(most)
        if not found:
            self._leave_memory()
        return found

    def _in_memory(self, most: int) -> list[Message]:
        """Return the next messages in memory, up to the store's part of the level."""
        paged, reach = self.queue.waiting.paging(self.level), maxsize
        if self._page_end:
            reach = self._page_end
        elif paged is not None and self._behind < self._last_of(paged):
            reach = paged.after
        found = self.queue.waiting.behind(self.level, self._behind, most)
        # A message paged in since the beginning may have a newer number: compare its id, too.
        return [each for each in found if each.number <= reach and self._was_there(each)]

    def _with_page(self, most: int) -> list[Message]:
        """Return the next messages of the page, and of those in memory between them."""
        page = self._page
        while page and page[0].number <= self._behind:
            page.popleft()
        found = {message.number: message for message in islice(page, most)}
        # Some came while earlier ones were on their way to the store. Others were loaded meanwhile.
        found |= {message.number: message for message in self._in_memory(most)}
        return [found[number] for number in sorted(found)[:most]]

    def move_past(self, message: Message) -> None:
        """Continue after ``message``, one of ``following``."""
        self._behind = message.number

    def remove(self, messages: list[Message]) -> None:
        """Remove messages of ``following``, at least one, from the queue."""
        stored = [each for each in messages if each.number in self._numbers]
        if stored:
            self.queue.host.pages.remove(self.queue, self.level, stored)
        if len(stored) < len(messages):
            self.queue.remove([each for each in messages if each.number not in self._numbers])

    def ask(self, then: "Callable[[float], None]") -> None:
        """Request a page. Call ``then`` when it has been read, unless the walk has ended."""
        assert self.storage is not None
        shown = partial(self._read, then)
        self.storage.look(self.queue, self.level, self._behind, self._last, shown)

    def forget_page(self) -> None:
        """Free the page. It can be read again."""
        self._page.clear()
        self._numbers, self._page_end = frozenset(), 0
        self._charge(0)

    def end(self) -> None:
        """End the walk."""
        self._is_over = True
        self.forget_page()

    def _was_there(self, message: Message) -> bool:
        return message.number <= self.newest or 0 < message.stored <= self.newest_stored

    def _leave_memory(self) -> None:
        """Continue with the paged messages of the level, if any."""
        paged = self.queue.waiting.paging(self.level)
        last = 0 if paged is None else self._last_of(paged)
        if paged is None or max(paged.after, self._behind) >= last:
            self._descend()
        elif not self.claims:
            self._behind, self._last = max(paged.after, self._behind), last
        elif not paged.is_loading:
            self.queue.host.pages.end(self.queue)
            paged.is_loading, self.claimed = True, paged
            self._behind, self._last = max(paged.after, self._behind), last

    def _last_of(self, paged: "Paged") -> int:
        """Return the id of the last message of the store's part that the walk covers."""
        return min(paged.last, self.newest_stored)

    def _descend(self) -> None:
        """Continue with the next level."""
        self.level = self.queue.waiting.level_beneath(self.level)
        self._behind = self._last = 0

    def _read(
        self, then: "Callable[[float], None]", found: list[Message], after: int, now: float
    ) -> None:
        """Take a page that was read. ``after`` is the last id that it covers."""
        if self._is_over:
            return
        self._page.extend(found)
        self._numbers, self._page_end = frozenset(each.number for each in found), after
        self._charge(cost_of(found))
        then(now)

    def _charge(self, cost: int) -> None:
        if self.storage is not None:
            self.storage.memory.give_kept(self._charged)
            self.storage.memory.force_kept(cost)
            self._charged = cost
