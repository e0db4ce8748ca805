"""Scheduled messages and durable subscriptions: their list, and the end of some."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from attrs import define

from trio_stomp.base import Pieces
from trio_stomp.broker import Task
from trio_stomp.web._pieces import chosen
from trio_stomp.web._query import Answer, Parameter, Query, Record, as_list
from trio_stomp.web._site import ADMIN
from trio_stomp.web.management.requests import (
    COUNT,
    FLAG,
    LIMIT,
    OFFSET,
    TEXT,
    Endpoint,
    Stepwise,
    Window,
    listed,
    maybe,
    record,
)

if TYPE_CHECKING:
    from trio_stomp.broker import Manager
    from trio_stomp.diag import Figures
    from trio_stomp.server import Server

USER = Parameter("user", "only those of one user")
IDS = Parameter("id", "the id of scheduled messages, as in the list", True, 1_000)
NAME = Parameter("name", "the name of a durable subscription", is_required=True)
CLIENT_ID = Parameter("client_id", "the client id of its subscriber, if it has one")
OWNER = Parameter("owner", "the user who created it, if several have the name")
DESTINATION = Parameter("destination", "its destination, if several have the name")
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
    }
)


@define(eq=False, repr=False)
class Leftovers:
    """The requests about what clients leave in the broker."""

    server: "Server"
    manager: "Manager"
    figures: "Figures"

    def endpoints(self) -> Iterator[Endpoint]:
        """Yield the requests."""
        answer = listed("schedules", SCHEDULE)
        yield Endpoint(
            name="schedules",
            summary="List scheduled messages, those of one SEND together, in the order of SENDs.",
            parameters=(USER, LIMIT, OFFSET),
            answer={name: answer[name] for name in answer if name != "sort"},
            build=self.schedules,
        )
        yield Endpoint(
            name="cancel",
            summary="Cancel scheduled messages.",
            rights=ADMIN,
            parameters=(IDS,),
            answer={"cancelled": COUNT},
            errors=("invalid-schedule",),
            method="POST",
            operate=self.cancel,
        )
        yield Endpoint(
            name="end",
            summary="End a durable subscription with its messages.",
            rights=ADMIN,
            parameters=(NAME, CLIENT_ID, OWNER, DESTINATION),
            answer={"name": TEXT, "ended": COUNT},
            errors=("no-such-subscription", "ambiguous-subscription"),
            method="POST",
            operate=self.end,
        )

    def schedules(self, query: Query) -> Pieces[Answer]:
        """Answer with scheduled messages."""
        window, user = Window.of(query), query.text(USER)
        yield
        found = self.manager.scheduled()
        describe = self.manager.leftovers.schedule
        if user:
            found = yield from chosen(found, lambda each: describe(each)["user"] == user)
        part = window.cut(found)
        fields: Record = {**self.figures.head(), **window.record(len(found), len(part))}
        return (yield from as_list(fields, "schedules", part, describe))

    def cancel(self, query: Query) -> Stepwise[Task]:
        """Cancel scheduled messages."""
        return Stepwise(
            server=self.server,
            manager=self.manager,
            query=query,
            rights=ADMIN,
            begin=lambda _identity, _body: self.manager.cancel(query.texts(IDS)),
            result=lambda task: {"cancelled": task.done},
            event="cancel",
        )

    def end(self, query: Query) -> Stepwise[Task]:
        """End a durable subscription."""
        name = query.text(NAME)
        return Stepwise(
            server=self.server,
            manager=self.manager,
            query=query,
            rights=ADMIN,
            begin=lambda _identity, _body: self.manager.end_durable(
                name, query.text(CLIENT_ID), query.text(OWNER), query.text(DESTINATION)
            ),
            result=lambda task: {"name": name, "ended": task.done},
            event="end",
            place=query.text(DESTINATION),
            detail=lambda _count: name,
        )
