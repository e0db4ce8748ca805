"""Which destinations are counted by name: the busiest few; all others together as ``other``.

Prometheus takes the difference of a counter over time, and what shrinks for a restart. So no
series here ever shrinks: a destination is counted from when it first is among the busiest, and
``other`` keeps what it was given, whoever comes to be counted by name, or is not any more.
"""

from collections.abc import Sequence

from attrs import define, field

from trio_stomp.base import LOOKS, Greatest, Pieces
from trio_stomp.broker import Destination

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
class Look:
    """One look at all destinations, some at a time. Each is counted at one moment.

    Args:
      total: Of all so far, and of those that have been forgotten before.
    """

    total: Counts
    _busiest: Greatest[tuple[Destination, Counts]]

    def add(self, destinations: Sequence[Destination]) -> None:
        """Look at some more."""
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
        """Return the busiest, and what they have counted."""
        return (yield from self._busiest.found())


@define(eq=False, repr=False)
class Ranking:
    """Remembers who is counted by name, and since when.

    Args:
      limit: How many, at most.
    """

    limit: int
    _starts: dict[Destination, Counts] = field(factory=dict)
    """What each of the named had counted when its series began."""
    _told: dict[Destination, Counts] = field(factory=dict)
    """What was last told of it."""
    _retired: Counts = (0, 0, 0)
    """What was told by the names of those that are not named any more."""

    def begin(self, past: Destination) -> Look:
        """Begin a look at all destinations. It must be ended before the next one begins.

        Args:
          past: The counters of those that have been forgotten; of no other is it known then.
        """
        return Look(_counts(past), Greatest(self.limit))

    def end(self, look: Look) -> Pieces[dict[str, Counts]]:
        """Return the counters by name, those of ``other`` at the end."""
        # A destination with that very name would be told twice: it is one of the others.
        busiest = yield from look.busiest()
        chosen = {
            destination: counts for destination, counts in busiest if destination.name != OTHER
        }
        retired, starts, told = (
            self._retired,
            dict[Destination, Counts](),
            dict[Destination, Counts](),
        )
        other = look.total
        for place, (destination, counts) in enumerate(self._told.items()):
            if destination not in chosen:
                # What it got since then is told of ``other``.
                retired = _plus(retired, counts)
            if place % LOOKS == LOOKS - 1:
                yield
        for place, (destination, counts) in enumerate(chosen.items()):
            start = starts[destination] = self._starts.get(destination) or counts
            told[destination] = _less(counts, start)
            other = _less(other, told[destination])
            if place % LOOKS == LOOKS - 1:
                yield
        self._starts, self._told, self._retired = starts, told, retired
        found = {destination.name: counts for destination, counts in told.items()}
        found[OTHER] = _less(other, retired)
        return found


def _total(counts: Sequence[Counts]) -> Counts:
    return (
        sum([each[0] for each in counts]),
        sum([each[1] for each in counts]),
        sum([each[2] for each in counts]),
    )
