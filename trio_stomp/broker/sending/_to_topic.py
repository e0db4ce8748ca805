"""SENDs to topics and work queues: delivered, parked or dropped, now or once they are stored."""

from collections.abc import Callable

from attrs import define

from trio_stomp.broker.delivery import Client, LossReason, Publication, Subscription, Turns, Work
from trio_stomp.broker.durability import Log
from trio_stomp.broker.headers import NOTHING, SendOutcome, matched, parked, unmatched
from trio_stomp.broker.names import EXPLAIN, LEFT, TRACE, Kind
from trio_stomp.broker.routing import BrokerEvents, Destinations, FanOut, hint_at
from trio_stomp.broker.sending._context import SendContext
from trio_stomp.broker.streams import Stream, Streams
from trio_stomp.broker.topics import NOBODY, LastValueOwner, LastValues, StaleQueue


@define(eq=False, repr=False)
class TopicSender:
    """Publishes messages to topics and work queues.

    Args:
      answer: Answers requests to DIAG destinations, and returns the remaining work.
      check: Raises ``ProtocolError`` if bodies for a DIAG destination are invalid requests, given
        whether they are carried out now.
      log: The log for persistent messages; None = there is no store.
      events: Gets an event for destinations without subscribers.
    """

    destinations: Destinations
    fan_out: FanOut
    last_values: LastValues
    streams: Streams
    stale: StaleQueue
    turns: Turns
    answer: Callable[[Publication], Work | None]
    check: Callable[[str, list[bytes], bool], None]
    log: Log | None
    events: BrokerEvents | None

    def show(self, context: SendContext, publication: Publication, change: str) -> SendOutcome:
        """Publish messages to a topic now, and return the outcome.

        Args:
          context: What holds for the SEND.
          publication: The messages.
          change: Their effect on the last value: ``set``, ``remove``, or "" for none.
        """
        if change:
            keeper = self.last_values.keeper(publication, context.owner)
            self.last_values.keep(publication, change, keeper)
        if publication.destination.stream is None:
            return self.distribute(publication, context.now, context.answers)
        offset = self.append(context, publication)
        return self.distribute(publication, context.now, context.answers) | offset

    def store(
        self, context: SendContext, log: Log, publication: Publication, change: str
    ) -> SendOutcome:
        """Publish messages to a topic of which something must be stored first.

        Args:
          context: What holds for the SEND.
          log: The log.
          publication: The messages.
          change: As for ``show``.

        Returns:
          The outcome as far as it is known.
        """
        destination, last_values = publication.destination, self.last_values
        keeper = last_values.keeper(publication, context.owner) if change else NOBODY
        is_stored_change = bool(change) and last_values.store(publication, change, keeper)
        offset = self.append(context, publication) if destination.stream is not None else NOTHING
        is_safe = publication.is_stored and (is_stored_change or offset is not NOTHING)
        if is_safe or context.is_atomic or destination.durables:
            count, is_asked, has_copies = _copy(publication, counts=not context.in_commit)
            is_safe |= has_copies
            if is_safe or context.is_atomic or is_asked:
                log.when_safe(StoredRun(self, publication, change, keeper))
                outcome = NOTHING
                if not context.in_commit:
                    outcome = matched(count) if count else unmatched(destination.name)
                return outcome | offset | log.stored if is_safe else outcome | offset
        publication.is_stored = False
        if change:
            last_values.keep(publication, change, keeper)
        return self.distribute(publication, context.now, context.answers) | offset

    def append(self, context: SendContext, publication: Publication) -> SendOutcome:
        """Append messages to a topic's stream. The outcome has the offset if it is final."""
        stream = publication.destination.stream
        assert isinstance(stream, Stream)
        bodies = publication.bodies
        is_certain = publication.is_stored or context.is_atomic
        sender = publication.sender if is_certain else None
        first = self.streams.append(stream, publication.head, bodies, context.now, sender=sender)
        if self.log is not None and not is_certain:
            return NOTHING  # if the store fails, the offset may change
        return SendOutcome(offset=first)

    def distribute(
        self, publication: Publication, now: float, answers: list[Work] | None = None
    ) -> SendOutcome:
        """Deliver messages to a topic's or work queue's subscribers, or park or drop them.

        ``answers``: as for ``SendContext``.
        """
        destination = publication.destination
        if not destination.subscribers and destination.name not in (EXPLAIN, TRACE, LEFT):
            return self.keep(publication, now)
        if destination.kind is Kind.TOPIC:
            return matched(self.fan_out.to_all(publication))
        if destination.kind is Kind.WORK:
            if not self.fan_out.in_turn(publication):
                return self.keep(publication, now)
            return matched(1)
        rest = self.answer(publication)
        if rest is not None:
            if answers is None:
                self.turns.carry_out(rest)
            else:
                answers.append(rest)
        return matched(len(destination.subscribers))

    def keep(self, publication: Publication, now: float) -> SendOutcome:
        """Park messages without subscribers if the destination has a TTL, else drop them."""
        destination = publication.destination
        if (
            destination.retained is not None
            and destination.retained.bodies[0] is publication.bodies[-1]
        ):
            return parked(destination.name)  # new subscribers get it as the last value
        if destination.ttl_s and destination.kind is not Kind.DIAG and not destination.private:
            hint_at(self.events, publication)
            self.stale.park(publication, now)
            return parked(destination.name)
        return self.drop(publication)

    def drop(self, publication: Publication) -> SendOutcome:
        """Count messages without subscribers as dropped, and return the outcome."""
        count = len(publication.bodies)
        destination = publication.destination
        hint_at(self.events, publication)
        destination.dropped += count
        self.fan_out.drops.no_subscriber += count
        self.fan_out.note(LossReason.NO_SUBSCRIBER, destination, count)
        return unmatched(destination.name)


@define(eq=False, repr=False)
class StoredRun:
    """Messages of a topic that become visible once stored. An ``Effect``.

    Args:
      to_topics: Publishes them.
      publication: The messages.
      change: Their effect on the last value: ``set``, ``remove``, or "" for none.
      keeper: The owner of the last value.
    """

    to_topics: TopicSender
    publication: Publication
    change: str
    keeper: LastValueOwner

    @property
    def client(self) -> Client | None:
        """Implement ``Effect.client``."""
        return self.publication.sender

    def withdraw(self, _now: float) -> None:
        """Implement ``Effect.withdraw``."""

    def commit(self, now: float) -> None:
        """Implement ``Effect.commit``: publish to the present subscribers."""
        to_topics, publication = self.to_topics, self.publication
        name = publication.destination.name
        publication.destination = to_topics.destinations.find(name) or publication.destination
        to_topics.destinations.refresh(publication.destination)
        if self.change:
            to_topics.last_values.keep(publication, self.change, self.keeper)
        to_topics.distribute(publication, now)


def _copy(publication: Publication, *, counts: bool) -> tuple[int, bool, bool]:
    """Write the copies of stored messages for durable subscriptions.

    Args:
      publication: The messages.
      counts: Whether to count other subscribers that match.

    Returns:
      The number of subscribers that match, whether durable ones are among them, which are not
      asked again, and whether there are copies.
    """
    destination = publication.destination
    count, is_asked, has_copies = len(destination.plain), False, False
    members = destination.filtered if counts else destination.durables
    for member in members:
        if isinstance(member, Subscription) or not member.has_copies(publication):
            count += counts and member.wants(publication)
        elif member.wants(publication):
            count, is_asked = count + 1, True
            has_copies |= member.take(publication, publication.bodies) > 0
    return count, is_asked, has_copies
