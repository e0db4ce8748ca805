"""The stale queue: messages that nobody was subscribed to, kept while they live.

One bounded memory channel for each destination that has more than one parked run, used only with
``send_nowait`` and ``receive_nowait``: nothing here waits. What stands first is held beside the
channel, since a channel cannot be looked into.
"""

import heapq

import trio
from attrs import define, field
from sortedcontainers import SortedDict

from trio_stomp.broker._delivery import Publication
from trio_stomp.broker._memory import MemoryBudget
from trio_stomp.broker._policies import DROP_OLDEST, BrokerPolicies
from trio_stomp.broker._route import Route
from trio_stomp.broker._trie import matches
from trio_stomp.broker._wildcards import Pattern

MESSAGE_OVERHEAD_BYTES = 64
RUN_OVERHEAD_BYTES = 512
"""What a parked message and a parked run cost beside their bodies, rounded up."""


@define(eq=False)
class ParkedRun:
    """Messages of one header block that nobody was subscribed to."""

    number: int
    publication: Publication
    bodies: list[bytes]
    size: int


@define(eq=False)
class ParkedDestination:
    """What is parked at one destination, oldest first."""

    route: Route
    first: ParkedRun
    sender: "trio.MemorySendChannel[ParkedRun] | None" = None
    receiver: "trio.MemoryReceiveChannel[ParkedRun] | None" = None
    claimed: bool = False
    """Whether a subscription is being given these messages, so that no other gets them."""

    def append(self, run: ParkedRun, capacity: int) -> None:
        """Park behind what is there."""
        if self.sender is None:
            self.sender, self.receiver = trio.open_memory_channel[ParkedRun](capacity)
        self.sender.send_nowait(run)

    def next(self) -> ParkedRun | None:
        """The run behind the first, taken out of the channel, or None."""
        if self.receiver is None:
            return None
        try:
            return self.receiver.receive_nowait()
        except trio.WouldBlock:
            return None

    def close(self) -> None:
        """Close the channel, which is empty."""
        if self.sender is not None and self.receiver is not None:
            self.sender.close()
            self.receiver.close()


@define(eq=False)
class StaleStatistics:
    """Counters of the stale queue since the start, in messages."""

    parked: int = 0
    revived: int = 0
    expired: int = 0
    dropped: int = 0


