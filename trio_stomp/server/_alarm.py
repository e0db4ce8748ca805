"""Wakes the dispatcher when a timer of the core is due."""

import math
from collections.abc import Awaitable, Callable

import trio
from attrs import define, field


@define(eq=False, repr=False)
class Alarm:
    """The core's single timer, set after each turn to the time of the next event.

    Args:
      ring: Wakes the dispatcher, which advances the core's time.
    """

    ring: Callable[[], Awaitable[None]]
    due: float = math.inf
    """When it rings, in seconds of Trio's clock; ``math.inf`` = never."""
    _scope: trio.CancelScope = field(factory=trio.CancelScope)

    def set(self, due: float) -> None:
        """Ring at ``due`` only."""
        self.due = self._scope.deadline = due

    async def run(self) -> None:
        """Ring until cancelled. Checkpoint: always."""
        while True:
            with trio.CancelScope(deadline=self.due) as self._scope:
                await trio.sleep_forever()
            if trio.current_time() >= self.due:
                self.due = math.inf
                await self.ring()
