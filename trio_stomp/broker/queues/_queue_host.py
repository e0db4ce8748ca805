"""The part of the core that a queue uses, and the counts and header blocks of dead letters."""

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol, TypeVar

from attrs import define, field

from trio_stomp.base import MemoryBudget
from trio_stomp.broker.delivery import Timers, Turns, Work
from trio_stomp.broker.headers import PLAIN_SEND
from trio_stomp.broker.queues._message import DeadLetterReason, Message
from trio_stomp.frames import TEXT, Head

if TYPE_CHECKING:
    from trio_stomp.broker.queues._consumer import Consumer

QueueT = TypeVar("QueueT", contravariant=True)


@define(eq=False, repr=False)
class DeadLetterCounts:
    """Counts of messages that failed, expired or found no room, by reason."""

    failed: dict[DeadLetterReason, int] = field(factory=lambda: dict.fromkeys(DeadLetterReason, 0))
    moved: dict[DeadLetterReason, int] = field(factory=lambda: dict.fromkeys(DeadLetterReason, 0))
    """Messages that became dead letters."""
    lost: int = 0
    """Messages that did not become dead letters, by policy or for lack of room."""


class Pages(Protocol[QueueT]):
    """Reads the messages of queues that are in the store only."""

    def look_ahead(self, queue: QueueT) -> None:
        """Start reading messages that will be needed soon."""

    def end(self, queue: QueueT) -> None:
        """Free the page that consumers examine, if any. It can be read again."""

    def take(self, queue: QueueT, message: Message) -> None:
        """Take a message of that page from among those left in the store."""

    def remove(self, queue: QueueT, level: int, messages: list[Message]) -> None:
        """Remove messages that were read from the store and not loaded."""

    def page_back(self, queue: QueueT, message: Message) -> bool:
        """Return a message to those left in the store, if it is such. Return whether it is."""

    def watch_expired(self, queue: QueueT, now: float) -> None:
        """Load messages that may have expired in the store, or sweep when the first does."""

    def sweep(self, queue: QueueT, now: float) -> None:
        """Look for messages that have expired in the store behind others that stay in memory."""

    def note_end(self, queue: QueueT, messages: list[Message]) -> None:
        """Note that messages ended, some of which may be such."""


class QueueHost(Protocol[QueueT]):
    """The part of the core that a queue uses."""

    memory: MemoryBudget
    timers: Timers
    turns: Turns

    @property
    def pages(self) -> "Pages[QueueT]":
        """Return what reads stored messages. There is a store."""

    def mark(self, queue: QueueT) -> None:
        """Schedule the hand-out of ``queue`` at the end of the turn."""

    def want(self, consumer: "Consumer", behind: QueueT | None = None) -> None:
        """Schedule the hand-out of the queues of ``consumer``, in turn.

        ``behind`` is scheduled, too, if the consumer is not ready before its turn comes.
        """

    def shorten(self, queue: QueueT, now: float, kept: int = 0) -> None:
        """Drop old messages of a queue beyond its limits, by its policy, but keep some."""

    def carry_out(self, work: Work) -> None:
        """Do a work that is no client's, in later turns if there is no time."""

    def note_idle(self, queue: QueueT) -> None:
        """Note that a queue without consumers shrank: it may be idle."""

    def watch_acks(self, consumer: "Consumer", first: int, count: int, due: float) -> None:
        """Time out deliveries that are not acknowledged by ``due``."""

    def dead_letter(
        self, queue: QueueT, message: Message, reason: DeadLetterReason, now: float
    ) -> bool:
        """Make a message that left ``queue`` a dead letter, by policy. Return whether it is one."""

    def note_delivered(
        self, queue: QueueT, consumer: "Consumer", first: int, messages: list[Message]
    ) -> None:
        """Record deliveries to a consumer, numbered from ``first``."""

    def finish(self, ids: list[int]) -> None:
        """Record the end of messages in the store."""

    def hand_out(self, messages: list[Message]) -> None:
        """Record deliveries of messages in the store."""

    def atomically(self) -> AbstractContextManager[None]:
        """Return a context whose records are stored all or none."""


MAX_HOPS = 16
"""How often in a row a message may be dead-lettered by expiry or overflow before it is lost."""
_UNTOUCHED = (DeadLetterReason.EXPIRED, DeadLetterReason.OVERFLOW)
_UNTOUCHED_NAMES = tuple(reason.value for reason in _UNTOUCHED)


def hops_of(message: Message, reason: DeadLetterReason) -> int:
    """Return how often in a row a message was dead-lettered by expiry or overflow, now included."""
    if reason not in _UNTOUCHED:
        return 0
    headers = dict(message.publication.head.headers)
    if headers.get("x-death-reason") not in _UNTOUCHED_NAMES:
        return 1
    return int(headers.get("x-death-hops", "1")) + 1


def dead_head(
    message: Message, source: tuple[str, str], reason: DeadLetterReason, name: str, hops: int
) -> Head:
    """Return the header block of a dead letter: the message's own with the reason added.

    Args:
      message: The dead message.
      source: The name of its queue, and that of the queue's destination.
      reason: The reason of its death.
      name: The dead-letter destination.
      hops: How often in a row it was dead-lettered by expiry or overflow, from ``hops_of``.
    """
    old = message.publication.head
    headers = dict(old.headers)
    first = {
        "original-destination": headers.get("original-destination", old.destination or source[0]),
        "x-first-death-queue": headers.get("x-first-death-queue", source[1]),
        "x-first-death-reason": headers.get("x-first-death-reason", reason.value),
    }
    # If a client forwards it to its origin, it must not expire or count as a duplicate.
    options = message.publication.options or PLAIN_SEND
    for header in ("content-length", *options.once):
        headers.pop(header, None)
    headers.pop("x-death-hops", None)
    if hops > 1:
        headers["x-death-hops"] = f"{hops}"
    headers |= first
    headers |= {"x-death-reason": reason.value, "x-death-count": f"{message.deliveries}"}
    headers["destination"] = name
    length = TEXT if old.content_length == TEXT else len(message.body)
    return Head(old.command, tuple(headers.items()), length, name)
