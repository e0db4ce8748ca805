"""What happens in the core, for ``DIAG/event/…``: noted only if they are kept or heard."""

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
"""Events of one turn; what is beyond is counted."""


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
    are_kept: bool = False
    """They go into a stream, whether or not anybody listens."""
    event_history: EventHistory | None = None
    """Notes them for ``explain``."""
    listener: Callable[[BrokerEvent], None] | None = None
    """Is told at once; of the program that embeds the broker. It must not raise."""

    def tell(
        self,
        name: str,
        client: Client | None = None,
        *,
        destination: str = "",
        reason: str = "",
        detail: str = "",
    ) -> None:
        """Note an event, if it is kept, or anybody is subscribed to ``DIAG/event/<name>``."""
        session, user = (client.session_id, client.user) if client is not None else ("", "")
        event = BrokerEvent(
            name,
            session_id=session,
            user=user,
            destination=destination,
            reason=reason,
            detail=detail,
        )
        if self.event_history is not None:
            self.event_history.happened(
                name, session=session, destination=destination, reason=reason, user=user
            )
        if self.listener is not None:
            self.listener(event)
        if not self.are_kept and not self.destinations.own(DIAG_EVENT + name).subscribers:
            return
        if len(self.pending) >= MAX_PENDING:
            self.lost += 1
            return
        self.pending.append(event)

    def tell_slow(self, slow: list[tuple[Subscription, int]]) -> None:
        """Note subscribers that were too slow, and what they lost."""
        for subscription, lost in slow:
            client, destination = subscription.client, subscription.destination
            self.tell("slow", client, destination=destination, reason="outbox-full")
            self.tell(
                "drop", client, destination=destination, reason="slow-consumer", detail=f"{lost}"
            )

    def take(self) -> list[BrokerEvent]:
        """Return the events noted since the last call."""
        taken, self.pending = self.pending, []
        return taken


def hint_at(events: BrokerEvents | None, publication: "Publication") -> None:
    """Tell once of a destination whose name is nearly that of a queue, and nobody listens."""
    destination = publication.destination
    # Already counted: only the first run of messages has that many.
    is_first = destination.enqueued == len(publication.bodies)
    if is_first and events is not None and (hint := hint_of(destination.name)):
        events.tell(
            "hint",
            publication.sender,
            destination=destination.name,
            reason="no-subscriber",
            detail=hint,
        )
