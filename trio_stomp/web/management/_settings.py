"""Settings and policies in force, and their reload."""

from collections.abc import Iterator
from types import MappingProxyType
from typing import TYPE_CHECKING

from attrs import define

from trio_stomp.base import OptionError, Pieces
from trio_stomp.web._query import Answer, Query, Record
from trio_stomp.web._site import ADMIN, Rights
from trio_stomp.web.management._core import Core
from trio_stomp.web.management.requests import (
    COUNT,
    FLAG,
    LIMIT,
    NAME,
    OBJECT,
    OFFSET,
    TEXT,
    Answering,
    Endpoint,
    Listing,
    http_error,
    listed,
    record,
)

if TYPE_CHECKING:
    from trio_stomp.base import Identity
    from trio_stomp.diag import Figures
    from trio_stomp.server import Send

SETTING = record(
    {
        **dict.fromkeys(("group", "name", "value", "default", "source", "kind", "help"), TEXT),
        "live": FLAG,
    }
)
POLICY = record({**dict.fromkeys(("pattern", "source", "kind"), TEXT), "policy": OBJECT})
CHANGE = record({**dict.fromkeys(("group", "name", "before", "after"), TEXT), "is_live": FLAG})
IN_ORDER = "order"
ORDERS = MappingProxyType({IN_ORDER: None})


@define(eq=False, repr=False)
class SettingRequests:
    """The requests about settings and policies."""

    core: Core
    figures: "Figures"

    def endpoints(self) -> Iterator[Endpoint]:
        """Yield the requests."""
        yield Endpoint(
            name="settings",
            summary="List the options in force, each with its source. Passwords are masked.",
            parameters=(NAME, LIMIT, OFFSET),
            answer=listed("settings", SETTING),
            build=self.settings,
        )
        yield Endpoint(
            name="policies",
            summary="List the policies of destinations in their order: the first that matches"
            " decides. The last one has the defaults.",
            parameters=(NAME, LIMIT, OFFSET),
            answer=listed("policies", POLICY),
            build=self.policies,
        )
        yield Endpoint(
            name="reload",
            summary="Read settings, users, rules and certificates again, all or none, as at"
            " SIGHUP, and show what has changed: the first 1,000 changes. In a cluster, this is"
            " done by one node, which the answer names; the others read files of their own.",
            rights=ADMIN,
            answer={
                "reloaded": FLAG,
                "node": TEXT,
                "total": COUNT,
                "changes": {"type": "array", "items": CHANGE},
            },
            errors=("invalid-settings",),
            method="POST",
            operate=lambda _query: Reload(self.core),
        )

    def settings(self, query: Query) -> Pieces[Answer]:
        """Return the options in force, each with its source."""
        yield
        listing = Listing[Record]("settings", lambda each: [f"{each['name']}"], dict, ORDERS)
        return (yield from listing.page(query, self.core.settings(), IN_ORDER, self.figures.head()))

    def policies(self, query: Query) -> Pieces[Answer]:
        """Return the policies in their order, the last one with the defaults."""
        yield
        listing = Listing[Record]("policies", lambda each: [f"{each['pattern']}"], dict, ORDERS)
        return (yield from listing.page(query, self.core.policies(), IN_ORDER, self.figures.head()))


@define(eq=False, repr=False)
class Reload:
    """The operation that reads the settings again. Implements ``WebOperation``."""

    core: Core
    rights: Rights = ADMIN
    max_body_bytes: int = 0

    async def run(self, identity: "Identity", send: "Send", _body: bytes = b"") -> None:
        """Implement ``WebOperation.run``."""
        try:
            changes = await self.core.reload()
        except OptionError as error:
            raise http_error("invalid-settings", f"{error}") from None
        detail = f"{len(changes)} changes"
        self.core.manager.record("reload", "", identity.name, detail)
        listed = [dict(each) for each in changes[: LIMIT.most]]
        answer = {"reloaded": True, "node": self.core.node, "total": len(changes)}
        await Answering(send).end({**answer, "changes": listed})
