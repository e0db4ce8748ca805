"""The part of the core that a queue uses, and the reasons for dead letters."""

from contextlib import AbstractContextManager
from enum import Enum
from typing import TYPE_CHECKING, Protocol, TypeVar

from attrs import define, field

from trio_stomp.base import MemoryBudget
from trio_stomp.broker.delivery import Timers, Work
from trio_stomp.broker.queues._message import Message, Paged

if TYPE_CHECKING:
    from trio_stomp.broker.queues._consumer import Consumer

QueueT = TypeVar("QueueT", contravariant=True)


class DeadLetterReason(Enum):
    """Reasons for a dead letter, as in its header ``x-death-reason``."""

    REJECTED = "rejected"
    DELIVERY_LIMIT = "delivery-limit"
    MAX_EXCEPTIONS = "max-exceptions"
    EXPIRED = "expired"
    OVERFLOW = "overflow"


@define(eq=False, repr=False)
class DeadLetterCounts:
    """Counts of messages that failed, expired or found no room, by reason."""

    failed: dict[DeadLetterReason, int] = field(factory=lambda: dict.fromkeys(DeadLetterReason, 0))
    moved: dict[DeadLetterReason, int] = field(factory=lambda: dict.fromkeys(DeadLetterReason, 0))
    """Messages that became dead letters."""
    lost: int = 0
    """Messages that did not become dead letters, by policy or for lack of room."""


class QueueHost(Protocol[QueueT]):
    """The part of the core that a queue uses."""

    memory: MemoryBudget
    timers: Timers

    def mark(self, queue: QueueT) -> None:
        """Schedule the hand-out of ``queue`` at the end of the turn."""

    def carry_out(self, work: Work) -> None:
        """Do a work that is no client's, in later turns if there is no time."""

    def is_over(self) -> bool:
        """Return whether the time for handing out in this turn is up."""

    def note_idle(self, queue: QueueT) -> None:
        """Note that a queue without consumers shrank: it may be idle."""

    def watch_acks(self, consumer: "Consumer", first: int, count: int, due: float) -> None:
        """Time out deliveries that are not acknowledged by ``due``."""

    def dead_letter(
        self, queue: QueueT, message: Message, reason: DeadLetterReason, now: float
    ) -> None:
        """Make a message that left ``queue`` a dead letter, if its policy says so."""

    def note_delivered(
        self, queue: QueueT, consumer: "Consumer", first: int, messages: list[Message]
    ) -> None:
        """Record deliveries to a consumer, numbered from ``first``."""

    def finish(self, id: int) -> None:
        """Record the end of a message in the store."""

    def finish_all(self, ids: list[int]) -> None:
        """Record the end of messages in the store."""

    def hand_out(self, messages: list[Message]) -> None:
        """Record deliveries of messages in the store."""

    def atomically(self) -> AbstractContextManager[None]:
        """Return a context whose records are stored all or none."""

    def page_in(self, queue: QueueT, level: int, paged: Paged) -> None:
        """Start loading paged messages."""
