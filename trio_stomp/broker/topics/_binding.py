"""Topic subscriptions with a queue of their own: acknowledging ones and durable ones."""

from typing import TYPE_CHECKING, Protocol

from attrs import define, field

from trio_stomp.broker.delivery import (
    BINDING_S,
    BrokerPolicies,
    Client,
    Delivery,
    Give,
    Publication,
    Target,
)

if TYPE_CHECKING:
    from trio_stomp.base import Quota
    from trio_stomp.broker.queues import Queue, QueueBook
    from trio_stomp.broker.selectors import Selector


SharedKey = tuple[str, str, str, str]
"""The name, destination, user and selector of a shared subscription."""


class BindingHost(Protocol):
    """The part of ``Bindings`` that a binding uses, which it cannot import: they import it."""

    policies: BrokerPolicies
    queues: "QueueBook"

    def enqueue(self, binding: "Binding", publication: Publication, bodies: list[bytes]) -> int:
        """Queue messages as far as the policy allows, and return the number queued."""


@define(eq=False, repr=False)
class Binding:
    """A member of a topic that puts its messages into a queue of its own. Implements ``Feed``.

    Args:
      number: Its position among the subscribers.
      targets: The destinations it is subscribed to.
      queue: The queue from which its consumers receive.
      host: Queues its messages.
      client: The client that subscribed last; None if restored from the store.
      durable: The durable subscription's name, or "".
    """

    number: int
    targets: list[Target]
    queue: "Queue"
    host: BindingHost
    client: Client | None = None
    durable: str = ""
    selector: "Selector | None" = None
    selector_text: str = ""
    no_local: bool = False
    owner: str = ""
    """The user who created the durable subscription; "" = there were no logins."""
    shared: "SharedKey" = ("",) * 4
    """Its key among those that subscribers share while there are any."""
    is_counted: bool = True
    """Figures count it. Of cores that have the same subscription, one does."""
    is_plain: bool = False
    version_index: int = 2
    cost: int = 0
    """Bytes charged for a durable subscription's tables, without its selector."""
    quota: "Quota | None" = None
    """The quota charged for it and its messages: the subscriber's, not the sender's."""
    is_welcomed: bool = False
    """Last values have been delivered. They are not delivered again to a returning client."""
    is_ended: bool = False
    """It has been removed from its destinations."""
    cost_s: float = field(init=False)
    """The cost of a message, in seconds."""

    def __attrs_post_init__(self) -> None:
        self.cost_s = BINDING_S if self.selector is None else BINDING_S + self.selector.cost_s
        self.queue.feed = self

    @property
    def slow_consumer(self) -> str:
        """Implement ``Feed.slow_consumer``."""
        host, policy = self.host, self.queue.policy
        is_named = policy is not host.queues.policies.default
        return policy.slow_consumer if is_named else host.policies.slow_consumer

    @property
    def max_backlog_bytes(self) -> int:
        """Implement ``Feed.max_backlog_bytes``."""
        return 0 if self.durable else self.host.policies.max_backlog_bytes

    @property
    def is_leaving(self) -> bool:
        """Return whether it ends soon because its clients leave. Durable subscriptions stay."""
        # There are several consumers if it was a shared durable subscription that has ended.
        is_left = all(each.subscription.client.is_leaving for each in self.queue.consumers)
        return is_left and not self.durable

    def has_copies(self, publication: Publication) -> bool:
        """Return whether its copies were queued when the publication was stored."""
        return publication.is_stored and bool(self.durable)

    def receive(self, publication: Publication, _delivery: Delivery, _give: Give) -> int:
        """Queue the messages, and return how many. ``delivery`` is for plain subscriptions."""
        if self.has_copies(publication):
            return 0
        return self.take(publication, publication.bodies)

    def wants(self, publication: Publication) -> bool:
        """Return whether the messages pass its no-local option and its selector."""
        if self.no_local and publication.sender is self.client:
            return False
        return self.selector is None or self.selector.matches(publication.head)

    def take(self, publication: Publication, bodies: list[bytes]) -> int:
        """Queue some bodies of a publication as far as they fit. Return the number queued."""
        if not self.wants(publication):
            return 0
        return self.host.enqueue(self, publication, bodies)
