"""The stale queue: messages without subscribers, parked until they expire.

Each destination with more than one parked run has a bounded memory channel, which is used only
with ``send_nowait`` and ``receive_nowait``: nothing here waits. The first run is held beside the
channel, as a channel has no peek.
"""

import heapq
from collections.abc import Iterator, Sequence
from itertools import islice
from math import inf

import trio
from attrs import define, field
from sortedcontainers import SortedDict, SortedSet

from trio_stomp.base import MemoryBudget, Quota
from trio_stomp.broker.delivery import (
    DROP_OLDEST,
    NEVER,
    BrokerPolicies,
    Destination,
    Publication,
    Target,
    Work,
)
from trio_stomp.broker.names import Pattern, walk
from trio_stomp.frames import head_cost

MESSAGE_OVERHEAD_BYTES = 64
CHANNEL_OVERHEAD_BYTES = 2048
DESTINATION_OVERHEAD_BYTES = 1024
"""Bytes charged for each, without bodies and header blocks, as measured and rounded up."""
MAX_SWEPT = 500
"""Maximum number of expired runs dropped in one turn: 0.2 to 0.4 ms."""
DESTINATION_SWEEPS = 5
"""Cost of dropping a destination's last run and the destination itself, in runs."""
MAX_RANKED = 100_000
"""Maximum number of destinations ranked by size: 12 ms."""
FEW_DROPPED = 256
"""If more messages must be dropped for new ones, they are dropped in pieces."""
STEP = 32
"""Names that are looked up in one step, and runs that expire in one piece of work."""


@define(eq=False, repr=False)
class ParkedRun:
    """Parked messages with one header block."""

    number: int
    publication: Publication
    size: int
    """Bytes charged for it."""


@define(eq=False, repr=False)
class ParkedDestination:
    """The messages parked at one destination, oldest first."""

    destination: Destination
    first: ParkedRun
    size: int
    """Messages."""
    bytes: int
    """Bytes charged in total."""
    overhead: int
    """Bytes charged for the destination and its channel."""
    due: float = NEVER
    """The time of its next check: its key in ``StaleQueue._due``."""
    quota: Quota | None = None
    """The quota charged for the overhead: that of the first run."""
    sender: "trio.MemorySendChannel[ParkedRun] | None" = None
    receiver: "trio.MemoryReceiveChannel[ParkedRun] | None" = None
    _claim: "Claim | None" = None

    @property
    def claim(self) -> "Claim | None":
        """The claim that reserves these messages for one subscription, or None."""
        return None if self._claim is None or self._claim.is_over else self._claim

    @claim.setter
    def claim(self, claim: "Claim") -> None:
        self._claim = claim

    def append(self, run: ParkedRun, capacity: int) -> None:
        """Append a run."""
        if self.sender is None:
            self.sender, self.receiver = trio.open_memory_channel[ParkedRun](capacity)
        self.sender.send_nowait(run)

    def next(self) -> ParkedRun | None:
        """Remove and return the run after the first, or return None."""
        if self.receiver is None:
            return None
        try:
            return self.receiver.receive_nowait()
        except trio.WouldBlock:
            return None

    def close(self) -> None:
        """Close the channel. It must be empty."""
        if self.sender is not None and self.receiver is not None:
            self.sender.close()
            self.receiver.close()


@define(eq=False, repr=False)
class StaleStatistics:
    """Counters of the stale queue since the broker's start, in messages."""

    parked: int = 0
    revived: int = 0
    expired: int = 0
    dropped: int = 0


