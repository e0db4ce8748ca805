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
      wall: The time of day by this clock; the core changes it when ``read`` reports a step.
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

    @property
    def is_off(self) -> bool:
        """Return whether the machine slept, or the wall clock was set, since the last ``read``."""
        slept_s, step_s = self._differences(self.elapsed())
        return slept_s > TOLERANCE_S or abs(step_s) > TOLERANCE_S

    def read(self) -> float | None:
        """Return the new ``wall.offset_s`` if the wall clock was set, or None.

        Time that the machine slept counts from now on.
        """
        at = self.elapsed()
        slept_s, step_s = self._differences(at)
        if slept_s <= TOLERANCE_S and -TOLERANCE_S <= step_s <= TOLERANCE_S:
            return None
        if self.elapsed() - at > TOLERANCE_S / 2:
            return None  # the process was delayed between the readings: try again next time
        if slept_s > TOLERANCE_S:
            self.slept_s += slept_s
        if abs(step_s) <= TOLERANCE_S:
            return None
        self._set_s += step_s
        return self.wall.offset_s + step_s

    def _differences(self, at: float) -> tuple[float, float]:
        """Return the additional sleep of the machine, and the step of the wall clock."""
        return at - self.running() - self._asleep_s - self.slept_s, self.day() - at - self._set_s
