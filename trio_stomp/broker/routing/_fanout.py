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
from trio_stomp.frames import message_blocks, message_tails

if TYPE_CHECKING:
    from collections.abc import Sequence


@define(eq=False, repr=False)
class DropCounters:
    """Messages that subscribers did not get since the start, by reason."""

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
    """Slow subscribers and the number of messages that each lost, for the broker's next steps."""
    extra_lines: bytes = b""
    """Header lines that the dialect adds to each MESSAGE that is not a redelivery."""

    def to_all(self, publication: Publication) -> int:
        """Deliver each message to every subscriber of a topic.

        Returns:
          The number of subscribers that matched.
        """
        blocks = message_blocks(publication.head)
        destination, bodies = publication.destination, publication.bodies
        first = self.number(len(bodies))
        origin = publication.without_bodies()
        one = encode(origin, self.extra_lines + blocks[2], bodies, first)
        copies = 0
        if blocks[0] is blocks[2] and blocks[1] is blocks[2]:
            for subscription in destination.plain:
                if not subscription.outbox.stage(subscription.prefix, one):
                    self.overflow(subscription, one)
            copies = len(destination.plain)
            self.count(one, copies)
            others: Sequence[Member] = destination.filtered
        else:
            others = destination.subscribers
        encoded: list[Delivery | None] = [None, None, one]
        give = self.give
        for member in others:
            version_index = member.version_index
            delivery = encoded[version_index]
            if delivery is None:
                delivery = encode(origin, self.extra_lines + blocks[version_index], bodies, first)
                encoded[version_index] = delivery
            if member.receive(publication, delivery, give):
                copies += 1
        if self.event_history is not None and not destination.reserved:
            self.event_history.sent(publication, first, copies)
        return copies

    def in_turn(self, publication: Publication) -> bool:
        """Deliver each message to one subscriber of a work queue, round-robin.

        Returns:
          False if no subscriber matches; then nothing was delivered.
        """
        destination, bodies = publication.destination, publication.bodies
        members = destination.recipients(publication)
        count, first = len(members), destination.rotation
        if not count:
            return False
        destination.rotation += len(bodies)
        for offset in range(min(count, len(bodies))):
            member, part = members[(first + offset) % count], bodies[offset::count]
            if self.event_history is not None:
                self.event_history.sent(publication, self.messages + 1, 1, len(part))
            if isinstance(member, Subscription):
                self.give(member, self._encode_alone(member, publication, part))
            else:
                member.take(publication, part)
        return True

    def encode_for(
        self,
        subscription: Subscription,
        publication: Publication,
        bodies: list[bytes],
        cause: DeliveryReason = DeliveryReason.PASSED_ON,
    ) -> Delivery:
        """Return a delivery of some bodies of an earlier publication for one subscription.

        ``cause`` is why it gets them, for ``explain``.
        """
        delivery = self._encode_alone(subscription, publication, bodies)
        if self.event_history is not None:
            first, name = self.messages + 1 - len(bodies), publication.destination.name
            self.event_history.given(name, subscription, first, len(bodies), cause)
        return delivery

    def _encode_alone(
        self, subscription: Subscription, publication: Publication, bodies: list[bytes]
    ) -> Delivery:
        block = self.extra_lines + message_blocks(publication.head)[subscription.version_index]
        return encode(publication.without_bodies(), block, bodies, self.number(len(bodies)))

    def give(self, subscription: Subscription, delivery: Delivery) -> None:
        """Stage a delivery to one subscription, behind its backlog."""
        catch_up = subscription.catch_up
        if catch_up is None:
            self.stage(subscription, delivery)
        elif not catch_up.follow(delivery):
            self.count(delivery, 1)
            self.overflow(subscription, delivery)

    def stage(self, subscription: Subscription, delivery: Delivery) -> None:
        """Stage a delivery to one subscription and count it."""
        self.count(delivery, 1)
        if not subscription.outbox.stage(subscription.prefix, delivery):
            self.overflow(subscription, delivery)

    def show(self, subscription: Subscription, delivery: Delivery) -> None:
        """Stage a message to a browser. It stays in its queue and does not count as delivered."""
        if not subscription.outbox.stage(subscription.prefix, delivery):
            delivered = self.delivered
            self.overflow(subscription, delivery)
            self.delivered = delivered  # overflow() subtracted what was never added

    def expire(
        self, publication: Publication, count: int, session: str = "", deliveries: Span = (0, 0)
    ) -> None:
        """Count messages that expired before their delivery.

        Args:
          publication: The messages.
          count: The number of messages.
          session: The only session that was to get them; "" = any.
          deliveries: Their delivery numbers, if they have any.
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
        """Count parked messages as dropped because no subscriber matches them."""
        count = len(publication.bodies)
        publication.destination.dropped += count
        self.drops.no_subscriber += count
        self.note(LossReason.UNWANTED, publication.destination, count)

    def number(self, count: int) -> int:
        """Reserve ``count`` delivery numbers and return the first."""
        first = self.messages + 1
        self.messages += count
        return first

    def count(self, delivery: Delivery, copies: int) -> None:
        """Count copies of a delivery. Negative ``copies`` undo this for a full outbox."""
        destination = delivery.publication.destination
        delivered = delivery.count * copies
        self.delivered += delivered
        destination.delivered += delivered
        destination.bytes_out += delivery.size * copies

    def overflow(self, subscription: Subscription, delivery: Delivery) -> None:
        """Apply the destination's policy for slow subscribers to a full outbox."""
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
        reason: LossReason,
        destination: Destination,
        count: int,
        session: str = "",
        rule: str = "",
    ) -> None:
        """Record messages that a subscriber does not get, for ``explain``."""
        if self.event_history is not None and not destination.reserved:
            self.event_history.lost(
                reason, destination.name, count=count, session=session, rule=rule
            )

    def _disconnect(self, subscription: Subscription) -> int:
        """End a slow subscriber's connection and return the number of messages lost."""
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
    """Return the delivery of a run: a header block and bodies, numbered from ``first``."""
    tails = message_tails(origin.head, block, bodies, first)
    return Delivery(tails, len(bodies), sum(map(len, tails)), origin)
