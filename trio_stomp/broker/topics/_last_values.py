"""Last values: the one message of a topic that later subscribers are given first.

Each is known by who sent it, and ends if he may not send it any more when it is wanted next.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from attrs import define

from trio_stomp.base import Identity, MemoryBudget, RemoteError
from trio_stomp.broker.access import Authorizer
from trio_stomp.broker.delivery import Client, Destination, Place, Publication, Work, after
from trio_stomp.broker.headers import RETAIN_SET, SendPlan
from trio_stomp.broker.names import Kind, matches
from trio_stomp.broker.queues import Storage, cost_alone
from trio_stomp.broker.routing import Destinations, LastValueOwner
from trio_stomp.protocol import Subscribed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trio_stomp.broker.names import Pattern

PLACE = "retained:"
"""How the store's places for them begin."""
JUDGED = 8
"""Last values that are judged in one piece of work, which takes some 60 µs."""
UNJUDGED = -1
"""In a ``LastValueOwner``: of what was found in the store."""
NOBODY = LastValueOwner(None, 0)
"""Of what does not become a last value."""


@define(eq=False, repr=False)
class LastValues:
    """Keeps them, in memory and, of messages that are to survive, in the store."""

    memory: MemoryBudget
    destinations: Destinations
    authorizer: Authorizer
    storage: Storage | None = None
    _owner: Identity | None = None
    """The owner of the scheduled message that is being sent."""
    _judged: int = UNJUDGED
    """The change of rights since which all of them have been judged."""

    @contextmanager
    def left_by(self, owner: Identity | None) -> Iterator[None]:
        """Make ``owner`` answer for what is sent inside."""
        self._owner = owner
        try:
            yield
        finally:
            self._owner = None

    def keeper(self, publication: Publication) -> LastValueOwner:
        """Return the owner of a message that may become a last value."""
        sender = publication.sender
        owner = sender.identity if sender is not None else self._owner
        return LastValueOwner(owner, self.authorizer.changes)

    def asked(self, publication: Publication) -> str:
        """Return what is to become of the last value: set, remove, or "" to leave it."""
        destination, options = publication.destination, publication.options
        said = options.retain if options is not None else ""
        if destination.kind is not Kind.TOPIC or destination.private:
            return ""
        if destination.retain == "always":
            return said or RETAIN_SET
        return said if destination.retain == "header" else ""

    def store(self, publication: Publication, asked: str, keeper: LastValueOwner) -> bool:
        """Tell the store, and return whether what was asked is to survive, so that it must wait."""
        assert self.storage is not None
        destination, log = publication.destination, self.storage.log
        keeps = publication.is_stored and asked == RETAIN_SET
        if not keeps and not destination.retained_id:
            return False
        sender = publication.sender if publication.is_stored or log.is_atomic else None
        before = destination.retained_id
        with log.together(is_kept=sender is None):
            if destination.retained_id:
                log.finish(destination.retained_id)
                destination.retained_id = 0
            if keeps:
                last = publication.bodies[-1:]
                place = PLACE + destination.name
                keeper.id = self.storage.put_aside(place, publication, last, keeper.owner)
                destination.retained_id = keeper.id
        if sender is not None:
            log.when_safe(_Replacing(sender, self.destinations, destination, before))
        return publication.is_stored

    def keep(self, publication: Publication, asked: str, keeper: LastValueOwner) -> None:
        """Keep a topic's last message for later subscribers, or forget the one kept."""
        destination = publication.destination
        self._drop(destination)
        if asked == RETAIN_SET:
            kept = Publication(
                destination,
                publication.head,
                publication.bodies[-1:],
                publication.received_at,
                publication.expires_at,
                end=publication.end,
                quota=publication.quota,
            )
            if self.memory.take_kept(_cost(kept), kept.quota):
                destination.retained = kept
                self.destinations.retaining[destination] = keeper
        if destination.retained is None:
            self.destinations.note_quiet(destination)

    def restore(self, publication: Publication, id: int, owner: Identity | None) -> None:
        """Restore a last value from the store. Of several, the last one counts."""
        destination = publication.destination
        if destination.retained_id:
            assert self.storage is not None
            self.storage.log.finish(destination.retained_id)
        destination.retained_id = id
        publication.quota = self.authorizer.quotas.left_by(owner)
        self.keep(publication, RETAIN_SET, LastValueOwner(owner, UNJUDGED, id))

    def may_be_given(self, destination: Destination) -> bool:
        """Return whether the owner of a last value may send it today, and end the value if not."""
        keeper = self.destinations.retaining[destination]
        if keeper.judged == self.authorizer.changes:
            return True
        is_good = self.authorizer.lets_send(keeper.owner, SendPlan((destination.name,)), 1)
        if is_good:
            keeper.judged = self.authorizer.changes
        else:
            self._end(destination, keeper)
        return is_good

    @property
    def must_judge(self) -> bool:
        """Return whether rights have changed since all of many were judged."""
        authorizer = self.authorizer
        return (
            authorizer.rules is not None
            and self._judged != authorizer.changes
            and len(self.destinations.retaining) > JUDGED
        )

    def subscribe(
        self,
        event: Subscribed,
        find_places: "Callable[[], list[Place]]",
        subscribe: "Callable[[], Work | None]",
    ) -> Work:
        """Judge what the wildcards of a SUBSCRIBE reach, bit by bit, and subscribe then."""
        try:
            patterns = [pattern for _, pattern in find_places() if pattern is not None]
            if patterns:
                yield from self._judging(patterns)
            yield from after(subscribe)
        except RemoteError as error:
            error.receipt_id = error.receipt_id or event.receipt
            raise

    def _judging(self, patterns: "Sequence[Pattern]") -> Work:
        retaining, changes, are_all = self.destinations.retaining, self.authorizer.changes, True
        for place, destination in enumerate(list(retaining), 1):
            keeper = retaining.get(destination)
            if keeper is not None and keeper.judged != self.authorizer.changes:
                if any(matches(each, destination.name) for each in patterns):
                    self.may_be_given(destination)
                else:
                    are_all = False
            if place % JUDGED == 0:
                yield
        if are_all:
            self._judged = changes

    def _end(self, destination: Destination, keeper: LastValueOwner) -> None:
        """Forget a destination's last value for good. Another may be on its way to the store."""
        if keeper.id and keeper.id == destination.retained_id:
            assert self.storage is not None
            self.storage.log.finish(destination.retained_id)
            destination.retained_id = 0
        self._drop(destination)
        self.destinations.note_quiet(destination)

    def _drop(self, destination: Destination) -> None:
        if destination.retained is not None:
            self.memory.give_kept(_cost(destination.retained), destination.retained.quota)
            destination.retained = None
            del self.destinations.retaining[destination]


@define(eq=False, repr=False)
class _Replacing:
    """A last value that the store still has, if it cannot take another in its place."""

    client: Client | None
    destinations: Destinations
    destination: Destination
    id: int

    def commit(self, now: float) -> None:
        """Implement ``Effect.commit``."""

    def withdraw(self, now: float) -> None:
        """Implement ``Effect.withdraw``."""
        self.destination.retained_id = self.id
        self.destinations.note_quiet(self.destination)


def _cost(publication: Publication) -> int:
    return cost_alone(publication.head, 1, len(publication.bodies[-1]))
