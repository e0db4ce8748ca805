"""Changes that take one turn: a queue is paused or resumed, a connection closed."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from attrs import define

from trio_stomp.base import CloseReason, ProtocolError
from trio_stomp.web._query import Query
from trio_stomp.web._site import ADMIN, Rights
from trio_stomp.web.declared import QUEUE, SESSION, VERBS
from trio_stomp.web.management.requests import (
    Answering,
    Endpoint,
    Record,
    as_http,
    destination_of,
    http_error,
)

if TYPE_CHECKING:
    from trio_stomp.base import Identity
    from trio_stomp.broker import Manager
    from trio_stomp.server import Connection, Send, Server


@define(eq=False, repr=False)
class Change:
    """A change. Implements ``WebOperation``.

    Args:
      rights: The rights that the change requires.
      do: Carries out the change, in a turn. May raise ``ProtocolError``.
      result: The answer to the client.
      event: The name of the event that reports the change.
      queue: The name of the queue, for the event.
      detail: The detail of the event.
    """

    owner: "Changes"
    do: Callable[[], None]
    result: Record
    event: str
    queue: str = ""
    detail: str = ""
    rights: Rights = ADMIN
    max_body_bytes: int = 0

    async def run(self, identity: "Identity", send: "Send", _body: bytes = b"") -> None:
        """Implement ``WebOperation.run``."""

        def change(_now: float) -> None:
            self.do()
            self.owner.manager.record(self.event, self.queue, identity.name, self.detail)

        try:
            await self.owner.server.act(identity, self.rights, change)
        except ProtocolError as error:
            raise as_http(error) from None
        await Answering(send).end(self.result)


@define(eq=False, repr=False)
class Changes:
    """The changes that take one turn."""

    server: "Server"
    manager: "Manager"

    def endpoints(self) -> Iterator[Endpoint]:
        """Yield the requests."""
        for name, operate in (
            ("pause", self.pause),
            ("resume", self.resume),
            ("close", self.close),
        ):
            yield Endpoint.of(VERBS[name], operate)

    def pause(self, query: Query) -> Change:
        """Return the change that stops the hand-out of a queue to its consumers.

        Raises:
          HttpError: ``queue`` is no single destination.
        """
        return self._switch(query, "pause", self.manager.pause, is_paused=True)

    def resume(self, query: Query) -> Change:
        """Return the change that continues the hand-out of a queue.

        Raises:
          HttpError: ``queue`` is no single destination.
        """
        return self._switch(query, "resume", self.manager.resume, is_paused=False)

    def _switch(
        self, query: Query, event: str, switch: Callable[[str], None], *, is_paused: bool
    ) -> Change:
        queue = destination_of(self.manager, query, QUEUE)
        return Change(
            self,
            do=lambda: switch(queue),
            result={"queue": queue, "paused": is_paused},
            event=event,
            queue=queue,
        )

    def close(self, query: Query) -> Change:
        """Return the change that closes a connection. It fails if the session has ended."""
        session = query.text(SESSION)

        def end() -> None:
            find_connection(self.server, session).end(
                ProtocolError(
                    "closed-by-operator",
                    "an operator has closed this connection",
                    reason=CloseReason.CLOSED_BY_OPERATOR,
                )
            )

        result: Record = {"session": session, "closed": True}
        return Change(self, do=end, result=result, event="close", detail=session)


def find_connection(server: "Server", session: str) -> "Connection":
    """Return the connection with a session id.

    Raises:
      HttpError: there is no such session.
    """
    for each in server.connections:
        if each.client.session_id == session:
            return each
    text = f"there is no session {session[:80]!r}; GET /connz lists them"
    raise http_error("no-such-session", text)
