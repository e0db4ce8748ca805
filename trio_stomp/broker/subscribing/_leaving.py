"""Clients that leave: their subscriptions end in slices, so that others are not delayed."""

from collections.abc import Callable
from itertools import islice

from attrs import define, field

from trio_stomp.base import CloseReason, noop
from trio_stomp.broker.delivery import Client, Subscription, Timers, Turns, Work
from trio_stomp.broker.queues import FEW_QUEUES, Acknowledger, Consumer, QueueBook
from trio_stomp.broker.routing import Destinations
from trio_stomp.broker.subscribing._subscriber import Subscriptions

MAX_ENDED = 2_000
"""Maximum number of messages returned to queues in one turn. 250 topic subscriptions or 125 queue
subscriptions take as long: 1 ms, or 3 ms on a busy machine."""
LOST = frozenset(
    {
        CloseReason.CLIENT_CLOSED,
        CloseReason.CONNECTION_LOST,
        CloseReason.HEARTBEAT_TIMEOUT,
        CloseReason.WRITE_STALLED,
        CloseReason.PROTOCOL_ERROR,
        CloseReason.WEBSOCKET_ERROR,
        CloseReason.TLS_FAILED,
    }
)
"""Close reasons that a delivered message may have caused: the client crashed, hung or sent invalid
data. Excludes connections ended by the broker, a limit, an operator or a DISCONNECT."""
SUBSCRIPTION_COST = 8
"""The cost of ending a subscription, leaving a queue or deleting a temporary destination, in
returned messages."""


LEAVING_S = 0.001
"""Time limit of a slice. A subscription among very many patterns takes 30 µs to end."""


