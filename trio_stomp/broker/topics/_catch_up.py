"""What one subscription gets before it is like any other."""

from collections import deque

from attrs import define, field

from trio_stomp.base import MemoryBudget
from trio_stomp.broker.delivery import Delivery, Work
from trio_stomp.broker.topics._claim import Claim


@define(eq=False, repr=False)
class CatchUp:
    """Earlier messages that a subscription is being given, and later ones that wait behind them.

    Args:
      claim: To parked messages.
      memory: Charged for what waits.
      max_waiting_bytes: Bound of what waits.
    """

    claim: Claim
    memory: MemoryBudget
    max_waiting_bytes: int
    steps: Work = field(init=False)
    """What is left to be done. It ends when the subscription has caught up."""
    is_giving: bool = False
    """Whether its next step gives messages, so that the client must have room."""
    _waiting: deque[Delivery] = field(factory=deque)
    _waiting_bytes: int = 0

    @property
    def is_followed(self) -> bool:
        """Return whether later messages wait."""
        return bool(self._waiting)

    def follow(self, delivery: Delivery) -> bool:
        """Keep what was published meanwhile, or return False and keep nothing if it is too much."""
        waiting = self._waiting_bytes + delivery.size
        if waiting > self.max_waiting_bytes or not self.memory.take(delivery.size):
            return False
        self._waiting_bytes = waiting
        self._waiting.append(delivery)
        return True

    def next_waiting(self) -> Delivery | None:
        """Return the next delivery published meanwhile, or None if there is no more."""
        if not self._waiting:
            return None
        delivery = self._waiting.popleft()
        self._waiting_bytes -= delivery.size
        self.memory.give(delivery.size)
        return delivery
