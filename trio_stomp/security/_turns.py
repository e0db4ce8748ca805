"""A fair queue for passcode checks: networks are served in turn, so no crowd blocks others.

A waiting login has a *path*, from its widest network to the narrowest. On each level networks are
served in turn, regardless of how many logins wait in each. If the queue is full, the newest login
of the most crowded network is displaced, not the latest of all.
"""

from collections import OrderedDict
from collections.abc import AsyncIterator, Hashable, Sequence
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

import trio
from attrs import define, field

T = TypeVar("T", bound=Hashable)

Path = Sequence[Hashable]


class Displaced(Exception):
    """The queue is full, and this login was displaced from the most crowded network."""


@define(eq=False, repr=False)
class FairQueue(Generic[T]):
    """A queue that serves the names at each level of a path in turn.

    All paths have the same length. Every operation takes time proportional to it, except
    ``displace``, which compares all names of a level.
    """

    count: int = 0
    """The number of items queued at or below this level."""
    _inner: "OrderedDict[Hashable, FairQueue[T]]" = field(factory=OrderedDict)
    _here: "OrderedDict[T, None]" = field(factory=OrderedDict)

    def put(self, path: Path, item: T) -> None:
        """Add ``item`` at the end of its path's queue."""
        self.count += 1
        if not path:
            self._here[item] = None
            return
        inner = self._inner.get(path[0])
        if inner is None:
            inner = self._inner[path[0]] = FairQueue()
        inner.put(path[1:], item)

    def take(self) -> T:
        """Remove and return the next item. The queue must not be empty."""
        self.count -= 1
        if self._here:
            return self._here.popitem(last=False)[0]
        name = next(iter(self._inner))
        item = self._inner[name].take()
        self._inner.move_to_end(name)
        self._forget_empty(name)
        return item

    def displace(self) -> T:
        """Remove and return the newest item of the longest queue. There must be one."""
        self.count -= 1
        if self._here:
            return self._here.popitem()[0]
        # The youngest of equals, so in an even queue the newcomer itself is displaced.
        names = reversed(self._inner)
        name = max(names, key=lambda name: self._inner[name].count)
        item = self._inner[name].displace()
        self._forget_empty(name)
        return item

    def remove(self, path: Path, item: T) -> None:
        """Remove a queued ``item``."""
        self.count -= 1
        if not path:
            del self._here[item]
            return
        self._inner[path[0]].remove(path[1:], item)
        self._forget_empty(path[0])

    def _forget_empty(self, name: Hashable) -> None:
        if not self._inner[name].count:
            del self._inner[name]


@define(eq=False, repr=False)
class _Waiter:
    ready: trio.Event = field(factory=trio.Event)
    has_turn: bool = False


@define(eq=False, repr=False)
class Turns:
    """A limit on concurrent turns. Further tasks queue fairly.

    Args:
      slots: The number of concurrent turns.
    """

    slots: int
    busy: int = 0
    _queue: FairQueue[_Waiter] = field(factory=FairQueue)

    @property
    def count(self) -> int:
        """Return the number of tasks that have a turn or wait for one."""
        return self.busy + self._queue.count

    @asynccontextmanager
    async def turn(self, path: Path, most: int) -> AsyncIterator[None]:
        """Wait for a turn, and hold it for the block.

        Args:
          path: The path in the queue.
          most: The limit of running and waiting turns, including this one.

        Raises:
          Displaced: the limit was exceeded, and this task was the newest of the largest network.

        Checkpoint: if it has to wait. Cancel: the task leaves the queue.
        """
        if self.busy < self.slots:
            self.busy += 1
        else:
            await self._wait(path, most)
        try:
            yield
        finally:
            self._end()

    async def _wait(self, path: Path, most: int) -> None:
        waiter = _Waiter()
        self._queue.put(path, waiter)
        if self.count > most:
            self._queue.displace().ready.set()
        try:
            await waiter.ready.wait()
        except BaseException:
            if waiter.has_turn:
                self._end()
            elif not waiter.ready.is_set():
                self._queue.remove(path, waiter)
            raise
        if not waiter.has_turn:
            raise Displaced

    def _end(self) -> None:
        if self._queue.count:
            waiter = self._queue.take()
            waiter.has_turn = True
            waiter.ready.set()
        else:
            self.busy -= 1
