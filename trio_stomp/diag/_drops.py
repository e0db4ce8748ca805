"""Reports the number of dropped messages in each interval, by reason."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from attrs import define, field

if TYPE_CHECKING:
    from trio_stomp.server import Server

INPUT_QUEUE_FULL, UNSENT = "input-queue-full", "unsent"
SLOW_LISTENER, EVENTS_LOST = "slow-consumer", "too-many-events"


def with_server(drops: Mapping[str, int], server: "Server") -> dict[str, int]:
    """Return the broker's dropped messages, by reason, and those that the server dropped."""
    return {INPUT_QUEUE_FULL: server.inbox.dropped, **drops, UNSENT: server.outboxes.unsent}


@define(eq=False)
class DropTeller:
    """Compares the counters of dropped messages with those of the last interval.

    Handles: drops that are too frequent for an event each.
    Does not handle: losses of slow subscribers, which the broker reports at once; expired messages.
    """

    _before: dict[str, int] = field(factory=dict)

    def tell(self, server: "Server", lost_by_listeners: int) -> None:
        """Publish a ``drop`` event for each reason whose counter has grown.

        Args:
          server: The server.
          lost_by_listeners: The number of DIAG messages that slow subscribers lost.
        """
        statistics = server.broker.statistics()
        counters = {
            **with_server(statistics.messages.silent_drops, server),
            SLOW_LISTENER: lost_by_listeners,
            EVENTS_LOST: statistics.lost_events,
        }
        for reason, count in counters.items():
            dropped = count - self._before.get(reason, 0)
            if dropped:
                destination = "DIAG" if reason == SLOW_LISTENER else ""
                server.broker.record_drop(reason, dropped, destination)
        self._before = counters
