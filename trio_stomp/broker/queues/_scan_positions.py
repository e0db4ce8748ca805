"""How far the consumers of a queue have looked, and found nothing that they take.

A selector's answer to a message never changes. So each is asked once about a message that waits,
and who was in the middle when the time was up goes on there, whatever came and went meanwhile.
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
    """Places in one queue, by level and consumer: what waits up to there is not for it.

    Args:
      memory: Charged for each place.
    """

    memory: MemoryBudget
    look_again_at: float = NEVER
    """When something expires that all have passed; it is met if all look from the beginning."""
    _upto: "dict[int, dict[Consumer, int]]" = field(factory=dict)
    _most: dict[int, int] = field(factory=dict)
    """The furthest place of a level."""
    _back: dict[int, int] = field(factory=dict)
    """The least number of a level that has come since before the furthest place."""

    @property
    def is_empty(self) -> bool:
        """Return whether no consumer's position is kept."""
        return not any(self._upto.values())

    def renew(self, now: float) -> None:
        """Have those look again who may have missed something."""
        if now >= self.look_again_at:
            self.forget()
        for level, number in self._back.items():
            places = self._upto[level]
            for consumer, place in places.items():
                if place >= number:
                    places[consumer] = number - 1
            self._most[level] = number - 1
        self._back.clear()

    def on_level(self, level: int) -> "dict[Consumer, int]":
        """Return the positions on a level: the last message's number by consumer. Read only."""
        return self._upto.get(level, {})

    def note(self, level: int, consumer: "Consumer", number: int) -> None:
        """Remember that ``consumer`` takes nothing up to ``number``."""
        places = self._upto.setdefault(level, {})
        if consumer not in places:
            self.memory.force_table(PASSED_BYTES)
        elif places[consumer] >= number:
            return
        places[consumer] = number
        self._most[level] = max(number, self._most.get(level, 0))

    def note_back(self, level: int, number: int) -> None:
        """Note a new or returned message, which earlier scans did not meet."""
        if number <= self._most.get(level, 0):
            self._back[level] = min(number, self._back.get(level, number))

    def leave(self, consumer: "Consumer") -> None:
        """Forget a leaving consumer."""
        for places in self._upto.values():
            if places.pop(consumer, None) is not None:
                self.memory.give_table(PASSED_BYTES)

    def forget(self) -> None:
        """Have all look from the beginning."""
        count = sum(map(len, self._upto.values()))
        self.memory.give_table(PASSED_BYTES * count)
        self._upto.clear()
        self._most.clear()
        self._back.clear()
        self.look_again_at = NEVER
