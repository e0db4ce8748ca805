"""The overview of the broker, its settings and policies in force, and their reload."""

from collections.abc import Iterator
from types import MappingProxyType
from typing import TYPE_CHECKING

from attrs import asdict, define

from trio_stomp._version import __version__
from trio_stomp.base import OptionError, Pieces
from trio_stomp.broker import BOUNDS_MS
from trio_stomp.web._query import Answer, Query, Record, as_json
from trio_stomp.web._site import ADMIN, Rights
from trio_stomp.web.declared import COUNT, FLAG, NUMBERS, OBJECT, TEXT, VERBS
from trio_stomp.web.management._core import Core
from trio_stomp.web.management.requests import (
    HEAD,
    LATENCY,
    LIMIT,
    NAME,
    OFFSET,
    Answering,
    Endpoint,
    Listing,
    http_error,
    listed,
    record,
)

if TYPE_CHECKING:
    from trio_stomp.base import Identity
    from trio_stomp.diag import Figures
    from trio_stomp.server import Send, Server, Traffic

PARTS = ("process", "session", "stale", "connections", "messages", "logins", "memory", "input")
"""The fields of the answer that are objects."""
SETTING = record(
    {
        **dict.fromkeys(("group", "name", "value", "default", "source", "kind", "help"), TEXT),
        "live": FLAG,
    }
)
POLICY = record({**dict.fromkeys(("pattern", "source", "kind"), TEXT), "policy": OBJECT})
IN_ORDER = "order"
ORDERS = MappingProxyType({IN_ORDER: None})


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


@define(eq=False, repr=False)
class SettingRequests:
    """The requests about settings and policies."""

    core: Core
    figures: "Figures"

    def endpoints(self) -> Iterator[Endpoint]:
        """Yield the requests."""
        yield Endpoint(
            name="settings",
            summary="List the options in force, each with its source. Passwords are masked.",
            parameters=(NAME, LIMIT, OFFSET),
            answer=listed("settings", SETTING),
            build=self.settings,
        )
        yield Endpoint(
            name="policies",
            summary="List the policies of destinations in their order: the first that matches"
            " decides. The last one has the defaults.",
            parameters=(NAME, LIMIT, OFFSET),
            answer=listed("policies", POLICY),
            build=self.policies,
        )
        yield Endpoint.of(VERBS["reload"], lambda _query: Reload(self.core))

    def settings(self, query: Query) -> Pieces[Answer]:
        """Return the options in force, each with its source."""
        yield
        listing = Listing[Record]("settings", lambda each: [f"{each['name']}"], dict, ORDERS)
        return (yield from listing.page(query, self.core.settings(), IN_ORDER, self.figures.head()))

    def policies(self, query: Query) -> Pieces[Answer]:
        """Return the policies in their order, the last one with the defaults."""
        yield
        listing = Listing[Record]("policies", lambda each: [f"{each['pattern']}"], dict, ORDERS)
        return (yield from listing.page(query, self.core.policies(), IN_ORDER, self.figures.head()))


@define(eq=False, repr=False)
class Reload:
    """The operation that reads the settings again. Implements ``WebOperation``."""

    core: Core
    rights: Rights = ADMIN
    max_body_bytes: int = 0

    async def run(self, identity: "Identity", send: "Send", _body: bytes = b"") -> None:
        """Implement ``WebOperation.run``."""
        try:
            changes = await self.core.reload()
        except OptionError as error:
            raise http_error("invalid-settings", f"{error}") from None
        detail = f"{len(changes)} changes"
        self.core.manager.record("reload", "", identity.name, detail)
        listed = [dict(each) for each in changes[: LIMIT.most]]
        answer = {"reloaded": True, "node": self.core.node, "total": len(changes)}
        await Answering(send).end({**answer, "changes": listed})
