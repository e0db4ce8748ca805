"""Held events of waiting clients, in order and charged to memory."""

from typing import TYPE_CHECKING

from attrs import define

from trio_stomp.base import MemoryBudget, RemoteError
from trio_stomp.broker.headers import add_origin
from trio_stomp.frames import FrameRun, head_cost
from trio_stomp.protocol import Acked, Committed, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trio_stomp.broker.delivery import Client
    from trio_stomp.protocol import Event

ROOM_S = 5.0
"""How long the SENDs of a client that has closed its half of the connection wait for room in a
queue. The connection waits longer for the broker."""
EVENT_BYTES = 512
"""Approximate bytes of an event. Most take much less."""
ITEM_BYTES = 64
"""Overhead of a body, or of the id in an ACK."""


@define(eq=False, repr=False)
class DeferredEvents:
    """Holds events of waiting clients. The broker does not read from these clients meanwhile.

    The charge is apart from messages, because held SENDs need room for messages to continue.
    """

    memory: MemoryBudget

    def append(self, client: "Client", events: "Sequence[Event]", received_at: float) -> None:
        """Hold new events, after those already held."""
        client.deferred.append((events, received_at, self._charge(events)))

    def put_back(self, client: "Client", events: "Sequence[Event]", received_at: float) -> None:
        """Hold the rest of events that were begun, before those already held."""
        client.deferred.insert(0, (events, received_at, self._charge(events)))

    def resume(
        self,
        client: "Client",
        carry_out: "Callable[[Client, Sequence[Event], float, float], None]",
        now: float,
    ) -> None:
        """Carry out a client's events until it must wait again."""
        client.is_blocked = False
        while client.deferred and not client.is_blocked:
            events, received_at = self.pop(client)
            carry_out(client, events, received_at, now)

    def pop(self, client: "Client") -> "tuple[Sequence[Event], float]":
        """Remove and return the next events, and the time when they were received."""
        events, received_at, cost = client.deferred.pop(0)
        self.memory.held_bytes -= cost
        return events, received_at

    def refused(self, client: "Client", full: RemoteError) -> RemoteError:
        """Remove the next events. Return their error: the one that ends the client, if any.

        Args:
          client: A client that is gone, and had waited for room in a queue.
          full: The error if there is no other.
        """
        held = [event for events, _, _ in client.deferred for event in events]
        error = next((event.error for event in held if isinstance(event, Refused)), full)
        add_origin(error, held[0])
        self.pop(client)
        return error

    def _charge(self, events: "Sequence[Event]") -> int:
        cost = _cost_of(events)
        self.memory.held_bytes += cost
        return cost


def _cost_of(events: "Sequence[Event]") -> int:
    """Return the approximate bytes of events, as if no header blocks were shared."""
    cost = EVENT_BYTES * len(events)
    for event in events:
        if isinstance(event, FrameRun):
            bodies = event.bodies
            cost += head_cost(event.head) + sum(map(len, bodies)) + ITEM_BYTES * len(bodies)
        elif isinstance(event, Acked):
            cost += sum(map(len, event.ids)) + ITEM_BYTES * len(event.ids)
        elif isinstance(event, Committed):
            cost += event.size or _cost_of(event.actions)
    return cost
