"""Turns of reading: input is decoded no faster than the dispatcher applies it, owner by owner.

Trio runs all tasks that are ready before any task runs again, so without turns each of a client's
connections would decode once in every pass of the loop, before a neighbour's frame is applied.
"""

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Protocol

import trio
from attrs import define, field

MOST_S = 0.005
"""Work on its way through decoder, inbox and core, above which readers wait."""
MOST_BEHIND_S = 0.02
"""How far an owner that has used much is put behind the others. Without this bound, one whose slice
took half a second, since the process was not running meanwhile, waits until each of 200 others has
used as much."""


class Owner(Protocol):
    """The user, network or connection that a share of reading belongs to."""

    read_s: float
    """The time used for its input, in seconds, on the scale of all owners that share it."""


@define(eq=False, repr=False)
class ReadTurns:
    """Admits slices of input, each of a few milliseconds at most, owner by owner.

    The owner that has used the least time goes first, and its connections take turns. While little
    is on its way, everybody goes at once, and nothing is done but to count.

    Args:
      wake: Makes the dispatcher take a turn, at whose end it calls ``grant``.
    """

    wake: Callable[[], None]
    _load_s: float = 0.0
    """The expected cost of admitted slices. They leave it in ``grant``, when they are finished."""
    _finished_s: float = 0.0
    _served_s: float = 0.0
    """The most that an owner had used when it was served. Who was idle begins here."""
    _waiting: dict[Owner, deque[tuple[float, trio.Event]]] = field(factory=dict)
    _order: list[tuple[float, int, Owner]] = field(factory=list)
    """A heap of the owners that wait, by what they will have used after the next slice. So a small
    slice does not wait behind the large ones of many newcomers."""
    _numbers: "count[int]" = field(factory=count)
    _is_abandoned: bool = False

    async def wait(self, owner: Owner, cost_s: float) -> None:
        """Wait for a turn to decode a slice. Call ``finish`` afterwards.

        Args:
          owner: Who sent it.
          cost_s: Its expected cost, decoding and applying, in seconds.

        Checkpoint: if it has to wait. Cancel: does not end the wait, which the dispatcher bounds,
        because received input is processed even if its connection ends.
        """
        if (self._order or self._load_s >= MOST_S) and not self._is_abandoned:
            turn = trio.Event()
            if owner in self._waiting:
                self._waiting[owner].append((cost_s, turn))
            else:
                self._waiting[owner] = deque([(cost_s, turn)])
                self._enter(owner, cost_s)
            self.wake()
            with trio.CancelScope(shield=True):
                await turn.wait()
        else:
            self._served_s = owner.read_s = max(owner.read_s, self._served_s)
            self._admit(owner, cost_s)

    def finish(self, owner: Owner, expected_s: float, cost_s: float) -> None:
        """Note that a slice was applied, or had no event, and what it has cost in seconds."""
        self._finished_s += expected_s
        owner.read_s += cost_s - expected_s

    def grant(self) -> bool:
        """Admit more slices at the end of a turn. Return whether any still waits."""
        self._load_s -= self._finished_s
        self._finished_s = 0.0
        while self._order and (self._load_s < MOST_S or self._is_abandoned):
            due_s, _, owner = heappop(self._order)
            queue = self._waiting[owner]
            cost_s, turn = queue.popleft()
            # Not what it has used by now: an earlier slice may have cost more since it is in line.
            self._served_s = max(due_s - cost_s, self._served_s)
            self._admit(owner, cost_s)
            turn.set()
            if queue:
                self._enter(owner, queue[0][0])
            else:
                del self._waiting[owner]
        return bool(self._order)

    def abandon(self) -> None:
        """Admit everybody from now on: the dispatcher died."""
        self._is_abandoned = True
        self.grant()

    def _enter(self, owner: Owner, cost_s: float) -> None:
        owner.read_s = min(max(owner.read_s, self._served_s), self._served_s + MOST_BEHIND_S)
        heappush(self._order, (owner.read_s + cost_s, next(self._numbers), owner))

    def _admit(self, owner: Owner, cost_s: float) -> None:
        self._load_s += cost_s
        owner.read_s += cost_s
