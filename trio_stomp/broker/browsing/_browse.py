"""A browse: the position of one browser in its queues."""

from collections import deque
from collections.abc import Iterator
from enum import Enum
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.broker.queues import LEVELS, Consumer, Message, Queue, cost_of
from trio_stomp.frames import encode_header

if TYPE_CHECKING:
    from collections.abc import Callable

    from trio_stomp.broker.queues import Storage

PIECE = 64
"""Messages looked up in one step."""
SELECTOR_BYTES = 64
"""Evaluating this much text of a selector costs as much as one message."""


class Need(Enum):
    """The reason why a browse does not continue."""

    TURN = "time"
    ROOM = "waiting for its client"
    PAGE = "a page of the store"
    NOTHING = "it has been shown everything"


@define(eq=False, repr=False)
class Browse:
    """The position of one browser: queue, priority and last message shown.

    It shows the messages that were in the queues at its beginning, in order, each at most once.
    Messages consumed meanwhile are skipped. So it needs no memory except for a page of the store.

    Args:
      consumer: The browser.
      queues: The queues, one after the other; None = a step without a queue.
      tells_end: Send a MESSAGE ``browser:end`` at the end.
      newest: The number of the last accepted message at the beginning.
      newest_stored: The last id in the store at the beginning.
      storage: Reads paged messages, if there is a store.
    """

    consumer: Consumer
    queues: Iterator[Queue | None]
    tells_end: bool
    newest: int
    newest_stored: int
    storage: "Storage | None"
    needs: Need = Need.TURN
    _queue: Queue | None = None
    _level: int = LEVELS
    _behind: int = 0
    """The number, or in the store the id, of the last message shown on this level."""
    _last: int = 0
    """The last id to show from the store on this level; 0 = still showing from memory."""
    _page: deque[Message] = field(factory=deque)
    _page_end: int = 0
    """The last id that the page covers; 0 = no page."""
    _charged: int = 0
    _is_over: bool = False

    def look(self, steps: int, now: float) -> int:
        """Show messages, and set ``needs`` to what comes next.

        Args:
          steps: The limit of work, about one step for each message.
          now: Seconds of the broker's clock.

        Returns:
          The steps that are left.
        """
        outbox, selector = self.consumer.subscription.outbox, self.consumer.selector
        weight = 1 if selector is None else 1 + len(selector.text) // SELECTOR_BYTES
        self.needs = Need.TURN
        while steps > 0:
            messages = self._following()
            if messages is None:
                return steps
            if not messages:
                steps -= 1
            for message in messages:
                if not outbox.has_room():
                    self.needs = Need.ROOM
                    self.forget_page()
                    return steps
                steps -= weight
                self._show(message, now)
                if steps <= 0:
                    break
        return steps

    @property
    def has_page(self) -> bool:
        """Return whether it has a page of the store in memory."""
        return self._page_end > 0

    def end(self) -> None:
        """End the browse."""
        self._is_over = True
        self.forget_page()

    def forget_page(self) -> None:
        """Free the page. It can be read again."""
        self._page.clear()
        self._page_end = 0
        self._charge(0)

    def ask(self, then: "Callable[[float], None]") -> None:
        """Request a page. When it was read, call ``then``, unless the browse has ended."""
        assert self.storage is not None
        assert self._queue is not None
        show = partial(self._read, then)
        self.storage.look(self._queue, self._level, self._behind, self._last, show)

    def _following(self) -> list[Message] | None:
        """Return the next messages, [] after a move to another level or queue, or None.

        None means that the browse cannot continue now. ``needs`` is the reason.
        """
        queue = self._queue
        if queue is None:
            try:
                queue = next(self.queues)
            except StopIteration:
                self._tell_end()
                return None
            if queue is not None:
                self._queue, self._level = queue, LEVELS
                self._descend(queue)
            return []
        if self._last:
            return self._following_stored(queue)
        found = queue.waiting.behind(self._level, self._behind, PIECE)
        # A message paged in since the beginning may have a newer number: compare its id as well.
        while found and not self._was_there(found[-1]):
            found.pop()
        if not found:
            self._leave_memory(queue)
        return found

    def _following_stored(self, queue: Queue) -> list[Message] | None:
        if self._page:
            return list(islice(self._page, PIECE))
        self._behind = max(self._behind, self._page_end)
        self.forget_page()
        if self._behind < self._last:
            has_room = self.consumer.subscription.outbox.has_room()
            self.needs = Need.PAGE if has_room else Need.ROOM
            return None
        self._descend(queue)
        return []

    def _was_there(self, message: Message) -> bool:
        return message.number <= self.newest or 0 < message.stored <= self.newest_stored

    def _leave_memory(self, queue: Queue) -> None:
        """Continue with the paged messages of the level, if any."""
        paged = queue.waiting.paging(self._level)
        last = 0 if paged is None else min(paged.last, self.newest_stored)
        if paged is not None and paged.after < last:
            self._behind, self._last = paged.after, last
        else:
            self._descend(queue)

    def _descend(self, queue: Queue) -> None:
        """Continue with the next level or queue."""
        self._level = queue.waiting.level_beneath(self._level)
        self._behind = self._last = 0
        if self._level < 0:
            self._queue = None

    def _show(self, message: Message, now: float) -> None:
        assert self._queue is not None
        if self._last:
            self._page.popleft()
            self._behind = message.stored
        else:
            self._behind = message.number
        if not message.publication.is_over(now) and self.consumer.wants(message):
            self.consumer.show(self._queue.destination, message)
            self._note(self._queue, message.number)

    def _read(
        self, then: "Callable[[float], None]", found: list[Message], after: int, now: float
    ) -> None:
        """Take a page that was read. ``after`` is the last id that it covers."""
        if self._is_over:
            return
        self._page.extend(found)
        self._page_end = after
        self._charge(cost_of(found))
        then(now)

    def _note(self, queue: Queue, accepted: int) -> None:
        """Record the message just shown, for ``explain``."""
        fan_out = self.consumer.fan_out
        if fan_out.event_history is not None:
            subscription = self.consumer.subscription
            fan_out.event_history.shown(queue.name, subscription, fan_out.messages, accepted)

    def _charge(self, cost: int) -> None:
        if self.storage is not None:
            self.storage.memory.give_kept(self._charged)
            self.storage.memory.force_kept(cost)
            self._charged = cost

    def _tell_end(self) -> None:
        self.needs = Need.NOTHING
        if not self.tells_end:
            return
        subscription = self.consumer.subscription
        rules = subscription.client.rules
        fan_out = self.consumer.fan_out
        number = fan_out.number(1)
        if fan_out.event_history is not None:
            fan_out.event_history.browsed(subscription, number)
        where = encode_header("destination", subscription.places[0][0], rules)
        name = f"{subscription.tag}-{number}".encode()
        subscription.outbox.stage_frame(
            b"%b%b\n%bbrowser:end\n\n\0\n" % (subscription.prefix, name, where)
        )
