"""Last values: a topic's newest retained message, which new subscribers get first.

Each has an owner, its sender. It is removed on its next use if the owner may no longer send it.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

from attrs import define, field
from sortedcontainers import SortedDict

from trio_stomp.base import Identity, MemoryBudget
from trio_stomp.broker.access import Authorizer
from trio_stomp.broker.delivery import NEVER, Client, Destination, Publication, Target, Timers
from trio_stomp.broker.headers import RETAIN_NOT, RETAIN_SET, SendPlan
from trio_stomp.broker.names import Kind, Pattern, matches, walk
from trio_stomp.broker.queues import Storage, cost_alone
from trio_stomp.broker.routing import Destinations

PLACE = "retained:"
"""Prefix of their places in the store."""
STEP = 32
"""Names that are looked up in one step."""
UNJUDGED = -1
"""``LastValueOwner.judged`` of a last value restored from the store: not checked yet."""


@define(eq=False, repr=False)
class LastValueOwner:
    """The owner of a last value.

    Args:
      owner: The sender; None = unknown.
      judged: The generation of the access rules that last allowed it (``Authorizer.changes``).
      id: The value's id in the store; 0 = in memory only.
      number: The value's position in the order in which last values were set.
      alarm: The number of the call when the value expires; 0 = none.
    """

    owner: Identity | None
    judged: int
    id: int = 0
    number: int = 0
    alarm: int = 0


NOBODY = LastValueOwner(None, 0)
"""The owner of messages that do not become last values."""


@define(eq=False, repr=False)
class LastValues:
    """Last values, in memory and, if persistent, in the store."""

    memory: MemoryBudget
    destinations: Destinations
    authorizer: Authorizer
    timers: Timers
    storage: Storage | None = None
    owners: "SortedDict[str, LastValueOwner]" = field(factory=SortedDict)
    """By destination name."""
    newest: int = 0
    """The number of the one that was set last."""

    def keeper(self, publication: Publication, owner: Identity | None) -> LastValueOwner:
        """Return the owner of a message that may become a last value: its sender, or ``owner``."""
        sender = publication.sender
        return LastValueOwner(owner if sender is None else sender.identity, self.authorizer.changes)

    def change_of(self, publication: Publication) -> str:
        """Return a message's effect on the last value: ``set``, ``remove``, or "" for none."""
        destination, options = publication.destination, publication.options
        retain = options.retain if options is not None else ""
        if destination.kind is not Kind.TOPIC or destination.private or retain == RETAIN_NOT:
            return ""
        if destination.retain == "always":
            return retain or RETAIN_SET
        return retain if destination.retain == "header" else ""

    def store(self, publication: Publication, change: str, keeper: LastValueOwner) -> bool:
        """Write a change of a last value to the store.

        Args:
          publication: The messages.
          change: The change, as ``change_of`` returns it.
          keeper: The owner. Gets the id of the stored value.

        Returns:
          Whether the change takes effect only once the store has committed it.
        """
        assert self.storage is not None
        destination, log = publication.destination, self.storage.log
        keeps = publication.is_stored and change == RETAIN_SET
        if not keeps and not destination.retained_id:
            return False
        sender = publication.sender if publication.is_stored or log.is_atomic else None
        before = destination.retained_id
        with log.atomically(must_retry=sender is None):
            if sender is not None:
                log.when_safe(_LastValueEffect(sender, self.destinations, destination, before))
            if destination.retained_id:
                log.finish(destination.retained_id)
                destination.retained_id = 0
            if keeps:
                last = publication.bodies[-1:]
                key = PLACE + destination.name
                keeper.id = self.storage.put_aside(key, publication, last, keeper.owner)
                destination.retained_id = keeper.id
        return publication.is_stored

    def keep(self, publication: Publication, change: str, keeper: LastValueOwner) -> None:
        """Set a topic's last value to the last message, or remove it."""
        destination = publication.destination
        self._release(destination)
        if change == RETAIN_SET:
            last_value = Publication(
                destination,
                publication.head,
                publication.bodies[-1:],
                publication.received_at,
                publication.expires_at,
                end=publication.end,
                quota=publication.quota,
            )
            if self.memory.take_kept(_cost(last_value), last_value.quota):
                destination.retained = last_value
                self.newest += 1
                keeper.number = self.newest
                self.owners[destination.name] = keeper
                self._watch_expiry(destination, last_value, keeper)
        if destination.retained is None:
            self._forget(destination)

    def restore(self, publication: Publication, id: int, owner: Identity | None) -> None:
        """Restore a last value from the store. It replaces one that was restored before."""
        destination = publication.destination
        if destination.retained_id:
            assert self.storage is not None
            self.storage.log.finish(destination.retained_id)
        destination.retained_id = id
        publication.quota = self.authorizer.quotas.left_by(owner)
        self.keep(publication, RETAIN_SET, LastValueOwner(owner, UNJUDGED, id))

    def may_be_given(self, destination: Destination) -> bool:
        """Return whether the owner may still send a last value. If not, remove it."""
        keeper = self.owners[destination.name]
        if keeper.judged == self.authorizer.changes:
            return True
        is_good = self.authorizer.lets_send(keeper.owner, SendPlan((destination.name,)), 1)
        if is_good:
            keeper.judged = self.authorizer.changes
        else:
            self._end(destination, keeper)
        return is_good

    def clear(self, name: str) -> bool:
        """Remove the last value of a topic, and return whether it had one."""
        keeper = self.owners.get(name)
        destination = self.destinations.find(name)
        if keeper is None or destination is None:
            return False
        self._end(destination, keeper)
        return True

    def may_reach(self, targets: Sequence[Target]) -> bool:
        """Return whether a subscription to ``targets`` may get last values."""
        if not self.owners:
            return False
        return any(pattern is not None or name in self.owners for name, pattern in targets)

    def reached(self, targets: Sequence[Target], newest: int) -> Iterator[str | None]:
        """Yield the names of destinations whose last value a new subscription may get.

        Yields None after a step that finds none. Last values may be set and removed between two
        steps.

        Args:
          targets: What the subscription names.
          newest: The newest value when it began. Later ones reach it as ordinary messages.
        """
        for index, (target, pattern) in enumerate(targets):
            for name in self._names(target, pattern):
                owner = self.owners.get(name) if name is not None else None
                is_given = owner is not None and owner.number <= newest
                yield name if name and is_given and not _reach(targets[:index], name) else None

    def _names(self, name: str, pattern: Pattern | None) -> Iterator[str | None]:
        """Yield the names that may have a last value. Yield None after a step that finds none."""
        return iter((name,)) if pattern is None else walk(pattern, self._since)

    def _since(self, name: str) -> list[str]:
        """Return the next names with a last value from ``name`` on, in order."""
        return list(islice(self.owners.irange(name), STEP))

    def given(self, name: str, newest: int, now: float) -> Publication | None:
        """Return a last value that ``reached`` found, or None if it has gone or expired."""
        keeper = self.owners.get(name)
        if keeper is None or keeper.number > newest:
            return None
        destination = self.destinations.find(name)
        assert destination is not None
        assert destination.retained is not None
        if destination.retained.is_over(now) or not self.may_be_given(destination):
            return None
        return destination.retained

    def _end(self, destination: Destination, keeper: LastValueOwner) -> None:
        """Remove a destination's last value from memory and store."""
        if keeper.id and keeper.id == destination.retained_id:  # else a newer one is being stored
            assert self.storage is not None
            self.storage.log.finish(destination.retained_id)
            destination.retained_id = 0
        self._release(destination)
        self._forget(destination)

    def _watch_expiry(
        self, destination: Destination, value: Publication, keeper: LastValueOwner
    ) -> None:
        """Remove a last value when it expires."""

        def look(now: float) -> None:
            keeper.alarm = 0
            if value.is_over(now):
                self._end(destination, keeper)
            else:
                self._watch_expiry(destination, value, keeper)  # the clock was set

        if value.ends_at != NEVER:
            keeper.alarm = self.timers.call_at(value.ends_at, look)

    def _release(self, destination: Destination) -> None:
        """Release the memory of a destination's last value."""
        if destination.retained is not None:
            keeper = self.owners[destination.name]
            if keeper.alarm:
                self.timers.cancel(keeper.alarm)
                keeper.alarm = 0
            self.memory.give_kept(_cost(destination.retained), destination.retained.quota)
            destination.retained = None

    def _forget(self, destination: Destination) -> None:
        """Remove a destination from those with a last value."""
        self.owners.pop(destination.name, None)
        self.destinations.note_idle(destination)


@define(eq=False, repr=False)
class _LastValueEffect:
    """An effect that keeps the former last value's id if the store fails to replace it."""

    client: Client | None
    destinations: Destinations
    destination: Destination
    id: int

    def commit(self, now: float) -> None:
        """Implement ``Effect.commit``."""

    def withdraw(self, _now: float) -> None:
        """Implement ``Effect.withdraw``."""
        self.destination.retained_id = self.id
        self.destinations.note_idle(self.destination)


def _cost(publication: Publication) -> int:
    return cost_alone(publication.head, 1, len(publication.bodies[-1]))


def _reach(targets: Sequence[Target], name: str) -> bool:
    """Return whether any of ``targets`` matches ``name``."""
    return any(
        target == name if pattern is None else matches(pattern, name) for target, pattern in targets
    )
