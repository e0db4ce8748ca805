"""Fan-out to very many subscribers in pieces; other clients are served between them.

A SEND is counted, stored, written to a stream and given its list of subscribers at once, as with
few subscribers. Only the delivery is split. Meanwhile the topic has a line (``Lines``), where
later messages of other senders wait.
"""

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Protocol

from attrs import define, field

from trio_stomp.base import noop
from trio_stomp.broker.delivery import NotYet, Stop, Subscription, Work
from trio_stomp.broker.headers import NOTHING, SendOutcome, combined, matched
from trio_stomp.broker.routing._fanout import FanOut, encode
from trio_stomp.broker.routing._lines import Lines
from trio_stomp.frames import message_blocks

if TYPE_CHECKING:
    from trio_stomp.broker.delivery import Delivery, Destination, Member, Publication
    from trio_stomp.broker.routing._destinations import Destinations
    from trio_stomp.frames import Head

STEP = 128
"""Subscribers in one piece."""
FILTERED_COST = 4
"""The cost of a filtered subscriber, or of a message for a binding, in plain subscribers."""


OutcomeWork = Generator[None, None, SendOutcome]
"""Work that returns the outcome of a SEND."""


class PiecewiseRun(Protocol):
    """A run of messages that is delivered, answered or stored in pieces, in its topic's line."""

    publication: "Publication"

    def pieces(self) -> OutcomeWork:
        """Deliver, answer or store it, and return the outcome."""


@define(eq=False, repr=False)
class Share:
    """A run of messages for a topic, with the subscribers at the time of the SEND.

    Subscribers that leave meanwhile get nothing.
    """

    fan_out: FanOut
    destinations: "Destinations"
    publication: "Publication"
    plain: "Sequence[Subscription]"
    filtered: "Sequence[Member]"
    taken: int = 0
    """The number of subscribers that matched so far."""
    _held: "list[tuple[Subscription, Delivery]]" = field(factory=list)

    def pieces(self) -> OutcomeWork:
        """Implement ``PiecewiseRun.pieces``: deliver the run to all subscribers."""
        publication, fan_out = self.publication, self.fan_out
        blocks = message_blocks(publication.head)
        first = fan_out.number(len(publication.bodies))
        encoded: dict[bytes, Delivery] = {}
        for block in blocks:
            if block not in encoded:
                encoded[block] = self._encode(block, first)
        deliveries = [encoded[block] for block in blocks]
        if fan_out.drops_many(publication.destination, publication.bodies):
            yield from self._giving_one_by_one(deliveries)
        else:
            yield from self._giving(deliveries)
        if fan_out.event_history is not None and not publication.destination.reserved:
            fan_out.event_history.sent(publication, first, self.taken)
        return matched(self.taken)

    def _giving(self, deliveries: "Sequence[Delivery]") -> Work:
        publication = self.publication
        for start in range(0, len(self.plain), STEP):
            self._stage(self.plain[start : start + STEP], deliveries)
            yield
        left, give = STEP, self.fan_out.give
        for member in self.filtered:
            if member.is_there and member.receive(
                publication, deliveries[member.version_index], give
            ):
                self.taken += 1
            left -= FILTERED_COST
            if not isinstance(member, Subscription):
                left -= FILTERED_COST * len(publication.bodies)
            if left <= 0 or member.selector is not None:
                left = STEP
                yield

    def _giving_one_by_one(self, deliveries: "Sequence[Delivery]") -> Work:
        """Give to subscribers that may have to drop very many messages for it."""
        publication = self.publication
        for member in (*self.plain, *self.filtered):
            if not (isinstance(member, Subscription) or member.has_copies(publication)):
                yield from member.making_room(publication)
            if member.is_there and member.receive(
                publication, deliveries[member.version_index], self._hold
            ):
                self.taken += 1
            held, self._held = self._held, []
            for subscription, delivery in held:
                yield from self.fan_out.giving(subscription, delivery)
            yield

    def _hold(self, subscription: Subscription, delivery: "Delivery") -> None:
        self._held.append((subscription, delivery))

    def _encode(self, block: bytes, first: int) -> "Delivery":
        origin = self.publication.without_bodies()
        return encode(origin, self.fan_out.extra_lines + block, self.publication.bodies, first)

    def _stage(
        self, subscriptions: "Sequence[Subscription]", deliveries: "Sequence[Delivery]"
    ) -> None:
        fan_out, destination = self.fan_out, self.publication.destination
        if not (self.destinations.is_current(destination) and destination.plain is self.plain):
            subscriptions = [each for each in subscriptions if each.is_there]
        one = deliveries[0]
        if any(each is not one for each in deliveries):
            for subscription in subscriptions:
                fan_out.stage(subscription, deliveries[subscription.version_index])
        else:
            for subscription in subscriptions:
                if not subscription.outbox.stage(subscription.prefix, one):
                    fan_out.overflow(subscription, one)
            fan_out.count(one, len(subscriptions))
        self.taken += len(subscriptions)


