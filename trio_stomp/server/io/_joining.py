"""The bytes of the items to be written now.

Both functions process the items in order, drop expired runs and report them to ``expire``, and
record the latency of the others in the destinations' statistics.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

from trio_stomp.broker import Delivery
from trio_stomp.server.io._framing import Framing, cut
from trio_stomp.server.io._items import Item

Expire = Callable[[Delivery], None]


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
