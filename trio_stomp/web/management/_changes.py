"""Changes that take one turn: a queue is paused or resumed, a connection closed."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from attrs import define

from trio_stomp.base import CloseReason, ProtocolError
from trio_stomp.transport import HttpRequest
from trio_stomp.web._query import Query
from trio_stomp.web.management._parameters import (
    ADMIN,
    Rights,
    as_http,
    bad_request,
    destination_of,
    no_session,
)
from trio_stomp.web.management._result import Answering, Record

if TYPE_CHECKING:
    from trio_stomp.base import Identity
    from trio_stomp.broker import Manager
    from trio_stomp.server import Connection, Send, Server


@define(eq=False, repr=False)
class Change:
    """A change. Implements ``WebOperation``.

    Args:
      rights: The rights that it requires.
      do: Does it, in a turn.
      result: What the client gets.
      event: The name of the event about it.
      queue: The name of the queue, for the event.
      detail: The detail of the event.
    """

    server: "Server"
    manager: "Manager"
    do: Callable[[], None]
    result: Record
    event: str
    queue: str = ""
    detail: str = ""
    rights: Rights = ADMIN

    async def run(self, identity: "Identity", send: "Send") -> None:
        """Implement ``WebOperation.run``."""

        def change(_now: float) -> None:
            self.do()
            self.manager.record(self.event, self.queue, identity.name, self.detail)

        try:
            await self.server.dispatcher.call(change)
        except ProtocolError as error:
            raise as_http(error) from None
        await Answering(send).end(self.result)


def pause(server: "Server", manager: "Manager", request: HttpRequest) -> Change:
    """Stop the hand-out of a queue to its consumers."""
    return _switch(server, manager, request, is_paused=True)


def resume(server: "Server", manager: "Manager", request: HttpRequest) -> Change:
    """Continue the hand-out of a queue."""
    return _switch(server, manager, request, is_paused=False)


def _switch(
    server: "Server", manager: "Manager", request: HttpRequest, *, is_paused: bool
) -> Change:
    queue = destination_of(manager, Query.of(request, ("queue",)), "queue")
    switch = manager.pause if is_paused else manager.resume
    return Change(
        server,
        manager,
        do=lambda: switch(queue),
        result={"queue": queue, "paused": is_paused},
        event="pause" if is_paused else "resume",
        queue=queue,
    )


def close(server: "Server", manager: "Manager", request: HttpRequest) -> Change:
    """Close a connection."""
    session = Query.of(request, ("session",)).text("session")
    if not session:
        raise bad_request("session is missing; give the id of a session (GET /connz lists them)")

    def end() -> None:
        find_connection(server, session).end(
            ProtocolError(
                "closed-by-operator",
                "an operator has closed this connection",
                reason=CloseReason.CLOSED_BY_OPERATOR,
            )
        )

    result: Record = {"session": session, "closed": True}
    return Change(server, manager, do=end, result=result, event="close", detail=session)


def find_connection(server: "Server", session: str) -> "Connection":
    """Return the connection with a session id.

    Raises:
      HttpError: there is none.
    """
    for each in server.connections:
        if each.client.session_id == session:
            return each
    raise no_session(session)
