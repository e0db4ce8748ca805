"""What a queue needs of the core, and why its messages die."""

from contextlib import AbstractContextManager
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from trio_stomp.base import MemoryBudget
from trio_stomp.broker.delivery import Timers
from trio_stomp.broker.queues._message import Message, Paged

if TYPE_CHECKING:
    from trio_stomp.broker.queues._consumer import Consumer
    from trio_stomp.broker.queues._queue import Queue


class DeadLetterReason(Enum):
    """Why a message is dead; the ``x-death-reason`` of its dead letter."""

    REJECTED = "rejected"
    DELIVERY_LIMIT = "delivery-limit"
    MAX_EXCEPTIONS = "max-exceptions"
    EXPIRED = "expired"
    OVERFLOW = "overflow"


class QueueHost(Protocol):
    """What a queue needs of the core."""

    memory: MemoryBudget
    timers: Timers

    def mark(self, queue: "Queue") -> None:
        """Have ``queue`` pumped at the end of the turn."""

    def is_over(self) -> bool:
        """Whether the time is up that handing out may take in this turn."""

    def note_quiet(self, queue: "Queue") -> None:
        """A queue without consumers has less in it: it may be idle."""

    def watch_acks(self, consumer: "Consumer", first: int, count: int, due: float) -> None:
        """Take deliveries back that have not been acknowledged by ``due``."""

    def bury(self, queue: "Queue", message: Message, death: DeadLetterReason, now: float) -> None:
        """A message is dead: to the dead letters, as policy says; it is no longer the queue's."""

    def note_delivered(
        self, queue: "Queue", consumer: "Consumer", first: int, messages: list[Message]
    ) -> None:
        """Messages went to a consumer, as deliveries from ``first`` on."""

    def finish(self, id: int) -> None:
        """The store may forget a message."""

    def finish_all(self, ids: list[int]) -> None:
        """The store may forget messages."""

    def hand_out(self, messages: list[Message]) -> None:
        """The store is to remember that messages are with a consumer."""

    def together(self) -> AbstractContextManager[None]:
        """What the store is told inside holds as a whole, or not at all."""

    def page_in(self, queue: "Queue", level: int, paged: Paged) -> None:
        """Have messages loaded that are in the store alone."""
