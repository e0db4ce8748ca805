"""Counters of the busiest destinations by name, and of all others together as ``other``.

Prometheus takes a shrinking counter for a restart, so no series here shrinks: a destination is
counted from when it first is among the busiest, and ``other`` keeps its value when destinations
begin or cease to be counted by name. Contents of the fullest queues are gauges, which may shrink.
"""

from collections.abc import Sequence
from operator import add

from attrs import define, field, frozen

from trio_stomp.base import LOOKS, Greatest, Pieces
from trio_stomp.broker import Destination, Queue

OTHER = "other"

Counts = tuple[int, int, int]
"""Messages received, delivered and dropped."""


def _counts(destination: Destination) -> Counts:
    return destination.enqueued, destination.delivered, destination.dropped


def _less(counts: Counts, others: Counts) -> Counts:
    return counts[0] - others[0], counts[1] - others[1], counts[2] - others[2]


def _plus(counts: Counts, others: Counts) -> Counts:
    return counts[0] + others[0], counts[1] + others[1], counts[2] + others[2]


@define(eq=False, repr=False)
class Count:
    """A count of all destinations in pieces, each destination at one moment.

    Args:
      total: The sum so far, including destinations forgotten before.
    """

    total: Counts
    _busiest: Greatest[tuple[Destination, Counts]]

    def add(self, destinations: Sequence[Destination]) -> None:
        """Add some more destinations."""
        counts = [_counts(destination) for destination in destinations]
        self.total = _plus(self.total, _total(counts))
        least = self._busiest.least
        self._busiest.add(
            [
                (each[0] + each[1], (destination, each))
                for destination, each in zip(destinations, counts, strict=True)
                if each[0] + each[1] > least
            ]
        )

    def busiest(self) -> Pieces[list[tuple[Destination, Counts]]]:
        """Return the busiest destinations and their counters."""
        return (yield from self._busiest.found())


@define(eq=False, repr=False)
class Ranking:
    """Remembers which destinations are counted by name, and since when.

    Args:
      limit: The limit of named destinations.
    """

    limit: int
    _starts: dict[Destination, Counts] = field(factory=dict)
    """The counters of each named destination when its series began."""
    _reported: dict[Destination, Counts] = field(factory=dict)
    """The last reported values of each series."""
    _retired: Counts = (0, 0, 0)
    """The last reported values of destinations that are no longer named."""

    def begin(self, past: Destination) -> Count:
        """Begin a count of all destinations. It must end before the next one begins.

        Args:
          past: The counters of destinations forgotten so far.
        """
        return Count(_counts(past), Greatest(self.limit))

    def end(self, count: Count) -> Pieces[dict[str, Counts]]:
        """Return the counters by name, with ``other`` last."""
        # A destination named "other" would appear twice, so it counts as one of the others.
        busiest = yield from count.busiest()
        chosen = {
            destination: counts for destination, counts in busiest if destination.name != OTHER
        }
        retired, starts, growth = (
            self._retired,
            dict[Destination, Counts](),
            dict[Destination, Counts](),
        )
        other = count.total
        for number, (destination, counts) in enumerate(self._reported.items()):
            if destination not in chosen:
                # Its growth since then belongs to ``other``.
                retired = _plus(retired, counts)
            if number % LOOKS == LOOKS - 1:
                yield
        for number, (destination, counts) in enumerate(chosen.items()):
            start = starts[destination] = self._starts.get(destination) or counts
            growth[destination] = _less(counts, start)
            other = _less(other, growth[destination])
            if number % LOOKS == LOOKS - 1:
                yield
        self._starts, self._reported, self._retired = starts, growth, retired
        found = {destination.name: counts for destination, counts in growth.items()}
        found[OTHER] = _less(other, retired)
        return found


def _total(counts: Sequence[Counts]) -> Counts:
    return (
        sum([each[0] for each in counts]),
        sum([each[1] for each in counts]),
        sum([each[2] for each in counts]),
    )


@frozen
class Filling:
    """The contents of a queue, or of several.

    Args:
      ready: The number of waiting messages, including delayed ones.
      unacked: The number of unacknowledged messages.
    """

    ready: int
    unacked: int
    consumers: int


@frozen
class QueueFigures:
    """The figures of all named queues.

    Args:
      bytes: The size of all bodies.
      fullest: The contents by name, with ``other`` for the rest.
    """

    count: int
    ready: int
    unacked: int
    bytes: int
    fullest: dict[str, Filling]


@define(eq=False, repr=False)
class QueueCount:
    """Counts queues in pieces, each queue at one moment.

    Args:
      limit: The number of queues to report by name.
    """

    limit: int
    _count: int = 0
    _ready: int = 0
    _unacked: int = 0
    _bytes: int = 0
    _consumers: int = 0
    _fullest: Greatest[tuple[str, Filling]] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._fullest = Greatest(self.limit)

    def add(self, queues: Sequence[Queue]) -> None:
        """Add some more queues."""
        depths = [queue.depth for queue in queues]
        unacked = [queue.unacked for queue in queues]
        consumers = [len(queue.consumers) for queue in queues]
        self._count += len(queues)
        self._ready += sum(depths)
        self._unacked += sum(unacked)
        self._consumers += sum(consumers)
        self._bytes += sum([queue.size for queue in queues])
        held = list(map(add, depths, unacked))
        self._fullest.add(
            [
                (count, (queues[index].name, Filling(depths[index], unacked[index], recipients)))
                for index, (count, recipients) in enumerate(zip(held, consumers, strict=True))
                if count > self._fullest.least
            ]
        )

    def figures(self) -> Pieces[QueueFigures]:
        """Return the figures of all counted queues."""
        by_name: dict[str, Filling] = {}
        ready, unacked, consumers = self._ready, self._unacked, self._consumers
        for number, (name, each) in enumerate((yield from self._fullest.found())):
            # A queue named "other" would appear twice, so it counts as one of the others.
            if name != OTHER:
                by_name[name] = each
                ready, unacked = ready - each.ready, unacked - each.unacked
                consumers -= each.consumers
            if number % LOOKS == LOOKS - 1:
                yield
        by_name[OTHER] = Filling(ready, unacked, consumers)
        return QueueFigures(self._count, self._ready, self._unacked, self._bytes, by_name)