@define(eq=False, repr=False)
class Leaving:
    """Ends the subscriptions of clients: few in the same turn, many in one slice per turn.

    To other clients the slices look like one step. Topics and work queues skip the client
    (``Destinations``). Its outbox is closed, so its consumers accept no more messages, and its
    durable subscriptions queue new ones. To preserve the order, a queue hands out nothing until the
    client's consumers have returned their messages to it; they are ended first (``QueueBook``). The
    exception: messages queued for a member of a work queue reach other members later than messages
    that are sent meanwhile.

    Args:
      slice_size: The work of one turn, in returned messages.
    """

    subscriptions: Subscriptions
    destinations: Destinations
    queues: QueueBook
    acknowledger: Acknowledger
    timers: Timers
    turns: Turns
    """The clock that limits a slice."""
    slice_size: int = MAX_ENDED
    _then: dict[Client, list[Callable[[], None]]] = field(factory=dict)
    """Callbacks for when a client has left."""
    _until: float = 0.0
    """When the current slice ends, by the clock of ``turns``."""

    def leave(self, client: Client, now: float, then: Callable[[], None] | None = None) -> None:
        """End a client's subscriptions and temporary destinations, now or in later turns.

        The caller must refuse its frames and close its outbox in the same turn.

        Args:
          client: The client.
          now: Seconds of the broker's clock.
          then: Called when all have ended, in this turn or a later one.
        """
        calls = self._then.get(client)
        if calls is None:
            try:
                has_left = self._is_little(client) and self._ends_all(client, now)
            except Exception as bug:
                has_left, self.turns.bug = False, bug  # the others end in slices
            if has_left:
                if then is not None:
                    then()
                return
            calls = self._then[client] = []
            self._begin(client, now)
        if then is not None:
            calls.append(then)

    def ending_all(self, client: Client, now: float) -> Work:
        """End a client's subscriptions and temporary destinations in pieces. The client stays."""
        for subscription in list(client.subscriptions.values()):
            yield from self.subscriptions.ending(subscription, now)
            yield
        while client.temporary:
            self._end_temporary(client, now)
            yield

    def go_on(self, now: float) -> None:
        """Do one slice for the clients that leave. Must be called after a timer is due."""
        leaving, urgent = self.destinations.leaving, self.queues.urgent
        if not leaving:
            return
        left = self.slice_size
        self._until = self.turns.clock() + LEAVING_S
        try:
            while left > 0 and urgent:
                subscription, _ = urgent.popitem()
                left = self._within(left - self._end(subscription, left, now))
            while left > 0 and leaving:
                # Round-robin: clients with few subscriptions do not wait for those with many.
                client = next(iter(leaving))
                del leaving[client]
                leaving[client] = None
                left = self._end_some(client, left, now)
        finally:
            if leaving:
                self.timers.call_at(now, noop)

    @property
    def is_over(self) -> bool:
        """Return whether no client is leaving."""
        return not self.destinations.leaving

    def finish(self, now: float) -> None:
        """Do all remaining slices. The broker is shutting down."""
        while not self.is_over:
            self.go_on(now)

    def _is_little(self, client: Client) -> bool:
        """Return whether a client's subscriptions and temporary destinations fit into one slice."""
        left = self.slice_size - SUBSCRIPTION_COST * len(client.temporary)
        for subscription in client.subscriptions.values():
            left -= _cost(subscription)
            if left < 0:
                return False
        return left >= 0

    def _ends_all(self, client: Client, now: float) -> bool:
        """End a client's subscriptions within the time limit. Return whether all have ended."""
        self._until = self.turns.clock() + LEAVING_S
        for subscription in list(client.subscriptions.values()):
            self.subscriptions.end(subscription, now)
            if not self._within(1):
                return False
        while client.temporary:
            self._end_temporary(client, now)
            if not self._within(1):
                return False
        return True

    def _within(self, left: int) -> int:
        """Return the rest of a slice, or 0 if its time is up."""
        return left if self.turns.clock() < self._until else 0

    def _begin(self, client: Client, now: float) -> None:
        client.is_leaving = True
        self.destinations.leaving[client] = None
        self.destinations.note_change()
        if client.catching_up:
            # Release its claims to parked messages now, for the next subscribers.
            for subscription in client.subscriptions.values():
                if subscription.catch_up is not None:
                    self.subscriptions.initial_delivery.end(subscription)
        self.timers.call_at(now, noop)

    def _end_some(self, client: Client, left: int, now: float) -> int:
        """Do part of a slice for one client, and return the rest of the slice."""
        most = 1 + left // SUBSCRIPTION_COST
        for subscription in list(islice(client.subscriptions.values(), most)):
            if left > 0:
                left = self._within(left - self._end(subscription, left, now))
        while left > 0 and client.temporary:
            self._end_temporary(client, now)
            left = self._within(left - SUBSCRIPTION_COST)
        if not (client.subscriptions or client.temporary):
            del self.destinations.leaving[client]
            for call in self._then.pop(client):
                call()
        return left

    def _end(self, subscription: Subscription, left: int, now: float) -> int:
        """End a subscription or return some of its messages. Return the cost."""
        consumer = subscription.consumer
        if isinstance(consumer, Consumer) and len(consumer.unacked) > left:
            self.acknowledger.return_some(consumer, left, now)
            return left
        if isinstance(consumer, Consumer) and len(consumer.queues) > max(
            FEW_QUEUES, left // SUBSCRIPTION_COST
        ):
            self.queues.part(
                consumer, left if consumer.unacked else 1 + left // SUBSCRIPTION_COST, now
            )
            return left
        cost = _cost(subscription)
        self.subscriptions.end(subscription, now)
        return cost

    def _end_temporary(self, client: Client, now: float) -> None:
        _, public = client.temporary.popitem()
        self.queues.end(public, now)


def _cost(subscription: Subscription) -> int:
    """Return the cost of ending a subscription, in returned messages."""
    consumer = subscription.consumer
    if not isinstance(consumer, Consumer):
        return SUBSCRIPTION_COST
    return SUBSCRIPTION_COST * (1 + len(consumer.queues)) + len(consumer.unacked)
