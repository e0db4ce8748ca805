"""Clients that leave: their subscriptions end in slices, so that nobody else waits for that."""

from collections.abc import Callable
from itertools import islice

from attrs import define, field

from trio_stomp.base import CloseReason, noop
from trio_stomp.broker.delivery import Client, Subscription, Timers, Turns, Work
from trio_stomp.broker.queues import FEW_QUEUES, Acknowledger, Consumer, QueueBook
from trio_stomp.broker.routing import Destinations
from trio_stomp.broker.subscribing._subscriber import Subscriber

MAX_ENDED = 2_000
"""So many messages go back in one turn; 250 subscriptions to topics, or 125 to queues, take as
long: 1 ms, or 3 on a busy machine."""
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
"""Why a connection ended that may have been its message's fault: its program crashed or hung, or
sent nonsense. Not what the broker, a limit, an operator or a DISCONNECT ended."""
SUBSCRIPTION_COST = 8
"""The end of a subscription, of its place in a queue, or of a temporary destination takes as long
as so many messages take to go back."""


LEAVING_S = 0.001
"""What that may take in a turn, should each take longer: one of very many patterns takes 30 µs."""


@define(eq=False, repr=False)
class Leaving:
    """Ends the subscriptions of clients: at once where they are few, else a slice in each turn.

    Between the slices it is for everybody else as if all had ended at once. Topics and work queues
    do not know the client any more (``Destinations``). Its outbox is closed, so that its consumers
    take nothing, and what comes to its durable subscriptions waits there. A queue that one of its
    consumers is at hands out nothing before that has gone, and given back what it had, or others
    would get what came later first; such a consumer goes first (``QueueBook``). Only the work that
    waited for a member of a work queue comes to the others later than what is sent meanwhile.

    Args:
      slice_size: What is done in one turn, in messages that go back.
    """

    subscriber: Subscriber
    destinations: Destinations
    queues: QueueBook
    acknowledger: Acknowledger
    timers: Timers
    slice_size: int = MAX_ENDED
    turns: Turns = field(factory=Turns)
    """Say when the rest is for later turns, though the slice is not used up."""
    _then: dict[Client, list[Callable[[], None]]] = field(factory=dict)
    """What is to be done once each has left."""
    _until: float = 0.0
    """When the rest is left for a later turn, by the clock of ``turns``."""

    def leave(self, client: Client, now: float, then: Callable[[], None] | None = None) -> None:
        """End all that ``client`` has, refuse what it sent, and close its outbox in the same turn.

        Args:
          client: The client.
          now: Seconds of the broker's clock.
          then: Called when that is done, in this turn or a later one.
        """
        calls = self._then.get(client)
        if calls is None:
            if self._is_little(client) and self._ends_all(client, now):
                if then is not None:
                    then()
                return
            calls = self._then[client] = []
            self._begin(client, now)
        if then is not None:
            calls.append(then)

    def ending_all(self, client: Client, now: float) -> Work:
        """End all that ``client`` has in pieces. The client stays, and may subscribe again."""
        for subscription in list(client.subscriptions.values()):
            yield from self.subscriber.ending(subscription, now)
            yield
        while client.temporary:
            self._end_temporary(client, now)
            yield

    def go_on(self, now: float) -> None:
        """Do one more slice, if a client is leaving. To be called soon after a timer is due."""
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
                # In turn: whoever has little to end does not wait for those who have much.
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
        """Nothing more comes to the broker: let everybody have left."""
        while not self.is_over:
            self.go_on(now)

    def _is_little(self, client: Client) -> bool:
        """Return whether all that a client has may end in one turn."""
        left = self.slice_size - SUBSCRIPTION_COST * len(client.temporary)
        for subscription in client.subscriptions.values():
            left -= _cost(subscription)
            if left < 0:
                return False
        return left >= 0

    def _ends_all(self, client: Client, now: float) -> bool:
        """End what a client has, as far as there is time, and return whether that was all."""
        self._until = self.turns.clock() + LEAVING_S
        for subscription in list(client.subscriptions.values()):
            self.subscriber.end(subscription, now)
            if not self._within(1):
                return False
        while client.temporary:
            self._end_temporary(client, now)
            if not self._within(1):
                return False
        return True

    def _within(self, left: int) -> int:
        """Return what is left of a slice: nothing if the time is up."""
        return left if self.turns.clock() < self._until else 0

    def _begin(self, client: Client, now: float) -> None:
        client.is_leaving = True
        self.destinations.leaving[client] = None
        self.destinations.note_change()
        if client.catching_up:
            # What was parked for it is for whoever subscribes next.
            for subscription in client.subscriptions.values():
                if subscription.catch_up is not None:
                    self.subscriber.initial_delivery.end(subscription)
        self.timers.call_at(now, noop)

    def _end_some(self, client: Client, left: int, now: float) -> int:
        """End a part of one client's, or let it have left, and return what is left of the slice."""
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
        self.subscriber.end(subscription, now)
        return cost

    def _end_temporary(self, client: Client, now: float) -> None:
        _, public = client.temporary.popitem()
        self.queues.end(public, now)


def _cost(subscription: Subscription) -> int:
    """Return the cost of ending a subscription, in messages that go back."""
    consumer = subscription.consumer
    if not isinstance(consumer, Consumer):
        return SUBSCRIPTION_COST
    return SUBSCRIPTION_COST * (1 + len(consumer.queues)) + len(consumer.unacked)
