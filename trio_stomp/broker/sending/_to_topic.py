"""SENDs to topics and work queues: messages are delivered, parked or dropped."""

from collections.abc import Callable

from attrs import define

from trio_stomp.broker.delivery import LossReason, Publication
from trio_stomp.broker.durability import Log
from trio_stomp.broker.headers import NOTHING, SendOutcome, matched, parked, unmatched
from trio_stomp.broker.names import EXPLAIN, LEFT, TRACE, Kind
from trio_stomp.broker.routing import (
    BrokerEvents,
    FanOut,
    FanOutInPieces,
    OutcomeWork,
    PiecewiseRun,
    hint_at,
)
from trio_stomp.broker.streams import Stream, Streams
from trio_stomp.broker.topics import LastValueOwner, LastValues, StaleQueue


@define(eq=False, repr=False)
class TopicSender:
    """Publishes messages to topics and work queues immediately.

    Args:
      in_pieces: Delivers to very many subscribers in pieces.
      answer: Answers requests to DIAG destinations, and returns the remaining work.
      check: Raises ``ProtocolError`` if bodies for a DIAG destination are invalid requests, given
        whether they are carried out now.
      log: The log for persistent messages; None = there is no store.
      events: Gets an event for destinations without subscribers.
      is_atomic: The current SEND is part of an atomic group that is stored.
    """

    fan_out: FanOut
    in_pieces: FanOutInPieces
    last_values: LastValues
    streams: Streams
    stale: StaleQueue
    answer: Callable[[Publication], PiecewiseRun | None]
    check: Callable[[str, list[bytes], bool], None]
    log: Log | None
    events: BrokerEvents | None
    is_atomic: bool = False

    def show(
        self, publication: Publication, change: str, keeper: LastValueOwner, now: float
    ) -> SendOutcome:
        """Publish messages to a topic now, and return the outcome.

        Args:
          publication: The messages.
          change: Their effect on the last value: ``set``, ``remove``, or "" for none.
          keeper: The owner of the last value.
          now: The time, in seconds of the broker's clock.
        """
        if change:
            self.last_values.keep(publication, change, keeper)
        if publication.destination.stream is None:
            return self.distribute(publication, now)
        offset = self.append(publication, now)
        return self.distribute(publication, now) | offset

    def append(self, publication: Publication, now: float) -> SendOutcome:
        """Append messages to a topic's stream. The outcome has the offset if it is final."""
        stream = publication.destination.stream
        assert isinstance(stream, Stream)
        bodies = publication.bodies
        is_certain = publication.is_stored or self.is_atomic
        sender = publication.sender if is_certain else None
        first = self.streams.append(stream, publication.head, bodies, now, sender=sender)
        if self.log is not None and not is_certain:
            return NOTHING  # if the store fails, the offset may change
        return SendOutcome(offset=first)

    def distribute(self, publication: Publication, now: float) -> SendOutcome:
        """Deliver messages to a topic's or work queue's subscribers, or park or drop them."""
        destination = publication.destination
        if not destination.subscribers and destination.name not in (EXPLAIN, TRACE, LEFT):
            return self.keep(publication, now)
        if destination.kind is Kind.TOPIC:
            if self.fan_out.is_large(destination, publication.bodies):
                self.in_pieces.begin(publication)
                return NOTHING
            return matched(self.fan_out.to_all(publication))
        if destination.kind is Kind.WORK:
            if self.fan_out.drops_many(destination, publication.bodies):
                self.in_pieces.begun.append(Passing(self, publication, now))
                return NOTHING
            if not self.fan_out.in_turn(publication):
                return self.keep(publication, now)
            return matched(1)
        left = self.answer(publication)
        if left is not None:
            self.in_pieces.begun.append(left)
            return NOTHING
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
class Passing:
    """A run for members of a work queue that may have to drop very many messages for it."""

    to_topics: TopicSender
    publication: Publication
    now: float

    def pieces(self) -> OutcomeWork:
        """Implement ``PiecewiseRun.pieces``: make room at each member that gets part of the run."""
        to_topics, publication = self.to_topics, self.publication
        outcome = NOTHING
        for member, bodies in to_topics.fan_out.turns(publication):
            part = publication.with_bodies(publication.destination, bodies)
            yield from to_topics.fan_out.passing(member, part)
            outcome = matched(1)
            yield
        if outcome is NOTHING:
            outcome = to_topics.keep(publication, self.now)
        return outcome
