"""Answers to the command DIAG, and to SENDs to DIAG destinations.

Those are stompica's statistics, ``explain``, traces and schedules. Requests for statistics, header
names and JSON keys are those of stompica, so that its clients work unchanged.
"""

import json
from collections.abc import Callable, Mapping, Sized
from contextlib import suppress

from attrs import define, frozen

from trio_stomp.base import ProtocolError
from trio_stomp.broker.delivery import Census, EventHistory, Publication, TakesCensus, Work
from trio_stomp.broker.explain import Explainer, Tracer
from trio_stomp.broker.names import EXPLAIN, LEFT, TRACE
from trio_stomp.broker.sending import LeftoverRequests, Publisher, read_question
from trio_stomp.broker.subscribing import Subscriptions
from trio_stomp.broker.topics import StaleQueue
from trio_stomp.frames import FrameRun, Head

_MAX_REQUEST_BYTES = 64
"""Requests for statistics are not longer."""
_MAX_LISTED = 4000
"""Limit of bytes in the list of ``subs``, as in stompica."""


@frozen(eq=False)
class DiagQueries:
    """Statistics in stompica's formats.

    Args:
      census: Figures of the server.
      connected: Open STOMP sessions.
      subscriptions: Subscriptions of all clients.
      stale: Messages in the stale queue.
      destination_names: Returns the destinations of all subscriptions, in order. Called only for
        ``subs``.
    """

    census: Census
    connected: int
    subscriptions: int
    stale: int
    destination_names: Callable[[], list[str]]

    def headers(self, body: str) -> dict[str, str]:
        """Return the headers with the statistics that a body requests, or {}."""
        queues = self._queues("input-queue-size", "output-queue-size", "stale-queue-size")
        sizes = {name: {name: size} for name, size in self._sizes().items()}
        tables = {**sizes, **self._tables(), "stale": queues}
        found = next((tables[word] for word in tables if body.startswith(word)), {})
        return {name: str(figure) for name, figure in found.items()}

    def command(self, query: str) -> str | None:
        """Return the answer to the command DIAG, or None if stompica does not know the query."""
        query = query.strip("\n\r")
        sizes = self._sizes()
        tables = {**self._tables(), "stale": self._queues("in", "out", "stale")}
        if query in sizes:
            return f"{query}:{sizes[query]}"
        if query in tables:
            return f"{query}:{_json(tables[query])}"
        return "subs:" + self._listed() if query == "subs" else None

    def _sizes(self) -> dict[str, int]:
        return {
            "session-size": self.census.clients,
            "session-encoded-size": self.census.websockets,
            "session-connected-size": self.connected,
            "pubsub-size": self.subscriptions,
        }

    def _tables(self) -> dict[str, dict[str, int]]:
        census = self.census
        return {
            "session": {
                "clients": census.clients,
                "websockets": census.websockets,
                "stomp_connected": self.connected,
                "subscriptions": self.subscriptions,
            },
            "ws_buffer": {
                "allocated": census.ws_allocated,
                "hits": census.ws_hits,
                "misses": census.ws_misses,
            },
        }

    def _queues(self, *names: str) -> dict[str, int]:
        """Return the sizes of input, output and stale queue under some names."""
        sizes = self.census.input_queue_size, self.census.output_queue_size, self.stale
        return dict(zip(names, sizes, strict=True))

    def _listed(self) -> str:
        listed, length = [], 0
        for destination in self.destination_names():
            length += len(destination.encode()) + 1
            if length - 1 > _MAX_LISTED:
                break
            listed.append(destination)
        return ",".join(listed)


def _json(figures: Mapping[str, int]) -> str:
    return "{" + ",".join(f'"{name}":{figure}' for name, figure in figures.items()) + "}"


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
