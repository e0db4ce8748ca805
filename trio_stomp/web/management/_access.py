"""Users, access rules, and the rights of the user of a request."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from attrs import define

from trio_stomp.base import LOOKS, Pieces, slices
from trio_stomp.broker import AccessRules, Action, Rule, needs
from trio_stomp.transport import HttpRequest
from trio_stomp.web._query import Answer, Query, Record, as_list
from trio_stomp.web._site import ADMIN, Rights
from trio_stomp.web.declared import COUNT, FLAG, OBJECT, OF_DESTINATIONS, TEXT, TEXTS, Parameter
from trio_stomp.web.management.requests import (
    BY_NAME,
    LIMIT,
    NAME,
    OFFSET,
    Answering,
    Endpoint,
    Listing,
    Window,
    destination_of,
    listed,
    record,
)

if TYPE_CHECKING:
    from trio_stomp.base import Identity
    from trio_stomp.broker import Manager
    from trio_stomp.diag import Figures
    from trio_stomp.server import Send, Server

NONE, BUILT_IN, OWN = "none", "built-in", "own"
DIAG = "DIAG"
ELSEWHERE = "/queue/elsewhere"
"""The target of a move whose rights are not asked for."""
NAMING = frozenset({"queue", "destination"})
"""Parameters that name the destination of an operation."""
ANYTHING: Mapping[str, str] = MappingProxyType(
    {"to": ELSEWHERE, "stream": DIAG, **dict.fromkeys(("offset", "session", "id", "name"), "0")}
)
"""Values of the other parameters, on which the rights at a destination do not depend."""
WHERE = Parameter("destination", "a destination; without it, DIAG")
USER = record({"name": TEXT, "groups": TEXTS, "connections": COUNT})
RULE = record(
    {
        "allow": FLAG,
        "actions": TEXTS,
        "to": TEXTS,
        "users": TEXTS,
        "groups": TEXTS,
        "location": TEXT,
    }
)


@define(eq=False, repr=False)
class Access:
    """The requests about users and rules."""

    server: "Server"
    manager: "Manager"
    figures: "Figures"
    operations: Sequence[Endpoint] = ()
    """The operations of the interface, set when all are declared."""

    def endpoints(self) -> Iterator[Endpoint]:
        """Yield the requests."""
        yield Endpoint(
            name="whoami",
            summary="Show who asks, the rights at a destination, and the operations there that"
            " need no others; without a destination, the operations that name none.",
            right="none, except for a login if one is needed",
            parameters=(WHERE,),
            answer={
                **dict.fromkeys(("user", "login", "destination", "rules"), TEXT),
                **dict.fromkeys(("roles", "rights", "operations"), TEXTS),
            },
            errors=OF_DESTINATIONS,
            operate=self.whoami,
        )
        yield Endpoint(
            name="users",
            summary="List users with a passcode, in the order of their names.",
            rights=ADMIN,
            parameters=(NAME, LIMIT, OFFSET),
            answer=listed("users", USER),
            build=self.users,
        )
        answer = listed("rules", RULE)
        yield Endpoint(
            name="rules",
            summary="List access rules in their order: the first that matches decides.",
            rights=ADMIN,
            parameters=(LIMIT, OFFSET),
            answer={
                **{name: answer[name] for name in answer if name != "sort"},
                "source": TEXT,
                "groups": OBJECT,
            },
            build=self.rules,
        )

    def whoami(self, query: Query) -> "WhoAmI":
        """Return the operation that shows the user of the request and the user's rights.

        Raises:
          HttpError: ``destination`` is no single destination.
        """
        where = destination_of(self.manager, query, WHERE) if query.text(WHERE) else ""
        return WhoAmI(self, where or DIAG, list(self._operations(query.request, where)))

    def _operations(self, request: HttpRequest, where: str) -> Iterator[tuple[str, Rights]]:
        """Yield the operations on a destination, with the rights there and at DIAG.

        If ``where`` is "", yield the operations that name no destination.
        """
        values = {**ANYTHING, **dict.fromkeys(NAMING, where)}
        for each in self.operations:
            required = {one.name for one in each.parameters if one.is_required}
            if each.operate is None or required.isdisjoint(NAMING) == bool(where):
                continue
            given = [one.name for one in each.parameters if one.name in values]
            query = Query(request, {name: [values[name]] for name in given})
            rights = each.operate(query).rights
            yield each.name, [(action, name) for action, name in rights if name != ELSEWHERE]

    def users(self, query: Query) -> Pieces[Answer]:
        """Return the users with a passcode, with their groups and numbers of connections."""
        yield  # until its turn, a page holds nothing
        accounts = self.server.authenticator.accounts
        names = list(accounts.users.users) if accounts.users is not None else []
        connections: Counter[str] = Counter()
        for some in slices(list(self.server.broker.statistics().clients), LOOKS):
            connections.update(client.identity.name for client in some)
            yield
        rules = self.manager.authorizer.rules
        groups = rules.groups if rules is not None else {}

        def describe(name: str) -> Record:
            mine = sorted(group for group, members in groups.items() if name in members)
            return {"name": name, "groups": mine, "connections": connections[name]}

        listing = Listing("users", lambda name: (name,), describe, {})
        return (yield from listing.page(query, names, BY_NAME, self.figures.head()))

    def rules(self, query: Query) -> Pieces[Answer]:
        """Return the access rules in force, their groups and their source."""
        window = Window.of(query)
        yield
        rules = self.manager.authorizer.rules
        found = rules.rules if rules is not None else ()
        groups = rules.groups if rules is not None else {}
        part = window.cut(found)
        fields: Record = {
            **self.figures.head(),
            **window.record(len(found), len(part)),
            "source": source_of(rules),
            "groups": {group: sorted(members) for group, members in groups.items()},
        }
        return (yield from as_list(fields, "rules", part, _rule))


@define(eq=False, repr=False)
class WhoAmI:
    """The operation that shows a user's rights at a destination. Implements ``WebOperation``."""

    owner: Access
    destination: str
    operations: Sequence[tuple[str, Rights]] = ()
    rights: Rights = ()
    max_body_bytes: int = 0

    async def run(self, identity: "Identity", send: "Send", _body: bytes = b"") -> None:
        """Implement ``WebOperation.run``."""
        rules = self.owner.manager.authorizer.rules
        rights = rules.rights(identity) if rules is not None else None
        await Answering(send).end(
            {
                "user": identity.name,
                "login": identity.method or NONE,
                "roles": sorted(identity.roles),
                "destination": self.destination,
                "rights": [
                    action.value
                    for action in Action
                    if rights is None
                    or all(rights.allows(one, at) for one, at, _ in needs(action, self.destination))
                ],
                "operations": [
                    name
                    for name, needed in self.operations
                    if rights is None or all(rights.allows(*each) for each in needed)
                ],
                "rules": source_of(rules),
            }
        )


def source_of(rules: AccessRules | None) -> str:
    """Return the source of rules: ``NONE``, ``BUILT_IN`` or ``OWN``, a file of the operator."""
    if rules is None:
        return NONE
    built_in = rules.rules and rules.rules[0].location.startswith(BUILT_IN)
    return BUILT_IN if built_in else OWN


def _rule(rule: Rule) -> Record:
    return {
        "allow": rule.allow,
        "actions": sorted(rule.actions),
        "to": list(rule.patterns),
        "users": list(rule.users),
        "groups": sorted(rule.groups),
        "location": rule.location,
    }
