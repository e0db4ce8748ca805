"""Operations on messages: their parameters, rights and results.

Each is a task of the connection that requested it: it ends when the connection does. With
``Accept: application/x-ndjson`` the answer is a line of JSON for each half second and one for the
result; otherwise it is the result.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import trio
from attrs import define

from trio_stomp.base import ProtocolError
from trio_stomp.broker import Action, Choice, Operation, Step
from trio_stomp.web._query import Number, Query
from trio_stomp.web._site import Rights
from trio_stomp.web.management._endpoint import COUNT, COUNTS, TEXT, Endpoint, Fields
from trio_stomp.web.management._messages import MAX_SHOWN_BYTES, MESSAGE, MessageList
from trio_stomp.web.management._parameters import (
    OF_MOVES,
    OF_QUEUES,
    QUEUE,
    SELECTOR,
    TO,
    as_http,
    destination_of,
    optional,
)
from trio_stomp.web.management._result import Answering, Record
from trio_stomp.web.management._window import OFFSET

if TYPE_CHECKING:
    from trio_stomp.base import Identity
    from trio_stomp.broker import Manager, Retry
    from trio_stomp.server import Send, Server

PROGRESS_S = 0.5
"""Interval of lines about the progress."""
LATER_S = 0.005
"""Pause of an operation that the queue or the store cannot continue now."""

ALL = 10**15
COUNTED = Number("count", "the most messages, oldest first", default=ALL, least=1, most=ALL)
SHOWN = Number("limit", "the most messages to show", default=50, least=1, most=1_000)
SHOWN_BYTES = Number(
    "bytes", "the most bytes of a body to show", default=16 * 1024, most=MAX_SHOWN_BYTES
)
INSTEAD = optional(TO, "a destination of all, instead of where each came from")
SEEN: Fields = {"queue": TEXT, "total": COUNT, "seen": COUNT}
SUMMARIES = {
    "purge": "Remove messages of a queue for good.",
    "move": "Move messages of a queue to another destination.",
    "retry": "Send dead letters of a queue to where they came from.",
}


def choice_of(manager: "Manager", query: Query, limit: int) -> Choice:
    """Return the messages that a query chooses.

    Raises:
      HttpError: the queue or another parameter is wrong.
    """
    return Choice(destination_of(manager, query, QUEUE), query.text(SELECTOR), limit)


@define(eq=False, repr=False)
class MessageOperations:
    """The operations on messages of queues."""

    server: "Server"
    manager: "Manager"

    def endpoints(self) -> Iterator[Endpoint]:
        """Yield the requests."""
        yield Endpoint(
            name="messages",
            summary="Show waiting messages of a queue, without consuming or marking them.",
            right="browse at the queue",
            parameters=(QUEUE, SELECTOR, OFFSET, SHOWN, SHOWN_BYTES),
            answer={**SEEN, "offset": COUNT, "messages": {"type": "array", "items": MESSAGE}},
            errors=(*OF_QUEUES, "invalid-selector"),
            operate=self.messages,
            has_progress=True,
        )
        for name, figures, more, operate in (
            ("purge", {"purged": COUNT}, (), self.purge),
            ("move", {"to": TEXT, "moved": COUNT}, (TO,), self.move),
            ("retry", {"sent": COUNT, "left": COUNTS}, (INSTEAD,), self.retry),
        ):
            yield Endpoint(
                name=name,
                summary=SUMMARIES[name],
                right="receive at the queue, and send to where messages go",
                parameters=(QUEUE, *more, SELECTOR, COUNTED),
                answer={"queue": TEXT, **figures},
                errors=(*OF_QUEUES, "invalid-selector", *(OF_MOVES if name == "move" else ())),
                method="POST",
                operate=operate,
                has_progress=True,
            )

    def messages(self, query: Query) -> "QueueOperation":
        """Show messages of a queue, without consuming or marking them."""
        shown = MessageList(
            self.manager, offset=query.number(OFFSET), shown_bytes=query.number(SHOWN_BYTES)
        )
        choice = choice_of(self.manager, query, shown.offset + query.number(SHOWN))

        def result(operation: Operation) -> Record:
            return {
                "queue": choice.queue,
                "offset": shown.offset,
                "total": operation.total,
                "seen": operation.seen,
                "messages": shown.records,
            }

        return QueueOperation(
            self,
            query,
            rights=[(Action.BROWSE, choice.queue)],
            begin=lambda _identity: self.manager.look(choice, shown.take),
            result=result,
        )

    def purge(self, query: Query) -> "QueueOperation":
        """Remove messages of a queue for good."""
        choice = choice_of(self.manager, query, query.number(COUNTED))
        return QueueOperation(
            self,
            query,
            rights=[(Action.RECEIVE, choice.queue)],
            begin=lambda identity: self.manager.purge(choice, identity.name),
            result=lambda operation: {"queue": choice.queue, "purged": operation.done},
            event="purge",
            queue=choice.queue,
        )

    def move(self, query: Query) -> "QueueOperation":
        """Move messages of a queue to another destination."""
        choice = choice_of(self.manager, query, query.number(COUNTED))
        to = destination_of(self.manager, query, TO)
        return QueueOperation(
            self,
            query,
            rights=[(Action.RECEIVE, choice.queue), (Action.SEND, to)],
            begin=lambda _identity: self.manager.move(choice, to),
            result=lambda operation: {"queue": choice.queue, "to": to, "moved": operation.done},
            event="move",
            queue=choice.queue,
            detail=f" to {to}",
        )

    def retry(self, query: Query) -> "QueueOperation":
        """Send dead letters of a queue to where they came from."""
        choice = choice_of(self.manager, query, query.number(COUNTED))
        to = destination_of(self.manager, query, INSTEAD) if query.text(INSTEAD) else ""
        began: list[Retry] = []

        def begin(identity: "Identity") -> Operation:
            operation, found = self.manager.retry(choice, to, identity)
            began.append(found)
            return operation

        return QueueOperation(
            self,
            query,
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

    owner: MessageOperations
    query: Query
    rights: Rights
    begin: "Callable[[Identity], Operation]"
    result: Callable[[Operation], Record]
    event: str = ""
    queue: str = ""
    detail: str = ""

    async def run(self, identity: "Identity", send: "Send") -> None:
        """Implement ``WebOperation.run``."""
        dispatcher = self.owner.server.dispatcher
        answering = Answering.to(self.query.request, send)
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
            match await self.owner.server.dispatcher.call(operation.step):
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
            self.owner.manager.record(self.event, self.queue, user, count)
