"""One queue with its consumers, and one connection with its subscriptions."""

from itertools import islice
from typing import TYPE_CHECKING

from attrs import asdict, define

from trio_stomp.base import Pieces, ProtocolError
from trio_stomp.transport import HttpRequest
from trio_stomp.web._query import Answer, Query, as_list
from trio_stomp.web.management._changes import find_connection
from trio_stomp.web.management._parameters import as_http, bad_request, destination_of
from trio_stomp.web.management._result import Record

if TYPE_CHECKING:
    from trio_stomp.broker import Consumer, Manager
    from trio_stomp.diag import Figures
    from trio_stomp.server import Server

LISTED = 1_000
"""Consumers or subscriptions in one answer."""
HELD = 20
"""Unacknowledged messages that are listed of each consumer."""


@define(eq=False, repr=False)
class Views:
    """The pages of single things."""

    server: "Server"
    manager: "Manager"
    figures: "Figures"

    def queue(self, request: HttpRequest) -> Pieces[Answer]:
        """Answer with a queue, its policy and its consumers."""
        name = destination_of(self.manager, Query.of(request, ("queue",)), "queue")
        try:
            queue = self.manager.find(name)
        except ProtocolError as error:
            raise as_http(error) from None
        yield
        record = {
            **self.figures.head(),
            **self.figures.queue(queue, self.server.broker.statistics()),
            "paused": queue.is_paused,
            "delayed": queue.delayed,
            "enqueued_total": queue.enqueued,
            "acked_total": queue.dequeued,
            "policy": asdict(queue.policy),
            "total": len(queue.consumers),
        }
        consumers = list(islice(queue.consumers, LISTED))
        return (yield from as_list(record, "consumers", consumers, self._consumer))

    def _consumer(self, consumer: "Consumer") -> Record:
        held = islice(consumer.unacked.values(), HELD)
        return {
            **self.figures.subscription(consumer.subscription),
            "oldest_unacked_age_s": consumer.oldest_age_s(self.server.clock.now()),
            "unacked_messages": [self.manager.id_of(each.message) for each in held],
        }

    def connection(self, request: HttpRequest) -> Pieces[Answer]:
        """Answer with a connection and its subscriptions."""
        session = Query.of(request, ("session",)).text("session")
        if not session:
            raise bad_request("session is missing; GET /connz lists them")
        connection = find_connection(self.server, session)
        yield
        outbox, subscriptions = connection.outbox, connection.client.subscriptions
        record = {
            **self.figures.head(),
            **self.figures.connection(connection),
            "outbox_bytes": outbox.waiting_bytes,
            "outbox_limit_bytes": outbox.shared.limit_bytes,
            "outbox_peak_bytes": outbox.peak_bytes,
            "send_blocked_ms_total": outbox.blocked_s * 1000,
            "total": len(subscriptions),
        }
        del record["subscriptions"]  # their number: here is the list
        listed = list(islice(subscriptions.values(), LISTED))
        return (yield from as_list(record, "subscriptions", listed, self.figures.subscription))
