"""A browse: the position of one browser in its queues."""

from collections.abc import Iterator
from enum import Enum
from typing import TYPE_CHECKING

from attrs import define

from trio_stomp.broker.browsing._walk import Walk
from trio_stomp.broker.queues import Consumer, Message, Queue
from trio_stomp.frames import encode_header

if TYPE_CHECKING:
    from collections.abc import Callable

    from trio_stomp.broker.queues import Storage

SELECTOR_BYTES = 64
"""Evaluating this much text of a selector costs as much as one message."""


class Need(Enum):
    """The reason why a browse does not continue."""

    TURN = "time"
    ROOM = "its client has no room"
    PAGE = "a page of the store"
    NOTHING = "all messages were shown"


@define(eq=False, repr=False)
class Browse:
    """The position of one browser: queue, priority and last message shown.

    It shows the messages that were in the queues at its beginning, in order, each at most once.
    Messages consumed meanwhile are skipped. So it needs no memory except for a page of the store.

    Args:
      consumer: The browser.
      queues: The queues, one after the other; None = a step without a queue.
      sends_end: Send a MESSAGE ``browser:end`` at the end.
      newest: The number of the last accepted message at the beginning.
      newest_stored: The last id in the store at the beginning.
      storage: Reads paged messages, if there is a store.
    """

    consumer: Consumer
    queues: Iterator[Queue | None]
    sends_end: bool
    newest: int
    newest_stored: int
    storage: "Storage | None"
    needs: Need = Need.TURN
    _walk: Walk | None = None
    """The position in the current queue; None = before the first one."""

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
                    if self._walk is not None:  # pragma: no branch (it has messages)
                        self._walk.forget_page()
                    return steps
                steps -= weight
                self._show(message, now)
                if steps <= 0:
                    break
        return steps

    @property
    def has_page(self) -> bool:
        """Return whether it has a page of the store in memory."""
        return self._walk is not None and self._walk.has_page

    def end(self) -> None:
        """End the browse."""
        if self._walk is not None:
            self._walk.end()

    def ask(self, then: "Callable[[float], None]") -> None:
        """Request a page. Call ``then`` when it has been read, unless the browse has ended."""
        assert self._walk is not None
        self._walk.ask(then)

    def _following(self) -> list[Message] | None:
        """Return the next messages, [] after a move to another level or queue, or None.

        None means that the browse cannot continue now. ``needs`` is the reason.
        """
        if self._walk is None or self._walk.is_done:
            try:
                queue = next(self.queues)
            except StopIteration:
                self._send_end()
                return None
            if queue is not None:
                self._walk = Walk(queue, self.newest, self.newest_stored, self.storage)
            return []
        found = self._walk.following()
        if found is None:
            has_room = self.consumer.subscription.outbox.has_room()
            self.needs = Need.PAGE if has_room else Need.ROOM
        return found

    def _show(self, message: Message, now: float) -> None:
        assert self._walk is not None
        self._walk.move_past(message)
        if not message.publication.is_over(now) and self.consumer.wants(message):
            self.consumer.show(self._walk.queue.destination, message)
            self._note(self._walk.queue, message.number)

    def _note(self, queue: Queue, accepted: int) -> None:
        """Record the message just shown, for ``explain``."""
        fan_out = self.consumer.fan_out
        if fan_out.event_history is not None:
            subscription = self.consumer.subscription
            fan_out.event_history.shown(queue.name, subscription, fan_out.messages, accepted)

    def _send_end(self) -> None:
        self.needs = Need.NOTHING
        if not self.sends_end:
            return
        subscription = self.consumer.subscription
        rules = subscription.client.rules
        fan_out = self.consumer.fan_out
        number = fan_out.number(1)
        if fan_out.event_history is not None:
            fan_out.event_history.browsed(subscription, number)
        where = encode_header("destination", subscription.targets[0][0], rules)
        name = f"{subscription.tag}-{number}".encode()
        subscription.outbox.stage_frame(
            b"%b%b\n%bbrowser:end\n\n\0\n" % (subscription.prefix, name, where)
        )
