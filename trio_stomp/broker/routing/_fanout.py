"""The hot path: fan-out of a run of SENDs to its subscribers."""

from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.base import CloseReason, ProtocolError
from trio_stomp.broker.delivery import (
    DISCONNECT,
    DROP_OLDEST,
    BrokerPolicies,
    Delivery,
    DeliveryReason,
    Destination,
    EventHistory,
    LossReason,
    Member,
    MessageNames,
    Publication,
    Span,
    Subscription,
    lifetime_rule,
    turn_away,
)
from trio_stomp.broker.routing._foresight import Foreseen
from trio_stomp.frames import message_blocks, message_tails

if TYPE_CHECKING:
    from collections.abc import Sequence


@define(eq=False, repr=False)
class DropCounters:
    """Messages that subscribers did not get, by reason, since the start."""

    slow_consumer: int = 0
    no_subscriber: int = 0
    backlog_abandoned: int = 0
    expired: int = 0


@define(eq=False, repr=False)
class FanOut:
    """Encodes runs once, stages them to subscribers, and numbers every message of the broker."""

    policies: BrokerPolicies
    messages: int = 0
    delivered: int = 0
    drops: DropCounters = field(factory=DropCounters)
    names: MessageNames = field(factory=MessageNames)
    event_history: EventHistory | None = None
    """The history of events, for ``explain``."""
    slow: list[tuple[Subscription, int]] = field(factory=list)
    """Slow subscribers and their losses, for the broker to settle."""
    told: bytes = b""
    """Header lines that the dialect has in each MESSAGE that was not handed out before."""
    foreseen: Foreseen = field(factory=dict)
    """The subscribers that match the part of a transaction being sent."""

    def to_all(self, publication: Publication) -> int:
        """Deliver each message to every subscriber (topics), and return how many take them."""
        blocks = message_blocks(publication.head)
        destination, bodies = publication.destination, publication.bodies
        first = self.number(len(bodies))
        origin = publication.without_bodies()
        one = encode(origin, self.told + blocks[2], bodies, first)
        copies = 0
        if blocks[0] is blocks[2] and blocks[1] is blocks[2]:
            for subscription in destination.direct:
                if not subscription.outbox.stage(subscription.prefix, one):
                    self.overflow(subscription, one)
            copies = len(destination.direct)
            self.count(one, copies)
            others: Sequence[Member] = destination.filtered
        else:
            others = destination.subscribers
        if self.foreseen:
            others = self.among(others, publication)
        encoded: list[Delivery | None] = [None, None, one]
        give = self.give
        for member in others:
            wire = member.wire
            delivery = encoded[wire]
            if delivery is None:
                delivery = encode(origin, self.told + blocks[wire], bodies, first)
                encoded[wire] = delivery
            if member.receive(publication, delivery, give):
                copies += 1
        if self.event_history is not None and not destination.reserved:
            self.event_history.sent(publication, first, copies)
        return copies

    def among(self, members: "Sequence[Member]", publication: Publication) -> "Sequence[Member]":
        """Return the ``members`` of its destination without those known not to match."""
        said = self.foreseen.get(publication.destination.name)
        return members if said is None else said.among(members, publication)

    def in_turn(self, publication: Publication) -> bool:
        """Deliver each message to one subscriber of its destination, round-robin (work queues).

        Return False, and do nothing, if none of them matches.
        """
        destination, bodies = publication.destination, publication.bodies
        if self.foreseen:
            asked = self.among(destination.subscribers, publication)
            members: Sequence[Member] = [each for each in asked if each.wants(publication)]
        else:
            members = destination.takers(publication)
        turns = len(members)
        if not turns:
            return False
        for offset in range(min(turns, len(bodies))):
            member = members[(destination.rotation + offset) % turns]
            self.to_member(member, publication, bodies[offset::turns])
        destination.rotation += len(bodies)
        return True

    def to_member(self, member: Member, publication: Publication, bodies: list[bytes]) -> None:
        """Give some bodies of a publication to one member of a work queue alone."""
        if self.event_history is not None:
            self.event_history.sent(publication, self.messages + 1, 1, len(bodies))
        if isinstance(member, Subscription):
            self.give(member, self._encode_alone(member, publication, bodies))
        else:
            member.take(publication, bodies)

    def encode_for(
        self,
        subscription: Subscription,
        publication: Publication,
        bodies: list[bytes],
        cause: DeliveryReason = DeliveryReason.PASSED_ON,
    ) -> Delivery:
        """Return these bodies of ``publication``, which was sent before, for one subscriber alone.

        Args:
          subscription: The subscription.
          publication: The messages.
          bodies: The bodies of the messages.
          cause: Why it is given them, for ``explain``.
        """
        delivery = self._encode_alone(subscription, publication, bodies)
        if self.event_history is not None:
            first, name = self.messages + 1 - len(bodies), publication.destination.name
            self.event_history.given(name, subscription, first, len(bodies), cause)
        return delivery

    def _encode_alone(
        self, subscription: Subscription, publication: Publication, bodies: list[bytes]
    ) -> Delivery:
        block = self.told + message_blocks(publication.head)[subscription.wire]
        return encode(publication.without_bodies(), block, bodies, self.number(len(bodies)))

    def give(self, subscription: Subscription, delivery: Delivery) -> None:
        """Stage a delivery to one subscriber, behind its backlog."""
        catch_up = subscription.catch_up
        if catch_up is None:
            self.stage(subscription, delivery)
        elif not catch_up.follow(delivery):
            self.count(delivery, 1)
            self.overflow(subscription, delivery)

    def stage(self, subscription: Subscription, delivery: Delivery) -> None:
        """Stage to one subscriber, at once, and count it."""
        self.count(delivery, 1)
        if not subscription.outbox.stage(subscription.prefix, delivery):
            self.overflow(subscription, delivery)

    def show(self, subscription: Subscription, delivery: Delivery) -> None:
        """Stage a message for a browser: it stays in its queue, and is no delivery."""
        if not subscription.outbox.stage(subscription.prefix, delivery):
            delivered = self.delivered
            self.overflow(subscription, delivery)
            self.delivered = delivered  # from which it has taken what was never added

    def expire(
        self, publication: Publication, count: int, session: str = "", deliveries: Span = (0, 0)
    ) -> None:
        """Count messages that waited too long before they could be given to anybody.

        Args:
          publication: The messages.
          count: The number of messages.
          session: Whom alone they were to be given to; "" = anybody.
          deliveries: Their numbers as deliveries, if they have been numbered.
        """
        destination = publication.destination
        destination.expired += count
        self.drops.expired += count
        if self.event_history is not None and not destination.reserved:
            self.event_history.lost(
                LossReason.EXPIRED,
                destination.name,
                count=count,
                session=session,
                deliveries=deliveries,
                rule=lifetime_rule(publication),
            )

    def refuse(self, publication: Publication) -> None:
        """Count parked messages that their first subscriber does not match as dropped."""
        count = len(publication.bodies)
        publication.destination.dropped += count
        self.drops.no_subscriber += count
        self.note(LossReason.UNWANTED, publication.destination, count)

    def number(self, count: int) -> int:
        """Reserve numbers for ``count`` more deliveries, and return the first."""
        first = self.messages + 1
        self.messages += count
        return first

    def count(self, delivery: Delivery, copies: int) -> None:
        """Count as delivered. Copies that an outbox did not take are taken back (negative)."""
        destination = delivery.publication.destination
        delivered = delivery.count * copies
        self.delivered += delivered
        destination.delivered += delivered
        destination.bytes_out += delivery.size * copies

    def overflow(self, subscription: Subscription, delivery: Delivery) -> None:
        """Apply the destination's policy for subscribers that are too slow."""
        lost = 0
        is_staged = False
        destination = delivery.publication.destination
        policy = destination.slow_consumer or self.policies.slow_consumer
        if policy == DISCONNECT:
            lost = self._disconnect(subscription)
        elif policy == DROP_OLDEST and subscription.catch_up is None:
            needed = delivery.size + delivery.count * len(subscription.prefix)
            lost = subscription.outbox.drop_oldest(needed)
            is_staged = subscription.outbox.stage(subscription.prefix, delivery)
        if not is_staged:
            lost += delivery.count
            destination.dropped += delivery.count
            self.count(delivery, -1)
        self.drops.slow_consumer += lost
        self.slow.append((subscription, lost))
        rule = f"slow_consumer = {policy!r}"
        self.note(LossReason.SLOW_CONSUMER, destination, lost, subscription.client.session_id, rule)

    def note(
        self,
        fate: LossReason,
        destination: Destination,
        count: int,
        session: str = "",
        rule: str = "",
    ) -> None:
        """Note messages that a subscriber does not get, for ``explain``."""
        if self.event_history is not None and not destination.reserved:
            self.event_history.lost(fate, destination.name, count=count, session=session, rule=rule)

    def _disconnect(self, subscription: Subscription) -> int:
        """End a connection, and return how many messages that loses."""
        error = ProtocolError(
            "slow-consumer",
            f"the subscription to {subscription.destination[:80]} takes its messages too slowly:"
            " more wait than max_outbox_bytes or max_memory_bytes allows",
            reason=CloseReason.SLOW_CONSUMER,
        )
        lost = subscription.outbox.discard()
        turn_away(subscription.client, error)
        return lost


def encode(origin: Publication, block: bytes, bodies: list[bytes], first: int) -> Delivery:
    """Return the bodies of a run as MESSAGEs with a header block, numbered from ``first``."""
    tails = message_tails(origin.head, block, bodies, first)
    return Delivery(tails, len(bodies), sum(map(len, tails)), origin)
