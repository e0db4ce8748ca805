"""Events of clients that have to wait, kept in order and charged to memory."""

from typing import TYPE_CHECKING

from attrs import define

from trio_stomp.base import MemoryBudget
from trio_stomp.frames import FrameRun, head_cost
from trio_stomp.protocol import Acked, Committed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trio_stomp.broker.delivery import Client
    from trio_stomp.protocol import Event

EVENT_BYTES = 512
"""Bytes that an event takes, about; most take much less."""
ITEM_BYTES = 64
"""Bytes that a body, or the id in an ACK, takes beside its own."""


@define(eq=False, repr=False)
class DeferredEvents:
    """Keeps what was read of clients that wait. Nothing more is read of them meanwhile.

    It is charged apart from messages: it can become messages only when there is room for those.
    """

    memory: MemoryBudget

    def append(self, client: "Client", events: "Sequence[Event]", received_at: float) -> None:
        """Keep what has just been read, behind all that was kept before."""
        client.held.append((events, received_at, self._charge(events)))

    def put_back(self, client: "Client", events: "Sequence[Event]", received_at: float) -> None:
        """Keep what is left of something that was begun, ahead of all that was kept before."""
        client.held.insert(0, (events, received_at, self._charge(events)))

    def pop(self, client: "Client") -> "tuple[Sequence[Event], float]":
        """Take what is to be done next, and when it was received."""
        events, received_at, cost = client.held.pop(0)
        self.memory.held_bytes -= cost
        return events, received_at

    def _charge(self, events: "Sequence[Event]") -> int:
        cost = _cost_of(events)
        self.memory.held_bytes += cost
        return cost


def _cost_of(events: "Sequence[Event]") -> int:
    """Return the bytes that large events take, about, with head blocks as if none were shared."""
    cost = EVENT_BYTES * len(events)
    for event in events:
        if isinstance(event, FrameRun):
            bodies = event.bodies
            cost += head_cost(event.head) + sum(map(len, bodies)) + ITEM_BYTES * len(bodies)
        elif isinstance(event, Acked):
            cost += sum(map(len, event.ids)) + ITEM_BYTES * len(event.ids)
        elif isinstance(event, Committed):
            cost += _cost_of(event.actions)
    return cost
