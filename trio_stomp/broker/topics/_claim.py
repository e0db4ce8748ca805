"""The parked messages that one subscription is given."""

import heapq
from collections.abc import Sequence

from attrs import define, field

from trio_stomp.broker.delivery import Place, Work
from trio_stomp.broker.topics._stale import ParkedDestination, ParkedRun, StaleQueue


@define(eq=False, repr=False)
class Claim:
    """Takes parked messages out of the stale queue, for one subscription alone.

    They leave the queue only as fast as the subscription takes them; until then they may expire.
    """

    stale: StaleQueue
    is_over: bool = False
    """Whether the rest is for the next subscription."""
    _parked: list[tuple[int, ParkedDestination]] = field(factory=list)
    """A heap: the destination whose first run was parked first comes first."""

    def gather(self, places: Sequence[Place]) -> Work:
        """Claim what is parked at the places and promised to nobody else."""
        for name, pattern in places:
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
        """Take out the oldest run, or return None if it has expired."""
        number, parked = heapq.heappop(self._parked)
        run = None
        if self.stale.refresh(parked, now) and parked.first.number == number:
            run = self.stale.take(parked)
        # If the first run has expired, another destination's may be older now.
        if self.stale.holds(parked):
            heapq.heappush(self._parked, (parked.first.number, parked))
        return run

    def end(self) -> None:
        """Leave the rest to the next subscription."""
        self.is_over = True
        self._parked.clear()
