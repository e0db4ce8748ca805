"""What the core must do later, told by the clock of the floors above."""

import heapq
from collections.abc import Callable

from attrs import define, field

from trio_stomp.broker._delivery import NEVER

Call = Callable[[float], None]


@define(eq=False)
class Timers:
    """Calls in order of when they are due; bounded by what makes them (messages, consumers)."""

    _heap: list[tuple[float, int, Call]] = field(factory=list)
    _number: int = 0

    @property
    def next_due(self) -> float:
        """When ``run`` has something to do; NEVER if nothing waits."""
        return self._heap[0][0] if self._heap else NEVER

    def __len__(self) -> int:
        return len(self._heap)

    def call_at(self, due: float, call: Call) -> None:
        """Have ``call`` called with the time, at ``due`` or soon after."""
        self._number += 1
        heapq.heappush(self._heap, (due, self._number, call))

    def run(self, now: float) -> None:
        """Call what is due."""
        while self._heap and self._heap[0][0] <= now:
            heapq.heappop(self._heap)[2](now)
