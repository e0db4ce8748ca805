"""The destinations in use, with their subscribers and counters."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from operator import attrgetter

from attrs import define, field
from sortedcontainers import SortedKeyList

from trio_stomp.base import CloseReason, MemoryBudget, ProtocolError, Quota, noop
from trio_stomp.broker.delivery import (
    LIMIT_S,
    STALE_GENERATION,
    BrokerPolicies,
    Client,
    Destination,
    Histogram,
    Member,
    Subscription,
    Target,
    Turns,
)
from trio_stomp.broker.names import (
    EXPLAIN,
    LEFT,
    PRIVATE,
    Kind,
    Pattern,
    WildcardTrie,
    check_length,
    classify,
    is_reserved,
)
from trio_stomp.broker.routing._quotas import no_names
from trio_stomp.broker.routing._recipients import SharedRecipients, recipients_of
from trio_stomp.broker.routing._table_costs import destination_cost, no_table_memory

MAX_FORGOTTEN = 64
"""Destinations forgotten at once, 5 µs each. A refused frame cannot have named many more."""
MAX_LOOKED = 512
"""Destinations checked at once for being idle, 2 µs each. They are checked once for each time
that they became idle."""


def too_many_subscribers(names: str, cost_s: float, most_s: float) -> ProtocolError:
    """Return the error for destinations where a message would take too long."""
    return ProtocolError(
        "too-many-subscriptions",
        f"{names[:80]}: each message would take {cost_s * 1000:.0f} ms at its subscribers, of"
        f" {most_s * 1000:.0f} that are allowed; use fewer subscriptions, or simpler selectors",
        reason=CloseReason.LIMIT_EXCEEDED,
    )


def _sums() -> Destination:
    """Return a destination that adds up the counters of forgotten ones."""
    return Destination("", Kind.TOPIC, ingress=Histogram(), delivery=Histogram())


def _in_order() -> "SortedKeyList[Destination, int]":
    # Not an OrderedDict: to enlarge that for 175,000 destinations takes 8 ms.
    return SortedKeyList(key=attrgetter("idle_since"))


@define(eq=False, repr=False)
class IdleDestinations:
    """All idle destinations and some that are in use again, those idle longest first."""

    _all: "SortedKeyList[Destination, int]" = field(factory=_in_order)
    _by_quota: "dict[Quota, SortedKeyList[Destination, int]]" = field(factory=dict)
    _number: int = 0

    def note(self, destination: Destination) -> None:
        """Add a destination that may be idle from now on. If already there, it keeps its place."""
        if destination.idle_since:
            return
        self._number += 1
        destination.idle_since = self._number
        self._all.add(destination)
        if destination.quota is not None:
            self._by_quota.setdefault(destination.quota, _in_order()).add(destination)

    def discard(self, destination: Destination) -> None:
        """Remove a destination that is in use again or was forgotten."""
        self._all.remove(destination)
        if destination.quota is not None:
            idle = self._by_quota[destination.quota]
            idle.remove(destination)
            if not idle:
                del self._by_quota[destination.quota]
        destination.idle_since = 0

    def take(self, quota: Quota | None = None) -> Destination | None:
        """Remove and return the first destination, of all users or of ``quota``, or None."""
        destinations = self._all if quota is None else self._by_quota.get(quota)
        if not destinations:
            return None
        destination: Destination = destinations[0]
        self.discard(destination)
        return destination


@define(eq=False, repr=False)
class Destinations:
    """All destinations in use, and the wildcard subscriptions.

    A destination keeps the list of its subscribers. A SUBSCRIBE to its name outdates this list; a
    SUBSCRIBE to a wildcard starts a new generation, which outdates all lists. A list is looked up
    again when next used.
    """

    policies: BrokerPolicies
    turns: Turns
    configure: Callable[[Destination], None] = noop
    """Applies the policies to a new destination."""
    forget: Callable[[Destination], None] = noop
    """Called with a forgotten destination."""
    memory: MemoryBudget = field(factory=MemoryBudget)
    """The budget that pays for each destination."""
    is_restoring: bool = False
    """Recovery is running: restored destinations are charged but never refused."""
    past: Destination = field(factory=_sums)
    """The sums of the counters of forgotten destinations, and the delivery times of the queues of
    wildcard subscriptions.
    """
    excess: list[Client] = field(factory=list)
    """Clients whose wildcards take more of a destination than there is, to be ended."""
    leaving: dict[Client, None] = field(factory=dict)
    """Clients whose subscriptions end over several turns. Look-ups skip them."""
    _idle: IdleDestinations = field(factory=IdleDestinations)
    _destinations: dict[str, Destination] = field(factory=dict)
    _wildcards: WildcardTrie[Member] = field(factory=WildcardTrie)
    counted: int = 0
    """The number of wildcard subscriptions that count."""
    lent: SharedRecipients = field(init=False)
    _generation: int = 0

    def __attrs_post_init__(self) -> None:
        self.lent = SharedRecipients(self.memory, self.turns.at_end)

    def __len__(self) -> int:
        return len(self._destinations)

    def __iter__(self) -> Iterator[Destination]:
        return iter(self._destinations.values())

    @property
    def wildcards(self) -> int:
        """Return the number of wildcard subscriptions."""
        return len(self._wildcards)

    def has(self, destination: Destination) -> bool:
        """Return whether a destination is in use and was not replaced by one of the same name."""
        return self._destinations.get(destination.name) is destination

    def find_current(self, name: str) -> Destination | None:
        """Return the destination of ``name``, with its subscribers up to date, if it is in use."""
        destination = self._destinations.get(name)
        if destination is not None and destination.generation != self._generation:
            self._look_up(destination)
        return destination

    def find(self, name: str) -> Destination | None:
        """Return the destination of ``name``, if in use. Its subscribers may be out of date."""
        return self._destinations.get(name)

    def open(self, name: str, quota: Quota | None = None) -> Destination:
        """Return the destination of ``name``, with its subscribers up to date.

        If needed it is created, and charged to ``quota``.

        Raises:
          ProtocolError: The name is invalid, or there are too many destinations.
        """
        destination = self.ensure(name, quota)
        if destination.generation != self._generation:
            self._look_up(destination)
        return destination

    def refresh(self, destination: Destination) -> None:
        """Look up the subscribers of a destination in use, if they are out of date."""
        if destination.generation != self._generation:
            self._look_up(destination)

    def recipients_count(self, destination: Destination) -> int:
        """Return the number of subscribers.

        If the list is out of date, members that subscribe twice count twice.
        """
        if destination.generation == self._generation:
            return len(destination.subscribers)
        return sum(map(len, self._tables(destination)))

    def some_recipients(self, destination: Destination, start: int, stop: int) -> "list[Member]":
        """Return the subscribers from a position to another, one that subscribes twice twice."""
        return list(islice(chain.from_iterable(self._tables(destination)), start, stop))

    def _tables(self, destination: Destination) -> "list[dict[Member, None]]":
        wild = [] if destination.private else self._wildcards.tables(destination.name)
        return [destination.exact, *wild]

    def ensure(self, name: str, quota: Quota | None = None) -> Destination:
        """Return the destination of ``name``, created if needed. Do not look up its subscribers.

        Raises:
          ProtocolError: As ``open``.
        """
        destination = self._destinations.get(name)
        if destination is None:
            check_length(name, self.policies.max_destination_bytes)
            kind = classify(name)
            cost = 0 if self.is_restoring else destination_cost(name, kind)
            is_full = len(self._destinations) >= self.policies.max_destinations
            if quota is not None and self._lacks(quota, cost):
                self._evict_of(quota, name, cost)
            elif is_full or cost > self.memory.tables_room:
                self._evict(name, cost)
            destination = self._enter(name, kind, quota)
        return destination

    def own(self, name: str) -> Destination:
        """Return one of the broker's own topics. Limits do not apply to it."""
        destination = self._destinations.get(name)
        if destination is None:
            destination = self._enter(name, classify(name))
        if destination.generation != self._generation:
            self._look_up(destination)
        return destination

    def add(
        self, member: Member, name: str, pattern: Pattern | None, quota: Quota | None = None
    ) -> None:
        """Subscribe ``member`` to ``name``, or to the names that match ``pattern``.

        Raises:
          ProtocolError: As ``open``, or a message would cost too much at all subscribers.
        """
        if pattern is None:
            destination = self.ensure(name, quota)
            is_dear = destination.cost_s + member.cost_s > LIMIT_S / 2
            if is_dear and isinstance(member, Subscription):  # bindings have been checked
                self.check_cost(destination, member.cost_s, quota)
            destination.exact[member] = None
            destination.cost_s += member.cost_s
            self._outdate(destination)
        else:
            self._wildcards.add(pattern, member)
            self.counted += member.is_counted
            self.note_change()

    def remove(self, member: Member, name: str, pattern: Pattern | None) -> None:
        """Undo ``add``."""
        if pattern is None:
            destination = self._destinations[name]
            del destination.exact[member]
            self._outdate(destination)
            self.note_idle(destination)
        else:
            self._wildcards.remove(pattern, member)
            self.counted -= member.is_counted
            self.note_change()

    def note_idle(self, destination: Destination) -> None:
        """Note that a destination may be idle: it lost subscribers, messages or its last value."""
        if self._destinations.get(destination.name) is destination:
            self._idle.note(destination)

    def detached(
        self, name: str, pattern: Pattern | None, quota: Quota | None = None
    ) -> Destination:
        """Return the destination whose counters a binding's queue uses.

        The queue of a wildcard gets a destination of its own, outside the table.
        """
        if pattern is None:
            return self.ensure(name, quota)
        # Its counters end with the binding. Its delivery times go to the total.
        return Destination(name, classify(name), delivery=self.past.delivery)

    def note_change(self) -> None:
        """Start a new generation: all lists of subscribers are out of date."""
        self._generation += 1
        self.lent.last = None

    def outdate(self, targets: Sequence[Target]) -> None:
        """Note a change of a member that is subscribed to the places."""
        for name, pattern in targets:
            if pattern is None:
                self._outdate(self._destinations[name])
            else:
                self.note_change()

    def check(self, name: str, pattern: Pattern | None, quota: Quota | None = None) -> None:
        """Check whether ``add`` would accept a subscription. Create the destination if needed.

        Raises:
          ProtocolError: As ``open``.
        """
        if pattern is None:
            self.ensure(name, quota)
        else:
            check_length(name, self.policies.max_destination_bytes)

    def check_cost(self, destination: Destination, cost_s: float, quota: Quota | None) -> None:
        """Check whether a destination may have one more subscriber.

        All of them together may cost ``LIMIT_S`` for a message, and one user's half of what others
        leave, so that nobody closes a destination for others. Wildcards count where they match.

        Args:
          destination: The destination.
          cost_s: The cost of a message at the new subscriber, in seconds.
          quota: The quota of the subscriber; None = no quota.

        Raises:
          ProtocolError: It may not.
        """
        if destination.cost_s + cost_s <= LIMIT_S / 2:
            return
        self._look_up(destination)
        used_s, most_s = destination.cost_s, LIMIT_S
        if quota is not None:
            used_s = sum(each.cost_s for each in destination.subscribers if each.quota is quota)
            most_s = max(0.0, LIMIT_S - destination.cost_s + used_s) / 2
        if used_s + cost_s > most_s:
            raise too_many_subscribers(destination.name, used_s + cost_s, most_s)

    def note_excess(self, destination: Destination) -> None:
        """Note the wildcards of the user who takes most of a destination, to end them."""
        costs: dict[Quota, float] = {}
        for each in destination.subscribers:
            if each.quota is not None:
                costs[each.quota] = costs.get(each.quota, 0.0) + each.cost_s
        if not costs:
            return
        quota = max(costs, key=costs.__getitem__)
        self.excess += [
            each.client
            for each in destination.subscribers
            if isinstance(each, Subscription)
            if each.quota is quota and each not in destination.exact
        ]

    def _enter(self, name: str, kind: Kind, quota: Quota | None = None) -> Destination:
        destination = self._destinations[name] = Destination(name, kind, reserved=is_reserved(name))
        destination.cost = destination_cost(name, kind)
        destination.quota = quota
        self.memory.force_table(destination.cost, quota)
        if quota is not None:
            quota.destinations += 1
        self._idle.note(destination)
        destination.is_request = name in (EXPLAIN, LEFT)
        destination.private = name.startswith(PRIVATE)
        self.configure(destination)
        return destination

    def forget_new(self) -> None:
        """Forget the newest destinations that were never used.

        A refused frame must not leave behind the destinations created to check it.
        """
        for name in list(islice(reversed(self._destinations), MAX_FORGOTTEN)):
            destination = self._destinations[name]
            if destination.reserved:
                continue  # the broker's own, created for an event meanwhile
            if not destination.is_unused:
                return
            self._idle.discard(destination)
            self._remove(destination)

    def _remove(self, destination: Destination) -> None:
        del self._destinations[destination.name]
        self.lent.take_back(destination)
        if not destination.reserved:
            self.past.add(destination)
        self.forget(destination)
        destination.queue = None  # break the reference cycle: collections are rare
        self.memory.give_table(destination.cost, destination.quota)
        destination.cost = 0
        if destination.quota is not None:
            destination.quota.destinations -= 1

    def _outdate(self, destination: Destination) -> None:
        """Mark the list of subscribers as out of date. The next use looks them up.

        Thousands of subscribers may come or go between two uses.
        """
        self.lent.take_back(destination)
        self.lent.last = None
        destination.generation = STALE_GENERATION

    def _look_up(self, destination: Destination) -> None:
        found = [member for table in self._tables(destination) for member in table]
        recipients, is_topic = self.lent.last, destination.kind is Kind.TOPIC
        if recipients is None or not is_topic or recipients.found != found:
            has_wild, leaves = len(found) > len(destination.exact), bool(self.leaving)
            recipients = recipients_of(found, is_topic=is_topic, has_wild=has_wild, leaves=leaves)
            if is_topic and recipients.found is not None:
                self.lent.last = recipients
        self.lent.lend(destination, recipients)
        destination.generation = self._generation

    def make_room(self, cost: int, quota: Quota | None) -> None:
        """Forget idle destinations if there is no room for ``cost`` bytes of subscriptions."""

        def has_room() -> bool:
            return cost <= self.memory.tables_room_for(quota)

        if not has_room():
            self._forgets_enough(has_room, quota)

    def _evict(self, name: str, cost: int) -> None:
        """Make room for ``name``: forget some destinations, those idle longest first.

        Raises:
          ProtocolError: There is still no room, or no memory.
        """
        limit, memory = self.policies.max_destinations, self.memory

        def has_room() -> bool:
            # Not ==: the broker's own topics may exceed the limit.
            return cost <= memory.tables_room and len(self._destinations) < limit

        if self._forgets_enough(has_room):
            return
        if cost > memory.tables_room:
            raise no_table_memory(memory, f"destination:{name[:80]}")
        raise ProtocolError(
            "too-many-destinations",
            f"{len(self._destinations)} destinations are in use, which is the limit"
            " (option max_destinations)",
            reason=CloseReason.LIMIT_EXCEEDED,
        )

    def _evict_of(self, quota: Quota, name: str, cost: int) -> None:
        """Make room for ``name`` of a user who has reached the limit: forget idle destinations.

        Raises:
          ProtocolError: There is still no room.
        """

        def has_room() -> bool:
            return not self._lacks(quota, cost)

        if self._forgets_enough(has_room, quota):
            return
        raise no_names(self.memory, quota, f"destination:{name[:80]}")

    def _forgets_enough(self, has_room: Callable[[], bool], quota: Quota | None = None) -> bool:
        """Forget idle destinations, a user's own first. Return whether that will do."""
        if quota is not None and (self._forget_idle(has_room, quota) or has_room()):
            return True
        return self._forget_idle(has_room) or has_room()

    def _forget_idle(self, has_room: Callable[[], bool], quota: Quota | None = None) -> bool:
        """Forget a few idle destinations, of all users or of one, those idle longest first.

        Args:
          has_room: Return whether these were enough.
          quota: The quota of the only user whose destinations are forgotten; None = all users.

        Returns:
          Whether it stopped early: so many are in use again that looking for idle ones takes
          several calls. Meanwhile the table may exceed its limit slightly.
        """
        wanted = min(MAX_FORGOTTEN, self.policies.max_destinations // 10)
        for _ in range(MAX_LOOKED):
            destination = self._idle.take(quota)
            if destination is None:
                return False
            if destination.is_idle:
                self._remove(destination)
                wanted -= 1
                if wanted <= 0 and has_room():
                    return False
        return True

    def _lacks(self, quota: Quota, cost: int) -> bool:
        """Return whether a quota has no room for one more name."""
        memory, used = self.memory, len(self._destinations)
        left = memory.left(quota.destinations, used, self.policies.max_destinations)
        return left < 1 or cost > memory.tables_room_for(quota)
