"""Answers to SENDs to DIAG destinations: stompica's statistics, ``explain``, traces, schedules."""

import json
from collections.abc import Callable, Generator, Sized
from contextlib import suppress

from attrs import define, field

from trio_stomp.base import ProtocolError, Quota
from trio_stomp.broker._diag_queries import DiagQueries
from trio_stomp.broker.delivery import Publication, TakesCensus, Work
from trio_stomp.broker.names import EXPLAIN, LEFT, TRACE
from trio_stomp.broker.routing import Destinations, FanOut
from trio_stomp.broker.sending import read_question
from trio_stomp.broker.subscribing import Subscriptions
from trio_stomp.broker.topics import StaleQueue
from trio_stomp.frames import FrameRun, Head

_MAX_REQUEST_BYTES = 64
"""Requests for statistics are not longer."""


@define(eq=False, repr=False)
class DiagRequests:
    """Answers requests at DIAG destinations. The broker sets the callbacks."""

    server: TakesCensus
    fan_out: FanOut
    subscriptions: Subscriptions
    stale: StaleQueue
    clients: Sized
    destinations: Destinations
    explain: Callable[[str], Generator[None, None, dict[str, object]]] = field(init=False)
    """Answers a request at ``DIAG/explain``, in pieces."""
    read: Callable[[str], object] = field(init=False)
    """Checks a request to ``DIAG/explain``, and raises ``ProtocolError`` if it is invalid."""
    left: Callable[[str], Generator[None, None, dict[str, object]]] = field(init=False)
    """Answers a request at ``DIAG/left``, in pieces."""
    trace: Callable[[str, bool], object] = field(init=False)
    """Carries out a request at ``DIAG/trace``, or only checks it."""
    read_trace: Callable[[str], object] = field(init=False)
    """Checks a request to ``DIAG/trace``, as ``read``."""
    send: Callable[[FrameRun, Quota | None], None] = field(init=False)
    """Sends an answer to ``reply-to``."""

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
        known = {EXPLAIN: self.read, LEFT: read_question, TRACE: self.read_trace}
        for body in bodies if name in known else ():
            text = body.decode(errors="replace")
            known[name](text)
            if name == TRACE and is_now:
                self.trace(text, True)

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
                    self.trace(body.decode(errors="replace"), False)
            return None
        queries = self.queries()
        for body in publication.bodies:
            self.fan_out.to_all(with_figures(publication, body, queries))
        return None

    def _answering(self, publication: Publication) -> Work:
        """Answer requests at ``DIAG/explain`` or ``DIAG/left``, one after the other."""
        answering = self.explain if publication.destination.name == EXPLAIN else self.left
        for body in publication.bodies:
            try:
                answer = yield from answering(body.decode(errors="replace"))
            except ProtocolError:
                continue  # an invalid scheduled request: there is no sender to get an ERROR
            self.reply(publication, answer)
            yield

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
            self.send(FrameRun(reply, [text], []), publication.quota)
            return
        at, until = publication.received_at, publication.expires_at
        destination, end = publication.destination, publication.end
        self.destinations.refresh(destination)
        self.fan_out.to_all(Publication(destination, reply, [text], at, until, end=end))


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
