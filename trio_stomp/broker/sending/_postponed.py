"""Messages to topics that become visible later: once stored, or after earlier messages."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.broker.delivery import Subscription
from trio_stomp.broker.headers import NOTHING, SendOutcome, matched, unmatched
from trio_stomp.broker.queues import cost_alone
from trio_stomp.broker.routing import SelectorResults, asking, is_long_choice, remind, results_of
from trio_stomp.broker.topics import NOBODY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trio_stomp.base import MemoryBudget
    from trio_stomp.broker.delivery import Client, Member, Publication, Work
    from trio_stomp.broker.durability import Log
    from trio_stomp.broker.routing import (
        Destinations,
        Lines,
        MatchesByName,
        OutcomeWork,
        TransactionMatches,
    )
    from trio_stomp.broker.sending._to_topic import TopicSender
    from trio_stomp.broker.topics import LastValueOwner

MAX_REMEMBERED = 64 * 1024
"""Maximum number of selector results remembered until a commit. Beyond it, selectors are evaluated
again."""
ANSWER_BYTES = 100
"""Bytes of one result."""
STEP = 16
"""Copies for durable subscriptions in one piece."""


@define(eq=False, repr=False)
class Postponed:
    """Part of the publisher: holds messages that must not be visible yet."""

    memory: "MemoryBudget"
    destinations: "Destinations"
    lines: "Lines"
    to_topics: "TopicSender"
    transaction_matches: "TransactionMatches | None" = None
    """The evaluated selectors of the COMMIT that is being carried out."""
    remembered: int = 0
    """Number of selector results held."""

    def see(
        self, publication: "Publication", change: str, keeper: "LastValueOwner", now: float
    ) -> SendOutcome:
        """Publish a topic's messages, now or after earlier ones, and return the outcome."""
        destination = publication.destination
        if publication.sender is None and (
            destination.line is not None
            or not self.destinations.refresh_few(destination)
            or self.to_topics.fan_out.is_large(destination, publication.bodies)
            or is_long_choice(destination)
        ):
            self.send_behind(publication, change, keeper)
            return NOTHING
        return self.to_topics.show(publication, change, keeper, now)

    def send_behind(
        self, publication: "Publication", change: str, keeper: "LastValueOwner"
    ) -> None:
        """Publish the broker's own messages behind those that are sent to their topic in pieces."""
        self.put(publication, partial(self._show, publication, change, keeper))

    def _show(
        self, publication: "Publication", change: str, keeper: "LastValueOwner"
    ) -> Iterator[None]:
        yield from self.looking_up(publication)
        if is_long_choice(publication.destination):
            yield from asking([(publication.destination, publication.head)])
        self.to_topics.show(publication, change, keeper, self.lines.turns.now)
        yield from self.to_topics.in_pieces.rest()
        yield

    def looking_up(self, publication: "Publication") -> "Work":
        """Look up the current destination: subscribers may have come and gone."""
        self.look_up(publication)
        yield from self.destinations.refreshing(publication.destination)

    def look_up(self, publication: "Publication") -> bool:
        """Look up the current destination. Return False if subscribers remain to be looked up."""
        present = self.destinations.find(publication.destination.name)
        publication.destination = present or publication.destination
        return self.destinations.refresh_few(publication.destination)

    def put(self, publication: "Publication", begin: "partial[Iterator[None]]") -> None:
        """Queue messages in their topic's line. They are charged meanwhile."""
        bodies = publication.bodies
        cost = cost_alone(publication.head, len(bodies), sum(map(len, bodies)))
        self.lines.put(publication.sender, publication.destination, begin, cost)

    def store(self, log: "Log", publication: "Publication", change: str, now: float) -> SendOutcome:
        """Publish a topic's messages of which something must be stored first.

        Args:
          log: The log.
          publication: The messages.
          change: Their effect on the last value: ``set``, ``remove``, or "" for none.
          now: Seconds of the broker's clock.

        Returns:
          The outcome as far as it is known.
        """
        to_topics, destination = self.to_topics, publication.destination
        self.destinations.refresh(destination)
        fan_out, last_values = to_topics.fan_out, to_topics.last_values
        keeper = last_values.keeper(publication) if change else NOBODY
        is_stored_change = bool(change) and last_values.store(publication, change, keeper)
        offset = to_topics.append(publication, now) if destination.stream is not None else NOTHING
        is_safe = publication.is_stored and (is_stored_change or offset is not NOTHING)
        if is_safe or to_topics.is_atomic or destination.durables:
            unseen = Unseen(
                self,
                publication=publication,
                change=change,
                keeper=keeper,
                matches_by_name=fan_out.matches_by_name,
                transaction_matches=self.transaction_matches,
                is_safe=is_safe,
            )
            if unseen.counts or destination.durables:
                unseen.members = fan_out.among(destination.filtered, publication)
            if log.is_in_part:
                to_topics.in_pieces.begun.append(unseen)
                return offset
            for _ in unseen.copying():
                pass
            if unseen.is_safe or to_topics.is_atomic:
                return unseen.wait(log) | offset
        publication.is_stored = False
        if change:
            last_values.keep(publication, change, keeper)
        return self.see(publication, "", NOBODY, now) | offset

    def remember(self, count: int) -> bool:
        """Charge ``count`` pending answers (negative: release). Return False beyond the limit."""
        if self.remembered + count > MAX_REMEMBERED:
            return False
        self.remembered += count
        self.memory.force_kept(ANSWER_BYTES * count)
        return True


