"""The items of an outbox: frames, and runs of MESSAGEs with their subscriber's prefix."""

from collections.abc import Iterable, Iterator

from trio_stomp.broker import Delivery
from trio_stomp.server.io._framing import BIG_TAIL_BYTES

Item = tuple[bytes, Delivery | None]
"""A prefix and a delivery; or one of the broker's own frames and None."""


def cost_of(prefix: bytes, delivery: Delivery | None) -> int:
    """Return the charge of an item, as when it was staged."""
    if delivery is None:
        return len(prefix)
    return delivery.size + delivery.count * len(prefix)


def is_bulk(item: Item) -> bool:
    """Return whether an item has large messages, which are not copied."""
    delivery = item[1]
    return delivery is not None and delivery.size >= delivery.count * BIG_TAIL_BYTES


def lose(items: Iterable[Item]) -> int:
    """Count items that will never be sent as dropped, and return the number of messages lost."""
    lost = 0
    for _, delivery in items:
        if delivery is not None:
            lost += lose_some(delivery, delivery.count)
    return lost


def lose_some(delivery: Delivery, count: int) -> int:
    """Count ``count`` messages of a delivery as dropped, unless they return to a queue."""
    if delivery.returns:
        return 0
    delivery.publication.destination.dropped += count
    return count


def cut_off(items: list[Item], unwritten: int) -> Iterator[tuple[Delivery, int]]:
    """Return the messages that a joined write lacks without its last ``unwritten`` bytes.

    Yields:
      Deliveries, and the number of their last messages; accurate to a few bytes where WebSocket
      headers or expired messages are in between.
    """
    for prefix, delivery in reversed(items):
        if unwritten <= 0:
            return
        if delivery is None:
            unwritten -= len(prefix)
            continue
        count = 0
        for tail in reversed(delivery.tails[1:]):
            if unwritten <= 0:
                break
            unwritten -= len(prefix) + len(tail)
            count += 1
        yield delivery, count
