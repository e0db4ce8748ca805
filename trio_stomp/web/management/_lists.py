"""Lists of connections, queues and destinations.

The records are those of the DIAG topics, made for the requested part only. All other items are
visited only for sorting or filtering. This is done in pieces, over the items that existed at the
start of the request.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from attrs import define

from trio_stomp.base import LOOKS, Pieces, schema, slices
from trio_stomp.broker import BOUNDS_MS, Destination, ParkedDestination, Queue, queue_of
from trio_stomp.server import Connection
from trio_stomp.web._pieces import chosen
from trio_stomp.web._query import Answer, Query, Record
from trio_stomp.web.declared import COUNT, FLAG, NUMBERS, OBJECT, TEXT, Word
from trio_stomp.web.management.requests import (
    BY_NAME,
    LATENCY,
    LIMIT,
    NAME,
    OFFSET,
    Endpoint,
    Key,
    Listing,
    http_error,
    listed,
    record_of,
)

if TYPE_CHECKING:
    from trio_stomp.diag import Figures
    from trio_stomp.server import Server

ANY, HELD, PARKED = "any", "held", "parked"


def _subscriptions(connection: Connection) -> float:
    return len(connection.client.subscriptions) + connection.client.elsewhere


def _pending(connection: Connection) -> float:
    return connection.outbox.waiting_bytes


def _bytes_in(connection: Connection) -> float:
    return connection.bytes_in


def _bytes_out(connection: Connection) -> float:
    return connection.outbox.bytes_out


def _frames_in(connection: Connection) -> float:
    return connection.frames_in


def _frames_out(connection: Connection) -> float:
    return connection.outbox.frames_out


CONNECTION_ORDERS: "Mapping[str, Key[Connection] | None]" = MappingProxyType(
    {
        "start": None,
        "subscriptions": _subscriptions,
        "pending_bytes": _pending,
        "bytes_in": _bytes_in,
        "bytes_out": _bytes_out,
        "frames_in": _frames_in,
        "frames_out": _frames_out,
        "idle": lambda connection: -connection.last_received,
        "last": lambda connection: connection.last_received,
        # The names of these fields in NATS.
        "cid": None,
        "subs": _subscriptions,
        "pending": _pending,
        "bytes_from": _bytes_in,
        "bytes_to": _bytes_out,
        "msgs_from": _frames_in,
        "msgs_to": _frames_out,
    }
)
"""Sort orders, greatest first; by default connections are in the order of acceptance."""

QUEUE_ORDERS: "Mapping[str, Key[Queue]]" = MappingProxyType(
    {
        HELD: lambda queue: queue.message_count,
        "depth": lambda queue: queue.depth,
        "unacked": lambda queue: queue.unacked,
        "bytes": lambda queue: queue.size,
        "consumers": lambda queue: len(queue.consumers),
        "redelivered": lambda queue: queue.redelivered,
    }
)
"""Greatest first."""

DESTINATION_ORDERS: "Mapping[str, Key[Destination]]" = MappingProxyType(
    {
        "enqueued": lambda each: each.enqueued,
        "delivered": lambda each: each.delivered,
        "dropped": lambda each: each.dropped,
        "bytes_in": lambda each: each.bytes_in,
        "bytes_out": lambda each: each.bytes_out,
    }
)
"""Greatest first."""

CONNECTION_SORT = Word("sort", "the order, greatest first", choices=tuple(CONNECTION_ORDERS))
CONNECTION_STATE = Word("state", "their state", choices=(ANY, "opening", "open", "closed"))
QUEUE_SORT = Word("sort", "the order, greatest first", choices=(*QUEUE_ORDERS, BY_NAME))
QUEUE_STATE = Word("state", "their state", choices=(ANY, "waiting", "idle", PARKED))
DESTINATION_SORT = Word("sort", "the order, greatest first", choices=(*DESTINATION_ORDERS, BY_NAME))
KIND = Word("kind", "their kind", choices=(ANY, "topic", "queue", "work-queue", "diag"))

CONNECTION = record_of(schema.CONNECTION, {"pending_bytes": COUNT})
QUEUE_FIELDS = {"consumers": COUNT, "paused": FLAG, "declared": FLAG, "dead_letters": FLAG}
QUEUE_RECORD = record_of(schema.QUEUE)
"""Records of queues have ``QUEUE_FIELDS`` as well; those of parked messages do not."""
DESTINATION = record_of(schema.DESTINATION, {"latency": LATENCY})


@define(eq=False, repr=False)
class Lists:
    """The requests that list connections, queues and destinations.

    Args:
      server: The server.
      figures: The source of the records.
    """

    server: "Server"
    figures: "Figures"

    def endpoints(self) -> Iterator[Endpoint]:
        """Yield the requests."""
        yield Endpoint(
            name="connections",
            summary="List connections. Each is named by its user, address and session.",
            parameters=(CONNECTION_SORT, CONNECTION_STATE, NAME, LIMIT, OFFSET),
            answer={**listed("connections", CONNECTION), "state": TEXT},
            build=self.connections,
        )
        yield Endpoint(
            name="queues",
            summary="List queues, or messages parked for the next subscriber of a topic.",
            parameters=(QUEUE_SORT, QUEUE_STATE, NAME, LIMIT, OFFSET),
            answer={**listed("queues", QUEUE_RECORD), "state": TEXT, "input": OBJECT},
            build=self.queues,
        )
        yield Endpoint(
            name="destinations",
            summary="List topics, queues, work queues and DIAG destinations.",
            parameters=(DESTINATION_SORT, KIND, NAME, LIMIT, OFFSET),
            answer={**listed("destinations", DESTINATION), "kind": TEXT, "le_ms": NUMBERS},
            build=self.destinations,
        )

    def connections(self, query: Query) -> Pieces[Answer]:
        """Return the connections in the requested state and order."""
        order, state = query.word(CONNECTION_SORT), query.word(CONNECTION_STATE)
        yield
        head, connections = self.figures.head(), list(self.server.connections)
        if state != ANY:
            connections = yield from chosen(
                connections, lambda each: self.figures.state(each) == state
            )
        listing = Listing("connections", _names_of, self.figures.connection, CONNECTION_ORDERS)
        return (yield from listing.page(query, connections, order, {**head, "state": state}))

    def queues(self, query: Query) -> Pieces[Answer]:
        """Return the queues in the requested state and order, or the topics with parked messages.

        Raises:
          HttpError: topics with parked messages cannot be sorted in the requested order.
        """
        order, state = query.word(QUEUE_SORT), query.word(QUEUE_STATE)
        if state == PARKED and order not in (HELD, BY_NAME):
            text = f"sort is {order!r}, but what is parked is sorted by {HELD}"
            raise http_error("bad-request", text)
        yield
        figures, statistics = self.figures, self.server.broker.statistics()
        describe = partial(figures.queue, statistics=statistics)
        record = {**figures.head(), "state": state, "input": describe(None)}
        if state == PARKED:
            parked = Listing(
                "queues", lambda each: _name_of(each.destination), describe, {HELD: _size}
            )
            return (yield from parked.page(query, statistics.parked(), order, record))
        queues: list[Queue] = []
        for some in slices(list(statistics.destinations), LOOKS):
            found = map(queue_of, some)
            queues += [each for each in found if each is not None and _is_in(each, state)]
            yield
        listing = Listing("queues", _name_of, describe, QUEUE_ORDERS)
        return (yield from listing.page(query, queues, order, record))

    def destinations(self, query: Query) -> Pieces[Answer]:
        """Return the destinations of the requested kind, with their latencies."""
        order, kind = query.word(DESTINATION_SORT), query.word(KIND)
        yield
        statistics = self.server.broker.statistics()
        things = list(statistics.destinations)
        if kind != ANY:
            things = yield from chosen(things, lambda each: each.kind.value == kind)
        describe: Callable[[Destination], Record]
        describe = partial(self.figures.destination, statistics=statistics)
        listing = Listing("destinations", _name_of, describe, DESTINATION_ORDERS)
        record = {**self.figures.head(), "kind": kind, "le_ms": BOUNDS_MS}
        return (yield from listing.page(query, things, order, record))


def _names_of(each: Connection) -> tuple[str, ...]:
    return each.client.user, each.client.remote, each.client.session_id


def _name_of(each: Queue | Destination) -> tuple[str, ...]:
    return (each.name,)


def _is_in(queue: Queue, state: str) -> bool:
    return state == ANY or (queue.message_count > 0) == (state == "waiting")


def _size(parked: ParkedDestination) -> float:
    return parked.size
