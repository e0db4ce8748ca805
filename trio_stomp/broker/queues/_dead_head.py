"""The header block of a dead letter, and the end of circles of dead letters."""

from trio_stomp.broker.headers import DEDUP_HEADERS
from trio_stomp.broker.queues._message import Message
from trio_stomp.broker.queues._queue import Queue
from trio_stomp.broker.queues._queue_host import DeadLetterReason
from trio_stomp.frames import Head

MAX_HOPS = 16
"""Times in a row that a message becomes a dead letter by expiry or overflow; then it is lost."""
_UNTOUCHED = (DeadLetterReason.EXPIRED, DeadLetterReason.OVERFLOW)
_UNTOUCHED_NAMES = tuple(death.value for death in _UNTOUCHED)


def hops_of(message: Message, death: DeadLetterReason) -> int:
    """Return how many times in a row a message has died without a consumer's part in it."""
    if death not in _UNTOUCHED:
        return 0
    told = dict(message.publication.head.headers)
    if told.get("x-death-reason") not in _UNTOUCHED_NAMES:
        return 1
    return int(told.get("x-death-hops", "1")) + 1


def dead_head(
    message: Message, queue: Queue, death: DeadLetterReason, name: str, hops: int
) -> Head:
    """Return the header block of a dead letter: the message's own, and why it is here."""
    old = message.publication.head
    told = dict(old.headers)
    first = {
        "original-destination": told.get("original-destination", old.destination or queue.name),
        "x-first-death-queue": told.get("x-first-death-queue", queue.destination.name),
        "x-first-death-reason": told.get("x-first-death-reason", death.value),
    }
    # A client that forwards it to its origin must not count as its first sender.
    for header in ("expires", "expiration", "ttl", "content-length", *DEDUP_HEADERS):
        told.pop(header, None)
    told.pop("x-death-hops", None)
    if hops > 1:
        told["x-death-hops"] = f"{hops}"
    told |= first
    told |= {"x-death-reason": death.value, "x-death-count": f"{message.deliveries}"}
    told["destination"] = name
    return Head(old.command, tuple(told.items()), len(message.body), name)
