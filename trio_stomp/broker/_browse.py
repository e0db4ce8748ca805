"""Looking at queues without consuming."""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.broker._consumer import Consumer
from trio_stomp.broker._message import LEVELS, Message, cost_of
from trio_stomp.broker._queue import Queue
from trio_stomp.frames import encode_header

if TYPE_CHECKING:
    from trio_stomp.broker._storage import Storage


@define(eq=False, repr=False)
class Shelf:
    """What of a queue's level is in the store alone: ids above ``after``, up to ``last``."""

    queue: Queue
    level: int
    after: int
    last: int


@define(eq=False, repr=False)
class Browse:
    """What one browser still has to be shown: its queues as they were when it came.

    A message that has been consumed meanwhile is shown all the same, as JMS allows; but not if it
    was in the store alone. That is read a page at a time, for this browser: its queue stays as it
    is.

    Args:
      storage: Where queues are that are not in memory.
      go_on_later: Called with the time when there is something to be shown again.
    """

    consumer: Consumer
    queues: list[Queue]
    tells_end: bool
    storage: "Storage | None"
    go_on_later: Callable[[float], None]
    _left: deque[tuple[Queue, Message] | Shelf] = field(factory=deque)
    _of_page: int = 0
    """How many of what is left first were read from the store for it: nobody numbered those."""
    _charged: int = 0
    """Bytes of memory for the page that it is being shown."""
    _is_reading: bool = False
    _is_over: bool = False

    def __attrs_post_init__(self) -> None:
        for queue in self.queues:
            for level in reversed(range(LEVELS)):
                self._left.extend((queue, message) for message in queue.waiting.on_level(level))
                paged = queue.waiting.paging(level)
                if paged is not None:
                    self._left.append(Shelf(queue, level, paged.after, paged.last))

    def go_on(self, now: float) -> bool:
        """Show more, as far as there is room; whether it has been shown everything."""
        outbox = self.consumer.subscription.outbox
        while self._left:
            if self._is_reading or not outbox.has_room():
                return False
            following = self._left.popleft()
            if isinstance(following, Shelf):
                self._read(following)
                continue
            queue, message = following
            accepted = 0 if self._of_page else message.number
            self._of_page = max(0, self._of_page - 1)
            if not message.publication.is_over(now) and self.consumer.wants(message):
                self.consumer.show(queue, message)
                self._note(queue, accepted)
        if self._is_reading:
            return False
        if self.tells_end:
            outbox.stage_frame(self._end_marker())
        self.end()
        return True

    def end(self) -> None:
        """Nobody looks any more."""
        self._is_over = True
        self._charge(0)

    def _read(self, shelf: Shelf) -> None:
        assert self.storage is not None
        self._charge(0)
        self._is_reading = True
        show = partial(self._show, shelf)
        self.storage.look(shelf.queue, shelf.level, shelf.after, shelf.last, show)

    def _show(self, shelf: Shelf, found: list[Message], after: int, now: float) -> None:
        """A page has been read, up to the id ``after``."""
        self._is_reading = False
        if self._is_over:
            return
        if after < shelf.last:
            self._left.appendleft(Shelf(shelf.queue, shelf.level, after, shelf.last))
        if found:
            self._charge(cost_of(found))
            self._left.extendleft((shelf.queue, message) for message in reversed(found))
            self._of_page = len(found)
        self.go_on_later(now)

    def _note(self, queue: Queue, accepted: int) -> None:
        """Note what was just shown, for ``explain``."""
        fan_out = self.consumer.fan_out
        if fan_out.chronicle is not None:
            subscription = self.consumer.subscription
            fan_out.chronicle.shown(queue.name, subscription, fan_out.messages, accepted)

    def _charge(self, cost: int) -> None:
        if self.storage is not None:
            self.storage.memory.give_kept(self._charged)
            self.storage.memory.force_kept(cost)
            self._charged = cost

    def _end_marker(self) -> bytes:
        subscription = self.consumer.subscription
        rules = subscription.client.rules
        fan_out = self.consumer.fan_out
        number = fan_out.number(1)
        if fan_out.chronicle is not None:
            fan_out.chronicle.browsed(subscription, number)
        where = encode_header("destination", subscription.places[0][0], rules)
        return b"%b%d\n%bbrowser:end\n\n\0\n" % (subscription.prefix, number, where)
