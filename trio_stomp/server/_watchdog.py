"""One task that watches the deadlines of all connections.

A deadline around each read would cost as much as the read. Instead, readers and writers record
times, and this task checks a connection when a deadline may have passed: ``look`` acts on missed
deadlines, and returns the time of the next check.
"""

import heapq
import math
from typing import Protocol

import trio
from attrs import define, field

MAX_LOOKS = 100
"""The number of checks before other tasks may run."""
STANDSTILL_S = 0.5
"""If it wakes so much too late, the process stood still, and has not read what came meanwhile."""
PASSES = 400
"""Passes of the loop in which the readers of 20,000 connections can read."""


class Watched(Protocol):
    """The interface of objects with deadlines."""

    next_look: float

    @property
    def is_finished(self) -> bool:
        """Return whether it has no more deadlines."""

    def look(self, now: float) -> float:
        """Act on missed deadlines, and return the time of the next check (``math.inf``: none)."""


@define(eq=False, repr=False)
class Watchdog:
    """A wheel of deadlines: sleeps until the earliest of all."""

    _wheel: list[tuple[float, int, Watched]] = field(factory=list)
    _number: int = 0
    _prune_at: int = 1024
    _scope: trio.CancelScope = field(factory=trio.CancelScope)

    def watch(self, watched: Watched, when: float) -> None:
        """Check ``watched`` at ``when`` or earlier."""
        if when >= watched.next_look:
            return
        watched.next_look = when
        self._number += 1
        heapq.heappush(self._wheel, (when, self._number, watched))
        if len(self._wheel) > self._prune_at:
            self._prune()
        if when < self._scope.deadline:
            self._scope.deadline = when

    def _prune(self) -> None:
        """Remove ended connections, whose next check may be far off (C11)."""
        self._wheel[:] = [
            entry
            for entry in self._wheel
            if entry[0] == entry[2].next_look and not entry[2].is_finished
        ]
        heapq.heapify(self._wheel)
        self._prune_at = 2 * len(self._wheel) + 1024

    async def run(self) -> None:
        """Watch until cancelled. Checkpoint: always."""
        while True:
            began = trio.current_time()
            with trio.CancelScope() as self._scope:
                self._scope.deadline = self._wheel[0][0] if self._wheel else math.inf
                await trio.sleep_forever()
            if trio.current_time() > max(began, self._scope.deadline) + STANDSTILL_S:
                for _ in range(PASSES):
                    await trio.lowlevel.checkpoint()
            self._turn(trio.current_time())

    def _turn(self, now: float) -> None:
        wheel = self._wheel
        for _ in range(MAX_LOOKS):
            if not wheel or wheel[0][0] > now:
                return
            when, _, watched = heapq.heappop(wheel)
            if watched.is_finished or when != watched.next_look:
                continue  # it has ended, or was rescheduled
            watched.next_look = math.inf
            # Later than ``now``, or this loop might not end.
            self.watch(watched, max(watched.look(now), math.nextafter(now, math.inf)))
