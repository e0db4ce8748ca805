"""One queue with its consumers, and one connection with its subscriptions."""

import json
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from attrs import asdict, define, evolve

from trio_stomp.base import Pieces, ProtocolError, RemoteError
from trio_stomp.broker import BOUNDS_MS
from trio_stomp.web._query import JSON, Answer, Query, as_list
from trio_stomp.web.declared import (
    COUNT,
    FLAG,
    NUMBER,
    NUMBERS,
    OBJECT,
    OF_DESTINATIONS,
    OF_QUEUES,
    QUEUE,
    SESSION,
    TEXT,
    TEXTS,
    Parameter,
    Schema,
)
from trio_stomp.web.management._changes import find_connection
from trio_stomp.web.management._core import Core
from trio_stomp.web.management._lists import QUEUE_FIELDS
from trio_stomp.web.management._subscriptions import SUBSCRIPTION
from trio_stomp.web.management.requests import (
    HEAD,
    LATENCY,
    LIMIT,
    OFFSET,
    Endpoint,
    Record,
    Window,
    as_http,
    destination_of,
    http_error,
    with_fields,
)

if TYPE_CHECKING:
    from trio_stomp.broker import Consumer
    from trio_stomp.diag import Figures
    from trio_stomp.server import Server

HELD = 20
"""Unacknowledged messages that are listed of each consumer."""
MANY = evolve(LIMIT, default=LIMIT.most)
DESTINATION = Parameter("destination", "a destination", is_required=True)
QUESTION = Parameter("q", "the id of a message, or a request as at DIAG/explain")
WHERE = Parameter("destination", "a destination from which a client received nothing")
WHOSE = Parameter("session", "the session of that client")
WHO = Parameter("user", "a user, instead of a session")
EXPLAINED = (WHERE, WHOSE, WHO)
CONSUMER = with_fields(SUBSCRIPTION, {"oldest_unacked_age_s": NUMBER, "unacked_messages": TEXTS})
QUEUE_ANSWER = {
    **HEAD,
    **QUEUE_FIELDS,
    "delayed": COUNT,
    "policy": OBJECT,
    "total": COUNT,
    "more": FLAG,
    "consumers": {"type": "array", "items": CONSUMER},
}
SUBSCRIPTIONS: Schema = {"type": "array", "items": SUBSCRIPTION}
CONNECTION_ANSWER = {
    **HEAD,
    "session_id": TEXT,
    "outbox_bytes": COUNT,
    "outbox_limit_bytes": COUNT,
    "outbox_peak_bytes": COUNT,
    "send_blocked_ms_total": NUMBER,
    "heartbeat_send_ms": NUMBER,
    "heartbeat_expect_ms": NUMBER,
    "total": COUNT,
    "more": FLAG,
    "subscriptions": SUBSCRIPTIONS,
}


