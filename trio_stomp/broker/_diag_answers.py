"""SENDs to DIAG destinations: the figures that a body asks for go with its MESSAGE (SEEDS A8)."""

import json
from collections.abc import Callable, Generator, Sized

from attrs import define, field

from trio_stomp.base import ProtocolError, Quota
from trio_stomp.broker._diag_queries import DiagQueries
from trio_stomp.broker.delivery import Publication, TakesCensus, Work
from trio_stomp.broker.names import EXPLAIN, LEFT, TRACE
from trio_stomp.broker.routing import Destinations, FanOut, Gift
from trio_stomp.broker.subscribing import Subscriber
from trio_stomp.broker.topics import StaleQueue
from trio_stomp.frames import FrameRun, Head

_ASKED_BYTES = 64
"""No question is longer."""


@define(eq=False, repr=False)
class Answers:
    """Answers the seed's questions from the figures of the moment."""

    server: TakesCensus
    fan_out: FanOut
    subscriber: Subscriber
    stale: StaleQueue
    clients: Sized
    destinations: Destinations
    explain: Callable[[str], Generator[None, None, dict[str, object]]] = field(init=False)
    """Answers what is asked at ``DIAG/explain``, in pieces; joined by the broker."""
    read: Callable[[str], object] = field(init=False)
    """Raises ``ProtocolError`` if a text is no question of that kind; likewise."""
    left: Callable[[str], dict[str, object]] = field(init=False)
    """What is asked at ``DIAG/left``; likewise."""
    trace: Callable[[str], None] = field(init=False)
    """Does what is asked at ``DIAG/trace``; likewise."""
    send: Callable[[FrameRun, Quota | None], None] = field(init=False)
    """Sends an answer to where its asker wants it; likewise."""

    def queries(self) -> DiagQueries:
        """Answers to the seed's questions about this moment."""
        return DiagQueries(
            self.server.census(),
            len(self.clients),
            len(self.subscriber),
            self.stale.size,
            self.subscriber.destination_names,
        )

    def check(self, bodies: list[bytes]) -> None:
        """Look whether all of these can be asked at ``DIAG/explain``.

        Raises:
          ProtocolError: one cannot.
        """
        for body in bodies:
            self.read(body.decode(errors="replace"))

    def to_topic(self, publication: Publication) -> Gift | None:
        """Send a publication on, each of its messages with what its body asks for.

        Returns:
          What is left to do: answers take long at ``DIAG/explain``.
        """
        head = publication.head
        if publication.destination.name == EXPLAIN:
            return Answering(self, publication, len(publication.destination.subscribers))
        if publication.destination.name == LEFT:
            for body in publication.bodies:
                self.tell(publication, self.left(body.decode(errors="replace")))
            return None
        if publication.destination.name == TRACE:
            for body in publication.bodies:
                self.trace(body.decode(errors="replace"))
            return None
        queries = self.queries()
        for body in publication.bodies:
            figures = queries.headers(body[:_ASKED_BYTES].decode(errors="replace"))
            kept = {name: text for name, text in head.headers if name not in figures}
            told = (*kept.items(), *figures.items())
            answer = Head(head.command, told, len(body), head.destination)
            self.fan_out.to_all(
                Publication(
                    publication.destination,
                    head=answer,
                    bodies=[body],
                    received_at=publication.received_at,
                    expires_at=publication.expires_at,
                    sender=publication.sender,
                    end=publication.end,
                )
            )

        return None

    def tell(self, publication: Publication, answer: dict[str, object]) -> None:
        """Send an answer to ``reply-to``, or to all who listen where it was asked for."""
        head, options = publication.head, publication.options
        reply_to = options.reply_to if options is not None else ""
        where = reply_to or publication.destination.name
        told = [("destination", where), ("content-type", "application/json")]
        correlation = head.get("correlation-id")
        if correlation is not None:
            told.append(("correlation-id", correlation))
        text = json.dumps(answer).encode()
        made = Head("SEND", tuple(told), len(text), where)
        if reply_to:
            self.send(FrameRun(made, [text], []), publication.quota)
            return
        at, until = publication.received_at, publication.expires_at
        destination, end = publication.destination, publication.end
        self.destinations.refresh(destination)
        self.fan_out.to_all(Publication(destination, made, [text], at, until, end=end))


@define(eq=False, repr=False)
class Answering:
    """Questions at ``DIAG/explain`` that are answered in pieces: a ``Gift``."""

    answers: Answers
    publication: Publication
    taken: int

    def pieces(self) -> Work:
        """Answer one after the other."""
        for body in self.publication.bodies:
            try:
                answer = yield from self.answers.explain(body.decode(errors="replace"))
            except ProtocolError:
                continue  # nobody is there who could be told: it was due
            self.answers.tell(self.publication, answer)
            yield
