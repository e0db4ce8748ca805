"""Queues that operators create and delete, and messages that they send."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from attrs import define

from trio_stomp.base import CloseReason, ProtocolError
from trio_stomp.broker import Action, Client, Deletion, Sending, Task
from trio_stomp.frames import V1_2, FrameDecoder, FrameRun, HeadCache, encode_frame
from trio_stomp.web._query import Query
from trio_stomp.web._site import ADMIN
from trio_stomp.web.declared import FORCE, OF_BODIES, OF_SENDS, QUEUE, TEXT, VERBS, Parameter
from trio_stomp.web.management.requests import (
    Endpoint,
    Stepwise,
    as_http,
    destination_of,
    http_error,
)

if TYPE_CHECKING:
    from trio_stomp.base import Identity
    from trio_stomp.broker import Manager
    from trio_stomp.server import Server

WHERE = Parameter("destination", "a destination, as destination=/queue/orders", is_required=True)
HEADER = Parameter("header", "a header of the message, as header=colour:red", most_times=100)
OF_THE_BROKER = frozenset({"destination", "content-length", "receipt", "transaction"})
ASKED = b"1"
"""The id of the RECEIPT."""


@define(eq=False, repr=False)
class QueueRequests:
    """The requests that create and delete queues, and send messages."""

    server: "Server"
    manager: "Manager"

    def endpoints(self) -> Iterator[Endpoint]:
        """Yield the requests."""
        yield Endpoint.of(VERBS["create"], self.create)
        yield Endpoint.of(VERBS["delete"], self.delete)
        yield Endpoint(
            name="send",
            method="POST",
            summary="Send a message. Its body is that of the request.",
            right="send at the destination",
            parameters=(WHERE, HEADER),
            answer={"destination": TEXT, "receipt": {"type": "object"}},
            errors=(*OF_BODIES, *OF_SENDS),
            as_send=True,
            operate=self.send,
            body={"application/octet-stream": "the body of the message"},
        )

    def create(self, query: Query) -> Stepwise[Task]:
        """Return the operation that creates a queue.

        Raises:
          HttpError: ``queue`` is no single destination.
        """
        queue = destination_of(self.manager, query, QUEUE)
        return Stepwise(
            server=self.server,
            query=query,
            rights=[(Action.CREATE, queue)],
            begin=lambda identity, _body: self.manager.create(queue, user=identity.name),
            result=lambda task: {"queue": queue, "created": task.done > 0},
            event="create",
            place=queue,
            detail=lambda _task: "",
        )

    def delete(self, query: Query) -> Stepwise[Deletion]:
        """Return the operation that deletes a queue. It needs ``force`` if the queue is in use.

        Raises:
          HttpError: ``queue`` is no single destination.
        """
        queue, is_forced = destination_of(self.manager, query, QUEUE), query.word(FORCE) == "1"
        return Stepwise(
            server=self.server,
            query=query,
            rights=ADMIN,
            begin=lambda identity, _body: self.manager.delete(
                queue, self._close, by=identity.name, force=is_forced
            ),
            result=lambda deletion: {
                "queue": queue,
                "deleted": deletion.done > 0,
                "purged": deletion.seen,
                "held": deletion.held,
            },
            event="delete",
            place=queue,
            detail=lambda deletion: (
                f"{deletion.seen} messages purged, {deletion.held} held by consumers"
            ),
        )

    def _close(self, client: Client) -> None:
        for each in self.server.connections:
            if each.client is client:
                each.end(
                    ProtocolError(
                        "queue-deleted",
                        "an operator has deleted a queue that this connection consumes from",
                        reason=CloseReason.CLOSED_BY_OPERATOR,
                    )
                )

    def send(self, query: Query) -> Stepwise[Sending]:
        """Return the operation that sends a message with the body of the request.

        Raises:
          HttpError: a header is malformed, or cannot be set by clients.
        """
        headers = [("destination", query.text(WHERE))]
        for text in query.texts(HEADER):
            name, colon, value = text.partition(":")
            if not (name and colon) or name in OF_THE_BROKER:
                raise http_error(
                    "bad-request",
                    f"header is {text[:40]!r}, but must be a name and a value, as colour:red; not"
                    f" one of {', '.join(sorted(OF_THE_BROKER))}",
                )
            headers.append((name, value))
        limits = self.server.codecs.limits
        try:
            rights = self.manager.needs_of_send(tuple(headers))
        except ProtocolError as error:
            raise as_http(error) from None

        def begin(identity: "Identity", body: bytes) -> Sending:
            decoder = FrameDecoder(limits, HeadCache(), V1_2)
            lines = [*headers, ("receipt", ASKED.decode())]
            events = decoder.receive_data(encode_frame("SEND", lines, V1_2, body))
            if decoder.error is not None:
                raise ProtocolError(decoder.error.code, decoder.error.message)
            (run,) = events
            assert isinstance(run, FrameRun)
            return self.manager.send(run, identity)

        return Stepwise(
            server=self.server,
            query=query,
            rights=rights,
            begin=begin,
            result=lambda sending: {"destination": headers[0][1], "receipt": sending.receipt},
            event="send",
            place=headers[0][1],
            max_body_bytes=limits.max_body_bytes,
        )
