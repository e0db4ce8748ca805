"""Long lists in slices: whoever else is ready must not wait for all of a list."""

import heapq
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from attrs import define, field

SLICE_RECORDS = 25
"""Records made and encoded in one turn: 0.06 to 0.16 ms."""
SLICE_LOOKS = 250
"""Things of a list looked at in one turn, whether they are worth telling: 0.13 ms."""

T = TypeVar("T")


def slices(things: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """``things`` in pieces of ``size``, the last perhaps shorter."""
    return (things[place : place + size] for place in range(0, len(things), size))


@define(eq=False, repr=False)
class Largest(Generic[T]):
    """Finds what ``heapq.nlargest`` would, in a list that is shown to it piece by piece.

    Args:
      count: How many to find.
      key: Its figure, 0 at least.
    """

    count: int
    key: Callable[[T], int]
    found: list[T] = field(factory=list)
    """The largest first; of equals, who was shown first."""
    _least: int = -1
    """Only more than this is among the largest."""

    def add(self, things: Sequence[T]) -> None:
        """Look at some more."""
        key, least = self.key, self._least
        larger = [each for each in things if key(each) > least]
        if larger:
            self.found = heapq.nlargest(self.count, [*self.found, *larger], key=key)
            if len(self.found) == self.count:
                self._least = key(self.found[-1])
