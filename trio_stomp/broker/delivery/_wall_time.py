"""Conversion between the broker's clock, in seconds, and the wall clock, in ms since 1970.

The broker's clock is monotonic. The wall clock may be set at any moment: by NTP, by hand, after a
suspension. Times of day follow the wall clock as it is now; durations follow the broker's clock.
"""

import json
from contextlib import suppress

from attrs import define, field

from trio_stomp.base import value
from trio_stomp.broker.headers import LAST_MS

STEPS = "clock:steps"
"""The setting in the store with the steps of the wall clock."""
MAX_STEPS = 64
"""Limit of steps. Above it, the oldest two are merged."""


@define(eq=False)
class WallTime:
    """The relation of the wall clock to the broker's clock.

    Args:
      offset_s: Wall clock minus broker's clock, in seconds.
      steps: The times that the wall clock was set, oldest first: a message id, and the change in
        ms. Stored times of messages with lower ids are from before the step.
    """

    offset_s: float = 0.0
    steps: list[tuple[int, int]] = field(factory=list)

    def ms(self, clock_s: float) -> int:
        """Convert a time of the broker's clock to ms since 1970."""
        return round((clock_s + self.offset_s) * 1000)

    def expiry_ms(self, clock_s: float) -> int:
        """Convert an expiry time to ms since 1970; 0 = never, also beyond the calendar."""
        wall_ms = (clock_s + self.offset_s) * 1000
        return round(wall_ms) if wall_ms <= LAST_MS else 0

    def clock_s(self, wall_ms: float) -> float:
        """Convert ms since 1970 to a time of the broker's clock."""
        return wall_ms / 1000 - self.offset_s

    def stored_s(self, stored_ms: int, id: int) -> float:
        """Convert a stored time of message ``id`` to the broker's clock.

        Correct it for the steps of the wall clock since, so that durations stay right.
        """
        return self.clock_s(stored_ms + sum([ms for before, ms in self.steps if id < before]))

    @property
    def set_ms(self) -> int:
        """Return the sum of all steps in ms."""
        return sum([ms for _, ms in self.steps])

    def set(self, offset_s: float, next_id: int) -> None:
        """Record a step of the wall clock.

        Args:
          offset_s: The new offset.
          next_id: The id of the next message.
        """
        self.steps.append((next_id, round((offset_s - self.offset_s) * 1000)))
        if len(self.steps) > MAX_STEPS:
            (_, first), (before, second) = self.steps[:2]
            self.steps[:2] = [(before, first + second)]
        self.offset_s = offset_s

    def as_setting(self) -> str:
        """Return the steps as text for the store's setting."""
        return json.dumps(self.steps, separators=(",", ":"))

    def restore(self, text: str) -> None:
        """Restore the steps from the store's setting. Ignore an invalid text."""
        with suppress(ValueError, TypeError):
            self.steps = [(int(before), int(ms)) for before, ms in json.loads(text)]


@value
class DayEnd:
    """The expiry of a message at a time of day.

    Args:
      day_ms: The time of day, in ms since 1970.
      at: The expiry by the broker's clock; NEVER = none. The earlier one counts.
      wall: Converts between them.
    """

    day_ms: int
    at: float
    wall: WallTime

    def clock_s(self) -> float:
        """Return the expiry by the broker's clock. It may change if the wall clock is set."""
        return min(self.at, self.wall.clock_s(self.day_ms))
