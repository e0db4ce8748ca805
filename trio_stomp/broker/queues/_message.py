"""A message of a queue, what it costs in memory, and why it may become a dead letter."""

from enum import Enum
from typing import TYPE_CHECKING

from attrs import define, field

from trio_stomp.base import MemoryBudget, Quota
from trio_stomp.broker.delivery import Publication
from trio_stomp.frames import Head, head_cost

if TYPE_CHECKING:
    from trio_stomp.broker.queues._consumer import Source

MESSAGE_OVERHEAD_BYTES = 256
"""Memory of a waiting message in addition to body and headers."""


class DeadLetterReason(Enum):
    """Reasons for a dead letter, as in its header ``x-death-reason``."""

    REJECTED = "rejected"
    DELIVERY_LIMIT = "delivery-limit"
    MAX_EXCEPTIONS = "max-exceptions"
    EXPIRED = "expired"
    OVERFLOW = "overflow"


@define(eq=False)
class Message:
    """One message of a queue, from its SEND to its ACK.

    Args:
      number: The position in the order of acceptance over all destinations.
      publication: Its origin, without bodies, so that one waiting message does not keep all bodies
        of its run in memory.
      level: The priority, 0 to 9.
      stored: The id in the store; 0 = in memory only.
      deliveries: The number of deliveries.
      failures: The number of failed deliveries: NACKed, timed out, or in process when the consumer
        was lost. Messages that were only prefetched do not fail.
    """

    number: int
    publication: Publication
    body: bytes
    level: int
    stored: int = 0
    deliveries: int = 0
    failures: int = 0
    source: "Source" = field(init=False)
    """Where it returns to unless its consumer acknowledges it. Set with each delivery."""

    @property
    def group(self) -> str:
        """Return the message group, or ""."""
        return self.publication.group


def charge(
    memory: MemoryBudget, head: Head, count: int, size: int, quota: Quota | None = None
) -> bool:
    """Charge messages with one header block.

    The block is charged once for all its waiting messages in any queue, and released with the last.

    Args:
      memory: The budget.
      head: The header block.
      count: The number of messages.
      size: The bytes of their bodies.
      quota: The quota of their sender.

    Returns:
      False if there is no room; then nothing is charged.
    """
    cost = size + MESSAGE_OVERHEAD_BYTES * count
    if head.waiting_count:
        if not memory.take_kept(cost, quota):
            return False
    else:
        if not memory.take_kept(cost + (head.cost or head_cost(head)), quota):
            return False
        head.payer = quota
    head.waiting_count += count
    return True


def force(
    memory: MemoryBudget, head: Head, count: int, size: int, quota: Quota | None = None
) -> None:
    """Charge messages as ``charge``, whether or not there is room."""
    cost = size + MESSAGE_OVERHEAD_BYTES * count
    if not head.waiting_count:
        cost += head.cost or head_cost(head)
        head.payer = quota
    head.waiting_count += count
    memory.force_kept(cost, quota)


def refund(
    memory: MemoryBudget, head: Head, count: int, size: int, quota: Quota | None = None
) -> None:
    """Undo ``charge`` or ``force`` for some messages."""
    head.waiting_count -= count
    if not head.waiting_count:
        memory.give_kept(head.cost, head.payer)
        head.payer = None
    memory.give_kept(size + MESSAGE_OVERHEAD_BYTES * count, quota)


def charge_again(memory: MemoryBudget, message: Message) -> None:
    """Undo the release of a message's charges, in memory and in the store."""
    origin, size = message.publication, len(message.body)
    force(memory, origin.head, 1, size, origin.quota)
    if (stake := origin.stake) is not None:
        memory.force_stored(size + stake.each, stake.quota)


def cost_of(messages: list[Message]) -> int:
    """Return the memory of messages that nothing else keeps."""
    heads = {message.publication.head for message in messages}
    bodies = sum(len(message.body) + MESSAGE_OVERHEAD_BYTES for message in messages)
    return bodies + sum(map(head_cost, heads))


def cost_alone(head: Head, count: int, size: int) -> int:
    """Return the most bytes that ``charge`` would charge."""
    return size + MESSAGE_OVERHEAD_BYTES * count + head_cost(head)
