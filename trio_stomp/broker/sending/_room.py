"""Room for new messages: what they need, and old ones that leave for them in pieces."""

from attrs import define, field

from trio_stomp.base import Quota
from trio_stomp.broker.delivery import NEVER, Client, Destination, Publication, Work
from trio_stomp.broker.queues import Need, Overflow, Queue, cost_alone
from trio_stomp.broker.topics import StaleQueue
from trio_stomp.frames import Head

SEND_S = 45e-6
"""The cost of a SEND of a transaction besides its subscribers: 1,023 to eight queues take 44 ms."""


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
        return queue.drops_old
    return destination.ttl_s > 0 and not destination.subscribers


@define(eq=False, repr=False)
class Planned:
    """The sums of a transaction's actions.

    Args:
      client: Its sender.
      now: Seconds of the broker's clock.
    """

    client: Client
    now: float
    needs: Needs = field(init=False)
    names: dict[str, None] = field(factory=dict)
    wanted: dict[Queue, tuple[int, int, int]] = field(factory=dict)
    """For each queue: messages, bytes of their bodies, and bytes of the largest one."""
    heads: dict[Head, None] = field(factory=dict)
    later: int = 0
    """Bytes charged for messages that are not sent at once."""
    later_name: str = ""
    """The destination of one of those, for errors."""
    schedules: int = 0
    """Scheduled messages."""
    ids: int = 0
    """Bytes of ids for duplicate detection."""
    cost_s: float = 0.0
    """The cost of all actions, in seconds."""
    survives: bool = False
    """Part of it concerns the store, so all of it is stored."""

    def __attrs_post_init__(self) -> None:
        self.needs = Needs(self.client, self.client.quota, self.now)

    def keep(self, name: str, head: Head, bodies: list[bytes]) -> None:
        """Add messages for a destination that are not sent at once."""
        self.later += cost_alone(head, len(bodies), sum(map(len, bodies)))
        self.later_name = name
        self.cost_s += SEND_S * len(bodies)
