"""The broker's clock: elapsed time and time of day.

Trio's clock stops while the machine is suspended, and the wall clock may be set. Both are compared
at the start of each turn, and once a second.
"""

import time
from collections.abc import Callable
from functools import partial

import trio
from attrs import define, field

from trio_stomp.broker import WallTime

TOLERANCE_S = 0.05
"""The smallest difference of the clocks that counts. Reading them all takes time."""
_ELAPSED = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Includes suspensions, where the system supports that."""


@define(eq=False, repr=False)
class Clock:
    """A clock of elapsed time: Trio's, corrected by suspensions.

    Args:
      wall: The time of day by this clock; the core changes it when ``follow`` returns a step.
      elapsed: Seconds since an arbitrary moment, suspensions included.
      running: Seconds since an arbitrary moment, suspensions excluded.
      day: The time of day, in seconds since 1970.
    """

    wall: WallTime = field(factory=WallTime)
    elapsed: Callable[[], float] = field(factory=lambda: partial(time.clock_gettime, _ELAPSED))
    running: Callable[[], float] = time.monotonic
    day: Callable[[], float] = field(factory=lambda: time.time)
    slept_s: float = 0.0
    """How long the machine was suspended while this broker ran."""
    _asleep_s: float = field(init=False)
    _set_s: float = field(init=False)

    def __attrs_post_init__(self) -> None:
        at = self.elapsed()
        self._asleep_s = at - self.running()
        self._set_s = self.day() - at

    def now(self) -> float:
        """Return the seconds since an arbitrary moment."""
        return trio.current_time() + self.slept_s

    def wall_s(self) -> float:
        """Return the time of day, in seconds since 1970."""
        return self.now() + self.wall.offset_s

    def look(self) -> tuple[float, float] | None:
        """Compare the clocks of the system.

        Returns:
          How long the machine slept, and by how much its wall clock was set, since the last
          ``follow``, both in seconds; None = neither.
        """
        at = self.elapsed()
        slept_s = at - self.running() - self._asleep_s - self.slept_s
        step_s = self.day() - at - self._set_s
        if slept_s <= TOLERANCE_S and -TOLERANCE_S <= step_s <= TOLERANCE_S:
            return None
        if self.elapsed() - at > TOLERANCE_S / 2:
            return None  # the process was delayed between the readings: look again next time
        return slept_s, step_s

    def follow(self, slept_s: float, step_s: float) -> float | None:
        """Count what ``look`` has found, and return the new ``wall.offset_s`` if it changed."""
        if slept_s > TOLERANCE_S:
            self.slept_s += slept_s
        if abs(step_s) <= TOLERANCE_S:
            return None
        self._set_s += step_s
        return self.wall.offset_s + step_s
