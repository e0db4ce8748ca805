"""Claims: parked messages that are reserved for one subscription."""

import heapq
from collections.abc import Sequence

from attrs import define, field

from trio_stomp.broker.delivery import Target, Work
from trio_stomp.broker.topics._stale import ParkedDestination, ParkedRun, StaleQueue


@define(eq=False, repr=False)
class Claim:
    """Reserves parked messages for one subscription.

    They leave the stale queue only as fast as the subscription takes them. Until then they may
    expire.
    """

    stale: StaleQueue
    is_over: bool = False
    """Whether other subscriptions may claim the rest."""
    _parked: list[tuple[int, ParkedDestination]] = field(factory=list)
    """A heap of the destinations, by the number of their first run: the oldest one on top."""

    def gather(self, targets: Sequence[Target]) -> Work:
        """Claim the parked messages at ``targets`` that no other subscription has claimed."""
        for name, pattern in targets:
            for parked in self.stale.matching(name, pattern):
                if parked is not None and parked.claim is None:
                    parked.claim = self
                    heapq.heappush(self._parked, (parked.first.number, parked))
                yield

    @property
    def is_empty(self) -> bool:
        """Return whether nothing is left."""
        return not self._parked

    def next_run(self, now: float) -> ParkedRun | None:
        """Remove and return the oldest run, or return None if it has expired."""
        number, parked = heapq.heappop(self._parked)
        run = None
        if self.stale.refresh(parked, now) and parked.first.number == number:
            run = self.stale.take(parked)
        # If the first run has expired, another destination's may be older now.
        if self.stale.holds(parked):
            heapq.heappush(self._parked, (parked.first.number, parked))
        return run

    def end(self) -> None:
        """Release the rest for other subscriptions."""
        self.is_over = True
        self._parked.clear()
