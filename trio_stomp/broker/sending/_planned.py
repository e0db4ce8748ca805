"""What a transaction comes to: what is looked at before any of it is done."""

from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.base import MemoryBudget, Quota
from trio_stomp.broker.queues import MESSAGE_OVERHEAD_BYTES, Overflow, Queue, cost_alone
from trio_stomp.broker.routing import Foresight
from trio_stomp.broker.sending._to_queue import QueueSender
from trio_stomp.frames import FrameRun, Head, head_cost

if TYPE_CHECKING:
    from trio_stomp.broker.delivery import Destination
    from trio_stomp.broker.headers import SendPlan


@define(eq=False, repr=False)
class Put:
    """A run of a transaction, and the queues that it goes to.

    Args:
      parts: Where it goes, and its block there; queues first.
    """

    head: Head
    plan: "SendPlan"
    bodies: list[bytes]
    size: int
    queues: list[Queue] = field(factory=list)
    parts: "list[tuple[Destination, Head]]" = field(factory=list)

    @property
    def later(self) -> int:
        """Return how many messages wait for their time."""
        return len(self.bodies) if self.plan.schedule is not None else 0

    @property
    def cost(self) -> int:
        """The most bytes that it will be charged for where it waits."""
        if self.later:
            return cost_alone(self.head, len(self.bodies), self.size)
        if not self.queues:
            return 0
        each = self.size + MESSAGE_OVERHEAD_BYTES * len(self.bodies)
        heads = sum(head_cost(head) for head in self.plan.renamed or (self.head,))
        return len(self.queues) * each + heads

    def release(self, memory: MemoryBudget, quota: Quota | None) -> None:
        """Let go of the room that was kept for it: it is put there now, or never will be."""
        memory.give_kept(self.cost, quota)
        if quota is not None:
            quota.scheduled -= self.later
        for queue in self.queues:
            queue.unexpect(len(self.bodies), self.size)


@define(eq=False, repr=False)
class Planned:
    """The sums of a transaction's actions."""

    foresight: Foresight
    names: dict[str, None] = field(factory=dict)
    topics: dict[str, None] = field(factory=dict)
    """Those of them that have subscribers, who are given it bit by bit."""
    wanted: dict[Queue, tuple[int, int, int]] = field(factory=dict)
    """Messages, bytes of their bodies, and of the largest one, for each queue."""
    heads: dict[Head, None] = field(factory=dict)
    puts: list[Put] = field(factory=list)
    later: int = 0
    """What its scheduled messages cost."""
    scheduled: str = ""
    """Where one of those goes."""
    runs_later: list[FrameRun] = field(factory=list)
    """Those messages."""
    ids: int = 0
    """Bytes of the ids of messages that must not be taken twice."""
    copies: int = 0
    """How much it is to carry out."""
    survives: bool = False
    """The store is told of it, so all of it goes there."""
    stored: int = 0
    """The most that its messages are charged for there."""
    is_long: bool = False
    """It sends so much that it is written bit by bit, if it survives."""

    def check_room(self, overflow: Overflow, to_queues: QueueSender, quota: Quota | None) -> None:
        """Refuse it if it does not fit everywhere.

        Raises:
          ProtocolError: it does not.
        """
        charged = sum(head_cost(head) for head in self.heads if not head.kept)
        each = to_queues.stored_each(quota, self.heads) if self.survives else 0
        self.stored = overflow.check(
            self.wanted, charged, later=self.later, name=self.scheduled, quota=quota, each=each
        )

    def is_large(self) -> bool:
        """Return whether a run of it goes to very many by now, who came while it was planned."""
        return any(
            destination.is_large(len(put.bodies))
            for put in self.puts
            for destination, _ in put.parts
        )
