"""A topic that is consumed like a queue: by acknowledgement, or by a durable subscription."""

from typing import TYPE_CHECKING, Protocol

from attrs import define

from trio_stomp.broker.delivery import Client, Delivery, Give, Place, Publication

if TYPE_CHECKING:
    from trio_stomp.base import Quota
    from trio_stomp.broker.queues import Queue
    from trio_stomp.broker.selectors import Selector


class BindingHost(Protocol):
    """The part of the core that a binding uses."""

    def enqueue(self, binding: "Binding", publication: Publication, bodies: list[bytes]) -> int:
        """Put messages into a binding's queue as far as its policy allows, and return how many."""


@define(eq=False, repr=False)
class Binding:
    """Stands among a topic's subscribers and puts what it gets into a queue of its own.

    Args:
      number: Its place among the subscribers.
      places: What it is subscribed to.
      queue: Where messages wait for whoever is attached to it.
      client: Its only client, if it ends with it; None for a durable subscription.
      durable: The durable subscription's name, or "".
    """

    number: int
    places: list[Place]
    queue: "Queue"
    host: BindingHost
    client: Client | None = None
    durable: str = ""
    selector: "Selector | None" = None
    selector_text: str = ""
    no_local: bool = False
    owner: str = ""
    """The user who made the durable subscription; "" = nobody had to log in."""
    is_direct: bool = False
    wire: int = 2
    cost: int = 0
    """Bytes of tables that a durable subscription is charged for; its selector apart."""
    quota: "Quota | None" = None
    """Who is charged for it, and for what waits in its queue: its subscriber, not who sends."""
    is_welcomed: bool = False
    """It was given what was there before it; nobody who returns to it is given that again."""
    is_ended: bool = False
    """It stands among the subscribers no more."""

    @property
    def is_there(self) -> bool:
        """Return whether it still stands among the subscribers."""
        return not self.is_ended

    @property
    def is_leaving(self) -> bool:
        """Return whether it ends soon, since its clients leave. What is durable stays."""
        # Several consume it if it was durable once, and ended by name.
        is_left = all(each.subscription.client.is_leaving for each in self.queue.consumers)
        return is_left and not self.durable

    def receive(self, publication: Publication, _delivery: Delivery, _give: Give) -> int:
        """Queue the messages, and return how many. ``delivery`` is for those without a queue."""
        if publication.is_stored and self.durable:
            return 0  # it was given its copies before the store had them
        return self.take(publication, publication.bodies)

    def wants(self, publication: Publication) -> bool:
        """Return whether it is to get these messages."""
        if self.no_local and publication.sender is self.client:
            return False
        return self.selector is None or self.selector.matches(publication.head)

    def take(self, publication: Publication, bodies: list[bytes]) -> int:
        """Queue some bodies of a publication as far as they fit, and return how many."""
        if not self.wants(publication):
            return 0
        return self.host.enqueue(self, publication, bodies)
