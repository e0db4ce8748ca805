"""Initial delivery: queue contents for browsers, last values, and parked messages."""

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice

from attrs import define, field

from trio_stomp.base import MemoryBudget
from trio_stomp.broker.browsing import Browse, Browses
from trio_stomp.broker.delivery import (
    BrokerPolicies,
    Client,
    Delivery,
    DeliveryReason,
    LossReason,
    Publication,
    Span,
    Subscription,
    Work,
)
from trio_stomp.broker.durability import Callback
from trio_stomp.broker.headers import SubscribeOptions
from trio_stomp.broker.queues import Consumer, QueueBook
from trio_stomp.broker.routing import Destinations, FanOut
from trio_stomp.broker.topics._binding import Binding
from trio_stomp.broker.topics._bindings import Bindings
from trio_stomp.broker.topics._last_values import LastValues
from trio_stomp.broker.topics._stale import Claim, StaleQueue


@define(eq=False, repr=False)
class CatchUp:
    """The initial delivery to a plain subscription, and a bounded backlog behind it.

    Args:
      claim: Its claim to parked messages.
      memory: Charged for the backlog.
      max_waiting_bytes: The limit of the backlog.
    """

    claim: Claim
    memory: MemoryBudget
    max_waiting_bytes: int
    steps: Work = field(init=False)
    """The remaining steps. The last one ends the catch-up."""
    is_giving: bool = False
    """Whether the next step stages messages, which needs room in the outbox."""
    _waiting: deque[Delivery] = field(factory=deque)
    _waiting_bytes: int = 0

    @property
    def is_followed(self) -> bool:
        """Return whether the backlog holds deliveries."""
        return bool(self._waiting)

    def follow(self, delivery: Delivery) -> bool:
        """Append a delivery to the backlog. Return False if it exceeds the limit or memory."""
        waiting = self._waiting_bytes + delivery.size
        if waiting > self.max_waiting_bytes or not self.memory.take(delivery.size):
            return False
        self._waiting_bytes = waiting
        self._waiting.append(delivery)
        return True

    def next_waiting(self) -> Delivery | None:
        """Remove and return the backlog's oldest delivery, or None."""
        if not self._waiting:
            return None
        delivery = self._waiting.popleft()
        self._waiting_bytes -= delivery.size
        self.memory.give(delivery.size)
        return delivery


DONE = object()
STEP = 128
"""Deliveries of a backlog that are staged or counted as lost in one piece of work."""


