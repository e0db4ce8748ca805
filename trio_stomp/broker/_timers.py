"""What the core must do later, told by the clock of the floors above."""

import heapq
from collections.abc import Callable

from attrs import define, field

from trio_stomp.broker._delivery import NEVER

Call = Callable[[float], None]
MAX_CALLS = 250
"""So many calls are made in one turn, if more are due: each may send a message."""


@define(eq=False)
class Timers:
    """Calls in order of when they are due; bounded by what makes them (messages, consumers)."""

    _heap: list[tuple[float, int, Call]] = field(factory=list)
    _number: int = 0
    _cancelled: set[int] = field(factory=set)

    @property
    def next_due(self) -> float:
        """When ``run`` has something to do; NEVER if nothing waits."""
        return self._heap[0][0] if self._heap else NEVER

    def __len__(self) -> int:
        return len(self._heap)

    def call_at(self, due: float, call: Call) -> int:
        """Have ``call`` called with the time, at ``due`` or soon after; its number."""
        self._number += 1
        heapq.heappush(self._heap, (due, self._number, call))
        return self._number

    def cancel(self, number: int) -> None:
        """Forget a call that has not been made yet."""
        self._cancelled.add(number)
        if len(self._cancelled) * 2 > len(self._heap):
            self._heap = [each for each in self._heap if each[1] not in self._cancelled]
            heapq.heapify(self._heap)
            self._cancelled.clear()

    def run(self, now: float) -> None:
        """Call what is due; if that is much, some of it, and ``next_due`` is past."""
        for _ in range(MAX_CALLS):
            if not self._heap or self._heap[0][0] > now:
                return
            _, number, call = heapq.heappop(self._heap)
            if number in self._cancelled:
                self._cancelled.remove(number)
            else:
                call(now)
