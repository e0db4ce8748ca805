"""Scheduled messages that are due: sent on behalf of the user who scheduled them."""

from contextlib import nullcontext
from typing import TYPE_CHECKING

from attrs import define

from trio_stomp.base import CloseReason, ProtocolError
from trio_stomp.broker.delivery import NEVER, Publication
from trio_stomp.broker.headers import PRIORITY_DEFAULT
from trio_stomp.broker.queues import DeadLetterReason, Message, Queue, QueueFull, cost_alone
from trio_stomp.broker.sending._context import SendContext
from trio_stomp.broker.sending._room import Needs

if TYPE_CHECKING:
    from collections.abc import Callable

    from trio_stomp.base import Quota
    from trio_stomp.broker.delivery import Work
    from trio_stomp.broker.sending._publisher import Publisher
    from trio_stomp.broker.sending._scheduled import Scheduled
    from trio_stomp.frames import FrameRun

_ROOM = (CloseReason.LIMIT_EXCEEDED, CloseReason.MEMORY_LIMIT)
"""Reasons of errors that end when there is room again."""


@define(eq=False, repr=False)
class DueSender:
    """Part of the scheduler: sends messages that are due, and makes room for them."""

    publishing: "Callable[[], Publisher]"
    """Returns what sends them."""
    lost: int = 0
    """Messages that could not be sent, however long they waited."""
    _has_told: bool = False
    """The log has the first message that waits for its user's share."""

    def send(self, item: "Scheduled", run: "FrameRun", now: float) -> int:
        """Send scheduled messages as far as there is room.

        Args:
          item: The messages.
          run: The run of SENDs.
          now: The time, in seconds of the broker's clock.

        Returns:
          How many need no other attempt. The others must wait.
        """
        publisher = self.publishing()
        log = publisher.log
        is_bound = log is not None and bool(item.ids)
        context = SendContext(
            None,
            item.quota,
            received_at=now,
            now=now,
            is_atomic=is_bound,
            owner=item.owner,
        )
        try:
            with log.atomically(must_retry=True) if log and is_bound else nullcontext():
                return publisher.send(context, run)[0]
        except ProtocolError as error:
            return self.refused(item, run, error, now)

    def refused(self, item: "Scheduled", run: "FrameRun", error: ProtocolError, now: float) -> int:
        """Return how many messages of a refused run need no other attempt.

        One that the queue or its user's share can never hold becomes a dead letter, or is lost. The
        log has the first that is lost, and the first that waits for its user's share.
        """
        count, body = len(run.bodies), run.bodies[0]
        if isinstance(error, QueueFull):
            queue, cost = error.queue, cost_alone(item.head, 1, len(body))
            never_fits = self.publishing().to_queues.overflow.never_fits
            if count > 1 or not (error.lasts or never_fits(queue, len(body), cost)):
                if error.is_by_quota and not self._has_told:
                    self._has_told = True
                    self.publishing().warn(f"a scheduled message is due, and waits: {error}")
                return error.done
            # Of a composite SEND too there is one dead letter: it is sent to all or to none.
            if self._bury(item, queue, body, now):
                return 1
        elif error.reason in _ROOM:
            return 0
        if not self.lost:
            self.publishing().warn(
                f"a scheduled message to {item.destination[:80]} is lost: {error}"
            )
        self.lost += count
        return count

    def _bury(self, item: "Scheduled", queue: Queue, body: bytes, now: float) -> bool:
        """Make a message that its queue can never hold a dead letter. Return whether it is one."""
        options = self.publishing().plan(None, item.head, item.quota)[1].options
        level = options.priority if options is not None else PRIORITY_DEFAULT
        origin = Publication(queue.destination, item.head, [], now, NEVER, quota=item.quota)
        number = item.numbers[item.done]
        message = Message(number, origin, body, level, stored=number if item.ids else 0)
        return self.publishing().queues.dead_letter(queue, message, DeadLetterReason.OVERFLOW, now)

    def making_room(self, quota: "Quota | None", run: "FrameRun", now: float) -> "Work | None":
        """Return the work that makes room for a run, or None if few messages must leave for it."""
        publisher, needs = self.publishing(), Needs(None, quota, now)
        try:
            head, plan = publisher.plan(None, run.head, quota)
            for name, each in plan.heads_by_name(head):
                needs.add(publisher.destinations.ensure(name, quota), each, run.bodies)
        except ProtocolError:
            return None  # the attempt to send them fails, too
        return publisher.making_room(needs)
