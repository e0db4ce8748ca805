"""Lists of subscriptions and durable subscriptions."""

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from attrs import define

from trio_stomp.base import LOOKS, Pieces, slices
from trio_stomp.broker import Binding, Subscription
from trio_stomp.web._pieces import chosen
from trio_stomp.web._query import Answer, Query, as_list
from trio_stomp.web.declared import COUNT, FLAG, TEXT, Parameter, Word
from trio_stomp.web.management.requests import (
    COPIES,
    LIMIT,
    OFFSET,
    Endpoint,
    Window,
    http_error,
    listed,
    maybe,
    record,
)

if TYPE_CHECKING:
    from trio_stomp.diag import Figures
    from trio_stomp.server import Server

ANY, CONNECTED, AWAY, DURABLE = "any", "connected", "away", "durable"

OF_SESSION = Parameter("session", "only those of one session")
STATE = Word(
    "state",
    "any, those of connected clients, durable ones without a client, or all durable ones",
    choices=(ANY, CONNECTED, AWAY, DURABLE),
)
SUBSCRIPTION = record(
    {
        "state": TEXT,
        "session_id": TEXT,
        "user": TEXT,
        "subscription_id": maybe(TEXT),
        "destination": TEXT,
        "wildcard": FLAG,
        "ack": maybe(TEXT),
        "selector": FLAG,
        "selector_text": TEXT,
        "no_local": FLAG,
        "durable": FLAG,
        "name": maybe(TEXT),
        "client_id": maybe(TEXT),
        "owner": maybe(TEXT),
        "consumers": COUNT,
        "prefetch": COUNT,
        "waiting": maybe(COUNT),
        "unacked": COUNT,
    }
)


@define(eq=False, repr=False)
class SubscriptionLists:
    """The request that lists subscriptions."""

    server: "Server"
    figures: "Figures"

    def endpoints(self) -> Iterator[Endpoint]:
        """Yield the requests."""
        answer = {**listed("subscriptions", SUBSCRIPTION), "state": TEXT, "wildcards": COUNT}
        del answer["sort"]
        yield Endpoint(
            name="subscriptions",
            summary="List subscriptions, client by client, then durable ones without a client.",
            parameters=(OF_SESSION, STATE, COPIES, LIMIT, OFFSET),
            answer=answer,
            build=self.subscriptions,
        )

    def subscriptions(self, query: Query) -> Pieces[Answer]:
        """Return subscriptions, client by client, then durable ones without a client.

        Raises:
          HttpError: ``session`` and ``state`` exclude each other.
        """
        window, session, state = Window.of(query), query.text(OF_SESSION), query.word(STATE)
        if session and state not in (ANY, CONNECTED):
            text = f"session selects one client, which has no subscriptions of state {state}"
            raise http_error("bad-request", text)
        yield
        head, statistics = self.figures.head(), self.server.broker.statistics()
        copies = query.word(COPIES) == "1"
        durables = [] if session else (yield from self._durables(state, copies=copies))
        part: list[Subscription | Binding] = []
        total = 0
        if session or (state in (ANY, CONNECTED) and (copies or statistics.copies)):
            clients = yield from chosen(
                list(statistics.clients), lambda client: session in ("", client.session_id)
            )
            mine: list[Subscription | Binding] = []
            for some in slices(clients, LOOKS):
                each_of = (each for client in some for each in client.subscriptions.values())
                mine += [each for each in each_of if each.is_counted != copies]
                yield
            total, part = len(mine), list(window.cut(mine))
        elif state in (ANY, CONNECTED):
            total = statistics.subscriptions
            part += yield from self._connected(window)
        behind = max(0, window.offset - total)
        part += durables[behind : behind + window.limit - len(part)]
        fields = {
            **head,
            **window.record(total + len(durables), len(part)),
            "state": state,
            "wildcards": statistics.wildcards,
            "destinations": len(statistics.destinations),
        }
        return (yield from as_list(fields, "subscriptions", part, self.figures.subscription))

    def _durables(self, state: str, *, copies: bool) -> Pieces[list[Binding]]:
        """Return the durable subscriptions without a connected consumer, oldest first."""
        if state == CONNECTED:
            return []
        durables = list(self.server.broker.statistics().durables)
        return (
            yield from chosen(
                durables,
                lambda each: (
                    each.is_counted != copies and (state == DURABLE or not each.queue.consumers)
                ),
            )
        )

    def _connected(self, window: Window) -> Pieces[list[Subscription]]:
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
