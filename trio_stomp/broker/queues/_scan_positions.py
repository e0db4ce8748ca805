"""Scan positions: how far each consumer has scanned a queue without a match.

The result of a selector for a message never changes. So it is evaluated once for a waiting message,
and a scan that ran out of time continues at its position.
"""

from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.base import MemoryBudget
from trio_stomp.broker.delivery import NEVER
from trio_stomp.broker.routing import PASSED_BYTES

if TYPE_CHECKING:
    from trio_stomp.broker.queues._consumer import Consumer


@define(eq=False, repr=False)
class ScanPositions:
    """Scan positions in one queue, by level and consumer. Earlier messages do not match.

    Args:
      memory: Charged for each position.
    """

    memory: MemoryBudget
    look_again_at: float = NEVER
    """When a message expires that all have passed. A scan from the beginning removes it."""
    _upto: "dict[int, dict[Consumer, int]]" = field(factory=dict)
    _most: dict[int, int] = field(factory=dict)
    """The furthest position on each level."""
    _back: dict[int, int] = field(factory=dict)
    """The lowest number on each level that was inserted before the furthest position."""

    @property
    def is_empty(self) -> bool:
        """Return whether no position is kept."""
        return not any(self._upto.values())

    def renew(self, now: float) -> None:
        """Move back positions behind which messages were inserted, or all if messages expired."""
        if now >= self.look_again_at:
            self.forget()
        for level, number in self._back.items():
            positions = self._upto[level]
            for consumer, position in positions.items():
                if position >= number:
                    positions[consumer] = number - 1
            self._most[level] = number - 1
        self._back.clear()

    def on_level(self, level: int) -> "dict[Consumer, int]":
        """Return the positions on a level: the last message's number by consumer. Read only."""
        return self._upto.get(level, {})

    def note(self, level: int, consumer: "Consumer", number: int) -> None:
        """Record that ``consumer`` matches nothing up to ``number``."""
        positions = self._upto.setdefault(level, {})
        if consumer not in positions:
            self.memory.force_table(PASSED_BYTES)
        elif positions[consumer] >= number:
            return
        positions[consumer] = number
        self._most[level] = max(number, self._most.get(level, 0))

    def note_back(self, level: int, number: int) -> None:
        """Record a new or returned message, which earlier scans did not see."""
        if number <= self._most.get(level, 0):
            self._back[level] = min(number, self._back.get(level, number))

    def leave(self, consumer: "Consumer") -> None:
        """Forget the positions of a leaving consumer."""
        for positions in self._upto.values():
            if positions.pop(consumer, None) is not None:
                self.memory.give_table(PASSED_BYTES)

    def forget(self) -> None:
        """Forget all positions, so that all consumers scan from the beginning."""
        count = sum(map(len, self._upto.values()))
        self.memory.give_table(PASSED_BYTES * count)
        self._upto.clear()
        self._most.clear()
        self._back.clear()
        self.look_again_at = NEVER