@define(eq=False, repr=False)
class Giving:
    """The fan-out of one SEND to very many subscribers of one or more topics.

    Args:
      outcomes: The outcome for each destination as far as it is known, without the matches.
    """

    lines: Lines
    shares: list[PiecewiseRun]
    outcomes: list[SendOutcome]
    on_done: Callable[[SendOutcome], None] = noop
    """Called with the outcome, at the end."""

    def pieces(self) -> Work:
        """Deliver all runs, as first in the lines of their topics. This cannot fail."""
        destinations: dict[Destination, None] = dict.fromkeys(
            each.publication.destination for each in self.shares
        )
        self.lines.open(destinations)
        found: list[SendOutcome] = []
        try:
            for share in self.shares:
                found += [(yield from share.pieces())]
        finally:
            were_awaited = self.lines.close(destinations)
        if len(self.outcomes) == 1:
            self.on_done(found[0] | self.outcomes[0])
        else:
            self.on_done(combined([*found, *self.outcomes]))
        if were_awaited:
            self.lines.turns.stop(Stop.BEHIND)
            yield


@define(eq=False, repr=False)
class FanOutInPieces:
    """The publisher's fan-outs to very many subscribers."""

    fan_out: FanOut
    lines: Lines
    destinations: "Destinations"
    begun: list[PiecewiseRun] = field(factory=list)
    _ready: "Head | None" = None
    """The header block whose destinations have been looked up. It is sent next."""
    _ready_at: int = 0
    """The generation of ``destinations`` at that time."""

    def look_up(
        self, head: "Head", destinations: "Sequence[Destination]", *, may_wait: bool
    ) -> None:
        """Look up the subscribers of all ``destinations``.

        Args:
          head: The header block as sent.
          destinations: The destinations of the SEND.
          may_wait: Look up long lists in pieces.

        Raises:
          NotYet: The SEND must wait for these pieces.
        """
        table = self.destinations
        is_ready = self._ready is head and self._ready_at == table.changes
        if may_wait and not is_ready and not all(map(table.refresh_few, destinations)):
            work = self._looking(head, destinations)
            if not self.lines.turns.finishes(work):
                raise NotYet(work)
            is_ready = True
        self._ready = None
        for destination in destinations:
            # A crowded list may be slightly out of date: ``Share`` skips those who left.
            if not (is_ready and destination.is_crowded):
                table.refresh(destination)

    def _looking(self, head: "Head", destinations: "Sequence[Destination]") -> Work:
        """Look up subscribers while none can come. ``head`` is sent next, in the same turn."""
        yield from self.lines.until_free([destination.name for destination in destinations])
        there = [destination for destination in destinations if self.destinations.has(destination)]
        self.lines.open(there)
        try:
            for destination in there:
                yield from self.destinations.refreshing(destination)
                yield
        finally:
            self.lines.close(there)
        self._ready, self._ready_at = head, self.destinations.changes

    def begin(self, publication: "Publication") -> None:
        """Record the subscribers of a publication. The sender's next frames wait for it."""
        destination, fan_out = publication.destination, self.fan_out
        filtered: Sequence[Member] = destination.filtered
        if fan_out.matches_by_name:
            filtered = fan_out.among(filtered, publication)
        self.begun.append(
            Share(fan_out, self.destinations, publication, destination.plain, filtered)
        )

    def giving(self, outcomes: list[SendOutcome]) -> Giving:
        """Return the fan-out that one SEND has begun.

        Args:
          outcomes: The outcome for each destination as far as it is known, without the matches.
        """
        begun, self.begun = self.begun, []
        return Giving(self.lines, begun, outcomes)

    def rest(self) -> OutcomeWork:
        """Do the begun work. The caller is already first in the lines."""
        begun, self.begun = self.begun, []
        outcome = NOTHING
        for share in begun:
            outcome |= yield from share.pieces()
        return outcome
