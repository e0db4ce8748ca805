"""Operations on messages of queues: their parameters, rights and results."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from attrs import define

from trio_stomp.broker import Action, Choice, Operation, Task
from trio_stomp.web._query import Number, Parameter, Query
from trio_stomp.web._site import ADMIN
from trio_stomp.web.management._messages import MESSAGE, SHOWN, SHOWN_BYTES, MessageList
from trio_stomp.web.management.requests import (
    COUNT,
    COUNTS,
    FLAG,
    OF_MOVES,
    OF_QUEUES,
    OFFSET,
    QUEUE,
    SESSION,
    TEXT,
    TO,
    Endpoint,
    Items,
    Record,
    Stepwise,
    destination_of,
    messages,
    optional,
)

if TYPE_CHECKING:
    from trio_stomp.broker import Manager
    from trio_stomp.server import Server

ALL = 10**15
MOST_IDS = 1_000

SELECTOR = Parameter("selector", "a selector, which chooses messages by their headers")
BODY = Parameter("body", "a text that the body contains")
SINCE = Number("since", "the earliest time of arrival, in ms since 1970", most=ALL)
UNTIL = Number("until", "the time before which they arrived, in ms since 1970", most=ALL)
ID = Parameter("id", "the id of a message", most_times=MOST_IDS)
CONDITIONS = (SELECTOR, BODY, SINCE, UNTIL, ID)
COUNTED = Number(
    "count", "the maximum number of messages, oldest first", default=ALL, least=1, most=ALL
)
INSTEAD = optional(TO, "the destination of all, instead of each message's original one")
ORIGIN = Parameter("origin", "an original destination of dead letters", most_times=MOST_IDS)
HOLDER = optional(SESSION, "the session that has them; without it, all sessions")
CHOICES = (*OF_QUEUES, "invalid-selector")


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
        post = partial(Endpoint, method="POST", has_progress=True)
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
            errors=CHOICES,
            operate=self.messages,
            has_progress=True,
        )
        yield post(
            name="purge",
            summary="Remove messages of a queue for good.",
            right="receive at the queue",
            parameters=(QUEUE, *CONDITIONS, COUNTED),
            answer={"queue": TEXT, "purged": COUNT},
            errors=CHOICES,
            operate=self.purge,
        )
        yield post(
            name="move",
            summary="Move messages of a queue to another destination.",
            right="receive at the queue, send to the other; create, if that is a new queue",
            parameters=(QUEUE, TO, *CONDITIONS, COUNTED),
            answer={"queue": TEXT, "to": TEXT, "moved": COUNT},
            errors=(*CHOICES, *OF_MOVES),
            operate=self.move,
        )
        yield post(
            name="retry",
            summary="Send dead letters of a queue to their original destinations.",
            right="receive at the queue, send to each destination; create, if it is a new queue",
            parameters=(QUEUE, INSTEAD, ORIGIN, *CONDITIONS, COUNTED),
            answer={"queue": TEXT, "sent": COUNT, "left": COUNTS},
            errors=CHOICES,
            operate=self.retry,
        )
        yield post(
            name="redeliver",
            summary="Return unacknowledged messages to a queue. They do not count as failed.",
            rights=ADMIN,
            parameters=(QUEUE, HOLDER),
            answer={"queue": TEXT, "redelivered": COUNT},
            errors=(*OF_QUEUES, "no-such-session"),
            operate=self.redeliver,
        )

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
