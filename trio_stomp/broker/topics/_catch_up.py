"""A late subscriber's messages: first what was parked, then what came meanwhile.

Parked messages leave the stale queue only as fast as the subscriber takes them. What is published
in the meantime waits behind them, so that order is kept.
"""

import heapq
from collections import deque

from attrs import define, field

from trio_stomp.base import MemoryBudget
from trio_stomp.broker.delivery import Delivery
from trio_stomp.broker.topics._stale import ParkedDestination, ParkedRun, StaleQueue


@define(eq=False, repr=False)
class CatchUp:
    """The messages that one subscription still has to be given before it is like any other.

    Args:
      stale: Where the parked messages lie.
      memory: Charged for what waits behind them.
      max_waiting_bytes: Bound of what waits behind them.
    """

    stale: StaleQueue
    memory: MemoryBudget
    max_waiting_bytes: int
    _parked: list[tuple[int, ParkedDestination]] = field(factory=list)
    _waiting: deque[Delivery] = field(factory=deque)
    _waiting_bytes: int = 0

    def start(self, claimed: list[ParkedDestination]) -> None:
        """Give these destinations' messages, oldest first over all of them."""
        self._parked = [(parked.first.number, parked) for parked in claimed]
        heapq.heapify(self._parked)

    def follow(self, delivery: Delivery) -> bool:
        """Keep what was published meanwhile, or return False and keep nothing if it is too much."""
        waiting = self._waiting_bytes + delivery.size
        if waiting > self.max_waiting_bytes or not self.memory.take(delivery.size):
            return False
        self._waiting_bytes = waiting
        self._waiting.append(delivery)
        return True

    def next_parked(self, now: float) -> ParkedRun | None:
        """Return the oldest parked run that still lives, or None if there is no more."""
        while self._parked:
            number, parked = heapq.heappop(self._parked)
            if not self.stale.refresh(parked, now):
                continue
            if parked.first.number != number:
                # What stood first has expired; another destination's may be older now.
                heapq.heappush(self._parked, (parked.first.number, parked))
                continue
            run = self.stale.take(parked)
            if self.stale.holds(parked):
                heapq.heappush(self._parked, (parked.first.number, parked))
            return run
        return None

    def next_waiting(self) -> Delivery | None:
        """Return the next delivery published meanwhile, or None if there is no more."""
        if not self._waiting:
            return None
        delivery = self._waiting.popleft()
        self._waiting_bytes -= delivery.size
        self.memory.give(delivery.size)
        return delivery

    def abandon(self) -> list[Delivery]:
        """Leave the parked messages to the next subscriber, and return the lost ones."""
        for _, parked in self._parked:
            self.stale.release(parked)
        self._parked.clear()
        lost = list(self._waiting)
        self.memory.give(self._waiting_bytes)
        self._waiting.clear()
        self._waiting_bytes = 0
        return lost
