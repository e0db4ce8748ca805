"""Answers to SENDs to DIAG destinations: stompica's statistics, ``explain``, traces, schedules."""

import json
from collections.abc import Callable, Sized
from contextlib import suppress

from attrs import define

from trio_stomp.base import ProtocolError
from trio_stomp.broker._diag_queries import DiagQueries
from trio_stomp.broker.delivery import EventHistory, Publication, TakesCensus, Work
from trio_stomp.broker.explain import Explainer, Tracer
from trio_stomp.broker.names import EXPLAIN, LEFT, TRACE
from trio_stomp.broker.sending import LeftoverRequests, Publisher, read_question
from trio_stomp.broker.subscribing import Subscriptions
from trio_stomp.broker.topics import StaleQueue
from trio_stomp.frames import FrameRun, Head

_MAX_REQUEST_BYTES = 64
"""Requests for statistics are not longer."""


@define(eq=False, repr=False)
class DiagRequests:
    """Answers requests at DIAG destinations."""

    server: TakesCensus
    publisher: Publisher
    subscriptions: Subscriptions
    stale: StaleQueue
    clients: Sized
    event_history: EventHistory
    explainer: Explainer
    leftovers: LeftoverRequests
    tracer: Tracer

    def queries(self) -> DiagQueries:
        """Return stompica's statistics with the current figures."""
        return DiagQueries(
            self.server.census(),
            len(self.clients),
            len(self.subscriptions),
            self.stale.size,
            self.subscriptions.destination_names,
        )

    def check(self, name: str, bodies: list[bytes], is_now: bool) -> None:
        """Check requests to ``name``, if it is a destination for requests.

        Args:
          name: The destination.
          bodies: The requests.
          is_now: Whether they are carried out now. Otherwise the state may change before.

        Raises:
          ProtocolError: One is invalid.
        """
        known: dict[str, Callable[[str], object]] = {
            EXPLAIN: self.explainer.read,
            LEFT: read_question,
            TRACE: self.tracer.read,
        }
        for body in bodies if name in known else ():
            text = body.decode(errors="replace")
            known[name](text)
            if name == TRACE and is_now:
                self._trace(text, is_check=True)

    def to_topic(self, publication: Publication) -> Work | None:
        """Answer the messages of a publication to a DIAG destination.

        By default, deliver each message to its subscribers with the statistics that its body
        requests, in headers.

        Returns:
          The rest of the work, where answers take long.
        """
        if publication.destination.is_request:
            return self._answering(publication)
        if publication.destination.name == TRACE:
            for body in publication.bodies:
                with suppress(ProtocolError):  # it was checked when there was somebody to tell
                    self._trace(body.decode(errors="replace"))
            return None
        queries = self.queries()
        for body in publication.bodies:
            self.publisher.fan_out.to_all(with_figures(publication, body, queries))
        return None

    def _answering(self, publication: Publication) -> Work:
        """Answer requests at ``DIAG/explain`` or ``DIAG/left``, one after the other."""
        is_explained = publication.destination.name == EXPLAIN
        answering = self.explainer.explain if is_explained else self.leftovers.answering
        for body in publication.bodies:
            try:
                answer = yield from answering(body.decode(errors="replace"))
            except ProtocolError:
                continue  # an invalid scheduled request: there is no sender to get an ERROR
            self.reply(publication, answer)
            yield

    def _trace(self, request: str, *, is_check: bool = False) -> None:
        """Carry out a request at ``DIAG/trace``, or only check it."""
        self.tracer.ask(request, is_check, self.event_history.now)

    def reply(self, publication: Publication, answer: dict[str, object]) -> None:
        """Send an answer to ``reply-to``, or to the subscribers of the request's destination."""
        head, options = publication.head, publication.options
        reply_to = options.reply_to if options is not None else ""
        where = reply_to or publication.destination.name
        headers = [("destination", where), ("content-type", "application/json")]
        correlation = head.get("correlation-id")
        if correlation is not None:
            headers.append(("correlation-id", correlation))
        text = json.dumps(answer).encode()
        reply = Head("SEND", tuple(headers), len(text), where)
        if reply_to:
            with suppress(ProtocolError):
                run = FrameRun(reply, [text], [])
                self.publisher.send_for(run, publication.quota, self.event_history.now)
            return
        at, until = publication.received_at, publication.expires_at
        destination, end = publication.destination, publication.end
        self.publisher.destinations.refresh(destination)
        self.publisher.fan_out.to_all(Publication(destination, reply, [text], at, until, end=end))


def with_figures(publication: Publication, body: bytes, queries: DiagQueries) -> Publication:
    """Return the answer to a request: its message, with the figures that it asks for in headers."""
    head = publication.head
    figures = queries.headers(body[:_MAX_REQUEST_BYTES].decode(errors="replace"))
    others = {name: text for name, text in head.headers if name not in figures}
    headers = (*others.items(), *figures.items())
    return Publication(
        publication.destination,
        head=Head(head.command, headers, len(body), head.destination),
        bodies=[body],
        received_at=publication.received_at,
        expires_at=publication.expires_at,
        sender=publication.sender,
        end=publication.end,
    )