@define(eq=False, repr=False)
class Unseen:
    """Messages of a topic that become visible once stored: an ``Effect`` and a ``PiecewiseRun``.

    Args:
      postponed: Its owner.
      publication: The messages.
      change: Their effect on the last value: ``set``, ``remove``, or "" for none.
      keeper: The owner of the last value.
      matches_by_name: Selector results of a transaction.
      transaction_matches: The selector results of its COMMIT; None = not part of one.
      is_safe: Something has been written to the store so far.
    """

    postponed: Postponed
    publication: "Publication"
    change: str
    keeper: "LastValueOwner"
    matches_by_name: "MatchesByName"
    transaction_matches: "TransactionMatches | None"
    is_safe: bool
    members: "Sequence[Member]" = ()
    """The subscribers to examine when it is written."""
    matched: int = 0
    """How many of them match."""
    _answers: SelectorResults = field(factory=dict)
    _must_ask: bool = False
    """The selectors must be evaluated again: there was no room for their results."""

    @property
    def client(self) -> "Client | None":
        """Implement ``Effect.client``."""
        return self.publication.sender

    @property
    def counts(self) -> bool:
        """Return whether the RECEIPT reports the number of matching subscribers."""
        return self.transaction_matches is None or self.transaction_matches.is_of_one

    def pieces(self) -> "OutcomeWork":
        """Implement ``PiecewiseRun.pieces``: write it as a part of a large COMMIT."""
        log = self.postponed.to_topics.log
        assert log is not None
        yield from self.copying()
        return self.wait(log)

    def copying(self) -> "Work":
        """Write the copies for durable subscriptions, and count the matching subscribers."""
        publication, counts = self.publication, self.counts
        is_stored = publication.is_stored
        for index, member in enumerate(self.members):
            if is_stored and not isinstance(member, Subscription) and member.durable:
                if member.is_there and member.wants(publication):
                    yield from member.making_room(publication)
                    self.matched += 1
                    if member.take(publication, publication.bodies):
                        self.is_safe = True
            elif counts and member.wants(publication):
                self.matched += 1
            if member.selector is not None or index % STEP == STEP - 1:
                yield

    def wait(self, log: "Log") -> SendOutcome:
        """Register for the next commit of the store, and return the outcome."""
        self._hold(self.members)
        self.members = ()
        log.when_safe(self)
        destination, outcome = self.publication.destination, NOTHING
        if self.counts:
            count = len(destination.plain) + self.matched
            outcome = matched(count) if count else unmatched(destination.name)
        return outcome | log.stored if self.is_safe else outcome

    def _hold(self, members: "Sequence[Member]") -> None:
        """Keep the results of selectors until the commit, if there is room for them."""
        if self.transaction_matches is not None:
            self.transaction_matches.hold()
            return
        answers = results_of(members, self.publication.head)
        if self.postponed.remember(len(answers)):
            self._answers = answers
        else:
            self._must_ask = True

    def _release(self) -> None:
        if self.transaction_matches is not None:
            self.transaction_matches.release()
        self.postponed.remember(-len(self._answers))
        self._answers = {}

    def withdraw(self, _now: float) -> None:
        """Implement ``Effect.withdraw``."""
        self._release()

    def commit(self, now: float) -> None:
        """Implement ``Effect.commit``: publish now if there is time and no line, else queue."""
        lines = self.postponed.lines
        is_found = self.postponed.look_up(self.publication)
        destination = self.publication.destination
        is_large = self.postponed.to_topics.fan_out.is_large
        is_long = is_large(destination, self.publication.bodies) or lines.turns.is_over()
        is_long = is_long or not is_found
        is_first = destination.line is None and not lines.has(self.client)
        if is_long or self._must_ask or not is_first:
            self.postponed.put(self.publication, partial(self._seeing))
        else:
            self._see(now)

    def _seeing(self) -> "Work":
        yield from self.postponed.looking_up(self.publication)
        if self._must_ask:
            yield from asking([(self.publication.destination, self.publication.head)])
        postponed = self.postponed
        self._see(postponed.lines.turns.now)
        yield from postponed.to_topics.in_pieces.rest()
        yield

    def _see(self, now: float) -> None:
        to_topics = self.postponed.to_topics
        self.postponed.look_up(self.publication)
        remind(self._answers, self.publication.head)
        if self.change:
            to_topics.last_values.keep(self.publication, self.change, self.keeper)
        to_topics.fan_out.matches_by_name = self.matches_by_name
        try:
            to_topics.distribute(self.publication, now)
        finally:
            to_topics.fan_out.matches_by_name = {}
            self._release()
