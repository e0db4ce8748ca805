"""Shared state of a broker's outboxes: budget, limits, and the outboxes to be published."""

from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.base import noop
from trio_stomp.broker import Delivery, MemoryBudget
from trio_stomp.server._clock import Clock

if TYPE_CHECKING:
    from trio_stomp.server.io._outbox import Outbox

FREE_SHARE = 8
FED_AT_ONCE = 16
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
    starved: "dict[Outbox, None]" = field(factory=dict)
    """Outboxes whose sources wait for memory, not for their own peer. The first has waited
    longest."""
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

    def has_room_for(self, waiting_bytes: int) -> bool:
        """Return whether an outbox with ``waiting_bytes`` may get more from a source that can wait.

        Each may have an eighth of what is free, so something is always left for one more, however
        many peers do not read. The last tenth of the memory is for outboxes that are empty. Beyond
        the limit one goes on if no other has anything: what fills the memory may be what it gets.
        """
        memory = self.memory
        free = memory.limit_bytes * 9 // 10 - memory.charged_bytes
        if waiting_bytes:
            return waiting_bytes * FREE_SHARE < free
        return memory.used_bytes < memory.limit_bytes or not self.blocked

    def feed(self) -> None:
        """Let some of the sources go on that wait for memory, if there is some."""
        for outbox in list(islice(self.starved, FED_AT_ONCE)):
            if not self.has_room_for(outbox.waiting_bytes):
                return
            del self.starved[outbox]
            outbox.on_room()

    def __attrs_post_init__(self) -> None:
        self.strain_bytes = self.limit_bytes * 3 // 4
        self.low_water_bytes = min(LOW_WATER_BYTES, self.limit_bytes // 2)
        self.flood_bytes = self.limit_bytes + self.limit_bytes // 4
