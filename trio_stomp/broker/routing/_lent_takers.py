"""What all lists of subscribers take together: lists are shared, and the oldest are given up."""

from collections import OrderedDict
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.base import MemoryBudget
from trio_stomp.broker.routing._takers import FEW_TAKERS, NO_TAKERS, Takers

if TYPE_CHECKING:
    from trio_stomp.broker.delivery import Destination

MAX_PLACES = 2 * 1024 * 1024
"""So many subscribers stand in all other lists together, 8 bytes each."""
PLACE_SHARE = 256
"""For so many bytes that messages may take, one of them: a 32nd of the memory."""
MOST_GIVEN_UP = 256
"""Lists that are given up in one turn."""


@define(eq=False, repr=False)
class LentTakers:
    """The lists of subscribers that destinations have, of more than a few.

    100,000 topics that the same 1,000 subscribe to would have as many lists of them, if each kept
    its own: some share the list that was made last, and all lists together have a bound. Whose
    list was given up is looked up again when something is sent there.
    """

    memory: MemoryBudget
    last: Takers | None = None
    """What was looked up last: the next one may be the same."""
    places: int = 0
    _lent: "OrderedDict[Destination, Takers]" = field(factory=OrderedDict)
    """Who has one, the oldest first."""

    def __len__(self) -> int:
        return len(self._lent)

    @property
    def most_places(self) -> int:
        """Return how many may stand in all lists together, but for the last turn's."""
        return min(MAX_PLACES, self.memory.limit_bytes // PLACE_SHARE)

    def lend(self, destination: "Destination", takers: Takers) -> None:
        """Let ``destination`` have a list."""
        self.take_back(destination)
        takers.lend(destination)
        if takers.places > FEW_TAKERS:
            if not takers.users:
                self.places += takers.places
            takers.users += 1
            self._lent[destination] = takers

    def take_back(self, destination: "Destination") -> None:
        """Let ``destination`` have none: it is out of date, or nobody's any more."""
        NO_TAKERS.lend(destination)
        takers = self._lent.pop(destination, None)
        if takers is not None:
            takers.users -= 1
            if not takers.users:
                self.places -= takers.places

    def end_turn(self) -> None:
        """Give up the oldest lists, if they are too many. None of them is in use now."""
        for _ in range(MOST_GIVEN_UP):
            if self.places <= self.most_places or len(self._lent) < 2:
                return
            oldest = next(iter(self._lent))
            if oldest.line is not None:  # it is, or will be at once
                self._lent.move_to_end(oldest)
            else:
                self.take_back(oldest)
                oldest.outdate()