@define(eq=False, repr=False)
class InitialDelivery:
    """Delivers earlier messages to new subscriptions, in pieces, as fast as their clients read.

    Messages that are published meanwhile queue behind them, which preserves the order of each
    destination: for a plain subscription in its ``CatchUp``, for a binding in its queue, which is
    frozen until all older messages are in it.
    """

    policies: BrokerPolicies
    memory: MemoryBudget
    destinations: Destinations
    queues: QueueBook
    stale: StaleQueue
    fan_out: FanOut
    bindings: Bindings
    browses: Browses
    last_values: LastValues
    _resumed: dict[Client, None] = field(factory=dict)
    """Clients whose catch-up is scheduled to continue."""

    def earlier(self, subscription: Subscription) -> Work | None:
        """Return the work that delivers earlier messages of topics, or None if there are none.

        Earlier ones are those until now. The work may begin later, or never.
        """
        targets, binding = subscription.targets, subscription.binding
        if not (self.last_values.may_reach(targets) or self.stale.may_reach(targets)):
            if isinstance(binding, Binding):
                binding.is_welcomed = True
            return None
        newest = self.last_values.newest
        if isinstance(binding, Binding):
            count = len(self.last_values.owners) + self.stale.size
            first = self.queues.reserve(count)
            return self._filling(binding, newest, iter(range(first, first + count)))
        return self._catching_up(subscription, newest)

    # Browsers.

    def browse(self, consumer: Consumer, options: SubscribeOptions, now: float) -> None:
        """Show a browser the messages of its queues."""
        storage, make = self.queues.storage, partial(self._browse, consumer, options)
        begin = partial(self._add_browse, consumer.subscription, make)
        if storage is not None and storage.spilling:
            # It shows what its client has sent before, also what is on its way to the store.
            storage.log.when_safe(Callback(None, begin, undo=begin))
        else:
            begin(now)

    def _add_browse(
        self, subscription: Subscription, make: Callable[[], Browse], now: float
    ) -> None:
        if subscription.consumer is not None:  # it has not ended meanwhile
            self.browses.add(subscription, make, now)

    def _browse(self, consumer: Consumer, options: SubscribeOptions) -> Browse:
        """Return a browse of the messages that the queues have now."""
        storage = self.queues.storage
        return Browse(
            consumer,
            queues=self.queues.wildcard_queues.reached(consumer.subscription.targets),
            sends_end=options.browser_end,
            newest=self.queues.accepted,
            newest_stored=storage.log.next_id - 1 if storage is not None else 0,
            storage=storage,
        )

    # Bindings.

    def _filling(self, binding: Binding, newest: int, numbers: Iterator[int]) -> Work:
        """Put earlier messages into a binding's queue, in front of those published since."""
        claim = Claim(self.stale)
        putting = self._putting(binding, claim, 0 if binding.is_welcomed else newest, numbers)
        binding.is_welcomed = True
        self.queues.freeze([binding.queue])
        try:
            while not binding.is_ended and next(putting, DONE) is not DONE:
                yield
        finally:
            claim.end()
            self.queues.thaw([binding.queue])

    def _putting(self, binding: Binding, claim: Claim, newest: int, numbers: Iterator[int]) -> Work:
        turns = self.destinations.turns
        yield from claim.gather(binding.targets)
        for name in self.last_values.reached(binding.targets, newest):
            last_value = self.last_values.given(name, newest, turns.now) if name else None
            if last_value is not None and binding.wants(last_value):
                self._put(binding, last_value, numbers)
            yield
        while not claim.is_empty:
            run = claim.next_run(turns.now)
            if run is not None and binding.wants(run.publication):
                self._put(binding, run.publication, numbers)
            elif run is not None:
                self.fan_out.refuse(run.publication)
            yield

    def _put(self, binding: Binding, publication: Publication, numbers: Iterator[int]) -> None:
        """Put messages into a binding's queue under the next reserved numbers."""
        first, *_ = [*islice(numbers, len(publication.bodies)), 0]
        self.bindings.enqueue(binding, publication, publication.bodies, first)

    # Plain subscriptions.

    def _catching_up(self, subscription: Subscription, newest: int) -> Work:
        """Do the catch-up of a plain subscription, as far as its outbox has room."""
        claim = Claim(self.stale)
        catch_up = CatchUp(claim, self.memory, self.policies.max_backlog_bytes)
        catch_up.steps = self._steps(subscription, catch_up, newest)
        subscription.catch_up = catch_up
        subscription.client.catching_up += 1
        self._note_direct(subscription)
        yield from self._giving(subscription, catch_up)

    def _giving(self, subscription: Subscription, catch_up: CatchUp) -> Work:
        """Do the next steps of a catch-up, as long as the outbox has room for their messages."""
        while not catch_up.is_giving or subscription.outbox.has_room():
            if next(catch_up.steps, DONE) is DONE:
                return
            yield

    def _steps(self, subscription: Subscription, catch_up: CatchUp, newest: int) -> Work:
        targets, turns = subscription.targets, self.destinations.turns
        yield from catch_up.claim.gather(targets)
        for name in self.last_values.reached(targets, newest):
            catch_up.is_giving = name is not None
            yield
            last_value = self.last_values.given(name, newest, turns.now) if name else None
            if last_value is not None and subscription.wants(last_value):
                self._stage(subscription, last_value, DeliveryReason.LAST_VALUE)
        claim = catch_up.claim
        catch_up.is_giving = catch_up.is_followed or not claim.is_empty
        while catch_up.is_giving:
            yield
            if not claim.is_empty:
                self._stage_parked(subscription, claim)
            elif catch_up.is_followed:
                self._stage_waiting(subscription, catch_up)
            else:
                catch_up.is_giving = False
        self._caught_up(subscription)

    def _stage_parked(self, subscription: Subscription, claim: Claim) -> None:
        """Stage the next parked run."""
        run = claim.next_run(self.destinations.turns.now)
        if run is not None and subscription.wants(run.publication):
            self._stage(subscription, run.publication, DeliveryReason.PARKED)
        elif run is not None:
            self.fan_out.refuse(run.publication)

    def _stage(
        self, subscription: Subscription, publication: Publication, reason: DeliveryReason
    ) -> None:
        """Stage earlier messages. Parked ones are paced by the client."""
        delivery = self.fan_out.encode_for(subscription, publication, publication.bodies, reason)
        delivery.is_paced = reason is DeliveryReason.PARKED
        self.fan_out.stage(subscription, delivery)

    def _stage_waiting(self, subscription: Subscription, catch_up: CatchUp) -> None:
        """Stage some deliveries of the backlog, as far as the outbox has room."""
        for _ in range(STEP):
            delivery = catch_up.next_waiting() if subscription.outbox.has_room() else None
            if delivery is None:
                return
            if delivery.publication.is_over(self.destinations.turns.now):
                session, span = subscription.client.session_id, _span(delivery)
                self.fan_out.expire(delivery.publication, delivery.count, session, span)
            else:
                self.fan_out.stage(subscription, delivery)

    def go_on(self, client: Client) -> None:
        """Resume the catch-ups of a client whose outbox has room again."""
        if client.catching_up and client not in self._resumed:
            self._resumed[client] = None
            self.destinations.turns.carry_out(self._going_on(client))

    def _going_on(self, client: Client) -> Work:
        try:
            for subscription in list(client.subscriptions.values()):
                catch_up = subscription.catch_up
                if isinstance(catch_up, CatchUp):
                    yield from self._giving(subscription, catch_up)
                    if subscription.catch_up is catch_up:
                        return  # no room; ``go_on`` is called again when there is
        finally:
            del self._resumed[client]

    def go_on_browsing(self, client: Client, now: float) -> None:
        """Resume the browses of a client."""
        if self.fan_out.event_history is not None:
            self.fan_out.event_history.now = now
        self.browses.resume(client, now)

    def end(self, subscription: Subscription) -> None:
        """End a subscription's initial delivery. Parked messages stay, but the backlog is lost."""
        self.browses.end(subscription)
        catch_up = subscription.catch_up
        if isinstance(catch_up, CatchUp):
            catch_up.steps = iter(())
            catch_up.claim.end()
            self._caught_up(subscription)
            if catch_up.is_followed:
                losing = self._losing(catch_up, subscription.client.session_id)
                self.destinations.turns.carry_out(losing)

    def _losing(self, catch_up: CatchUp, session: str) -> Work:
        """Count the deliveries of a backlog as lost, in pieces."""
        while lost := list(islice(iter(catch_up.next_waiting, None), STEP)):
            for delivery in lost:
                self.fan_out.drops.backlog_abandoned += delivery.count
                delivery.publication.destination.dropped += delivery.count
            self._note_lost(lost, session)
            yield

    def _note_lost(self, lost: list[Delivery], session: str) -> None:
        """Record lost deliveries in the history, one event for each destination."""
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
                session=session,
                deliveries=(begin, end - begin),
            )

    def _caught_up(self, subscription: Subscription) -> None:
        subscription.catch_up = None
        subscription.client.catching_up -= 1
        self._note_direct(subscription)

    def _note_direct(self, subscription: Subscription) -> None:
        subscription.update_is_plain()
        self.destinations.outdate(subscription.targets)


def _span(delivery: Delivery) -> Span:
    """Return the span of a delivery. Its block begins with the number of the first message."""
    return int(delivery.tails[1].partition(b"\n")[0]), delivery.count
