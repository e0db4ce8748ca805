"""A fan-out to very many subscribers, bit by bit: others are served between its pieces.

What is sent to a topic is decided on at once, as for few: what is counted, kept, written to a
stream, and who is to have it. To give it to them is done in pieces. Meanwhile a line stands in
front of the topic, so that what others send there comes behind it (``Lines``).
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from attrs import define, field

from trio_stomp.broker.delivery import NotYet, Stop, Subscription, Work
from trio_stomp.broker.headers import together
from trio_stomp.broker.routing._fanout import FanOut, encode
from trio_stomp.broker.routing._lines import Lines
from trio_stomp.frames import message_blocks

if TYPE_CHECKING:
    from trio_stomp.broker.delivery import Delivery, Destination, Member, Publication
    from trio_stomp.broker.routing._destinations import Destinations
    from trio_stomp.frames import Head

STEP = 128
"""Subscribers that are given a run in one piece."""
CAREFUL = 4
"""One that is looked at twice takes as long as so many others; so does a message to its queue."""


def _to_nobody(evidence: bytes) -> None:
    """No RECEIPT was asked for."""


class Gift(Protocol):
    """A run of messages that is given, or answered, bit by bit behind the line of its topic."""

    publication: "Publication"
    taken: int
    """How many have taken it."""

    def pieces(self) -> Work:
        """Do all of it."""


@define(eq=False, repr=False)
class Share:
    """A run of messages for a topic, and those who were subscribed when it was sent.

    Whoever ends its subscription meanwhile gets no more of it.
    """

    fan_out: FanOut
    destinations: "Destinations"
    publication: "Publication"
    direct: "Sequence[Subscription]"
    filtered: "Sequence[Member]"
    taken: int = 0
    """How many have taken it."""

    def pieces(self) -> Work:
        """Give it to all of them."""
        publication, fan_out = self.publication, self.fan_out
        blocks = message_blocks(publication.head)
        first = fan_out.number(len(publication.bodies))
        encoded: dict[bytes, Delivery] = {}
        for block in blocks:
            if block not in encoded:
                encoded[block] = self._encode(block, first)
        deliveries = [encoded[block] for block in blocks]
        for place in range(0, len(self.direct), STEP):
            self._stage(self.direct[place : place + STEP], deliveries)
            yield
        left, give = STEP, fan_out.give
        for member in self.filtered:
            if member.is_there and member.receive(publication, deliveries[member.wire], give):
                self.taken += 1
            left -= CAREFUL
            if not isinstance(member, Subscription):
                left -= CAREFUL * len(publication.bodies)
            if left <= 0 or member.selector is not None:
                left = STEP
                yield
        if fan_out.event_history is not None and not publication.destination.reserved:
            fan_out.event_history.sent(publication, first, self.taken)

    def _encode(self, block: bytes, first: int) -> "Delivery":
        origin = self.publication.without_bodies()
        return encode(origin, self.fan_out.told + block, self.publication.bodies, first)

    def _stage(
        self, subscriptions: "Sequence[Subscription]", deliveries: "Sequence[Delivery]"
    ) -> None:
        fan_out, destination = self.fan_out, self.publication.destination
        if not (self.destinations.is_current(destination) and destination.direct is self.direct):
            subscriptions = [each for each in subscriptions if each.is_there]
        one = deliveries[0]
        if any(each is not one for each in deliveries):
            for subscription in subscriptions:
                fan_out.stage(subscription, deliveries[subscription.wire])
        else:
            for subscription in subscriptions:
                if not subscription.outbox.stage(subscription.prefix, one):
                    fan_out.overflow(subscription, one)
            fan_out.count(one, len(subscriptions))
        self.taken += len(subscriptions)


@define(eq=False, repr=False)
class Giving:
    """The fan-out of one SEND to very many subscribers, of one topic or several.

    Args:
      evidence: What its RECEIPT tells beside how many take it, for each of its destinations.
    """

    lines: Lines
    shares: list[Gift]
    evidence: list[bytes]
    tell: Callable[[bytes], None] = _to_nobody
    """Told what the RECEIPT tells when all have it."""

    def pieces(self) -> Work:
        """Give all of it, first in the lines of its topics. Nothing undoes it."""
        destinations: dict[Destination, None] = dict.fromkeys(
            each.publication.destination for each in self.shares
        )
        self.lines.open(destinations)
        try:
            for share in self.shares:
                yield from share.pieces()
        finally:
            were_awaited = self.lines.close(destinations)
        self.tell(self._told())
        if were_awaited:
            self.lines.turns.stop(Stop.BEHIND)
            yield

    def _told(self) -> bytes:
        matched = [b"matched:%d\n" % share.taken for share in self.shares]
        if len(self.evidence) == 1:
            return matched[0] + self.evidence[0]
        return together([*matched, *self.evidence])


@define(eq=False, repr=False)
class FanOutInPieces:
    """Part of the publisher: what it has begun to give to very many."""

    fan_out: FanOut
    lines: Lines
    destinations: "Destinations"
    begun: list[Gift] = field(factory=list)
    _ready: "Head | None" = None
    """All routes of what is sent with it have been looked up."""
    _ready_at: int = 0
    """Where changes of subscribers had come to by then."""

    def look_up(
        self, head: "Head", destinations: "Sequence[Destination]", *, may_wait: bool
    ) -> None:
        """Look for the subscribers of all ``destinations``.

        Args:
          head: What is sent to them, as its sender said it.
          destinations: The destinations.
          may_wait: If they may be very many it is done bit by bit.

        Raises:
          NotYet: it is to be done first.
        """
        routes = self.destinations
        is_ready = self._ready is head and self._ready_at == routes.changes
        if may_wait and not is_ready and not all(map(routes.refresh_few, destinations)):
            work = self._looking(head, destinations)
            if not self.lines.turns.finishes(work):
                raise NotYet(work)
            is_ready = True
        self._ready = None
        for destination in destinations:
            # If others came or went on the way: who has gone gets nothing (``Share``).
            if not (is_ready and destination.is_crowded):
                routes.refresh(destination)

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
        """Note the takers of a publication. Its sender's next frames wait until all have it."""
        destination, fan_out = publication.destination, self.fan_out
        filtered: Sequence[Member] = destination.filtered
        if fan_out.foreseen:
            filtered = fan_out.among(filtered, publication)
        self.begun.append(
            Share(fan_out, self.destinations, publication, destination.direct, filtered)
        )

    def giving(self, evidence: list[bytes]) -> Giving:
        """Take what was begun by one SEND, whose RECEIPT tells ``evidence`` beside."""
        begun, self.begun = self.begun, []
        return Giving(self.lines, begun, evidence)

    def rest(self) -> Work:
        """Give what was begun by somebody who stands first in the lines already."""
        begun, self.begun = self.begun, []
        for share in begun:
            yield from share.pieces()
