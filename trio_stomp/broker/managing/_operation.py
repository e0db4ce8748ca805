"""An operation on the messages of one queue, in steps that take about a millisecond."""

from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.base import ProtocolError, noop
from trio_stomp.broker.browsing import Walk
from trio_stomp.broker.durability import Callback
from trio_stomp.broker.managing._choice import Conditions
from trio_stomp.broker.queues import QueueBook

if TYPE_CHECKING:
    from trio_stomp.broker.queues import Message

STEP_S = 0.001
"""Time share of a step."""
FOUND, PIECE = 512, 64
"""Messages found in the queue at once, and processed before the clock is read again."""
PENDING_BYTES = 1024 * 1024
"""An operation with more bytes than this on their way to the store waits, to delay no others."""


class Step(Enum):
    """The continuation of an operation after a step."""

    MORE = auto()
    """Immediately."""
    LATER = auto()
    """After some milliseconds: a COMMIT into the queue, or the store, has precedence."""
    WAIT = auto()
    """After a call of ``woken``: a page is being read, or removals are being stored."""
    DONE = auto()


Act = Callable[[Walk, "list[Message]", float], int]
"""Processes chosen messages of a walk, in order, and returns their number.

To end early, it sets the ``problem`` of the operation.
"""


@define(eq=False, repr=False)
class Operation:
    """An operation on the messages that a queue had at its beginning.

    It chooses among waiting messages. Unacknowledged ones, and those that wait for redelivery,
    belong to their consumers. The operation ends with the queue.

    Args:
      queues: The queues of the broker.
      walk: The position in the queue.
      act: Processes the chosen messages.
      total: Number of waiting messages at the beginning.
      conditions: Choose messages; None = all.
      limit: Maximum number of messages to choose.
      piece: Messages processed before the clock is read again.
      woken: Called when an operation that returned ``WAIT`` can continue.
    """

    queues: QueueBook
    walk: Walk
    act: Act
    total: int
    conditions: Conditions | None = None
    limit: int = 2**63
    piece: int = PIECE
    woken: Callable[[], None] = noop
    seen: int = 0
    """Number of messages examined."""
    done: int = 0
    """Number of messages chosen and processed."""
    problem: ProtocolError | None = None
    """Why the operation ended early; "" = it did not."""
    _has_removed: bool = field(init=False, default=False)
    """Messages of the current page were removed."""
    _is_waiting: bool = field(init=False, default=False)
    _is_ending: bool = field(init=False, default=False)

    def step(self, now: float) -> Step:
        """Do a step, in a turn of the dispatcher.

        Args:
          now: Seconds of the broker's clock.
        """
        if self._is_waiting:
            return Step.WAIT
        walk, queues = self.walk, self.queues
        log = None if queues.storage is None else queues.storage.log
        if walk.queue in queues.frozen or (log is not None and log.pending_bytes > PENDING_BYTES):
            return Step.LATER
        queues.turns.begin(STEP_S)
        while not self._is_over():
            messages = walk.following(FOUND)
            if messages is None:
                self._is_waiting = True
                walk.ask(self._go_on)
                return Step.WAIT
            if messages:
                self._deal_with_all(messages, now)
            elif walk.claimed is not None and not walk.is_in_store:
                if not self._release():
                    return Step.WAIT
            elif self._is_loading():
                return Step.LATER
            if queues.turns.is_over():
                return Step.MORE
        return self._finish()

    def end(self, _now: float = 0.0) -> None:
        """End the operation early, because its client has gone. It may have ended already."""
        self.walk.end()
        self._release()

    def _is_over(self) -> bool:
        walk = self.walk
        has_ended = walk.is_done or walk.queue.on_orphan is not None
        return has_ended or self.done >= self.limit or self.problem is not None

    def _is_loading(self) -> bool:
        """Return whether the queue is loading the messages that come next."""
        walk = self.walk
        if walk.is_done or walk.is_in_store or not walk.claims:
            return False
        paged = walk.queue.waiting.paging(walk.level)
        return paged is not None and paged.is_loading

    def _deal_with_all(self, messages: "list[Message]", now: float) -> None:
        """Process the next messages until the turn is over. The rest follows in the next step."""
        for start in range(0, len(messages), self.piece):
            self._deal_with(messages[start : start + self.piece], now)
            if self._is_over() or self.queues.turns.is_over():
                break

    def _deal_with(self, messages: "list[Message]", now: float) -> None:
        chosen: list[Message] = []
        for message in messages:
            self.walk.move_past(message)
            self.seen += 1
            if self.conditions is None or self.conditions.hold(message):
                chosen.append(message)
                if self.done + len(chosen) >= self.limit:
                    break
        if chosen:
            done = self.act(self.walk, chosen, now)
            self.done += done
            self._has_removed |= done > 0 and self.walk.claims

    def _finish(self) -> Step:
        """End the walk, and wait until everything is stored."""
        storage = self.queues.storage
        if self._is_ending or storage is None or not (self.done and self.walk.claims):
            self.end()
            return Step.DONE
        self._is_ending = self._is_waiting = True
        self.end()
        storage.log.when_safe(Callback(None, self._go_on))
        return Step.WAIT

    def _go_on(self, _now: float) -> None:
        self._is_waiting = False
        self.woken()

    def _release(self) -> bool:
        """Let the queue load its paged messages again, once removals are stored.

        Otherwise it would load messages whose end is on its way to the store. Returns whether all
        are stored already.
        """
        paged, self.walk.claimed = self.walk.claimed, None
        if paged is None:
            return True
        queue, storage = self.walk.queue, self.queues.storage
        assert storage is not None

        def release(now: float) -> None:
            paged.is_loading = False
            queue.host.mark(queue)
            self._go_on(now)

        if not self._has_removed:
            release(0.0)
            return True
        self._has_removed, self._is_waiting = False, True
        storage.log.when_safe(Callback(None, release))
        return False
