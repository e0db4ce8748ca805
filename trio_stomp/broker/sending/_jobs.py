"""Scheduled messages by number."""

from bisect import bisect_right
from typing import TYPE_CHECKING

from attrs import define, field

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trio_stomp.broker.sending._scheduler import Scheduled

FEW = 64


@define(eq=False, repr=False)
class Jobs:
    """All scheduled messages, in order of their numbers, which is the order of their SENDs."""

    _items: "dict[int, Scheduled]" = field(factory=dict)
    """By the number of the first message."""
    _numbers: list[int] = field(factory=list)
    """Their keys in order, and those of some removed items."""

    def __len__(self) -> int:
        return len(self._items)

    def add(self, item: "Scheduled") -> None:
        """Add an item. Its numbers must be greater than all others."""
        self._items[item.first] = item
        self._numbers.append(item.first)

    def discard(self, item: "Scheduled") -> None:
        """Remove an item."""
        del self._items[item.first]
        if len(self._numbers) > 2 * len(self._items) + FEW:
            self._numbers = list(self._items)

    def beginning_at(self, number: int) -> "Iterator[Scheduled]":
        """Yield the items from ``number`` on. Items may be added and removed meanwhile."""
        numbers = self._numbers
        place = max(0, bisect_right(numbers, number) - 1)
        while place < len(numbers):
            item = self._items.get(numbers[place])
            if item is not None:
                yield item
            place += 1
