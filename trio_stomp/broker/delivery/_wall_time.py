"""Between the broker's clock, in seconds, and the time of day, in ms since 1970.

The broker's clock tells how much time has passed, and is never set. The wall clock tells the time
of day, and may be set at any moment: by NTP, by hand, after a suspension. What ends or begins at a
time of day is judged by ``WallTime`` as it is now; what lasts so long, by the broker's clock.
"""

import json
from contextlib import suppress

from attrs import define, field

from trio_stomp.base import value

STEPS = "clock:steps"
"""The setting of a store that tells how the wall clock was set while messages waited."""
MAX_STEPS = 64
"""Of more, the oldest two are taken for one."""


@define(eq=False)
class WallTime:
    """The time of day, as it follows from the broker's clock at present.

    Args:
      offset_s: Wall time less the broker's clock, in seconds.
      steps: How the wall clock was set, the oldest first: an id, and by how many ms. What a store
        tells of messages with smaller ids was told by the clock before that.
    """

    offset_s: float = 0.0
    steps: list[tuple[int, int]] = field(factory=list)

    def ms(self, clock_s: float) -> int:
        """Return a moment of the broker's clock in milliseconds since 1970."""
        return round((clock_s + self.offset_s) * 1000)

    def clock_s(self, wall_ms: float) -> float:
        """Return a time of day by the broker's clock."""
        return wall_ms / 1000 - self.offset_s

    def stored_s(self, told_ms: int, id: int) -> float:
        """Return when something stored with a message's id happened, by the broker's clock.

        However the wall clock was set since, so much time has passed as has passed.
        """
        return self.clock_s(told_ms + sum([ms for before, ms in self.steps if id < before]))

    @property
    def set_ms(self) -> int:
        """By how much the wall clock was set, all in all."""
        return sum([ms for _, ms in self.steps])

    def set(self, offset_s: float, next_id: int) -> None:
        """Note that the wall clock was set. ``next_id`` is that of the next message."""
        self.steps.append((next_id, round((offset_s - self.offset_s) * 1000)))
        if len(self.steps) > MAX_STEPS:
            (_, first), (before, second) = self.steps[:2]
            self.steps[:2] = [(before, first + second)]
        self.offset_s = offset_s

    def told(self) -> str:
        """Return the steps as a setting."""
        return json.dumps(self.steps, separators=(",", ":"))

    def restore(self, text: str) -> None:
        """Continue with the steps that a setting tells. What cannot be read is left out."""
        with suppress(ValueError, TypeError):
            self.steps = [(int(before), int(ms)) for before, ms in json.loads(text)]


@value
class DayEnd:
    """The end of a message that lives until a time of day.

    Args:
      day_ms: In ms since 1970.
      at: An end by the broker's clock that it has, too; the earlier one counts.
    """

    day_ms: int
    at: float
    wall: WallTime

    def clock_s(self) -> float:
        """Return the end by the broker's clock, as far as is known now."""
        return min(self.at, self.wall.clock_s(self.day_ms))
