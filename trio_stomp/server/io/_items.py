"""The items of an outbox: frames, and runs of MESSAGEs with their subscriber's prefix.

``join`` and ``pieces_of`` make the bytes of the items to be written now. Both process the items in
order, drop expired runs and report them to ``expire``, and record the latency of the others in the
destinations' statistics.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

from trio_stomp.broker import Delivery
from trio_stomp.server.io._framing import BIG_TAIL_BYTES, Framing, cut

Item = tuple[bytes, Delivery | None]
"""A prefix and a delivery; or one of the broker's own frames and None."""
Expire = Callable[[Delivery], None]


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


def join(
    items: Sequence[Item], framing: Framing | None, now: float, expire: Expire
) -> tuple[bytes, int]:
    """Return the bytes of items, and the number of their MESSAGEs."""
    parts: list[bytes] = []
    frames = 0
    for prefix, delivery in items:
        if delivery is None:
            parts.append(prefix)
            continue
        publication = delivery.publication
        if publication.expires_at <= now and publication.is_over(now):
            expire(delivery)
            continue
        frames += delivery.count
        if delivery.observed_at != now:
            _observe(delivery, now)
        if framing is None:
            parts.append(prefix.join(delivery.tails))
        else:
            parts.append(framing.run(prefix, delivery))
    return parts[0] if len(parts) == 1 else b"".join(parts), frames


def pieces_of(
    items: Sequence[Item], framing: Framing | None, now: float, expire: Expire
) -> tuple[Iterator[bytes], int]:
    """Do as ``join``, but return pieces, with large parts as they are."""
    runs: list[Iterable[bytes]] = []
    frames = 0
    for prefix, delivery in items:
        if delivery is None:
            runs.append((prefix,))
        elif delivery.publication.is_over(now):
            expire(delivery)
        else:
            frames += delivery.count
            _observe(delivery, now)
            if framing is None:
                runs.append(cut(prefix, delivery.tails))
            else:
                runs.append(framing.pieces(prefix, delivery))
    return chain.from_iterable(runs), frames


def _observe(delivery: Delivery, now: float) -> None:
    """Record the latency: one sample for each write, so one for a whole turn."""
    delivery.observed_at = now
    publication = delivery.publication
    publication.destination.observe_delivery(now - publication.received_at, delivery.count)
