"""What of a long list is worth telling: what has changed, and once in a while everything."""

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, TypeVar

from attrs import define, field

if TYPE_CHECKING:
    from trio_stomp.broker import Broker, Route
    from trio_stomp.diag._records import Stage
    from trio_stomp.server import Connection

T = TypeVar("T", bound=Hashable)

Mark = tuple[object, ...]
"""Figures of a thing: it has changed if these have."""


@define(eq=False, repr=False)
class Changes:
    """Remembers what was told of the things of one list.

    Args:
      full_s: Everything is told as often as this, in seconds of the broker's clock.
    """

    full_s: float
    _marks: dict[Hashable, Mark] = field(factory=dict)
    _full_at: float = float("-inf")

    def select(
        self, things: Sequence[T], mark: Callable[[T], Mark], now: float
    ) -> tuple[list[T], bool]:
        """What is to be told of now, and whether that is everything."""
        before = self._marks
        # Rebuilt each time: what is gone must not be remembered for ever.
        self._marks = {thing: mark(thing) for thing in things}
        if now >= self._full_at:
            self._full_at = now + self.full_s
            return list(things), True
        return [each for each in things if before.get(each) != self._marks[each]], False


def connection_mark(connection: "Connection") -> Mark:
    """Changes with all that matters but the bytes of heart-beats."""
    client, outbox = connection.client, connection.outbox
    return (
        connection.frames_in,
        outbox.frames_out,
        len(client.subscriptions),
        connection.session.state,
        outbox.is_closed,
        connection.heartbeats_missed,
        outbox.waiting_bytes,
    )


def destination_mark(route: "Route", broker: "Broker") -> Mark:
    """Changes with every message, subscriber and loss."""
    queue = route.queue
    waiting = (0, 0, 0) if queue is None else (queue.depth, queue.unacked, queue.dequeued)
    current = broker.routes.known(route.name) or route
    return (
        route.enqueued,
        route.delivered,
        route.dropped,
        route.expired,
        len(current.subscribers),
        waiting,
    )


def stage_mark(stage: "Stage") -> Mark:
    """Changes with every observation."""
    return (stage.times.count,)
