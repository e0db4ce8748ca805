"""Paginated lists as JSON, with the parameters of NATS's monitoring.

``/varz`` has the process and totals, ``/connz`` connections, ``/subsz`` subscriptions, ``/queuez``
queues. The records are those of the DIAG topics, made for the requested page only. All other items
are visited only for sorting or filtering. This is done in pieces, over the items that existed at
the start of the request.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from attrs import asdict, define

from trio_stomp._version import __version__
from trio_stomp.base import LOOKS, Greatest, Pieces, greatest
from trio_stomp.broker import Binding, ParkedDestination, Queue, Subscription, queue_of
from trio_stomp.server import Connection
from trio_stomp.transport import HttpError, HttpRequest
from trio_stomp.web._pieces import chosen
from trio_stomp.web._query import Answer, Query, as_json, as_list

if TYPE_CHECKING:
    from trio_stomp.diag import Figures
    from trio_stomp.server import Server, Traffic

T = TypeVar("T")

LIMIT, MAX_LIMIT, MAX_OFFSET = 100, 1_000, 10_000_000
START, ANY, HELD = "start", "any", "held"
CONNECTED, AWAY, DURABLE = "connected", "away", "durable"

Key = Callable[[T], float]


def _subscriptions(connection: Connection) -> float:
    return len(connection.client.subscriptions)


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


def _idle(connection: Connection) -> float:
    return -connection.last_received


def _last(connection: Connection) -> float:
    return connection.last_received


CONNECTION_ORDERS: Mapping[str, "Key[Connection] | None"] = MappingProxyType(
    {
        START: None,
        "subscriptions": _subscriptions,
        "pending_bytes": _pending,
        "bytes_in": _bytes_in,
        "bytes_out": _bytes_out,
        "frames_in": _frames_in,
        "frames_out": _frames_out,
        "idle": _idle,
        "last": _last,
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

QUEUE_ORDERS: Mapping[str, "Key[Queue]"] = MappingProxyType(
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


@define(eq=False, repr=False)
class Window:
    """The requested part of a list."""

    offset: int
    limit: int

    @classmethod
    def of(cls, query: Query) -> "Window":
        """Parse ``offset`` and ``limit``.

        Raises:
          HttpError: a value is out of range.
        """
        return cls(
            query.number("offset", 0, least=0, most=MAX_OFFSET),
            query.number("limit", LIMIT, least=1, most=MAX_LIMIT),
        )

    def cut(self, things: Sequence[T]) -> Sequence[T]:
        """Return the requested part of ``things``."""
        return things[self.offset : self.offset + self.limit]

    def greatest(self, things: Sequence[T], key: "Key[T] | None") -> Pieces[Sequence[T]]:
        """Return the requested part of ``things``, greatest first, or unsorted without ``key``."""
        if key is None:
            return self.cut(things)
        return (yield from greatest(things, key, self.offset + self.limit))[self.offset :]

    def record(self, total: int, count: int) -> dict[str, object]:
        """Return the fields that describe the part."""
        return {"total": total, "offset": self.offset, "limit": self.limit, "count": count}


@define(eq=False, repr=False)
class Tables:
    """The pages with lists.

    Args:
      server: The server.
      figures: The source of the records.
    """

    server: "Server"
    figures: "Figures"

    def varz(self, request: HttpRequest) -> Pieces[Answer]:
        """Yield the process, its limits and totals."""
        Query.of(request, ())
        server, figures = self.server, self.figures
        session, stale = figures.session_and_stale()
        yield
        present, memory, inbox = (yield from figures.counting()), server.memory, server.inbox
        statistics = server.broker.statistics()
        return as_json(
            {
                **figures.head(),
                "version": __version__,
                "unready": server.why_unready(),
                "process": figures.process(),
                "session": session,
                "stale": stale,
                "connections": self._connections(present.traffic),
                "messages": self._messages(),
                "logins": self._logins(),
                "transactions": present.transactions,
                "outbox_bytes": present.waiting_bytes,
                "memory": {
                    "used_bytes": memory.charged_bytes,
                    "kept_bytes": memory.kept_bytes,
                    "limit_bytes": memory.limit_bytes,
                },
                "input": {
                    "frames": inbox.frames,
                    "bytes": inbox.bytes,
                    "limit_frames": server.limits.max_input_queue_size,
                    "limit_bytes": server.limits.max_input_queue_bytes,
                },
                "destinations": len(statistics.destinations),
                "wildcards": statistics.wildcards,
                "quotas": statistics.quotas(),
                "quota_refusals_total": statistics.quota_refusals,
                "cluster": None if server.cluster is None else asdict(server.cluster.figures()),
            }
        )

    def _connections(self, traffic: "Traffic") -> dict[str, object]:
        server = self.server
        return {
            "now": len(server.connections),
            "limit": server.limits.max_connections,
            "accepted_total": server.accepted,
            "refused_total": server.admission.refused,
            "opened_total": traffic.opened,
            "closed_total": {reason.text: count for reason, count in server.ended.items()},
            "frames_in_total": traffic.frames_in,
            "frames_out_total": traffic.frames_out,
            "bytes_in_total": traffic.bytes_in,
            "bytes_out_total": traffic.bytes_out,
            "heartbeats_missed_total": traffic.heartbeats_missed,
        }

    def _messages(self) -> dict[str, object]:
        messages = self.server.broker.statistics().messages
        return {
            "received_total": messages.received,
            "duplicates_total": messages.duplicates,
            "delivered_total": messages.delivered,
            "acked_total": messages.acked,
            "nacked_total": messages.nacked,
            "redelivered_total": messages.redelivered,
            "expired_total": self.figures.expired(),
            "dropped_total": self.figures.drops(),
            "dead_lettered_total": messages.dead_letters,
        }

    def _logins(self) -> dict[str, object]:
        attempts = self.server.authenticator.attempts
        return {
            "succeeded_total": attempts.succeeded,
            "failed_total": attempts.failed,
            "throttled_total": attempts.throttled,
            "anonymous_total": attempts.anonymous,
            "not_anonymous_total": attempts.not_anonymous,
        }

    def connz(self, request: HttpRequest) -> Pieces[Answer]:
        """Answer with the connections."""
        query = Query.of(request, ("sort", "state", "limit", "offset"))
        window = Window.of(query)
        order = query.word("sort", CONNECTION_ORDERS)
        state = query.word("state", (ANY, "opening", "open", "closed"))
        yield
        head, connections = self.figures.head(), list(self.server.connections)
        if state != ANY:
            connections = yield from chosen(
                connections, lambda each: self.figures.state(each) == state
            )
        part = yield from window.greatest(connections, CONNECTION_ORDERS[order])
        record = {
            **head,
            **window.record(len(connections), len(part)),
            "sort": order,
            "state": state,
        }
        return (yield from as_list(record, "connections", part, self.figures.connection))

    def subsz(self, request: HttpRequest) -> Pieces[Answer]:
        """List subscriptions, client by client, then durable ones without a client."""
        query = Query.of(request, ("session", "state", "limit", "offset"))
        window = Window.of(query)
        session = query.text("session")
        state = query.word("state", (ANY, CONNECTED, AWAY, DURABLE))
        if session and state not in (ANY, CONNECTED):
            raise HttpError(
                400, f"session selects one client, which has no subscriptions of state {state}"
            )
        yield
        head, statistics = self.figures.head(), self.server.broker.statistics()
        durables = [] if session else (yield from self._durables(state))
        part: list[Subscription | Binding] = []
        total = 0
        if session:
            clients = yield from chosen(
                list(statistics.clients), lambda client: client.session_id == session
            )
            listed = [each for client in clients for each in client.subscriptions.values()]
            total, part = len(listed), list(window.cut(listed))
        elif state in (ANY, CONNECTED):
            total = statistics.subscriptions
            part += yield from self._subscriptions(window)
        behind = max(0, window.offset - total)
        part += durables[behind : behind + window.limit - len(part)]
        record = {
            **head,
            **window.record(total + len(durables), len(part)),
            "state": state,
            "wildcards": statistics.wildcards,
            "destinations": len(statistics.destinations),
        }
        return (yield from as_list(record, "subscriptions", part, self.figures.subscription))

    def _durables(self, state: str) -> Pieces[list[Binding]]:
        """Yield the durable subscriptions without a connected consumer, oldest first."""
        if state == CONNECTED:
            return []
        durables = list(self.server.broker.statistics().durables)
        return (
            yield from chosen(durables, lambda each: state == DURABLE or not each.queue.consumers)
        )

    def _subscriptions(self, window: Window) -> Pieces[list[Subscription]]:
        """Return the requested part of all subscriptions, skipping clients before it as a whole."""
        clients = list(self.server.broker.statistics().clients)
        found: list[Subscription] = []
        offset = window.offset
        for start in range(0, len(clients), LOOKS):
            for client in clients[start : start + LOOKS]:
                mine = client.subscriptions
                end = offset + window.limit - len(found)
                found += islice(mine.values(), offset, end)
                offset = max(0, offset - len(mine))
            if len(found) == window.limit:
                break
            yield
        return found

    def queuez(self, request: HttpRequest) -> Pieces[Answer]:
        """List queues, or parked messages."""
        query = Query.of(request, ("sort", "state", "limit", "offset"))
        window = Window.of(query)
        order = query.word("sort", QUEUE_ORDERS)
        state = query.word("state", (ANY, "waiting", "idle", "parked"))
        if state == "parked" and order != HELD:
            raise HttpError(400, f"sort is {order!r}, but what is parked is sorted by {HELD}")
        yield
        figures, statistics = self.figures, self.server.broker.statistics()
        describe = partial(figures.queue, statistics=statistics)
        head, first = figures.head(), describe(None)
        part: list[Queue | ParkedDestination] = []
        if state == "parked":
            total = statistics.stale.destinations
            part += yield from window.greatest(statistics.parked(), _parked)
        else:
            total, queues = yield from self._queues(state, window, QUEUE_ORDERS[order])
            part += queues
        record = {
            **head,
            **window.record(total, len(part)),
            "sort": order,
            "state": state,
            "input": first,
        }
        return (yield from as_list(record, "queues", part, describe))

    def _queues(
        self, state: str, window: Window, key: "Key[Queue]"
    ) -> Pieces[tuple[int, list[Queue]]]:
        """Return the number of queues, and the requested part, greatest first."""
        best, total = Greatest[Queue](window.offset + window.limit), 0
        destinations = list(self.server.broker.statistics().destinations)
        for start in range(0, len(destinations), LOOKS):
            queues = map(queue_of, destinations[start : start + LOOKS])
            wanted = [each for each in queues if each is not None and _is_in(each, state)]
            best.add([(key(each), each) for each in wanted])
            total += len(wanted)
            yield
        return total, (yield from best.found())[window.offset :]


def _is_in(queue: Queue, state: str) -> bool:
    return state == ANY or (queue.message_count > 0) == (state == "waiting")


def _parked(parked: ParkedDestination) -> float:
    return parked.size
