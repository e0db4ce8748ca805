"""The history of events for ``explain``, in two bounded rings.

Normal events (sent, queued, delivered, acknowledged) are recorded once for each run.
Losses have a ring of their own, so that heavy traffic does not push them out. Bodies are not kept.
"""

from array import array
from collections import Counter, deque
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.broker.delivery._history_events import (
    Browsed,
    Delivered,
    Given,
    Happened,
    HistoryEvent,
    Lost,
    Queued,
    Sent,
    Settled,
    Shown,
    Span,
)
from trio_stomp.protocol import Acked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trio_stomp.broker.delivery._delivery import Publication
    from trio_stomp.broker.delivery._subscription import Client, Subscription


class LossReason(StrEnum):
    """Why a subscriber did not get a message, or not at once."""

    NO_SUBSCRIBER = "no-subscriber"
    SLOW_CONSUMER = "slow-consumer"
    BACKLOG_ABANDONED = "backlog-abandoned"
    EXPIRED = "expired"
    QUEUE_FULL = "queue-full"
    UNWANTED = "unwanted"
    PURGED = "purged"
    QUEUE_ENDED = "queue-ended"
    MOVED = "moved"


class DeliveryReason(StrEnum):
    """Why a subscriber gets an earlier message."""

    PARKED = "parked"
    LAST_VALUE = "last-value"
    PASSED_ON = "passed-on"


MAX_SCATTERED = 64
"""Limit of numbers in one event that are not consecutive, so that 20,000 events, which are not
charged, take at most 16 MB."""
MAX_LOOKED = 1_000
"""Losses that are looked at for the destinations of one interval."""
SAME_S = 0.002
"""Times that differ by less are equal: the store keeps milliseconds."""


