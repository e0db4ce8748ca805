"""Operations on messages: their parameters, rights and results.

Each is a task of the connection that requested it: it ends when the connection does. With
``Accept: application/x-ndjson`` the answer is a line of JSON for each half second and one for the
result; otherwise it is the result.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import trio
from attrs import define

from trio_stomp.base import ProtocolError
from trio_stomp.broker import Action, Operation, Step
from trio_stomp.transport import HttpRequest
from trio_stomp.web._query import Query
from trio_stomp.web.management._messages import (
    LISTED,
    MAX_LISTED,
    MAX_SHOWN_BYTES,
    SHOWN_BYTES,
    MessageList,
)
from trio_stomp.web.management._parameters import Rights, as_http, choice_of, destination_of
from trio_stomp.web.management._result import Answering, Record

if TYPE_CHECKING:
    from trio_stomp.base import Identity
    from trio_stomp.broker import Manager, Retry
    from trio_stomp.server import Send, Server

PROGRESS_S = 0.5
"""Interval of lines about the progress."""
LATER_S = 0.005
"""Pause of an operation that the queue or the store cannot continue now."""
MAX_COUNT = 10**15
MAX_OFFSET = 10**7


def messages(server: "Server", manager: "Manager", request: HttpRequest) -> "QueueOperation":
    """Show messages of a queue, without consuming or marking them."""
    query = Query.of(request, ("queue", "selector", "offset", "limit", "bytes"))
    limit = query.number("limit", LISTED, least=1, most=MAX_LISTED)
    shown = MessageList(
        manager,
        offset=query.number("offset", 0, least=0, most=MAX_OFFSET),
        shown_bytes=query.number("bytes", SHOWN_BYTES, least=0, most=MAX_SHOWN_BYTES),
    )
    choice = choice_of(manager, query, shown.offset + limit)

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
        begin=lambda _identity: manager.look(choice, shown.take),
        result=result,
    )


def purge(server: "Server", manager: "Manager", request: HttpRequest) -> "QueueOperation":
    """Remove messages of a queue for good."""
    query = Query.of(request, ("queue", "selector", "count"))
    choice = choice_of(manager, query, query.number("count", MAX_COUNT, least=1, most=MAX_COUNT))
    return QueueOperation(
        server,
        manager,
        request,
        rights=[(Action.RECEIVE, choice.queue)],
        begin=lambda identity: manager.purge(choice, identity.name),
        result=lambda operation: {"queue": choice.queue, "purged": operation.done},
        event="purge",
        queue=choice.queue,
    )


def move(server: "Server", manager: "Manager", request: HttpRequest) -> "QueueOperation":
    """Move messages of a queue to another destination."""
    query = Query.of(request, ("queue", "to", "selector", "count"))
    choice = choice_of(manager, query, query.number("count", MAX_COUNT, least=1, most=MAX_COUNT))
    to = destination_of(manager, query, "to")
    return QueueOperation(
        server,
        manager,
        request,
        rights=[(Action.RECEIVE, choice.queue), (Action.SEND, to)],
        begin=lambda _identity: manager.move(choice, to),
        result=lambda operation: {"queue": choice.queue, "to": to, "moved": operation.done},
        event="move",
        queue=choice.queue,
        detail=f" to {to}",
    )


def retry(server: "Server", manager: "Manager", request: HttpRequest) -> "QueueOperation":
    """Send dead letters of a queue to where they came from."""
    query = Query.of(request, ("queue", "to", "selector", "count"))
    choice = choice_of(manager, query, query.number("count", MAX_COUNT, least=1, most=MAX_COUNT))
    to = destination_of(manager, query, "to") if query.text("to") else ""
    began: list[Retry] = []

    def begin(identity: "Identity") -> Operation:
        operation, found = manager.retry(choice, to, identity)
        began.append(found)
        return operation

    return QueueOperation(
        server,
        manager,
        request,
        rights=[(Action.RECEIVE, choice.queue), *([(Action.SEND, to)] if to else [])],
        begin=begin,
        result=lambda operation: {
            "queue": choice.queue,
            "sent": operation.done,
            "left": began[0].left,
        },
        event="retry",
        queue=choice.queue,
        detail=f" to {to}" if to else "",
    )


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
    begin: "Callable[[Identity], Operation]"
    result: Callable[[Operation], Record]
    event: str = ""
    queue: str = ""
    detail: str = ""

    async def run(self, identity: "Identity", send: "Send") -> None:
        """Implement ``WebOperation.run``."""
        dispatcher, answering = self.server.dispatcher, Answering.to(self.request, send)
        try:
            operation = await dispatcher.call(lambda _now: self.begin(identity))
        except ProtocolError as error:
            raise as_http(error) from None
        try:
            await self._drive(operation, answering)
        finally:
            dispatcher.call_soon(partial(self._end, operation, identity.name))
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
            self.manager.record(self.event, self.queue, user, count)
