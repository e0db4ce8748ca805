"""A bound for the memory of all lists of subscribers: lists are shared, the oldest given up."""

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.base import MemoryBudget, noop
from trio_stomp.broker.routing._recipients import FEW_TAKERS, NO_TAKERS, Recipients

if TYPE_CHECKING:
    from trio_stomp.broker.delivery import Destination

MAX_ENTRIES = 2 * 1024 * 1024
"""Limit of entries in all lists together, 8 bytes each."""
ENTRY_SHARE = 256
"""Bytes of the memory budget for each entry. So lists take a 32nd of it at most."""
MOST_GIVEN_UP = 256
"""Limit of lists given up in one turn."""


@define(eq=False, repr=False)
class SharedRecipients:
    """The lists of subscribers that destinations use, except short ones.

    If 1,000 subscribers take 100,000 topics, each topic would have a list of 1,000. Therefore
    topics with the same subscribers share one list, and all lists together have a bound. A list
    that was given up is looked up again for the next message.
    """

    memory: MemoryBudget
    at_end: Callable[[Callable[[], None]], None] = noop
    """Makes a call at the end of the turn, when no list is in use."""
    last: Recipients | None = None
    """The list looked up last. The next one may be the same."""
    size: int = 0
    _lent: "OrderedDict[Destination, Recipients]" = field(factory=OrderedDict)
    """The list of each destination, the oldest first."""

    def __len__(self) -> int:
        return len(self._lent)

    @property
    def max_size(self) -> int:
        """Return the limit of entries in all lists. The lists of one turn may exceed it."""
        return min(MAX_ENTRIES, self.memory.limit_bytes // ENTRY_SHARE)

    def lend(self, destination: "Destination", recipients: Recipients) -> None:
        """Set the list of ``destination``."""
        self.take_back(destination)
        recipients.lend(destination)
        destination.cost_s, destination.more_s = recipients.cost_s, recipients.more_s
        if recipients.size > FEW_TAKERS:
            if not recipients.users:
                self.size += recipients.size
            recipients.users += 1
            self._lent[destination] = recipients
            if self.size > self.max_size:
                self.at_end(self.give_up)

    def take_back(self, destination: "Destination") -> None:
        """Remove the list of ``destination``, which is out of date or forgotten."""
        NO_TAKERS.lend(destination)
        recipients = self._lent.pop(destination, None)
        if recipients is not None:
            recipients.users -= 1
            if not recipients.users:
                self.size -= recipients.size

    def give_up(self) -> None:
        """Give up the oldest lists above the limit, some in each turn."""
        for _ in range(MOST_GIVEN_UP):
            if self.size <= self.max_size or len(self._lent) < 2:
                return
            oldest = next(iter(self._lent))
            self.take_back(oldest)
            oldest.outdate()
        self.at_end(self.give_up)
