"""What is sent to topics, and is seen later: when the store has it, or what stands before it is."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from attrs import define

from trio_stomp.broker._asker import answers_of, remind
from trio_stomp.broker._evidence import unmatched
from trio_stomp.broker._feed import Feed
from trio_stomp.broker._last_values import NOBODY
from trio_stomp.broker._ledger import Later
from trio_stomp.broker._message import cost_alone

if TYPE_CHECKING:
    from trio_stomp.broker._asker import Answers
    from trio_stomp.broker._delivery import Publication
    from trio_stomp.broker._foresight import Foreseen
    from trio_stomp.broker._log import Log
    from trio_stomp.broker._publisher import Publisher
    from trio_stomp.broker._route import Keeper


@define(eq=False, repr=False)
class Postponed:
    """Part of the publisher: it keeps what is not to be seen yet."""

    publisher: "Publisher"

    def send_behind(self, publication: "Publication", asked: str, keeper: "Keeper") -> None:
        """Have messages that nobody sends seen behind what their topic is sent bit by bit."""
        self._put(publication, partial(self._show, publication, asked, keeper))

    def _show(self, publication: "Publication", asked: str, keeper: "Keeper") -> Iterator[None]:
        self.publisher.show(publication, asked, keeper, self.publisher.lines.turns.now)
        yield

    def store(self, log: "Log", publication: "Publication", asked: str, now: float) -> bytes:
        """A topic's message of which something is to survive: nobody sees it before that."""
        publisher = self.publisher
        fan_out, route = publisher.fan_out, publication.route
        keeper = publisher.last_values.keeper(publication) if asked else NOBODY
        is_kept = bool(asked) and publisher.last_values.store(publication, asked, keeper)
        offset = publisher.append(publication, now) if route.stream is not None else b""
        matched = 0
        members = fan_out.among(route.careful, publication)
        for member in members:
            if isinstance(member, Feed) and member.durable and publication.is_stored:
                matched += member.take(publication, publication.bodies) > 0
        is_safe = publication.is_stored and (is_kept or matched or bool(offset))
        if not (is_safe or publisher.binds):
            publication.is_stored = False
            if asked:
                publisher.last_values.keep(publication, asked, keeper)
            return publisher.distribute(publication, now) + offset

        foreseen = fan_out.foreseen
        answers = {} if foreseen else answers_of(members, publication.head)
        see = partial(self._see, publication, asked, keeper, foreseen, answers)
        log.when_safe(Later(publication.sender, see))
        others = sum(1 for member in members if member.wants(publication))
        matched = len(route.direct) + others
        evidence = b"matched:%d\n" % matched if matched else unmatched(route.name)
        return evidence + offset + (log.stored if is_safe else b"")

    def _see(
        self,
        publication: "Publication",
        asked: str,
        keeper: "Keeper",
        foreseen: "Foreseen",
        answers: "Answers",
        now: float,
    ) -> None:
        """The store has it."""
        publisher = self.publisher
        # Its subscribers may have come and gone.
        route = publisher.routes.known(publication.route.name) or publication.route
        publication.route = route
        if route.line is not None:
            again = partial(self._seeing, publication, asked, keeper, foreseen, answers)
            self._put(publication, again)
            return
        self._see_now(publication, asked, keeper, foreseen, answers, now)

    def _seeing(
        self,
        publication: "Publication",
        asked: str,
        keeper: "Keeper",
        foreseen: "Foreseen",
        answers: "Answers",
    ) -> Iterator[None]:
        now = self.publisher.lines.turns.now
        self._see_now(publication, asked, keeper, foreseen, answers, now)
        yield

    def _see_now(
        self,
        publication: "Publication",
        asked: str,
        keeper: "Keeper",
        foreseen: "Foreseen",
        answers: "Answers",
        now: float,
    ) -> None:
        publisher = self.publisher
        remind(answers, publication.head)
        if asked:
            publisher.last_values.keep(publication, asked, keeper)
        publisher.fan_out.foreseen = foreseen
        try:
            publisher.distribute(publication, now)
        finally:
            publisher.fan_out.foreseen = {}

    def _put(self, publication: "Publication", begin: "partial[Iterator[None]]") -> None:
        bodies = publication.bodies
        cost = cost_alone(publication.head, len(bodies), sum(map(len, bodies)))
        self.publisher.lines.put(publication.sender, publication.route, begin, cost)
