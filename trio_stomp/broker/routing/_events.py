"""Events of the core, published to ``DIAG/event/…``."""

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.base import value
from trio_stomp.broker.delivery import Client, EventHistory, Subscription
from trio_stomp.broker.headers import hint_of
from trio_stomp.broker.names import DIAG_EVENT
from trio_stomp.broker.routing._destinations import Destinations

if TYPE_CHECKING:
    from trio_stomp.broker.delivery import Publication

MAX_PENDING = 10_000
"""Limit of events in one turn. Further ones are dropped and counted."""


@value
class BrokerEvent:
    """One event, with the fields of the ``event`` table (docs/reference/diag.md)."""

    name: str
    session_id: str = ""
    user: str = ""
    destination: str = ""
    reason: str = ""
    detail: str = ""


@define(eq=False, repr=False)
class BrokerEvents:
    """Events of the current turn, to be published at its end."""

    destinations: Destinations
    pending: list[BrokerEvent] = field(factory=list)
    lost: int = 0
    errors: Counter[str] = field(factory=Counter)
    """The ERRORs by their code."""
    are_stored: bool = False
    """Events are kept in a stream, even without subscribers."""
    event_history: EventHistory | None = None
    """Records events for ``explain``."""
    listener: Callable[[BrokerEvent], None] | None = None
    """A callback of the embedding program, called at once. It must not raise."""

    def record(
        self,
        name: str,
        client: Client | None = None,
        *,
        destination: str = "",
        reason: str = "",
        detail: str = "",
        user: str = "",
    ) -> None:
        """Record an event of a client, or of a ``user`` who is none.

        It is published only if events are kept, or ``DIAG/event/<name>`` has subscribers.
        """
        session, user = (client.session_id, client.user) if client is not None else ("", user)
        self.add(
            BrokerEvent(
                name,
                session_id=session,
                user=user,
                destination=destination,
                reason=reason,
                detail=detail,
            )
        )

    def add(self, event: BrokerEvent) -> None:
        """Record an event, perhaps of another broker of a cluster."""
        if self.event_history is not None:
            self.event_history.happened(
                event.name,
                session=event.session_id,
                destination=event.destination,
                reason=event.reason,
                user=event.user,
            )
        if self.listener is not None:
            self.listener(event)
        if not self.are_stored and not self.destinations.own(DIAG_EVENT + event.name).subscribers:
            return
        if len(self.pending) >= MAX_PENDING:
            self.lost += 1
            return
        self.pending.append(event)

    def record_slow(self, slow: list[tuple[Subscription, int]]) -> None:
        """Record events for slow subscribers and the number of messages that each lost."""
        for subscription, lost in slow:
            client, destination = subscription.client, subscription.destination
            self.record("slow", client, destination=destination, reason="outbox-full")
            self.record(
                "drop", client, destination=destination, reason="slow-consumer", detail=f"{lost}"
            )

    def take(self) -> list[BrokerEvent]:
        """Return the pending events and forget them."""
        taken, self.pending = self.pending, []
        return taken


def hint_at(events: BrokerEvents | None, publication: "Publication") -> None:
    """Record a hint for the first SEND to a destination whose name looks like another kind."""
    destination = publication.destination
    # The run is already counted, so the counts are equal for the first run only.
    is_first = destination.enqueued == len(publication.bodies)
    if is_first and events is not None and (hint := hint_of(destination.name)):
        events.record(
            "hint",
            publication.sender,
            destination=destination.name,
            reason="no-subscriber",
            detail=hint,
        )
