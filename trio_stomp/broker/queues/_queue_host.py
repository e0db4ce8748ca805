"""What a queue needs of the core, and why its messages die."""

from contextlib import AbstractContextManager
from enum import Enum
from typing import TYPE_CHECKING, Protocol, TypeVar

from attrs import define, field

from trio_stomp.base import MemoryBudget
from trio_stomp.broker.delivery import Timers
from trio_stomp.broker.queues._message import Message, Paged

if TYPE_CHECKING:
    from trio_stomp.broker.queues._consumer import Consumer

QueueT = TypeVar("QueueT", contravariant=True)


class DeadLetterReason(Enum):
    """The reasons for which a message is dead: ``x-death-reason`` of its dead letter."""

    REJECTED = "rejected"
    DELIVERY_LIMIT = "delivery-limit"
    MAX_EXCEPTIONS = "max-exceptions"
    EXPIRED = "expired"
    OVERFLOW = "overflow"


@define(eq=False, repr=False)
class DeathCounters:
    """Counts of dead messages by reason, whether or not they became dead letters."""

    buried: dict[DeadLetterReason, int] = field(factory=lambda: dict.fromkeys(DeadLetterReason, 0))
    kept: dict[DeadLetterReason, int] = field(factory=lambda: dict.fromkeys(DeadLetterReason, 0))
    """Those of them that became dead letters."""
    lost: int = 0
    """Dead messages that were kept nowhere: by policy, or as there was no room."""


class QueueHost(Protocol[QueueT]):
    """The part of the core that a queue uses."""

    memory: MemoryBudget
    timers: Timers

    def mark(self, queue: QueueT) -> None:
        """Have ``queue`` pumped at the end of the turn."""

    def is_over(self) -> bool:
        """Return whether the time for handing out in this turn is up."""

    def note_quiet(self, queue: QueueT) -> None:
        """Note that a queue without consumers shrank: it may be idle."""

    def watch_acks(self, consumer: "Consumer", first: int, count: int, due: float) -> None:
        """Take deliveries back that have not been acknowledged by ``due``."""

    def bury(self, queue: QueueT, message: Message, death: DeadLetterReason, now: float) -> None:
        """Bury a dead message: to the dead letters, as policy says. It is no longer the queue's."""

    def note_delivered(
        self, queue: QueueT, consumer: "Consumer", first: int, messages: list[Message]
    ) -> None:
        """Messages went to a consumer, as deliveries from ``first`` on."""

    def finish(self, id: int) -> None:
        """Have the store forget a message."""

    def finish_all(self, ids: list[int]) -> None:
        """Have the store forget messages."""

    def hand_out(self, messages: list[Message]) -> None:
        """Have the store record that messages were delivered to a consumer."""

    def together(self) -> AbstractContextManager[None]:
        """Keep what the store is told inside as a whole, or not at all."""

    def page_in(self, queue: QueueT, level: int, paged: Paged) -> None:
        """Have messages loaded that are in the store alone."""
