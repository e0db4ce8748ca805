"""Last values: the one message of a topic that later subscribers are given first.

Each is known by who sent it, and ends if he may not send it any more when it is wanted next.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from attrs import define

from trio_stomp._errors import RemoteError
from trio_stomp._identity import Identity
from trio_stomp._memory import MemoryBudget
from trio_stomp.broker._delivery import Publication
from trio_stomp.broker._destination import Kind
from trio_stomp.broker._guard import Guard
from trio_stomp.broker._message import cost_alone
from trio_stomp.broker._plan import SendPlan
from trio_stomp.broker._route import Keeper, Route, RouteTable
from trio_stomp.broker._send_options import RETAIN_SET
from trio_stomp.broker._storage import Storage
from trio_stomp.broker._subscription import Client
from trio_stomp.broker._trie import matches
from trio_stomp.broker._turns import Work
from trio_stomp.protocol import Subscribed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trio_stomp.broker._subscriber import Subscriber
    from trio_stomp.broker._wildcards import Pattern

PLACE = "retained:"
"""How the store's places for them begin."""
JUDGED = 8
"""Last values that are judged in one piece of work, which takes some 60 µs."""
UNJUDGED = -1
"""In a ``Keeper``: of what was found in the store."""
NOBODY = Keeper(None, 0)
"""Of what does not become a last value."""


@define(eq=False, repr=False)
class LastValues:
    """Keeps them, in memory and, of messages that are to survive, in the store."""

    memory: MemoryBudget
    routes: RouteTable
    guard: Guard
    storage: Storage | None = None
    _owner: Identity | None = None
    """The owner of the scheduled message that is being sent."""
    _judged: int = UNJUDGED
    """The change of rights since which all of them have been judged."""

    @contextmanager
    def left_by(self, owner: Identity | None) -> Iterator[None]:
        """What is sent inside was scheduled by ``owner``, and he answers for it."""
        self._owner = owner
        try:
            yield
        finally:
            self._owner = None

    def keeper(self, publication: Publication) -> Keeper:
        """Return the owner of a message that may become a last value."""
        sender = publication.sender
        owner = sender.identity if sender is not None else self._owner
        return Keeper(owner, self.guard.changes)

    def asked(self, publication: Publication) -> str:
        """What is to become of the last value: set, remove, or "" = leave it."""
        route, options = publication.route, publication.options
        said = options.retain if options is not None else ""
        if route.kind is not Kind.TOPIC or route.private:
            return ""
        if route.retain == "always":
            return said or RETAIN_SET
        return said if route.retain == "header" else ""

    def store(self, publication: Publication, asked: str, keeper: Keeper) -> bool:
        """Tell the store; whether what was asked is to survive, so that it must wait."""
        assert self.storage is not None
        route, log = publication.route, self.storage.log
        keeps = publication.is_stored and asked == RETAIN_SET
        if not keeps and not route.retained_id:
            return False
        sender = publication.sender if publication.is_stored or log.is_binding else None
        before = route.retained_id
        with log.together(is_kept=sender is None):
            if route.retained_id:
                log.finish(route.retained_id)
                route.retained_id = 0
            if keeps:
                last = publication.bodies[-1:]
                place = PLACE + route.name
                keeper.id = self.storage.put_aside(place, publication, last, keeper.owner)
                route.retained_id = keeper.id
        if sender is not None:
            log.when_safe(_Replacing(sender, self.routes, route, before))
        return publication.is_stored

    def keep(self, publication: Publication, asked: str, keeper: Keeper) -> None:
        """Keep a topic's last message for later subscribers, or forget the one kept."""
        route = publication.route
        self._drop(route)
        if asked == RETAIN_SET:
            kept = Publication(
                route,
                publication.head,
                publication.bodies[-1:],
                publication.received_at,
                publication.expires_at,
                end=publication.end,
                quota=publication.quota,
            )
            if self.memory.take_kept(_cost(kept), kept.quota):
                route.retained = kept
                self.routes.retaining[route] = keeper
        if route.retained is None:
            self.routes.note_quiet(route)

    def restore(self, publication: Publication, id: int, owner: Identity | None) -> None:
        """A last value was found in the store; of several, the last one counts."""
        route = publication.route
        if route.retained_id:
            assert self.storage is not None
            self.storage.log.finish(route.retained_id)
        route.retained_id = id
        publication.quota = self.guard.quotas.left_by(owner)
        self.keep(publication, RETAIN_SET, Keeper(owner, UNJUDGED, id))

    def may_be_given(self, route: Route) -> bool:
        """Return whether the owner of a last value may send it today; if not, end it."""
        keeper = self.routes.retaining[route]
        if keeper.judged == self.guard.changes:
            return True
        is_good = self.guard.lets_send(keeper.owner, SendPlan((route.name,)), 1)
        if is_good:
            keeper.judged = self.guard.changes
        else:
            self._end(route, keeper)
        return is_good

    @property
    def must_judge(self) -> bool:
        """Whether rights have changed since all of many were judged."""
        guard = self.guard
        return (
            guard.rules is not None
            and self._judged != guard.changes
            and len(self.routes.retaining) > JUDGED
        )

    def subscribe(
        self,
        client: Client,
        event: Subscribed,
        subscriber: "Subscriber",
        subscribe: "Callable[[], Work | None]",
    ) -> Work:
        """Judge what the wildcards of a SUBSCRIBE reach, bit by bit, and subscribe then."""
        try:
            places = subscriber.places(client, event)
            patterns = [pattern for _, pattern in places if pattern is not None]
            if patterns:
                yield from self._judging(patterns)
            work = subscribe()
            if work is not None:
                yield from work
        except RemoteError as error:
            error.receipt_id = error.receipt_id or event.receipt
            raise

    def _judging(self, patterns: "Sequence[Pattern]") -> Work:
        retaining, changes, are_all = self.routes.retaining, self.guard.changes, True
        for place, route in enumerate(list(retaining), 1):
            keeper = retaining.get(route)
            if keeper is not None and keeper.judged != self.guard.changes:
                if any(matches(each, route.name) for each in patterns):
                    self.may_be_given(route)
                else:
                    are_all = False
            if place % JUDGED == 0:
                yield
        if are_all:
            self._judged = changes

    def _end(self, route: Route, keeper: Keeper) -> None:
        """Forget the last value of a route, for good; another may be on its way to the store."""
        if keeper.id and keeper.id == route.retained_id:
            assert self.storage is not None
            self.storage.log.finish(route.retained_id)
            route.retained_id = 0
        self._drop(route)
        self.routes.note_quiet(route)

    def _drop(self, route: Route) -> None:
        if route.retained is not None:
            self.memory.give_kept(_cost(route.retained), route.retained.quota)
            route.retained = None
            del self.routes.retaining[route]


@define(eq=False, repr=False)
class _Replacing:
    """A last value that the store still has, if it cannot take another in its place."""

    client: Client | None
    routes: RouteTable
    route: Route
    id: int

    def commit(self, now: float) -> None:
        """As ``Effect``."""

    def withdraw(self, now: float) -> None:
        """As ``Effect``."""
        self.route.retained_id = self.id
        self.routes.note_quiet(self.route)


def _cost(publication: Publication) -> int:
    return cost_alone(publication.head, 1, len(publication.bodies[-1]))
