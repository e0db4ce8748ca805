"""SUBSCRIBE and UNSUBSCRIBE, and giving late subscribers what was parked for them."""

from attrs import define, field

from trio_stomp._errors import CloseReason, ProtocolError
from trio_stomp.broker._events import BrokerEvents
from trio_stomp.broker._fanout import FanOut
from trio_stomp.broker._memory import MemoryBudget
from trio_stomp.broker._policies import BrokerPolicies
from trio_stomp.broker._revival import Revival
from trio_stomp.broker._route import RouteTable
from trio_stomp.broker._stale import StaleQueue
from trio_stomp.broker._subscription import Client, Subscription
from trio_stomp.broker._wildcards import compile_pattern
from trio_stomp.frames import encode_receipt, subscription_prefix
from trio_stomp.protocol import Subscribed, Unsubscribed

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


@define(eq=False)
class Subscriber:
    """Keeps the subscriptions of all clients in order of SUBSCRIBE."""

    policies: BrokerPolicies
    memory: MemoryBudget
    routes: RouteTable
    stale: StaleQueue
    fan_out: FanOut
    events: BrokerEvents
    boot: str
    _all: dict[Subscription, None] = field(factory=dict)
    _number: int = 0

    def __len__(self) -> int:
        return len(self._all)

    def destinations(self) -> list[str]:
        """What is subscribed to, in order of SUBSCRIBE."""
        return [subscription.destination for subscription in self._all]

    def add(self, client: Client, event: Subscribed, now: float) -> None:
        """Subscribe; the RECEIPT is staged before the first MESSAGE.

        Raises:
          ProtocolError: a second use of the id (S07), too many subscriptions, an ack mode or a
            destination that is not served.
        """
        name = event.destination
        self._number += 1
        key = event.id if event.id is not None else f"\0{self._number}"
        self._check(client, event, key)
        pattern = compile_pattern(name, self.policies.wildcards)
        self.routes.check(name, pattern)
        prefix = subscription_prefix(event.id, f"{self.boot}.{_base36(self._number)}", client.rules)
        subscription = Subscription(
            client, key, event.id, name, pattern, self._number, prefix, event.headers
        )
        self.routes.add(subscription)
        client.subscriptions[key] = subscription
        self._all[subscription] = None
        if event.receipt is not None:
            client.outbox.stage_frame(encode_receipt(event.receipt))
        self.events.tell("subscribe", client, destination=name)
        claimed = self.stale.claim(name, pattern)
        if claimed:
            revival = Revival(self.stale, self.memory, self.policies.max_backlog_bytes)
            revival.start(claimed)
            subscription.revival = revival
            client.reviving += 1
            self._revive(subscription, revival, now)

    def _check(self, client: Client, event: Subscribed, key: str) -> None:
        if key in client.subscriptions:
            raise ProtocolError(
                "duplicate-subscription",
                f"id:{key[:60]} is in use by a subscription of this connection to"
                f" {client.subscriptions[key].destination[:80]}; UNSUBSCRIBE it or use another",
            )
        limit = self.policies.max_subscriptions_per_connection
        if len(client.subscriptions) >= limit:
            raise ProtocolError(
                "too-many-subscriptions",
                f"this connection has {limit} subscriptions, which is the limit"
                " (option max_subscriptions_per_connection)",
                reason=CloseReason.LIMIT_EXCEEDED,
            )
        if event.ack != "auto":
            raise ProtocolError(
                "unsupported",
                f"ack:{event.ack} is not available in this release; ack:auto is",
                reason=CloseReason.UNSUPPORTED,
            )

    def remove(self, client: Client, event: Unsubscribed) -> None:
        """Unsubscribe by id, or in STOMP 1.0 by destination: the oldest without an id (S13).

        Raises:
          ProtocolError: there is no such subscription (S14).
        """
        found: Subscription | None
        if event.id is not None:
            found = client.subscriptions.get(event.id)
            if found is not None and event.destination not in (None, found.destination):
                raise ProtocolError(
                    "destination-mismatch",
                    f"id:{event.id[:60]} is subscribed to {found.destination[:80]}, not to"
                    f" {(event.destination or '')[:80]}; leave the destination out",
                )
        else:
            nameless = (each for each in client.subscriptions.values() if each.id is None)
            found = next((each for each in nameless if each.destination == event.destination), None)
        if found is None:
            what = f"id:{event.id[:60]}" if event.id is not None else f"{event.destination}"
            raise ProtocolError(
                "unknown-subscription", f"{what} is no subscription of this connection"
            )
        self._end(found)
        if event.receipt is not None:
            client.outbox.stage_frame(encode_receipt(event.receipt))

    def remove_all(self, client: Client) -> None:
        """End what is left of a client's subscriptions."""
        for subscription in list(client.subscriptions.values()):
            self._end(subscription)

    def go_on(self, client: Client, now: float) -> None:
        """Give a client more of what was parked for it, as far as its outbox has room."""
        if client.reviving:
            for subscription in client.subscriptions.values():
                if subscription.revival is not None:
                    self._revive(subscription, subscription.revival, now)

    def _end(self, subscription: Subscription) -> None:
        client = subscription.client
        del client.subscriptions[subscription.key]
        del self._all[subscription]
        self.routes.remove(subscription)
        if subscription.revival is not None:
            for delivery in subscription.revival.abandon():
                self.fan_out.drops.backlog_abandoned += delivery.count
                delivery.publication.route.dropped += delivery.count
            self._caught_up(subscription)
        self.events.tell("unsubscribe", client, destination=subscription.destination)

    def _revive(self, subscription: Subscription, revival: Revival, now: float) -> None:
        fan_out = self.fan_out
        while subscription.outbox.has_room():
            run = revival.next_parked(now)
            if run is not None:
                fan_out.stage(subscription, fan_out.encode_for(subscription, run.publication))
                continue
            waiting = revival.next_waiting()
            if waiting is None:
                self._caught_up(subscription)
                return
            if waiting.publication.expires_at <= now:
                fan_out.expire(waiting.publication)
            else:
                fan_out.count(waiting, 1)
                fan_out.stage(subscription, waiting)

    def _caught_up(self, subscription: Subscription) -> None:
        subscription.revival = None
        subscription.client.reviving -= 1


def _base36(number: int) -> str:
    digits = ""
    while True:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
        if not number:
            return digits
