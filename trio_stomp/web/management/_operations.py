"""The operations: their parameters, rights and results.

Each is a task of the connection that requested it: it ends when the connection does. With
``Accept: application/x-ndjson`` the answer is a line of JSON for each half second and one for the
result; otherwise it is the result.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import trio
from attrs import define, field

from trio_stomp.base import CloseReason, ProtocolError
from trio_stomp.broker import Action, Choice, Operation, Step
from trio_stomp.transport import HttpError, HttpRequest
from trio_stomp.web._query import API, Query
from trio_stomp.web._site import Site
from trio_stomp.web.management._messages import (
    LISTED,
    MAX_LISTED,
    MAX_SHOWN_BYTES,
    SHOWN_BYTES,
    MessageList,
)
from trio_stomp.web.management._result import Answering, Record

if TYPE_CHECKING:
    from trio_stomp.broker import Manager
    from trio_stomp.server import Connection, Send, Server

PROGRESS_S = 0.5
"""Interval of lines about the progress."""
LATER_S = 0.005
"""Pause of an operation that the queue or the store cannot continue now."""
MAX_COUNT = 10**15
MAX_OFFSET = 10**7
STATUSES = {"no-such-queue": 404, "no-such-session": 404, "queue-full": 409, "no-subscriber": 409}
"""HTTP status codes of errors by their stable code. Others are 400."""

Rights = Sequence[tuple[Action, str]]


def add_operations(site: Site, server: "Server", manager: "Manager") -> None:
    """Let a site answer the requests of operators at ``/api/v1``."""
    for method, name, make in (
        ("GET", "messages", messages),
        ("POST", "purge", purge),
        ("POST", "move", move),
        ("POST", "close", close),
    ):
        site.operations[method, API + name] = partial(make, server, manager)


def messages(server: "Server", manager: "Manager", request: HttpRequest) -> "QueueOperation":
    """Show messages of a queue, without consuming or marking them."""
    query = Query.of(request, ("queue", "selector", "offset", "limit", "bytes"))
    limit = query.number("limit", LISTED, least=1, most=MAX_LISTED)
    shown = MessageList(
        manager,
        offset=query.number("offset", 0, least=0, most=MAX_OFFSET),
        shown_bytes=query.number("bytes", SHOWN_BYTES, least=0, most=MAX_SHOWN_BYTES),
    )
    choice = _choice(manager, query, shown.offset + limit)

    def result(operation: Operation) -> Record:
        return {
            "queue": choice.queue,
            "offset": shown.offset,
            "total": operation.total,
            "seen": operation.seen,
            "messages": shown.records,
        }

    return QueueOperation(
        server,
        manager,
        request,
        rights=[(Action.BROWSE, choice.queue)],
        begin=lambda _user: manager.look(choice, shown.take),
        result=result,
    )


def purge(server: "Server", manager: "Manager", request: HttpRequest) -> "QueueOperation":
    """Remove messages of a queue for good."""
    query = Query.of(request, ("queue", "selector", "count"))
    choice = _choice(manager, query, query.number("count", MAX_COUNT, least=1, most=MAX_COUNT))
    return QueueOperation(
        server,
        manager,
        request,
        rights=[(Action.RECEIVE, choice.queue)],
        begin=lambda user: manager.purge(choice, user),
        result=lambda operation: {"queue": choice.queue, "purged": operation.done},
        event="purge",
        queue=choice.queue,
    )


def move(server: "Server", manager: "Manager", request: HttpRequest) -> "QueueOperation":
    """Move messages of a queue to another destination."""
    query = Query.of(request, ("queue", "to", "selector", "count"))
    choice = _choice(manager, query, query.number("count", MAX_COUNT, least=1, most=MAX_COUNT))
    to = _destination(manager, query, "to")
    return QueueOperation(
        server,
        manager,
        request,
        rights=[(Action.RECEIVE, choice.queue), (Action.SEND, to)],
        begin=lambda _user: manager.move(choice, to),
        result=lambda operation: {"queue": choice.queue, "to": to, "moved": operation.done},
        event="move",
        queue=choice.queue,
        detail=f" to {to}",
    )


def close(server: "Server", manager: "Manager", request: HttpRequest) -> "Close":
    """Close a connection."""
    session = Query.of(request, ("session",)).text("session")
    if not session:
        raise _bad_request("session is missing; give the id of a session (GET /connz lists them)")
    return Close(server, manager, session)


def _choice(manager: "Manager", query: Query, limit: int) -> Choice:
    return Choice(_destination(manager, query, "queue"), query.text("selector"), limit)


def _destination(manager: "Manager", query: Query, name: str) -> str:
    text = query.text(name)
    if not text:
        raise _bad_request(f"{name} is missing; give a destination, as {name}=/queue/orders")
    try:
        return manager.resolve(text)
    except ProtocolError as error:
        raise as_http(error) from None


def _bad_request(text: str) -> HttpError:
    return HttpError(400, text, code="bad-request")


def as_http(error: ProtocolError) -> HttpError:
    """Return the HTTP form of an error of the core."""
    return HttpError(STATUSES.get(error.code, 400), error.message, code=error.code)


@define(eq=False, repr=False)
class QueueOperation:
    """An operation on a queue. Implements ``WebOperation``.

    Args:
      rights: The rights that it requires.
      begin: Begins it for a user, in a turn.
      result: Returns its result.
      event: The name of the event about it; "" = it changes nothing.
      queue: The name of the queue, for the event.
      detail: Follows the number of messages in the event.
    """

    server: "Server"
    manager: "Manager"
    request: HttpRequest
    rights: Rights
    begin: Callable[[str], Operation]
    result: Callable[[Operation], Record]
    event: str = ""
    queue: str = ""
    detail: str = ""

    async def run(self, user: str, send: "Send") -> None:
        """Implement ``WebOperation.run``."""
        dispatcher, answering = self.server.dispatcher, Answering.to(self.request, send)
        try:
            operation = await dispatcher.call(lambda _now: self.begin(user))
        except ProtocolError as error:
            raise as_http(error) from None
        try:
            await self._drive(operation, answering)
        finally:
            dispatcher.call_soon(partial(self._end, operation, user))
        if operation.problem is None:
            await answering.end(self.result(operation))
        else:
            why = as_http(operation.problem)
            record = {**self.result(operation), "error": why.text, "code": why.code}
            await answering.end(record, why.status)

    async def _drive(self, operation: Operation, answering: Answering) -> None:
        """Take steps until the operation is done and stored."""
        told_at = trio.current_time()
        while True:
            woken = trio.Event()
            operation.woken = woken.set
            match await self.server.dispatcher.call(operation.step):
                case Step.DONE:
                    return
                case Step.WAIT:
                    await woken.wait()
                case Step.LATER:
                    await trio.sleep(LATER_S)
            if trio.current_time() - told_at >= PROGRESS_S:
                told_at = trio.current_time()
                figures = {"seen": operation.seen, "total": operation.total}
                await answering.progress({**self.result(operation), **figures})

    def _end(self, operation: Operation, user: str, now: float) -> None:
        operation.end(now)
        if self.event and operation.done:
            count = f"{operation.done} message{'s' * (operation.done != 1)}{self.detail}"
            self.manager.tell(self.event, self.queue, user, count)


@define(eq=False, repr=False)
class Close:
    """Closing a connection. Implements ``WebOperation``."""

    server: "Server"
    manager: "Manager"
    session: str
    rights: Rights = field(default=((Action.ADMIN, "DIAG"),), init=False)

    async def run(self, user: str, send: "Send") -> None:
        """Implement ``WebOperation.run``."""
        connection = self._find()
        if connection is None:
            raise HttpError(
                404,
                f"there is no session {self.session[:80]!r}; GET /connz lists them",
                code="no-such-session",
            )
        connection.end(
            ProtocolError(
                "closed-by-operator",
                "an operator has closed this connection",
                reason=CloseReason.CLOSED_BY_OPERATOR,
            )
        )
        tell = self.manager.tell
        self.server.dispatcher.call_soon(lambda _now: tell("close", "", user, self.session))
        await Answering(send).end({"session": self.session, "closed": True})

    def _find(self) -> "Connection | None":
        for each in self.server.connections:
            if each.client.session_id == self.session:
                return each
        return None
