"""Which destinations are counted by name: the busiest few; all others together as ``other``.

Prometheus takes the difference of a counter over time, and what shrinks for a restart. So no
series here ever shrinks: a destination is counted from when it first is among the busiest, and
``other`` keeps what it was given, whoever comes to be counted by name, or is not any more.
"""

import heapq
from collections.abc import Sequence

from attrs import define, field

from trio_stomp.broker import Route

OTHER = "other"

Counts = tuple[int, int, int]
"""Messages received, delivered and dropped."""


def _counts(route: Route) -> Counts:
    return route.enqueued, route.delivered, route.dropped


def _activity(route: Route) -> int:
    return route.enqueued + route.delivered


def _less(counts: Counts, others: Counts) -> Counts:
    return counts[0] - others[0], counts[1] - others[1], counts[2] - others[2]


def _plus(counts: Counts, others: Counts) -> Counts:
    return counts[0] + others[0], counts[1] + others[1], counts[2] + others[2]


@define(eq=False, repr=False)
class Ranking:
    """Remembers who is counted by name, and since when.

    Args:
      limit: How many, at most.
    """

    limit: int
    _starts: dict[Route, Counts] = field(factory=dict)
    """What each of the named had counted when its series began."""
    _told: dict[Route, Counts] = field(factory=dict)
    """What was last told of it."""
    _retired: Counts = (0, 0, 0)
    """What was told by the names of those that are not named any more."""

    def count(self, routes: Sequence[Route], past: Route) -> dict[str, Counts]:
        """The counters of this moment, by name; those of ``other`` at the end.

        Args:
          routes: All of them that there are.
          past: The counters of those that have been forgotten.
        """
        busiest = heapq.nlargest(self.limit, routes, key=_activity)
        # A destination with that very name would be told twice: it is one of the others.
        chosen = dict.fromkeys(each for each in busiest if each.name != OTHER)
        for route, told in self._told.items():
            if route not in chosen:
                # What it got since then is told of ``other``.
                self._retired = _plus(self._retired, told)
        self._starts = {each: self._starts.get(each) or _counts(each) for each in chosen}
        self._told = {each: _less(_counts(each), self._starts[each]) for each in chosen}
        other = _less(_total(routes, past), self._retired)
        for counts in self._told.values():
            other = _less(other, counts)
        found = {route.name: counts for route, counts in self._told.items()}
        found[OTHER] = other
        return found


def _total(routes: Sequence[Route], past: Route) -> Counts:
    return (
        past.enqueued + sum([route.enqueued for route in routes]),
        past.delivered + sum([route.delivered for route in routes]),
        past.dropped + sum([route.dropped for route in routes]),
    )
