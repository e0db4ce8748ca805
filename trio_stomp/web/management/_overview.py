"""The overview of the broker: its process, its limits and totals."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from attrs import asdict, define

from trio_stomp._version import __version__
from trio_stomp.base import Pieces
from trio_stomp.broker import BOUNDS_MS
from trio_stomp.web._query import Answer, Query, as_json
from trio_stomp.web.management.requests import COUNT, HEAD, LATENCY, NUMBERS, OBJECT, TEXT, Endpoint

if TYPE_CHECKING:
    from trio_stomp.diag import Figures
    from trio_stomp.server import Server, Traffic

PARTS = ("process", "session", "stale", "connections", "messages", "logins", "memory", "input")
"""The fields of the answer that are objects."""


@define(eq=False, repr=False)
class Overview:
    """The request for the overview."""

    server: "Server"
    figures: "Figures"

    def endpoints(self) -> Iterator[Endpoint]:
        """Yield the request."""
        yield Endpoint(
            name="overview",
            summary="Show the process of the broker, its limits and totals.",
            answer={
                **HEAD,
                "version": TEXT,
                "unready": TEXT,
                **dict.fromkeys(PARTS, OBJECT),
                "transactions": COUNT,
                "outbox_bytes": COUNT,
                "destinations": COUNT,
                "wildcards": COUNT,
                "quota_refusals_total": COUNT,
                "le_ms": NUMBERS,
                "latency": LATENCY,
            },
            build=self.page,
        )

    def page(self, _query: Query) -> Pieces[Answer]:
        """Return the figures of the process, its limits and totals."""
        server, figures = self.server, self.figures
        session, stale = figures.session_and_stale()
        yield
        present, memory, inbox = (yield from figures.counting()), server.memory, server.inbox
        latency = yield from figures.latency()
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
                "le_ms": BOUNDS_MS,
                "latency": latency,
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
            "refused_total": self.server.broker.statistics().refusals,
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
