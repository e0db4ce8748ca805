"""An operation on the messages of one queue."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.broker.browsing import Walk
from trio_stomp.broker.durability import Callback
from trio_stomp.broker.managing._task import InSteps, Step, Steps
from trio_stomp.broker.queues import QueueBook

if TYPE_CHECKING:
    from trio_stomp.broker.queues import Message

FOUND, PIECE = 512, 64
"""Messages found in the queue at once, and processed before the clock is read again."""
PENDING_BYTES = 1024 * 1024
"""An operation with more bytes than this on their way to the store waits, to delay no others."""


Act = Callable[[Walk, "list[Message]", float], int]
"""Processes chosen messages of a walk, in order, and returns their number.

To end the operation, it raises ``ProtocolError``.
"""


@define(eq=False, repr=False)
class Operation(InSteps):
    """An operation on the messages that a queue had at its beginning.

    It chooses among waiting messages. Unacknowledged ones, and those that wait for redelivery,
    belong to their consumers. The operation ends with the queue. It counts the messages examined,
    and those chosen and processed.

    Args:
      queues: The queues of the broker.
      walk: The position in the queue.
      act: Processes the chosen messages.
      is_chosen: Returns whether a message is chosen; None = all are.
      limit: Maximum number of messages to choose.
      piece: Messages processed before the clock is read again.
    """

    queues: QueueBook
    walk: Walk
    act: Act
    is_chosen: "Callable[[Message], bool] | None"
    limit: int
    piece: int = PIECE
    left: dict[str, int] = field(init=False, factory=dict)
    """The number of chosen messages that stay, by reason, of an operation that goes on then."""
    _has_removed: bool = field(init=False, default=False)
    """Messages of the current page were removed."""

    def work(self) -> Steps:
        """Implement ``InSteps.work``."""
        walk = self.walk
        try:
            while not self._is_over():
                if self._is_too_early():
                    yield Step.LATER
                elif (messages := walk.following(FOUND)) is None:
                    yield from self.answer(walk.ask)
                elif messages:
                    self._deal_with_all(messages)
                    yield Step.MORE
                elif walk.claimed is not None and not walk.is_in_store:
                    if self._release():
                        yield from self.stored()
                else:
                    yield Step.LATER if self._is_loading() else Step.MORE
        finally:
            walk.end()
            self._release()

    def _is_too_early(self) -> bool:
        """Return whether a COMMIT into the queue, or the store, goes first."""
        log = self.log
        is_behind = log is not None and log.pending_bytes > PENDING_BYTES
        return is_behind or self.walk.queue in self.queues.frozen

    def _is_over(self) -> bool:
        walk = self.walk
        has_ended = walk.is_done or walk.queue.on_orphan is not None
        return has_ended or self.done >= self.limit

    def _is_loading(self) -> bool:
        """Return whether the queue is loading the messages that come next."""
        walk = self.walk
        if walk.is_done or walk.is_in_store or not walk.claims:
            return False
        paged = walk.queue.waiting.paging(walk.level)
        return paged is not None and paged.is_loading

    def _deal_with_all(self, messages: "list[Message]") -> None:
        """Process the next messages until the turn is over. The rest follows in the next step."""
        for start in range(0, len(messages), self.piece):
            self._deal_with(messages[start : start + self.piece])
            if self._is_over() or self.turns.is_over():
                break

    def _deal_with(self, messages: "list[Message]") -> None:
        chosen: list[Message] = []
        for message in messages:
            self.walk.move_past(message)
            self.seen += 1
            if self.is_chosen is None or self.is_chosen(message):
                chosen.append(message)
                if self.done + len(chosen) >= self.limit:
                    break
        if chosen:
            done = self.act(self.walk, chosen, self.turns.now)
            self.done += done
            self._has_removed |= done > 0 and self.walk.claims

    def _release(self) -> bool:
        """Let the queue load its paged messages again, once removals are stored.

        Otherwise it would load messages whose end is on its way to the store. Returns whether some
        are not stored yet.
        """
        paged, self.walk.claimed = self.walk.claimed, None
        if paged is None:
            return False
        has_removed, self._has_removed = self._has_removed, False
        queue = self.walk.queue

        def release(_now: float) -> None:
            paged.is_loading = False
            queue.host.mark(queue)

        if not has_removed:
            release(0.0)
            return False
        assert self.log is not None
        self.log.when_safe(Callback(None, release))
        return True
