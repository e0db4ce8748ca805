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
class DropReporter:
    """Compares the counters of dropped messages with those of the last interval.

    Handles: drops that are too frequent for an event each.
    Does not handle: losses of slow subscribers, which the broker reports at once; expired messages.
    """

    _before: dict[str, int] = field(factory=dict)
    _reported_at: float = float("-inf")

    def report(self, server: "Server", lost_by_listeners: int, now: float) -> None:
        """Publish a ``drop`` event for each reason whose counter has grown.

        It names the destination that lost most, if the broker keeps a history of events.

        Args:
          server: The server.
          lost_by_listeners: The number of DIAG messages that slow subscribers lost.
          now: Seconds of the broker's clock.
        """
        statistics = server.broker.statistics()
        counters = {
            **with_server(statistics.messages.silent_drops, server),
            SLOW_LISTENER: lost_by_listeners,
            EVENTS_LOST: statistics.lost_events,
        }
        grown = {
            reason: dropped
            for reason, count in counters.items()
            if (dropped := count - self._before.get(reason, 0))
        }
        if grown:
            places = {**server.broker.losing(self._reported_at), SLOW_LISTENER: "DIAG"}
            for reason, dropped in grown.items():
                server.broker.record_drop(reason, dropped, places.get(reason, ""))
        self._before, self._reported_at = counters, now