@define(eq=False)
class StaleQueue:
    """All parked messages, bounded by count and bytes, in order of arrival at each destination."""

    policies: BrokerPolicies
    memory: MemoryBudget
    size: int = 0
    bytes: int = 0
    statistics: StaleStatistics = field(factory=StaleStatistics)
    _parked: "SortedDict[str, ParkedDestination]" = field(factory=SortedDict)
    _due: list[tuple[float, str]] = field(factory=list)
    _number: int = 0

    def park(self, publication: Publication) -> None:
        """Keep a run for the next subscriber, as far as the limits allow."""
        route, bodies = publication.route, publication.bodies
        if self.policies.stale_overflow == DROP_OLDEST:
            self._make_room(len(bodies), _cost(bodies))
        room = self.policies.max_stale_queue_size - self.size
        kept = bodies if len(bodies) <= room else bodies[: max(0, room)]
        size = _cost(kept)
        while kept and not self._take(size):
            # Few runs are long, and a full queue is no hot path: try ever shorter ones.
            kept = kept[: len(kept) // 2]
            size = _cost(kept)
        lost = len(bodies) - len(kept)
        self.statistics.dropped += lost
        route.dropped += lost
        if not kept:
            return
        self._number += 1
        run = ParkedRun(self._number, publication, kept, size)
        self.size += len(kept)
        self.statistics.parked += len(kept)
        parked = self._parked.get(route.name)
        if parked is None:
            self._parked[route.name] = ParkedDestination(route, run)
            self._note_due(publication.expires_at, route.name)
        else:
            parked.append(run, self.policies.max_stale_queue_size)

    def claim(self, name: str, pattern: Pattern | None) -> list[ParkedDestination]:
        """What is parked for a new subscription, and not promised to another; now promised to it.

        Costs nothing for destinations that the pattern's literal beginning rules out.
        """
        if not self._parked:
            return []
        if pattern is None:
            candidates = [name] if name in self._parked else []
        else:
            start = _literal_start(pattern)
            names = self._parked.irange(start, start + "\U0010ffff") if start else self._parked
            candidates = [each for each in names if matches(pattern, each)]
        found = [self._parked[each] for each in candidates]
        found = [parked for parked in found if not parked.claimed]
        for parked in found:
            parked.claimed = True
        return found

    def release(self, parked: ParkedDestination) -> None:
        """Let the next subscriber have what is left."""
        parked.claimed = False

    def holds(self, parked: ParkedDestination) -> bool:
        """Whether ``parked`` still has messages."""
        return self._parked.get(parked.route.name) is parked

    def take(self, parked: ParkedDestination, now: float) -> ParkedRun | None:
        """The oldest run that still lives, taken out; None if there is no more."""
        if self.holds(parked):
            self._drop_expired(parked, now)
        if not self.holds(parked):
            return None
        run = parked.first
        self._advance(parked)
        self.statistics.revived += len(run.bodies)
        return run

    def sweep(self, now: float) -> None:
        """Throw away what has expired; to be called every now and then."""
        due = self._due
        while due and due[0][0] <= now:
            _, name = heapq.heappop(due)
            parked = self._parked.get(name)
            if parked is not None:
                self._drop_expired(parked, now)
                if self.holds(parked):
                    self._note_due(parked.first.publication.expires_at, name)

    def destinations(self) -> int:
        """How many destinations have parked messages."""
        return len(self._parked)

    def _drop_expired(self, parked: ParkedDestination, now: float) -> None:
        while parked.first.publication.expires_at <= now:
            count = len(parked.first.bodies)
            self.statistics.expired += count
            parked.route.expired += count
            if not self._advance(parked):
                return

    def _make_room(self, count: int, size: int) -> None:
        """Throw away the destination that expires first, run by run, until a run fits."""
        limits = self.policies
        while self._parked and (
            self.size + count > limits.max_stale_queue_size
            or self.bytes + size > limits.max_stale_queue_bytes
        ):
            parked = self._oldest()
            lost = len(parked.first.bodies)
            self.statistics.dropped += lost
            parked.route.dropped += lost
            if self._advance(parked):
                self._note_due(parked.first.publication.expires_at, parked.route.name)

    def _oldest(self) -> ParkedDestination:
        while True:
            due, name = heapq.heappop(self._due)
            parked: ParkedDestination | None = self._parked.get(name)
            if parked is not None:
                if parked.first.publication.expires_at <= due:
                    return parked
                self._note_due(parked.first.publication.expires_at, name)

    def _advance(self, parked: ParkedDestination) -> bool:
        """Take the first run out; whether another has come to stand in its place."""
        run = parked.first
        self.size -= len(run.bodies)
        self.bytes -= run.size
        self.memory.give(run.size)
        following = parked.next()
        if following is None:
            parked.close()
            del self._parked[parked.route.name]
            return False
        parked.first = following
        return True

    def _note_due(self, expires_at: float, name: str) -> None:
        """One entry for each destination; entries of emptied ones go when they come up."""
        heapq.heappush(self._due, (expires_at, name))
        if len(self._due) > 2 * len(self._parked) + 1024:
            self._due = [(parked.first.publication.expires_at, name) for name, parked in self._parked.items()]
            heapq.heapify(self._due)

    def _take(self, size: int) -> bool:
        if self.bytes + size > self.policies.max_stale_queue_bytes or not self.memory.take(size):
            return False
        self.bytes += size
        return True


def _cost(bodies: list[bytes]) -> int:
    return RUN_OVERHEAD_BYTES + sum(map(len, bodies)) + MESSAGE_OVERHEAD_BYTES * len(bodies)


def _literal_start(pattern: Pattern) -> str:
    """What every name that the pattern matches begins with."""
    words: list[str] = []
    for token in pattern.tokens:
        if token is None:
            return "".join(words)
        words.append(token)
    return "".join(words) + (pattern.glued or "")
