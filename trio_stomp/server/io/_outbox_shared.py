"""Shared state of a broker's outboxes: budget, limits, and the outboxes to be published."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.base import noop
from trio_stomp.broker import Delivery, MemoryBudget
from trio_stomp.server._clock import Clock

if TYPE_CHECKING:
    from trio_stomp.server.io._outbox import Outbox

LOW_WATER_BYTES = 256 * 1024
"""Below this, or half of the limit, a source that can wait gives more."""


@define(eq=False, repr=False)
class OutboxShared:
    """The values that all outboxes of a broker share.

    Args:
      memory: The budget for queued output.
      limit_bytes: Maximum number of bytes queued for one connection.
      clock: Gives the time for the expiry of messages.
      on_unsent: Called with messages that expired here although their consumer must ACK them.
      dirty: The outboxes that the current turn staged to; the dispatcher publishes them.
    """

    memory: MemoryBudget
    limit_bytes: int
    websocket_frames: str = "auto"
    on_unsent: Callable[[Delivery], None] = noop
    clock: Clock = field(factory=Clock)
    dirty: "list[Outbox]" = field(factory=list)
    touched: "set[Outbox]" = field(factory=set)
    """Open connections with input or output since the last statistics. Heart-beats do not count."""
    blocked: "set[Outbox]" = field(factory=set)
    """Outboxes with waiting output for their writers."""
    strained: int = 0
    """Number of times that a stage found an outbox more than three quarters full."""
    expired: int = 0
    unsent: int = 0
    """Number of messages that were lost because they still waited when their connection ended."""
    strain_bytes: int = field(init=False)
    low_water_bytes: int = field(init=False)
    flood_bytes: int = field(init=False)
    """Only a peer that requests answers and does not read them has a larger backlog."""

    def is_strained(self) -> bool:
        """Return whether an outbox is more than three quarters full."""
        return any(each.waiting_bytes > self.strain_bytes for each in self.blocked)

    def __attrs_post_init__(self) -> None:
        self.strain_bytes = self.limit_bytes * 3 // 4
        self.low_water_bytes = min(LOW_WATER_BYTES, self.limit_bytes // 2)
        self.flood_bytes = self.limit_bytes + self.limit_bytes // 4
