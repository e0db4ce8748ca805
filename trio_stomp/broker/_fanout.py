"""The hot path: one run of SENDs to all who get it."""

from attrs import define, field

from trio_stomp._errors import CloseReason, ProtocolError
from trio_stomp.broker._delivery import Delivery, Publication
from trio_stomp.broker._error_frame import error_frame
from trio_stomp.broker._policies import DISCONNECT, DROP_OLDEST, BrokerPolicies
from trio_stomp.broker._subscription import Subscription
from trio_stomp.frames import message_blocks, message_tails


@define(eq=False)
class DropCounters:
    """Messages that subscribers did not get, by reason, since the start."""

    slow_consumer: int = 0
    no_subscriber: int = 0
    backlog_abandoned: int = 0
    expired: int = 0


@define(eq=False)
class FanOut:
    """Encodes runs once and stages them to subscribers; numbers every message of the broker."""

    policies: BrokerPolicies
    messages: int = 0
    delivered: int = 0
    drops: DropCounters = field(factory=DropCounters)
    slow: list[tuple[Subscription, int]] = field(factory=list)
    """Subscribers that were too slow, and what they lost; for the broker to settle."""

    def to_all(self, publication: Publication) -> None:
        """Give every subscriber of its destination each message (topics)."""
        blocks = message_blocks(publication.head)
        first = self._number(len(publication.bodies))
        one = _encode(publication, blocks[2], publication.bodies, first)
        subscribers = publication.route.subscribers
        if blocks[0] is blocks[2] and blocks[1] is blocks[2]:
            for subscription in subscribers:
                if subscription.revival is None:
                    if not subscription.outbox.stage(subscription.prefix, one):
                        self._overflow(subscription, one)
                else:
                    self.give(subscription, one)
        else:
            encoded: list[Delivery | None] = [None, None, one]
            for subscription in subscribers:
                wire = subscription.wire
                delivery = encoded[wire]
                if delivery is None:
                    delivery = _encode(publication, blocks[wire], publication.bodies, first)
                    encoded[wire] = delivery
                self.give(subscription, delivery)
        self.count(one, len(subscribers))

    def in_turn(self, publication: Publication) -> None:
        """Give each message to one subscriber of its destination, round-robin (work queues)."""
        route, bodies = publication.route, publication.bodies
        members = route.subscribers
        turns = len(members)
        for offset in range(min(turns, len(bodies))):
            member = members[(route.rotation + offset) % turns]
            share = publication
            if turns > 1 < len(bodies):
                # Its own bodies only: others' would live as long as it waits in this outbox.
                share = Publication(
                    route,
                    publication.head,
                    bodies[offset::turns],
                    publication.received_at,
                    publication.expires_at,
                )
            self.give(member, self.encode_for(member, share))
        route.rotation += len(bodies)

    def encode_for(self, subscription: Subscription, publication: Publication) -> Delivery:
        """``publication`` for one subscriber alone, counted as delivered to it."""
        block = message_blocks(publication.head)[subscription.wire]
        first = self._number(len(publication.bodies))
        delivery = _encode(publication, block, publication.bodies, first)
        self.count(delivery, 1)
        return delivery

    def give(self, subscription: Subscription, delivery: Delivery) -> None:
        """Stage to one subscriber, behind what it still has to be given."""
        revival = subscription.revival
        if revival is not None:
            if revival.follow(delivery):
                self.count(delivery, -1)
            else:
                self._overflow(subscription, delivery)
        else:
            self.stage(subscription, delivery)

    def stage(self, subscription: Subscription, delivery: Delivery) -> None:
        """Stage to one subscriber, at once."""
        if not subscription.outbox.stage(subscription.prefix, delivery):
            self._overflow(subscription, delivery)

    def expire(self, publication: Publication) -> None:
        """Count messages that waited too long before they could be given to anybody."""
        count = len(publication.bodies)
        publication.route.expired += count
        self.drops.expired += count

    def _number(self, count: int) -> int:
        first = self.messages + 1
        self.messages += count
        return first

    def count(self, delivery: Delivery, copies: int) -> None:
        """Count as delivered; copies that an outbox did not take are taken back (negative)."""
        route = delivery.publication.route
        delivered = delivery.count * copies
        self.delivered += delivered
        route.delivered += delivered
        route.bytes_out += delivery.size * copies

    def _overflow(self, subscription: Subscription, delivery: Delivery) -> None:
        """The subscriber is too slow: what its destination's policy says."""
        lost = 0
        is_staged = False
        policy = self.policies.slow_consumer
        if policy == DISCONNECT:
            self._disconnect(subscription)
        elif policy == DROP_OLDEST and subscription.revival is None:
            needed = delivery.size + delivery.count * len(subscription.prefix)
            lost = subscription.outbox.drop_oldest(needed)
            is_staged = subscription.outbox.stage(subscription.prefix, delivery)
        if not is_staged:
            lost += delivery.count
            self.count(delivery, -1)
        self.drops.slow_consumer += lost
        delivery.publication.route.dropped += lost
        self.slow.append((subscription, lost))

    def _disconnect(self, subscription: Subscription) -> None:
        client = subscription.client
        error = ProtocolError(
            "slow-consumer",
            f"the subscription to {subscription.destination[:80]} takes its messages too slowly:"
            " more wait than max_outbox_bytes allows",
            reason=CloseReason.SLOW_CONSUMER,
        )
        client.outbox.discard()
        client.outbox.stage_frame(error_frame(error, client.rules))
        client.outbox.close(error.reason)


def _encode(publication: Publication, block: bytes, bodies: list[bytes], first: int) -> Delivery:
    tails = message_tails(publication.head, block, bodies, first)
    return Delivery(tails, len(bodies), sum(map(len, tails)), publication)
