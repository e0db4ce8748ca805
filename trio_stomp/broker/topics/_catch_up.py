"""Catching up: earlier messages for a new subscription, and later ones behind them."""

from collections import deque

from attrs import define, field

from trio_stomp.base import MemoryBudget
from trio_stomp.broker.delivery import Delivery, Work
from trio_stomp.broker.topics._claim import Claim


@define(eq=False, repr=False)
class CatchUp:
    """The initial delivery to a plain subscription, and a bounded backlog behind it.

    Args:
      claim: Its claim to parked messages.
      memory: Charged for the backlog.
      max_waiting_bytes: The limit of the backlog.
    """

    claim: Claim
    memory: MemoryBudget
    max_waiting_bytes: int
    steps: Work = field(init=False)
    """The remaining steps. The last one ends the catch-up."""
    is_giving: bool = False
    """Whether the next step stages messages, which needs room in the outbox."""
    _waiting: deque[Delivery] = field(factory=deque)
    _waiting_bytes: int = 0

    @property
    def is_followed(self) -> bool:
        """Return whether the backlog holds deliveries."""
        return bool(self._waiting)

    def follow(self, delivery: Delivery) -> bool:
        """Append a delivery to the backlog. Return False if it exceeds the limit or memory."""
        waiting = self._waiting_bytes + delivery.size
        if waiting > self.max_waiting_bytes or not self.memory.take(delivery.size):
            return False
        self._waiting_bytes = waiting
        self._waiting.append(delivery)
        return True

    def next_waiting(self) -> Delivery | None:
        """Remove and return the backlog's oldest delivery, or None."""
        if not self._waiting:
            return None
        delivery = self._waiting.popleft()
        self._waiting_bytes -= delivery.size
        self.memory.give(delivery.size)
        return delivery
