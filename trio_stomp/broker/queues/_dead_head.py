"""Header blocks of dead letters, and the limit that ends loops of dead letters."""

from trio_stomp.broker.headers import DEDUP_HEADERS
from trio_stomp.broker.queues._message import Message
from trio_stomp.broker.queues._queue import Queue
from trio_stomp.broker.queues._queue_host import DeadLetterReason
from trio_stomp.frames import Head

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
    message: Message, queue: Queue, reason: DeadLetterReason, name: str, hops: int
) -> Head:
    """Return the header block of a dead letter: the message's own with the reason added.

    Args:
      message: The dead message.
      queue: Its queue.
      reason: The reason of its death.
      name: The dead-letter destination.
      hops: How often in a row it was dead-lettered by expiry or overflow, from ``hops_of``.
    """
    old = message.publication.head
    headers = dict(old.headers)
    first = {
        "original-destination": headers.get("original-destination", old.destination or queue.name),
        "x-first-death-queue": headers.get("x-first-death-queue", queue.destination.name),
        "x-first-death-reason": headers.get("x-first-death-reason", reason.value),
    }
    # If a client forwards it to its origin, it must not expire or count as a duplicate.
    for header in ("expires", "expiration", "ttl", "content-length", *DEDUP_HEADERS):
        headers.pop(header, None)
    headers.pop("x-death-hops", None)
    if hops > 1:
        headers["x-death-hops"] = f"{hops}"
    headers |= first
    headers |= {"x-death-reason": reason.value, "x-death-count": f"{message.deliveries}"}
    headers["destination"] = name
    return Head(old.command, tuple(headers.items()), len(message.body), name)
