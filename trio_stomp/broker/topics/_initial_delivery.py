"""What a newcomer is given first: a browser's view, last values, and what was parked for it."""

from functools import partial

from attrs import define

from trio_stomp.base import MemoryBudget
from trio_stomp.broker.browsing import Browse, Browses
from trio_stomp.broker.delivery import (
    BrokerPolicies,
    Client,
    Delivery,
    DeliveryReason,
    LossReason,
    Span,
    Subscription,
)
from trio_stomp.broker.headers import SubscribeOptions
from trio_stomp.broker.names import Kind
from trio_stomp.broker.queues import Consumer, QueueBook
from trio_stomp.broker.routing import Destinations, FanOut
from trio_stomp.broker.topics._binding import Binding
from trio_stomp.broker.topics._bindings import Bindings
from trio_stomp.broker.topics._catch_up import CatchUp
from trio_stomp.broker.topics._last_values import LastValues
from trio_stomp.broker.topics._stale import StaleQueue


@define(eq=False, repr=False)
class InitialDelivery:
    """Gives subscriptions what was there before them, as fast as their clients take it."""

    policies: BrokerPolicies
    memory: MemoryBudget
    destinations: Destinations
    queues: QueueBook
    stale: StaleQueue
    fan_out: FanOut
    bindings: Bindings
    browses: Browses
    last_values: LastValues

    def give(
        self, subscription: Subscription, kind: Kind, options: SubscribeOptions, now: float
    ) -> None:
        """Begin with a newcomer: a browser's view, last values, what was parked."""
        if kind is Kind.STREAM:
            return
        if kind is Kind.QUEUE:
            consumer = subscription.consumer
            if options.browser and isinstance(consumer, Consumer):
                for name, pattern in subscription.places:
                    if pattern is None:
                        self.queues.open(name, subscription.quota)
                make = partial(self._browse, consumer, options)
                self.browses.add(subscription, make, now)
            return
        self._give_retained(subscription, now)
        claimed = []
        for name, pattern in subscription.places:
            claimed += self.stale.claim(name, pattern)
        if not claimed:
            return
        catch_up = CatchUp(self.stale, self.memory, self.policies.max_backlog_bytes)
        catch_up.start(claimed)
        binding = subscription.binding
        if isinstance(binding, Binding):
            self.bindings.revive(binding, catch_up, now)
            return
        subscription.catch_up = catch_up
        self._note_direct(subscription)
        subscription.client.catching_up += 1
        self.go_on(subscription, now)

    def _browse(self, consumer: Consumer, options: SubscribeOptions) -> Browse:
        """Let a browser begin, with what there is now."""
        storage = self.queues.storage
        return Browse(
            consumer,
            queues=self.queues.reached(consumer.subscription.places),
            tells_end=options.browser_end,
            newest=self.queues.accepted,
            newest_stored=storage.log.next_id - 1 if storage is not None else 0,
            storage=storage,
        )

    def _give_retained(self, subscription: Subscription, now: float) -> None:
        binding = subscription.binding
        if isinstance(binding, Binding):
            if binding.is_welcomed:
                return
            binding.is_welcomed = True
        for name, pattern in subscription.places:
            for destination in self.destinations.matching(name, pattern):
                kept = destination.retained
                if kept is None or kept.is_over(now) or not subscription.wants(kept):
                    continue
                if not self.last_values.may_be_given(destination):
                    continue
                if binding is not None:
                    binding.take(kept, kept.bodies)
                else:
                    delivery = self.fan_out.encode_for(
                        subscription, kept, kept.bodies, DeliveryReason.LAST_VALUE
                    )
                    self.fan_out.give(subscription, delivery)

    def is_unfinished(self, subscription: Subscription) -> bool:
        """Return whether there is more to give, once its client takes it."""
        return subscription.catch_up is not None

    def go_on_browsing(self, client: Client, now: float) -> None:
        """Show a client more of what it browses."""
        if self.fan_out.event_history is not None:
            self.fan_out.event_history.now = now
        self.browses.resume(client, now)

    def go_on(self, subscription: Subscription, now: float) -> None:
        """Give more, as far as its client takes it."""
        if self.fan_out.event_history is not None:
            # A writer that has room again begins no turn.
            self.fan_out.event_history.now = now
        catch_up = subscription.catch_up
        while isinstance(catch_up, CatchUp) and subscription.outbox.has_room():
            run = catch_up.next_parked(now)
            if run is not None:
                if not subscription.wants(run.publication):
                    self.fan_out.refuse(run.publication)
                    continue
                delivery = self.fan_out.encode_for(
                    subscription, run.publication, run.publication.bodies, DeliveryReason.PARKED
                )
                delivery.is_paced = True
            else:
                waiting = catch_up.next_waiting()
                if waiting is None:
                    self._caught_up(subscription)
                    return
                if waiting.publication.is_over(now):
                    session, span = subscription.client.session_id, _span(waiting)
                    self.fan_out.expire(waiting.publication, waiting.count, session, span)
                    continue
                delivery = waiting
            self.fan_out.stage(subscription, delivery)

    def end(self, subscription: Subscription) -> None:
        """End a subscription's initial delivery. The rest is lost, or stays parked."""
        self.browses.end(subscription)
        catch_up = subscription.catch_up
        if isinstance(catch_up, CatchUp):
            lost = catch_up.abandon()
            for delivery in lost:
                self.fan_out.drops.backlog_abandoned += delivery.count
                delivery.publication.destination.dropped += delivery.count
            self._note_abandoned(subscription, lost)
            self._caught_up(subscription)

    def _note_abandoned(self, subscription: Subscription, lost: list[Delivery]) -> None:
        """Note what waited behind parked messages and is lost, an event for each destination."""
        event_history = self.fan_out.event_history
        if event_history is None:
            return
        found: dict[str, tuple[int, int, int]] = {}
        for delivery in lost:
            name, (first, count) = delivery.publication.destination.name, _span(delivery)
            begin, _, before = found.get(name, (first, 0, 0))
            found[name] = (begin, first + count, before + count)
        for name, (begin, end, count) in found.items():
            event_history.lost(
                LossReason.BACKLOG_ABANDONED,
                name,
                count=count,
                session=subscription.client.session_id,
                deliveries=(begin, end - begin),
            )

    def _caught_up(self, subscription: Subscription) -> None:
        subscription.catch_up = None
        subscription.client.catching_up -= 1
        self._note_direct(subscription)

    def _note_direct(self, subscription: Subscription) -> None:
        subscription.note_direct()
        self.destinations.note_change()


def _span(delivery: Delivery) -> Span:
    """Return the numbers of a delivery's messages: the first one's is what it begins with."""
    return int(delivery.tails[1].partition(b"\n")[0]), delivery.count