@define(eq=False, repr=False)
class StaleQueue:
    """All parked messages, in order of arrival at each destination, bounded by count and bytes."""

    policies: BrokerPolicies
    memory: MemoryBudget
    size: int = 0
    bytes: int = 0
    statistics: StaleStatistics = field(factory=StaleStatistics)
    _parked: "SortedDict[str, ParkedDestination]" = field(factory=SortedDict)
    _due: "SortedSet[tuple[float, str]]" = field(factory=SortedSet)
    """The destinations by the time of their next check: when the first run expires, or sooner."""
    _number: int = 0

    def park(self, publication: Publication, now: float) -> None:
        """Park a run for the next subscriber, as far as the limits allow."""
        bodies = publication.bodies
        cost = _cost(publication)
        lost = len(bodies) - self._fitting(publication, cost)
        if lost:
            is_more = True
            while lost and is_more:  # expired runs go first
                is_more = self.sweep(now)
                lost = len(bodies) - self._fitting(publication, cost)
            if self._may_push_out(publication):
                for _ in self._making_room(publication, cost):
                    pass
            lost = len(bodies) - self._fitting(publication, cost)
            self.statistics.dropped += lost
            publication.destination.dropped += lost
        if lost < len(bodies):
            if lost:
                is_front_lost = self.policies.stale_overflow == DROP_OLDEST
                remaining = bodies[lost:] if is_front_lost else bodies[:-lost]
                publication = publication.with_bodies(publication.destination, remaining)
                cost = _cost(publication)
            self._append(publication, cost)

    def making_room(self, publications: Sequence[Publication], now: float) -> Work | None:
        """Return the work that makes room for messages, or None if few must leave for them.

        Args:
          publications: The messages that are to be parked.
          now: Seconds of the broker's clock.
        """
        cost = sum(map(_cost, publications))
        excess = self.bytes + cost - self.policies.max_stale_queue_bytes
        if excess * self.size <= FEW_DROPPED * self.bytes:
            return None
        pushing = [each for each in publications if self._may_push_out(each)]
        return self._pushing_out(pushing, cost, now) if pushing or self._due[0][0] <= now else None

    def _pushing_out(self, publications: Sequence[Publication], cost: int, now: float) -> Work:
        while self.sweep(now):
            yield
        for publication in publications:
            yield from self._making_room(publication, cost)

    def _may_push_out(self, publication: Publication) -> bool:
        """Return whether parked messages may be dropped for a run, so that its newest can fit."""
        newest = len(publication.bodies[-1]) + MESSAGE_OVERHEAD_BYTES
        least = DESTINATION_OVERHEAD_BYTES + head_cost(publication.head) + newest
        limits = self.policies
        return limits.stale_overflow == DROP_OLDEST and least <= limits.max_stale_queue_bytes

    def _append(self, publication: Publication, cost: int) -> None:
        """Park a run that fits."""
        destination, count = publication.destination, len(publication.bodies)
        self._number += 1
        run = ParkedRun(self._number, publication, cost)
        parked = self._parked.get(destination.name)
        opening = self._opening_cost(parked)
        if parked is None:
            parked = ParkedDestination(
                destination, first=run, size=0, bytes=0, overhead=0, quota=publication.quota
            )
            self._parked[destination.name] = parked
            self._note_due(parked)
        else:
            parked.append(run, self.policies.max_stale_queue_size)
        parked.overhead += opening
        parked.size += count
        self.size += count
        self.statistics.parked += count
        self._charge(parked, opening, parked.quota)
        self._charge(parked, run.size, publication.quota)

    def destinations(self) -> int:
        """Return the number of destinations with parked messages."""
        return len(self._parked)

    def may_reach(self, targets: Sequence[Target]) -> bool:
        """Return whether a subscription to ``targets`` may get parked messages."""
        if not self._parked:
            return False
        return any(pattern is not None or name in self._parked for name, pattern in targets)

    def matching(self, name: str, pattern: Pattern | None) -> Iterator[ParkedDestination | None]:
        """Yield the destinations with parked messages that a name or pattern matches.

        Yields None after a step that finds none. Destinations may come and go between two steps.
        """
        if pattern is None:
            yield self._parked.get(name)
            return
        for found in walk(pattern, self._since):
            yield self._parked.get(found) if found is not None else None

    def _since(self, name: str) -> list[str]:
        """Return the next names with parked messages from ``name`` on, in order."""
        return list(islice(self._parked.irange(name), STEP))

    def holds(self, parked: ParkedDestination) -> bool:
        """Return whether ``parked`` still has messages."""
        return self._parked.get(parked.destination.name) is parked

    def refresh(self, parked: ParkedDestination, now: float) -> bool:
        """Drop at most ``STEP`` expired runs at the front. Return whether any runs are left."""
        if self.holds(parked):
            self._drop_expired(parked, now, STEP)
        return self.holds(parked)

    def take(self, parked: ParkedDestination) -> ParkedRun:
        """Remove and return the oldest run of a destination."""
        run = parked.first
        self._advance(parked)
        self.statistics.revived += len(run.publication.bodies)
        return run

    def sweep(self, now: float) -> bool:
        """Drop at most ``MAX_SWEPT`` expired runs. Must be called periodically.

        Returns:
          Whether there are more, so that the next call should follow soon.
        """
        left = MAX_SWEPT
        while self._due and self._due[0][0] <= now:
            if left <= 0:
                return True
            _, name = self._due.pop(0)
            left -= DESTINATION_SWEEPS
            parked = self._parked[name]
            left -= self._drop_expired(parked, now, left)
            if self.holds(parked):
                self._note_due(parked)
        return False

    def depth(self, name: str) -> int:
        """Return the number of messages parked at ``name``."""
        parked = self._parked.get(name)
        return parked.size if parked is not None else 0

    def candidates(self) -> list[ParkedDestination]:
        """Return at most ``MAX_RANKED`` destinations with parked messages, in no order."""
        # Iterating in order of the names takes ten times as long.
        return list(islice(dict.values(self._parked), MAX_RANKED))

    def _drop_expired(self, parked: ParkedDestination, now: float, limit: float = inf) -> int:
        """Drop up to ``limit`` expired runs at the front, and return the number dropped."""
        dropped = 0
        while parked.first.publication.is_over(now):
            count = len(parked.first.publication.bodies)
            self.statistics.expired += count
            parked.destination.expired += count
            dropped += 1
            if not self._advance(parked) or dropped >= limit:
                break
        return dropped

    def _making_room(self, publication: Publication, cost: int) -> Work:
        """Drop the runs that expire first, one in each step, until new messages fit."""
        limits = self.policies
        count = len(publication.bodies)
        while self._parked and (
            self.size + count > limits.max_stale_queue_size
            or self.bytes
            + cost
            + self._opening_cost(self._parked.get(publication.destination.name))
            > limits.max_stale_queue_bytes
        ):
            parked = self._oldest()
            lost = len(parked.first.publication.bodies)
            self.statistics.dropped += lost
            parked.destination.dropped += lost
            if self._advance(parked):
                self._note_due(parked)
            yield

    def _oldest(self) -> ParkedDestination:
        """Return the destination whose first run expires first."""
        while True:
            due, name = self._due.pop(0)
            parked: ParkedDestination = self._parked[name]
            if parked.first.publication.ends_at <= due:
                return parked
            self._note_due(parked)

    def _advance(self, parked: ParkedDestination) -> bool:
        """Remove the first run, and an empty destination. Return whether any runs are left."""
        run = parked.first
        count = len(run.publication.bodies)
        self.size -= count
        parked.size -= count
        self._charge(parked, -run.size, run.publication.quota)
        following = parked.next()
        if following is None:
            self._charge(parked, -parked.overhead, parked.quota)
            parked.close()
            del self._parked[parked.destination.name]
            self._due.discard((parked.due, parked.destination.name))
            return False
        parked.first = following
        return True

    def _note_due(self, parked: ParkedDestination) -> None:
        """Schedule a destination's next check for when its first run expires."""
        name = parked.destination.name
        self._due.discard((parked.due, name))
        parked.due = parked.first.publication.ends_at
        self._due.add((parked.due, name))

    def follow_wall_clock(self) -> None:
        """Recompute all expiry times after the wall clock was set."""
        for parked in self._parked.values():
            parked.due = parked.first.publication.ends_at
        self._due = SortedSet((parked.due, name) for name, parked in self._parked.items())

    def _fitting(self, publication: Publication, cost: int) -> int:
        """Return the number of messages of a run that fit."""
        limits, memory, bodies = self.policies, self.memory, publication.bodies
        room = min(
            limits.max_stale_queue_bytes - self.bytes, memory.kept_room_for(publication.quota)
        ) - self._opening_cost(self._parked.get(publication.destination.name))
        count = min(len(bodies), limits.max_stale_queue_size - self.size)
        if cost <= room:
            return count
        room -= head_cost(publication.head)
        kept_first = reversed(bodies) if limits.stale_overflow == DROP_OLDEST else bodies
        for fitting, body in enumerate(islice(kept_first, count)):
            room -= len(body) + MESSAGE_OVERHEAD_BYTES
            if room < 0:
                return fitting
        return count

    def _opening_cost(self, parked: ParkedDestination | None) -> int:
        """Return the overhead that a run adds: for the first a destination, then a channel."""
        if parked is None:
            return DESTINATION_OVERHEAD_BYTES
        return CHANNEL_OVERHEAD_BYTES if parked.sender is None else 0

    def _charge(self, parked: ParkedDestination, size: int, quota: Quota | None) -> None:
        """Charge bytes that are known to fit (negative: refund)."""
        parked.bytes += size
        self.bytes += size
        self.memory.give_kept(-size, quota)


