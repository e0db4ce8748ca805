"""What happened to messages lately: two bounded rings of compact events, from which ``explain``
answers.

The everyday (sent, queued, delivered, acknowledged) is noted once a run, as a plain tuple; what
went wrong is kept apart, so that a busy minute does not push it out. No body is kept alive here.
"""

from collections import deque
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from attrs import define, field

from trio_stomp.protocol import Acked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trio_stomp.broker._delivery import Publication
    from trio_stomp.broker._events import BrokerEvent
    from trio_stomp.broker._message import Message
    from trio_stomp.broker._subscription import Client, Subscription


class Fate(StrEnum):
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


Span = tuple[int, int]
"""The first of consecutive numbers, and how many they are."""


@define(eq=False, repr=False)
class Chronicle:
    """Notes what happens to messages; everything it knows is in its rings.

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
        """Whether anything is noted at all."""
        return self.capacity > 0

    def sent(self, publication: "Publication", first: int, copies: int, count: int = 0) -> None:
        """Messages of a topic went to subscribers, as deliveries from ``first`` on.

        Args:
          count: So many of them; 0 = all.
        """
        sender = publication.sender
        session = sender.session_id if sender is not None else ""
        count = count or len(publication.bodies)
        self.routine.append(
            ("sent", self.now, publication.route.name, session, first, count, copies)
        )

    def queued(self, queue: str, sender: "Client | None", first: int, count: int) -> None:
        """Messages came into a queue; ``first`` is the first's place in order of acceptance."""
        session = sender.session_id if sender is not None else ""
        self.routine.append(("queued", self.now, queue, session, first, count))

    def delivered(
        self, queue: str, subscription: "Subscription", first: int, messages: "Sequence[Message]"
    ) -> None:
        """A queue gave messages to a consumer, as deliveries from ``first`` on."""
        session = subscription.client.session_id
        numbers = _compact([message.number for message in messages])
        self.routine.append(
            ("delivered", self.now, queue, session, subscription.tag, first, len(messages), numbers)
        )

    def acknowledged(self, client: "Client", event: Acked) -> None:
        """A client sent ACKs or NACKs; only the outermost are kept, for runs are consecutive."""
        if not event.ids:
            return
        names, subscription = event.ids, client.tags.get(event.ids[0].rpartition(b"-")[0])
        consumer = subscription.consumer if subscription is not None else None
        is_cumulative = consumer is not None and consumer.ack == "client"
        word = "rejected" if event.negative else "acknowledged"
        told = (names[0], names[-1], len(names), is_cumulative)
        self.routine.append((word, self.now, client.session_id, *told))

    def happened(self, event: "BrokerEvent") -> None:
        """A client came or went, or subscribed to something, or no longer."""
        self.routine.append(
            ("event", self.now, event.name, event.session_id, event.destination, event.reason)
        )

    def lost(
        self,
        fate: Fate | str,
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
          fate: A ``Fate``, or the reason of a death.
          session: Whom they did not reach; "" = anybody.
          deliveries: Their numbers as deliveries, if they have been numbered.
          numbers: Their places in order of acceptance, if they were in a queue.
          rule: The option or policy that decided, as ``overflow = "drop-oldest"``.
        """
        self.trouble.append(
            ("lost", self.now, str(fate), destination, session, count, deliveries, numbers, rule)
        )


def _compact(numbers: list[int]) -> "Sequence[int]":
    """The same numbers, as a range if they are consecutive."""
    span = range(numbers[0], numbers[0] + len(numbers))
    # The cheap question first: redeliveries and priorities make others.
    return span if numbers[-1] == span[-1] and numbers == list(span) else tuple(numbers)
