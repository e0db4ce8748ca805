"""Calls at later times. The floors above supply the clock."""

import heapq
from collections.abc import Callable

from attrs import define, field

from trio_stomp.broker.delivery._delivery import NEVER
from trio_stomp.broker.delivery._wall_time import WallTime

Call = Callable[[float], None]
MAX_CALLS = 250
"""Limit of calls in one turn. Each may send a message."""


@define(eq=False)
class Timers:
    """Scheduled calls. Messages and consumers schedule them, so their limits bound these too.

    Calls at a time of day have a heap of their own, so that they follow the wall clock when it is
    set.
    """

    wall: WallTime = field(factory=WallTime)
    _heap: list[tuple[float, int, Call]] = field(factory=list)
    _by_day: list[tuple[float, int, Call]] = field(factory=list)
    _number: int = 0
    _cancelled: set[int] = field(factory=set)

    @property
    def next_due(self) -> float:
        """Return the time of the next call, or NEVER. It may change if the wall clock is set."""
        due = self._heap[0][0] if self._heap else NEVER
        return min(due, self._by_day[0][0] - self.wall.offset_s) if self._by_day else due

    def __len__(self) -> int:
        return len(self._heap) + len(self._by_day)

    def call_at(self, due: float, call: Call) -> int:
        """Schedule ``call``, which gets the time, at ``due``. Return its number for ``cancel``."""
        self._number += 1
        heapq.heappush(self._heap, (due, self._number, call))
        return self._number

    def call_by_day(self, day_s: float, call: Call) -> int:
        """Schedule ``call`` at a time of day, in seconds since 1970. Return its number."""
        self._number += 1
        heapq.heappush(self._by_day, (day_s, self._number, call))
        return self._number

    def cancel(self, number: int) -> None:
        """Cancel a call that has not been made yet."""
        self._cancelled.add(number)
        if len(self._cancelled) * 2 > len(self):
            self._heap = [each for each in self._heap if each[1] not in self._cancelled]
            self._by_day = [each for each in self._by_day if each[1] not in self._cancelled]
            heapq.heapify(self._heap)
            heapq.heapify(self._by_day)
            self._cancelled.clear()

    def run(self, now: float, is_over: Callable[[], bool] = bool) -> None:
        """Make the calls that are due, up to a limit. If more are due, ``next_due`` is past.

        Args:
          now: The time, in seconds of the broker's clock.
          is_over: Return whether the time for them is up.
        """
        for _ in range(MAX_CALLS):
            if self._heap and self._heap[0][0] <= now:
                heap = self._heap
            elif self._by_day and self._by_day[0][0] - self.wall.offset_s <= now:
                heap = self._by_day
            else:
                return
            _, number, call = heapq.heappop(heap)
            if number in self._cancelled:
                self._cancelled.remove(number)
            else:
                call(now)
            if is_over():
                return
