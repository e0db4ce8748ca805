"""The history of events that ``explain`` answers from, in two bounded rings.

The everyday (sent, queued, delivered, acknowledged) is noted once a run, as a plain tuple; what
went wrong is kept apart, so that a busy minute does not push it out. No body is kept alive here.
"""

from array import array
from collections import deque
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from attrs import define, field

from trio_stomp.protocol import Acked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trio_stomp.broker.delivery._delivery import Publication
    from trio_stomp.broker.delivery._subscription import Client, Subscription


class LossReason(StrEnum):
    """Why somebody did not get a message, or not at once."""

    NO_SUBSCRIBER = "no-subscriber"
    PARKED = "parked"
    SLOW_CONSUMER = "slow-consumer"
    BACKLOG_ABANDONED = "backlog-abandoned"
    EXPIRED = "expired"
    QUEUE_FULL = "queue-full"
    DUPLICATE = "duplicate"
    REDELIVERED = "redelivered"
    UNWANTED = "unwanted"


class DeliveryReason(StrEnum):
    """Why somebody is given a message that was sent before."""

    PARKED = "parked"
    LAST_VALUE = "last-value"
    PASSED_ON = "passed-on"


Span = tuple[int, int]
"""The first of consecutive numbers, and how many they are."""
MAX_SCATTERED = 256
"""Numbers of one event that are not consecutive; it bounds what one event takes."""
SAME_S = 0.002
"""Times that differ by less are the same: a store keeps milliseconds."""


@define(eq=False, repr=False)
class EventHistory:
    """Notes what happens to messages, in two rings and nowhere else.

    Args:
      capacity: Entries of each ring; 0 = nothing is noted.
    """

    capacity: int
    now: float = 0.0
    """Told by the broker, at the beginning of each turn."""
    routine: "deque[tuple[Any, ...]]" = field(init=False)
    trouble: "deque[tuple[Any, ...]]" = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.routine = deque(maxlen=self.capacity)
        self.trouble = deque(maxlen=self.capacity)

    @property
    def is_kept(self) -> bool:
        """Return whether anything is noted at all."""
        return self.capacity > 0

    def sent(self, publication: "Publication", first: int, copies: int, count: int = 0) -> None:
        """Messages of a topic went to subscribers, as deliveries from ``first`` on.

        Args:
          publication: The messages.
          first: The number of the first message.
          copies: The number of subscribers that took them.
          count: So many of them; 0 = all.
        """
        sender = publication.sender
        session = sender.session_id if sender is not None else ""
        count = count or len(publication.bodies)
        self.routine.append(
            ("sent", self.now, publication.destination.name, session, first, count, copies)
        )

    def queued(self, queue: str, sender: "Client | None", first: int, count: int) -> None:
        """Note that messages came into a queue.

        ``first`` is the first's place in order of acceptance.
        """
        session = sender.session_id if sender is not None else ""
        self.routine.append(("queued", self.now, queue, session, first, count))

    def delivered(
        self, queue: str, subscription: "Subscription", first: int, numbers: list[int]
    ) -> None:
        """Note that a queue gave messages to a consumer, as deliveries from ``first`` on."""
        session = subscription.client.session_id
        told = (subscription.tag, first, len(numbers), _compact(numbers))
        self.routine.append(("delivered", self.now, queue, session, *told))

    def shown(self, queue: str, subscription: "Subscription", first: int, accepted: int) -> None:
        """Note that a browser was shown one more message. Those of one batch are one event.

        Args:
          queue: The name of the queue.
          subscription: The subscription.
          first: Its number as a delivery.
          accepted: Its place in order of acceptance.
        """
        session, tag = subscription.client.session_id, subscription.tag
        before = self._before(("shown", self.now, queue, session, tag), first)
        numbers = _followed(before[7], accepted) if before is not None else None
        if before is None or numbers is None:
            fresh: Sequence[int] = range(accepted, accepted + 1)
            self.routine.append(("shown", self.now, queue, session, tag, first, 1, fresh))
        else:
            self.routine[-1] = (*before[:6], before[6] + 1, numbers)

    def browsed(self, subscription: "Subscription", number: int) -> None:
        """Note that MESSAGE ``number`` ended a browser's listing."""
        session, place = subscription.client.session_id, subscription.places[0][0]
        self.routine.append(("browsed", self.now, place, session, subscription.tag, number))

    def given(
        self,
        destination: str,
        subscription: "Subscription",
        first: int,
        count: int,
        cause: DeliveryReason,
    ) -> None:
        """Note that a subscriber received earlier messages. Adjacent ones form one event.

        Args:
          destination: The destination.
          subscription: The subscription.
          first: The first's number as a delivery.
          count: The number of messages.
          cause: Why they were delivered late.
        """
        session, tag = subscription.client.session_id, subscription.tag
        before = self._before(("given", self.now, destination, session, tag), first)
        if before is not None and before[7] == cause:
            self.routine[-1] = (*before[:6], before[6] + count, cause)
        else:
            begin = ("given", self.now, destination, session, tag)
            self.routine.append((*begin, first, count, cause))

    def _before(self, begin: tuple[Any, ...], first: int) -> tuple[Any, ...] | None:
        """Return the newest event, if deliveries from ``first`` on go on where it ends."""
        newest = self.routine[-1] if self.routine else ()
        if newest[:5] == begin and newest[5] + newest[6] == first:
            return newest
        return None

    def acknowledged(self, client: "Client", event: Acked) -> None:
        """Note that a client sent ACKs or NACKs.

        Only the outermost are kept, for runs are consecutive.
        """
        if not event.ids:
            return
        names, subscription = event.ids, client.tags.get(event.ids[0].rpartition(b"-")[0])
        consumer = subscription.consumer if subscription is not None else None
        is_cumulative = consumer is not None and consumer.ack == "client"
        word = "rejected" if event.negative else "acknowledged"
        told = (names[0], names[-1], len(names), is_cumulative)
        self.routine.append((word, self.now, client.session_id, *told))

    def happened(
        self, name: str, *, session: str, destination: str, reason: str, user: str
    ) -> None:
        """Note that a client connected, disconnected, subscribed or unsubscribed."""
        self.routine.append(("event", self.now, name, session, destination, reason, user))

    def lost(
        self,
        fate: LossReason | str,
        destination: str,
        *,
        count: int = 1,
        session: str = "",
        deliveries: Span = (0, 0),
        numbers: Span = (0, 0),
        rule: str = "",
    ) -> None:
        """Messages did not reach somebody.

        Args:
          fate: A ``LossReason``, or the reason of a death.
          destination: The destination.
          count: The number of messages.
          session: Whom they did not reach; "" = anybody.
          deliveries: Their numbers as deliveries, if they have been numbered.
          numbers: Their places in order of acceptance, if they were in a queue.
          rule: The option or policy that decided, as ``overflow = "drop-oldest"``.
        """
        self.trouble.append(
            ("lost", self.now, str(fate), destination, session, count, deliveries, numbers, rule)
        )