@define(eq=False, repr=False)
class EventHistory:
    """Records the events of messages.

    Args:
      capacity: Entries of each ring; 0 = records nothing.
    """

    capacity: int
    now: float = 0.0
    """The time of the turn, set by the broker."""
    routine: deque[HistoryEvent] = field(init=False)
    trouble: deque[Lost] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.routine = deque(maxlen=self.capacity)
        self.trouble = deque(maxlen=self.capacity)

    @property
    def is_recording(self) -> bool:
        """Return whether events are recorded."""
        return self.capacity > 0

    def sent(self, publication: "Publication", first: int, copies: int, count: int = 0) -> None:
        """Record messages of a topic or work queue that were sent to subscribers.

        Args:
          publication: The messages.
          first: The first delivery number.
          copies: The number of subscribers that matched.
          count: The number of messages; 0 = all of the publication.
        """
        sender = publication.sender
        session = sender.session_id if sender is not None else ""
        count = count or len(publication.bodies)
        name = publication.destination.name
        self.routine.append(Sent(self.now, name, session, first, count=count, copies=copies))

    def queued(self, queue: str, sender: "Client | None", first: int, count: int) -> None:
        """Record messages that entered a queue. ``first`` is the number of the first one."""
        session = sender.session_id if sender is not None else ""
        self.routine.append(Queued(self.now, queue, session, first, count))

    def delivered(
        self, queue: str, subscription: "Subscription", first: int, numbers: list[int]
    ) -> None:
        """Record deliveries, from number ``first`` on, of a queue's messages to a consumer."""
        span = range(numbers[0], numbers[0] + len(numbers))
        # The cheap test first: redeliveries, selectors and priorities break the sequence.
        if numbers[-1] == span[-1] and numbers == list(span):
            self._delivered(queue, subscription, first, span)
            return
        for start in range(0, len(numbers), MAX_SCATTERED):
            part = array("q", numbers[start : start + MAX_SCATTERED])
            self._delivered(queue, subscription, first + start, part)

    def _delivered(
        self, queue: str, subscription: "Subscription", first: int, numbers: "Sequence[int]"
    ) -> None:
        session, tag, count = subscription.client.session_id, subscription.tag, len(numbers)
        self.routine.append(
            Delivered(self.now, queue, session, tag, first=first, count=count, numbers=numbers)
        )

    def shown(self, queue: str, subscription: "Subscription", first: int, accepted: int) -> None:
        """Record the message with number ``accepted``, shown to a browser as delivery ``first``.

        Adjacent deliveries form one event.
        """
        session, tag = subscription.client.session_id, subscription.tag
        event = Shown(
            self.now,
            queue,
            session,
            tag,
            first=first,
            count=1,
            numbers=range(accepted, accepted + 1),
        )
        newest = self.routine[-1] if self.routine else None
        if isinstance(newest, Shown) and _follows(event, newest):
            numbers = _followed(newest.numbers, accepted)
            if numbers is not None:
                newest.count += 1
                newest.numbers = numbers
                return
        self.routine.append(event)

    def browsed(self, subscription: "Subscription", number: int) -> None:
        """Record the MESSAGE with delivery number ``number`` that ended a browser's listing."""
        session, destination = subscription.client.session_id, subscription.targets[0][0]
        self.routine.append(Browsed(self.now, destination, session, subscription.tag, number))

    def given(
        self,
        destination: str,
        subscription: "Subscription",
        first: int,
        count: int,
        cause: DeliveryReason,
    ) -> None:
        """Record earlier messages delivered to a subscriber late, because of ``cause``.

        Their delivery numbers begin with ``first``. Adjacent deliveries form one event.
        """
        session, tag = subscription.client.session_id, subscription.tag
        event = Given(self.now, destination, session, tag, first=first, count=count, cause=cause)
        newest = self.routine[-1] if self.routine else None
        if isinstance(newest, Given) and newest.cause == cause and _follows(event, newest):
            newest.count += count
        else:
            self.routine.append(event)

    def acknowledged(self, client: "Client", event: Acked) -> None:
        """Record ACKs or NACKs of a client. The first and last id stand for the run."""
        if not event.ids:
            return
        ids, subscription = event.ids, client.tags.get(event.ids[0].rpartition(b"-")[0])
        consumer = subscription.consumer if subscription is not None else None
        self.routine.append(
            Settled(
                self.now,
                session=client.session_id,
                first=ids[0],
                last=ids[-1],
                count=len(ids),
                is_cumulative=consumer is not None and consumer.ack == "client",
                is_rejected=event.negative,
            )
        )

    def happened(
        self, name: str, *, session: str, destination: str, reason: str, user: str
    ) -> None:
        """Record an event of ``BrokerEvents``, such as a connect or SUBSCRIBE."""
        self.routine.append(
            Happened(self.now, name, session, destination, reason=reason, user=user)
        )

    def lost(
        self,
        reason: LossReason | str,
        destination: str,
        *,
        count: int = 1,
        session: str = "",
        deliveries: Span = (0, 0),
        rule: str = "",
    ) -> None:
        """Record messages that did not reach a subscriber.

        Args:
          reason: A ``LossReason``, or the value of a ``DeadLetterReason``.
          destination: The name of the destination.
          count: The number of messages.
          session: The session that they did not reach; "" = any.
          deliveries: Their delivery numbers, if they have any.
          rule: The option or policy that decided, as ``overflow = "drop-oldest"``.
        """
        self.trouble.append(
            Lost(
                self.now,
                reason=str(reason),
                destination=destination,
                session=session,
                count=count,
                deliveries=deliveries,
                rule=rule,
            )
        )

    def lost_by_queue(
        self, reason: LossReason | str, queue: str, number: int | None, rule: str
    ) -> None:
        """Record that the message with a number left a queue, or that one (None) did not enter."""
        numbers = (0, 0) if number is None else (number, 1)
        self.trouble.append(Lost(self.now, str(reason), queue, numbers=numbers, rule=rule))

    def losing(self, since: float) -> dict[str, str]:
        """Return the destination that lost most messages since a time, by reason.

        It looks at the newest ``MAX_LOOKED`` losses only.
        """
        counts: dict[str, Counter[str]] = {}
        for event in islice(reversed(self.trouble), MAX_LOOKED):
            if event.at < since:
                break
            counts.setdefault(event.reason, Counter())[event.destination] += event.count
        return {reason: places.most_common(1)[0][0] for reason, places in counts.items()}


def lifetime_rule(publication: "Publication") -> str:
    """Return the policy or header that set a publication's TTL, or "" if it has changed since."""
    destination, options = publication.destination, publication.options
    life_s = publication.ends_at - publication.received_at
    if destination.ttl_s and abs(life_s - destination.ttl_s) < SAME_S:
        return f"ttl_ms = {round(destination.ttl_s * 1000)}"
    if options is not None and options.ttl_ms and abs(life_s - options.ttl_ms / 1000) < SAME_S:
        return f"header ttl or expiration = {options.ttl_ms}"
    if options is not None and options.expires_ms:
        return f"header expires = {options.expires_ms}"
    return ""


def _follows(event: Shown | Given, newest: Shown | Given) -> bool:
    """Return whether an event continues the newest one: adjacent deliveries at the same time."""
    return (
        newest.first + newest.count == event.first
        and newest.tag == event.tag
        and newest.destination == event.destination
        and newest.at == event.at
    )


def _followed(numbers: "Sequence[int]", accepted: int) -> "Sequence[int] | None":
    """Return ``numbers`` with one more, or None if the event is full."""
    if isinstance(numbers, range) and accepted == numbers.stop:
        return range(numbers.start, accepted + 1)
    if len(numbers) >= MAX_SCATTERED:
        return None
    # Only this event has the array, so it may change. It takes a fifth of a tuple's memory.
    scattered = numbers if isinstance(numbers, array) else array("q", numbers)
    scattered.append(accepted)
    return scattered
