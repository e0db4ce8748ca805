"""Operations on messages of queues: their parameters, rights and results."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from attrs import define

from trio_stomp.broker import Action, Choice, Operation, Task
from trio_stomp.web._query import Query
from trio_stomp.web._site import ADMIN
from trio_stomp.web.declared import (
    BODY,
    CONDITIONS,
    COUNT,
    COUNTED,
    FLAG,
    HOLDER,
    ID,
    INSTEAD,
    OF_CHOICES,
    ORIGIN,
    PURGE,
    QUEUE,
    RETRY,
    SELECTOR,
    SINCE,
    TEXT,
    TO,
    UNTIL,
    VERBS,
)
from trio_stomp.web.management._messages import MESSAGE, SHOWN, SHOWN_BYTES, MessageList
from trio_stomp.web.management.requests import (
    OFFSET,
    Endpoint,
    Items,
    Record,
    Stepwise,
    destination_of,
    messages,
)

if TYPE_CHECKING:
    from trio_stomp.broker import Manager
    from trio_stomp.server import Server


def choice_of(manager: "Manager", query: Query, limit: int) -> Choice:
    """Return the choice of messages that the conditions of a query describe.

    Args:
      manager: Resolves the name of the queue.
      query: The query.
      limit: The maximum number of messages.

    Raises:
      HttpError: ``queue`` is no single destination.
    """
    return Choice(
        destination_of(manager, query, QUEUE),
        query.text(SELECTOR),
        limit,
        body=query.text(BODY).encode(),
        since_ms=query.number(SINCE),
        until_ms=query.number(UNTIL),
        ids=frozenset(query.texts(ID)),
        origins=frozenset(query.texts(ORIGIN)),
    )


@define(eq=False, repr=False)
class MessageOperations:
    """The operations on messages of queues."""

    server: "Server"
    manager: "Manager"

    @property
    def _stepwise(self) -> Callable[..., Stepwise[Operation]]:
        return partial(Stepwise[Operation], server=self.server)

    def endpoints(self) -> Iterator[Endpoint]:
        """Yield the requests."""
        yield Endpoint(
            name="messages",
            summary="Show waiting messages of a queue that match all conditions, without consuming"
            " or marking them.",
            right="browse at the queue",
            parameters=(QUEUE, *CONDITIONS, OFFSET, SHOWN, SHOWN_BYTES),
            answer={
                **dict.fromkeys(("offset", "total", "seen"), COUNT),
                "queue": TEXT,
                "more": FLAG,
                "messages": {"type": "array", "items": MESSAGE},
            },
            errors=OF_CHOICES,
            operate=self.messages,
            has_progress=True,
        )
        yield Endpoint.of(PURGE, self.purge)
        yield Endpoint.of(VERBS["move"], self.move)
        yield Endpoint.of(RETRY, self.retry)
        yield Endpoint.of(VERBS["redeliver"], self.redeliver)

    def messages(self, query: Query) -> Stepwise[Operation]:
        """Return the operation that shows messages of a queue without consuming them.

        Raises:
          HttpError: ``queue`` is no single destination.
        """
        items = Items("messages", self.server.memory, query.number(SHOWN_BYTES))
        shown = MessageList(self.manager, items, query.number(OFFSET))
        choice = choice_of(self.manager, query, shown.offset + query.number(SHOWN))

        def result(operation: Operation) -> Record:
            return {
                "queue": choice.queue,
                "offset": shown.offset,
                "total": operation.total,
                "seen": operation.seen,
                "more": items.is_full,
            }

        return self._stepwise(
            query=query,
            rights=[(Action.BROWSE, choice.queue)],
            begin=lambda _identity, _body: self.manager.look(choice, shown.take),
            result=result,
            items=items,
        )

    def purge(self, query: Query) -> Stepwise[Operation]:
        """Return the operation that removes messages of a queue for good.

        Raises:
          HttpError: ``queue`` is no single destination.
        """
        choice = choice_of(self.manager, query, query.number(COUNTED))
        return self._stepwise(
            query=query,
            rights=[(Action.RECEIVE, choice.queue)],
            begin=lambda identity, _body: self.manager.purge(choice, identity.name),
            result=lambda operation: {"queue": choice.queue, "purged": operation.done},
            event="purge",
            place=choice.queue,
        )

    def move(self, query: Query) -> Stepwise[Operation]:
        """Return the operation that moves messages of a queue to another destination.

        Raises:
          HttpError: ``queue`` or ``to`` is no single destination.
        """
        choice = choice_of(self.manager, query, query.number(COUNTED))
        to = destination_of(self.manager, query, TO, is_target=True)
        return self._stepwise(
            query=query,
            rights=[(Action.RECEIVE, choice.queue), (Action.SEND, to)],
            begin=lambda _identity, _body: self.manager.move(choice, to),
            result=lambda operation: {"queue": choice.queue, "to": to, "moved": operation.done},
            event="move",
            place=choice.queue,
            detail=lambda operation: f"{messages(operation)} to {to}",
        )

    def retry(self, query: Query) -> Stepwise[Operation]:
        """Return the operation that sends dead letters to their original destinations.

        Raises:
          HttpError: ``queue`` or ``to`` is no single destination.
        """
        choice = choice_of(self.manager, query, query.number(COUNTED))
        to = query.text(INSTEAD)
        if to:
            to = destination_of(self.manager, query, INSTEAD, is_target=True)
        return self._stepwise(
            query=query,
            rights=[(Action.RECEIVE, choice.queue), *([(Action.SEND, to)] if to else [])],
            begin=lambda identity, _body: self.manager.retry(choice, to, identity),
            result=lambda operation: {
                "queue": choice.queue,
                "sent": operation.done,
                "left": operation.left,
            },
            event="retry",
            place=choice.queue,
            detail=lambda operation: messages(operation) + (f" to {to}" if to else ""),
        )

    def redeliver(self, query: Query) -> Stepwise[Task]:
        """Return the operation that returns unacknowledged messages to their queue.

        Raises:
          HttpError: ``queue`` is no single destination.
        """
        queue, session = destination_of(self.manager, query, QUEUE), query.text(HOLDER)
        return Stepwise(
            server=self.server,
            query=query,
            rights=ADMIN,
            begin=lambda _identity, _body: self.manager.redeliver(queue, session),
            result=lambda task: {"queue": queue, "redelivered": task.done},
            event="redeliver",
            place=queue,
        )
