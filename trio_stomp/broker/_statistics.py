"""The figures of a core, for diagnostics and pages. Nothing is counted or changed here."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from attrs import frozen

from trio_stomp.broker.delivery import Client, Destination, Subscription
from trio_stomp.broker.queues import queue_of
from trio_stomp.broker.routing import Destinations, PolicyBook, Quotas
from trio_stomp.broker.topics import Binding, Durables, ParkedDestination, StaleQueue

if TYPE_CHECKING:
    from trio_stomp.broker._broker import Broker

EXPIRED, OVERFLOW = "expired", "overflow"
"""Reasons of dead letters that are counted elsewhere too: as expired, and as dropped."""

DestinationFigures = tuple[int, int, int, int, int]
"""Subscribers; messages queued and unacknowledged; counts of acknowledged and refused ones.

A plain tuple: it is made for each of 10,000 destinations in an interval.
"""


@frozen
class MessageFigures:
    """Counts of messages since the start.

    Args:
      silent_drops: Messages dropped without an event, by reason.
      drops: Messages dropped, by reason, without those that expired.
      expired: Expired messages, by the place where they waited.
      dead_letters: Messages that became dead letters, by reason.
    """

    received: int
    duplicates: int
    delivered: int
    acked: int
    nacked: int
    redelivered: int
    silent_drops: Mapping[str, int]
    drops: Mapping[str, int]
    expired: Mapping[str, int]
    dead_letters: Mapping[str, int]


@frozen
class StaleFigures:
    """Figures of the stale queue: what it holds, and counts of messages since the start."""

    destinations: int
    size: int
    bytes: int
    capacity: int
    parked: int
    revived: int
    expired: int
    dropped: int


@frozen(eq=False, repr=False)
class Statistics:
    """The figures of a core at one moment, and what it holds from then on.

    Args:
      clients: Connected clients.
      past: The sums of the destinations that were forgotten.
      durables: Durable subscriptions, the oldest first.
      subscriptions: Subscriptions that this core counts: not those that another core has, too, and
        counts.
      copies: The others.
      wildcards: Wildcard subscriptions that this core counts.
      quota_refusals: ERRORs because a quota was full.
      refusals: All ERRORs to clients, by code.
      lost_events: Events beyond the limit of one turn.
    """

    clients: Collection[Client]
    destinations: Destinations
    past: Destination
    durables: Durables
    subscriptions: int
    copies: int
    wildcards: int
    messages: MessageFigures
    stale: StaleFigures
    quota_refusals: int
    refusals: Mapping[str, int]
    lost_events: int
    _stale_queue: StaleQueue
    _quota_book: Quotas
    _policies: PolicyBook

    def find(self, name: str) -> Destination | None:
        """Return the destination of ``name``, if in use."""
        return self.destinations.find(name)

    def some_subscribers(
        self, destination: Destination, start: int, stop: int
    ) -> list[Subscription | Binding]:
        """Return the subscribers of a destination from a position to another."""
        found: list[Subscription | Binding] = []
        for each in self.destinations.some_recipients(destination, start, stop):
            if isinstance(each, Binding) and not each.durable:
                found += [consumer.subscription for consumer in each.queue.consumers]
            else:
                assert isinstance(each, Subscription | Binding)
                found.append(each)
        queue = queue_of(destination)
        if queue is not None:
            behind = self.destinations.recipients_count(destination)
            consumers = queue.consumers[max(0, start - behind) : max(0, stop - behind)]
            found += [consumer.subscription for consumer in consumers]
        return found

    def parked(self) -> list[ParkedDestination]:
        """Return the destinations with parked messages, at most as many as are ranked."""
        return self._stale_queue.candidates()

    def quotas(self) -> list[dict[str, object]]:
        """Return the figures of the largest quotas."""
        return self._quota_book.figures()

    def takes_dead_letters(self, name: str) -> bool:
        """Return whether dead letters of other queues go to this one."""
        return self._policies.takes_dead_letters(name)

    def parked_at(self, name: str) -> int:
        """Return the number of messages parked at a destination."""
        return self._stale_queue.depth(name)

    def figures(self, destination: Destination) -> DestinationFigures:
        """Return the figures of a destination that are counted elsewhere."""
        table = self.destinations
        # Only the one in use is up to date with wildcard subscriptions.
        current = table.find(destination.name) or destination
        queue, subscribers = queue_of(current), table.recipients_count(current)
        if queue is None:
            return subscribers, 0, 0, 0, 0
        subscribers += len(queue.consumers)
        return subscribers, queue.depth, queue.unacked, queue.dequeued, queue.nacked


def statistics(broker: "Broker") -> Statistics:
    """Return the figures of a core. This takes no longer with more destinations or clients."""
    stale, totals = broker.stale, broker.stale.statistics
    return Statistics(
        clients=broker.clients,
        destinations=broker.destinations,
        past=broker.destinations.past,
        durables=broker.bindings.durables,
        subscriptions=broker.subscriptions.counted,
        copies=len(broker.subscriptions) - broker.subscriptions.counted,
        wildcards=broker.destinations.counted,
        messages=_messages(broker),
        stale=StaleFigures(
            destinations=stale.destinations(),
            size=stale.size,
            bytes=stale.bytes,
            capacity=broker.policies.max_stale_queue_size,
            parked=totals.parked,
            revived=totals.revived,
            expired=totals.expired,
            dropped=totals.dropped,
        ),
        quota_refusals=broker.quotas.refused,
        refusals=dict(broker.quotas.refusals),
        lost_events=broker.events.lost,
        stale_queue=broker.stale,
        quota_book=broker.quotas,
        policies=broker.queues.policies,
    )


def _messages(broker: "Broker") -> MessageFigures:
    drops, dead_letter_counts = broker.fan_out.drops, broker.queues.dead_letter_counts
    failed = {reason.value: count for reason, count in dead_letter_counts.failed.items()}
    moved = {reason.value: count for reason, count in dead_letter_counts.moved.items()}
    silent = {
        "no-subscriber": drops.no_subscriber,
        "stale-queue-full": broker.stale.statistics.dropped,
        "backlog-abandoned": drops.backlog_abandoned,
        "queue-full": broker.overflow.dropped,
        "backlog-full": broker.overflow.backlog_dropped,
        "revoked": broker.authorizer.revoked,
        "purged": broker.manager.purged,
    }
    lost = {name: failed[name] - moved[name] for name in failed if name not in (EXPIRED, OVERFLOW)}
    return MessageFigures(
        received=broker.publisher.received,
        duplicates=broker.duplicates.found,
        delivered=broker.fan_out.delivered,
        acked=broker.acknowledger.counters.acked,
        nacked=broker.acknowledger.counters.nacked,
        redelivered=broker.acknowledger.counters.redelivered,
        silent_drops=silent,
        drops={
            **silent,
            "slow-consumer": drops.slow_consumer,
            "scheduled": broker.scheduler.lost,
            "damaged": 0 if broker.storage is None else broker.storage.lost,
            **lost,
        },
        expired={
            "arrival": drops.expired,
            "stale": broker.stale.statistics.expired,
            "queue": failed[EXPIRED],
        },
        dead_letters=moved,
    )