def _cost(publication: Publication) -> int:
    bodies = publication.bodies
    return (
        head_cost(publication.head) + sum(map(len, bodies)) + MESSAGE_OVERHEAD_BYTES * len(bodies)
    )


@define(eq=False, repr=False)
class Claim:
    """Reserves parked messages for one subscription.

    They leave the stale queue only as fast as the subscription takes them. Until then they may
    expire.
    """

    stale: StaleQueue
    is_over: bool = False
    """Whether other subscriptions may claim the rest."""
    _parked: list[tuple[int, ParkedDestination]] = field(factory=list)
    """A heap of the destinations, by the number of their first run: the oldest one on top."""

    def gather(self, targets: Sequence[Target]) -> Work:
        """Claim the parked messages at ``targets`` that no other subscription has claimed."""
        for name, pattern in targets:
            for parked in self.stale.matching(name, pattern):
                if parked is not None and parked.claim is None:
                    parked.claim = self
                    heapq.heappush(self._parked, (parked.first.number, parked))
                yield

    @property
    def is_empty(self) -> bool:
        """Return whether nothing is left."""
        return not self._parked

    def next_run(self, now: float) -> ParkedRun | None:
        """Remove and return the oldest run, or return None if it has expired."""
        number, parked = heapq.heappop(self._parked)
        run = None
        if self.stale.refresh(parked, now) and parked.first.number == number:
            run = self.stale.take(parked)
        # If the first run has expired, another destination's may be older now.
        if self.stale.holds(parked):
            heapq.heappush(self._parked, (parked.first.number, parked))
        return run

    def end(self) -> None:
        """Release the rest for other subscriptions."""
        self.is_over = True
        self._parked.clear()