def lifetime_rule(publication: "Publication") -> str:
    """Return the rule that set a message's lifetime, or "" if it has changed."""
    destination, options = publication.destination, publication.options
    life_s = publication.ends_at - publication.received_at
    if destination.ttl_s and abs(life_s - destination.ttl_s) < SAME_S:
        return f"ttl_ms = {round(destination.ttl_s * 1000)}"
    if options is not None and options.ttl_ms and abs(life_s - options.ttl_ms / 1000) < SAME_S:
        return f"header ttl or expiration = {options.ttl_ms}"
    if options is not None and options.expires_ms:
        return f"header expires = {options.expires_ms}"
    return ""


def _followed(numbers: "Sequence[int]", accepted: int) -> "Sequence[int] | None":
    """Return the numbers and one more, or None if an event of its own must hold that."""
    if isinstance(numbers, range) and accepted == numbers.stop:
        return range(numbers.start, accepted + 1)
    if len(numbers) >= MAX_SCATTERED:
        return None
    # Of an array nobody but the event knows; it takes a fifth of what a tuple takes.
    scattered = numbers if isinstance(numbers, array) else array("q", numbers)
    scattered.append(accepted)
    return scattered


def _compact(numbers: list[int]) -> "Sequence[int]":
    """Return the same numbers, as a range if they are consecutive."""
    span = range(numbers[0], numbers[0] + len(numbers))
    # The cheap question first: redeliveries and priorities make others.
    return span if numbers[-1] == span[-1] and numbers == list(span) else tuple(numbers)
