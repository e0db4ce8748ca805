"""Room for new messages: many old ones leave full queues or the stale queue in pieces."""

from attrs import define, field

from trio_stomp.base import Quota
from trio_stomp.broker.delivery import NEVER, Client, Destination, Publication, Work
from trio_stomp.broker.queues import Need, Overflow, Queue
from trio_stomp.broker.topics import StaleQueue
from trio_stomp.frames import Head


@define(eq=False, repr=False)
class Needs:
    """The messages of one request that may push out others."""

    client: Client | None
    """The sender; None = the broker."""
    quota: Quota | None
    """The quota charged for them."""
    now: float
    """Seconds of the broker's clock."""
    queues: dict[Queue, Need] = field(factory=dict)
    parked: list[Publication] = field(factory=list)

    def add(self, destination: Destination, head: Head, bodies: list[bytes]) -> None:
        """Add messages for one destination."""
        if not may_push_out(destination):
            return
        origin = Publication(destination, head, bodies, self.now, NEVER, sender=self.client)
        origin.quota = self.quota
        queue = destination.queue
        if isinstance(queue, Queue):
            self.queues.setdefault(queue, Need(origin.without_bodies())).add(bodies)
        else:
            self.parked.append(origin)

    def making_room(self, overflow: Overflow, stale: StaleQueue) -> Work | None:
        """Return the work that makes room for them, or None if few messages must leave."""
        work = overflow.making_room(self.queues, self.now) if self.queues else None
        if work is None and self.parked:
            work = stale.making_room(self.parked, self.now)
        return work


def may_push_out(destination: Destination) -> bool:
    """Return whether messages sent there may push out older ones, by policy."""
    queue = destination.queue
    if isinstance(queue, Queue):
        return queue.policy.drops_old
    return destination.ttl_s > 0 and not destination.subscribers
