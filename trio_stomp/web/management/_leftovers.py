"""Scheduled messages, durable subscriptions and last values: listed and ended.

Users without the right to monitor list their own; those without the right ``admin`` end their own.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from attrs import define

from trio_stomp.base import Pieces
from trio_stomp.broker import Action, Binding, LastValueOwner, Scheduled, Task
from trio_stomp.web._pieces import chosen
from trio_stomp.web._query import Answer, Query, Record, as_list
from trio_stomp.web._site import ADMIN, WATCH, Rights
from trio_stomp.web.declared import (
    CLIENT_ID,
    COUNT,
    DESTINATION,
    DURABLE,
    ENDING,
    FLAG,
    OWNER,
    OWNER_OR_ADMIN,
    TEXT,
    TEXTS,
    TOPIC,
    VERBS,
    Fields,
    Parameter,
)
from trio_stomp.web.management._subscriptions import SUBSCRIPTION
from trio_stomp.web.management.requests import (
    BY_NAME,
    COPIES,
    LIMIT,
    NAME,
    OFFSET,
    Endpoint,
    Listing,
    Stepwise,
    Window,
    destination_of,
    listed,
    maybe,
    record,
    with_fields,
)

if TYPE_CHECKING:
    from trio_stomp.broker import Manager
    from trio_stomp.diag import Figures
    from trio_stomp.server import Server

T = TypeVar("T")

OWN = "a login; monitor at DIAG for those of other users"
OLDEST = "start"
USER = Parameter("user", "only those of one user")
IDS = Parameter("id", "the id of scheduled messages, as in the list", True, 1_000)
OPERATIONS: Fields = {
    "operations": {**TEXTS, "description": "what the user of the request may do with it"}
}
SCHEDULE = record(
    {
        "id": TEXT,
        "user": maybe(TEXT),
        "destination": TEXT,
        "messages": COUNT,
        "bytes": COUNT,
        "due_ms": COUNT,
        "sent": COUNT,
        "repeats": FLAG,
        "stored": FLAG,
        **OPERATIONS,
    }
)
LAST_VALUE = record(
    {
        "destination": TEXT,
        "user": maybe(TEXT),
        "bytes": COUNT,
        "set_ms": COUNT,
        "stored": FLAG,
        **OPERATIONS,
    }
)
CANCEL, END, CLEAR = "cancel", "end", "clear"


@define(eq=False, repr=False)
class Leftovers:
    """The requests about schedules, durable subscriptions and last values."""

    server: "Server"
    manager: "Manager"
    figures: "Figures"

    def endpoints(self) -> Iterator[Endpoint]:
        """Yield the requests."""
        lists = partial(Endpoint, right=OWN, rights=self._listing)
        answer = listed("schedules", SCHEDULE)
        yield lists(
            name="schedules",
            summary="List scheduled messages, those of one SEND together, in the order of SENDs.",
            parameters=(USER, LIMIT, OFFSET),
            answer={name: answer[name] for name in answer if name != "sort"},
            build=self.schedules,
        )
        yield lists(
            name="durables",
            summary="List durable subscriptions, the oldest first. Each is named by its name, its"
            " client id, its owner and its destination.",
            parameters=(NAME, COPIES, LIMIT, OFFSET),
            answer=listed("durables", with_fields(SUBSCRIPTION, OPERATIONS)),
            build=self.durables,
        )
        yield lists(
            name="last-values",
            summary="List the topics with a last value, which new subscribers get.",
            parameters=(NAME, LIMIT, OFFSET),
            answer=listed("last_values", LAST_VALUE),
            build=self.last_values,
        )
        yield Endpoint(
            name=CANCEL,
            summary="Cancel scheduled messages.",
            right=OWNER_OR_ADMIN,
            parameters=(IDS,),
            answer={"cancelled": COUNT},
            errors=("invalid-schedule",),
            method="POST",
            operate=self.cancel,
        )
        yield Endpoint.of(ENDING, self.end)
        yield Endpoint.of(VERBS[CLEAR], self.clear)

    def _listing(self) -> Rights:
        """Return the right to list: a login is enough, as users then see only their own items."""
        return WATCH if self.manager.authorizer.rules is None else ()

    def _ending(self) -> Rights:
        """Return the right to end items: a login is enough, as the core checks their owners."""
        return ADMIN if self.manager.authorizer.rules is None else ()

    def _seen(
        self, query: Query, things: Sequence[T], owner: Callable[[T], str]
    ) -> Pieces[Sequence[T]]:
        """Return the items that a user may see: all, with the right to monitor, or their own."""
        identity = query.identity
        if self.manager.authorizer.allows_at_diag(identity, Action.MONITOR):
            return things
        return (yield from chosen(things, lambda each: owner(each) == identity.name != ""))

    def schedules(self, query: Query) -> Pieces[Answer]:
        """Return the scheduled messages that the user may see."""
        window, user = Window.of(query), query.text(USER)
        yield
        left = self.manager.left
        found = yield from self._seen(query, left.schedules(), _scheduled_by)
        row, may_cancel = left.requests.schedule, left.may_cancel(query.identity)
        if user:
            found = yield from chosen(found, lambda each: row(each)["user"] == user)

        def describe(each: Scheduled) -> Record:
            return {**row(each), **_operations(CANCEL, may_cancel(each))}

        part = window.cut(found)
        fields: Record = {**self.figures.head(), **window.record(len(found), len(part))}
        return (yield from as_list(fields, "schedules", part, describe))

    def durables(self, query: Query) -> Pieces[Answer]:
        """Return the durable subscriptions that the user may see."""
        yield
        copies = query.word(COPIES) == "1"
        everything = yield from chosen(
            list(self.server.broker.statistics().durables), lambda each: each.is_counted != copies
        )
        durables = yield from self._seen(query, everything, lambda each: each.owner)
        may_end = self.manager.left.may_end_durable(query.identity)

        def describe(each: Binding) -> Record:
            return {**self.figures.subscription(each), **_operations(END, may_end(each))}

        listing = Listing("durables", self._names, describe, {OLDEST: None})
        return (yield from listing.page(query, durables, OLDEST, self.figures.head()))

    def _names(self, binding: Binding) -> Sequence[str]:
        fields = self.figures.subscription(binding)
        return [f"{fields[each]}" for each in ("name", "client_id", "owner", "destination")]

    def last_values(self, query: Query) -> Pieces[Answer]:
        """Return the topics with a last value that the user may see."""
        left = self.manager.left
        yield
        found = yield from self._seen(query, left.last_values(), _set_by)
        rules = self.manager.authorizer.rules
        rights = rules.rights(query.identity) if rules is not None else None

        def describe(each: tuple[str, LastValueOwner]) -> Record:
            may_clear = rights is None or rights.allows(Action.SEND, each[0])
            return {**left.requests.last_value(*each), **_operations(CLEAR, may_clear)}

        listing = Listing[tuple[str, LastValueOwner]](
            "last_values", lambda each: each[:1], describe, {}
        )
        return (yield from listing.page(query, found, BY_NAME, self.figures.head()))

    def cancel(self, query: Query) -> Stepwise[Task]:
        """Return the operation that cancels scheduled messages by their ids."""
        return Stepwise(
            server=self.server,
            query=query,
            rights=self._ending(),
            begin=lambda identity, _body: self.manager.left.cancel(query.texts(IDS), identity),
            result=lambda task: {"cancelled": task.done},
            event=CANCEL,
        )

    def end(self, query: Query) -> Stepwise[Task]:
        """Return the operation that ends a durable subscription.

        It fails if no subscription, or more than one, matches the parameters.
        """
        name = query.text(DURABLE)
        return Stepwise(
            server=self.server,
            query=query,
            rights=self._ending(),
            begin=lambda identity, _body: self.manager.left.end_durable(
                name,
                query.text(CLIENT_ID),
                owner=query.text(OWNER),
                destination=query.text(DESTINATION),
                identity=identity,
            ),
            result=lambda task: {"name": name, "ended": task.done},
            event=END,
            place=query.text(DESTINATION),
            detail=lambda _task: name,
        )

    def clear(self, query: Query) -> Stepwise[Task]:
        """Return the operation that removes the last value of a topic.

        Raises:
          HttpError: ``destination`` is no single destination.
        """
        topic = destination_of(self.manager, query, TOPIC)
        return Stepwise(
            server=self.server,
            query=query,
            rights=[(Action.SEND, topic)],
            begin=lambda _identity, _body: self.manager.left.clear(topic),
            result=lambda task: {"destination": topic, "cleared": task.done},
            event=CLEAR,
            place=topic,
            detail=lambda _task: "",
        )


def _operations(name: str, is_allowed: bool) -> Record:
    return {"operations": [name] if is_allowed else []}


def _scheduled_by(each: Scheduled) -> str:
    return "" if each.owner is None else each.owner.name


def _set_by(each: tuple[str, LastValueOwner]) -> str:
    owner = each[1].owner
    return "" if owner is None else owner.name
