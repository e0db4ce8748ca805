"""Scheduled messages by their numbers."""

from bisect import bisect_right
from typing import TYPE_CHECKING

from attrs import define, field

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trio_stomp.broker.sending._scheduler import Scheduled

FEW = 64


@define(eq=False, repr=False)
class Jobs:
    """All that wait for their time, in the order of their numbers, which is that of their SENDs."""

    _items: "dict[int, Scheduled]" = field(factory=dict)
    """By the number of the first message."""
    _numbers: list[int] = field(factory=list)
    """Of these, and of some that are there no more."""

    def __len__(self) -> int:
        return len(self._items)

    def add(self, item: "Scheduled") -> None:
        """Remember one, whose numbers are above all others'."""
        self._items[item.first] = item
        self._numbers.append(item.first)

    def discard(self, item: "Scheduled") -> None:
        """Forget one."""
        del self._items[item.first]
        if len(self._numbers) > 2 * len(self._items) + FEW:
            self._numbers = list(self._items)

    def beginning_at(self, number: int) -> "Iterator[Scheduled]":
        """Yield those from ``number`` on. Some may end, or come, meanwhile."""
        numbers = self._numbers
        place = max(0, bisect_right(numbers, number) - 1)
        while place < len(numbers):
            item = self._items.get(numbers[place])
            if item is not None:
                yield item
            place += 1