@define(eq=False, repr=False)
class Views:
    """The requests that show one queue, connection, destination or explanation."""

    server: "Server"
    core: Core
    figures: "Figures"

    def endpoints(self) -> Iterator[Endpoint]:
        """Yield the requests."""
        yield Endpoint(
            name="queue",
            summary="Show a queue with its policy, its consumers and what they hold.",
            parameters=(QUEUE, MANY, OFFSET),
            answer=QUEUE_ANSWER,
            errors=OF_QUEUES,
            build=self.queue,
        )
        yield Endpoint(
            name="connection",
            summary="Show a connection with its subscriptions.",
            parameters=(SESSION, MANY, OFFSET),
            answer=CONNECTION_ANSWER,
            errors=("no-such-session",),
            build=self.connection,
        )
        yield Endpoint(
            name="destination",
            summary="Show a destination with its subscribers.",
            parameters=(DESTINATION, MANY, OFFSET),
            answer={
                **HEAD,
                "destination": TEXT,
                "type": TEXT,
                "le_ms": NUMBERS,
                "latency": LATENCY,
                "total": COUNT,
                "more": FLAG,
                "subscriptions": SUBSCRIPTIONS,
            },
            errors=(*OF_DESTINATIONS, "no-such-destination"),
            build=self.destination,
        )
        yield Endpoint(
            name="explain",
            summary="Tell what happened to a message, or why a client received nothing.",
            parameters=(QUESTION, *EXPLAINED),
            answer={"summary": TEXT},
            build=self.explain,
        )

    def queue(self, query: Query) -> Pieces[Answer]:
        """Return a queue with its policy and its consumers.

        Raises:
          HttpError: there is no such queue, or the name is no single destination.
        """
        try:
            queue = self.core.manager.find(destination_of(self.core.manager, query, QUEUE))
        except ProtocolError as error:
            raise as_http(error) from None
        window = Window.of(query, MANY)
        yield
        record = {
            **self.figures.head(),
            **self.figures.queue(queue, self.server.broker.statistics()),
            "delayed": queue.delayed,
            "policy": asdict(queue.policy),
            "total": len(queue.consumers),
        }
        del record["consumers"]  # the number, which the list replaces
        part = window.cut(queue.consumers)
        return (yield from as_list(record, "consumers", part, self._consumer))

    def _consumer(self, consumer: "Consumer") -> Record:
        held = islice(consumer.unacked.values(), HELD)
        return {
            **self.figures.subscription(consumer.subscription),
            "oldest_unacked_age_s": consumer.oldest_age_s(self.server.clock.now()),
            "unacked_messages": [self.core.manager.id_of(each) for each in held],
        }

    def connection(self, query: Query) -> Pieces[Answer]:
        """Return a connection with its subscriptions.

        Raises:
          HttpError: there is no such session.
        """
        connection, window = (
            find_connection(self.server, query.text(SESSION)),
            Window.of(query, MANY),
        )
        yield
        outbox, subscriptions = connection.outbox, connection.client.subscriptions
        heartbeats = connection.session.heartbeats
        record = {
            **self.figures.head(),
            **self.figures.connection(connection),
            "outbox_bytes": outbox.waiting_bytes,
            "outbox_limit_bytes": outbox.shared.limit_bytes,
            "outbox_peak_bytes": outbox.peak_bytes,
            "send_blocked_ms_total": outbox.blocked_s * 1000,
            "heartbeat_send_ms": heartbeats.send_every_s * 1000,
            "heartbeat_expect_ms": heartbeats.expect_every_s * 1000,
            "total": len(subscriptions),
        }
        del record["subscriptions"]  # their number: here is the list
        part = list(islice(subscriptions.values(), window.offset, window.offset + window.limit))
        return (yield from as_list(record, "subscriptions", part, self.figures.subscription))

    def destination(self, query: Query) -> Pieces[Answer]:
        """Return a destination with its subscribers and latencies.

        Raises:
          HttpError: the destination has not been used yet, or the name is no single destination.
        """
        name, window = destination_of(self.core.manager, query, DESTINATION), Window.of(query, MANY)
        statistics = self.server.broker.statistics()
        if (found := statistics.find(name)) is None:
            text = f"there is no destination {name[:80]!r}; nobody has used it yet"
            raise http_error("no-such-destination", text)
        yield
        record = {
            **self.figures.head(),
            "le_ms": BOUNDS_MS,
            **self.figures.destination(found, statistics),
        }
        record["total"] = record["subscribers"]
        part = statistics.some_subscribers(found, window.offset, window.offset + window.limit)
        return (yield from as_list(record, "subscriptions", part, self.figures.subscription))

    def explain(self, query: Query) -> Pieces[Answer]:
        """Return the explanation of a message, destination or client, as at ``DIAG/explain``.

        Raises:
          HttpError: the request names neither a message nor a destination, or both.
        """
        question = query.text(QUESTION)
        others = {each.name: query.text(each) for each in EXPLAINED if query.has(each)}
        if bool(question) == bool(others):
            raise http_error(
                "bad-request",
                "ask ?q=MESSAGE-ID, or ?destination=D&session=S (or &user=U): explains why the "
                "client received nothing",
            )
        try:
            answer = yield from self.core.explain(question or json.dumps(others))
        except RemoteError as error:
            raise http_error("bad-request", error.message) from None
        return 200, JSON, json.dumps(answer, indent=1).encode()
