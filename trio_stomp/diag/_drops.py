"""Tells of messages that were thrown away: how many in an interval, for each reason."""

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
    """Compares the counters of what was dropped with those of the last interval.

    Handles: drops that nobody is told of when they happen, for they would be told per message.
    Does not handle: what a slow subscriber loses, which the broker tells at once; expired messages.
    """

    _before: dict[str, int] = field(factory=dict)

    def tell(self, server: "Server", lost_by_listeners: int) -> None:
        """Tell one ``drop`` event for each reason for which a counter has grown.

        Args:
          server: The server.
          lost_by_listeners: Copies of DIAG messages that too slow subscribers did not get.
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
                server.broker.tell_drop(reason, dropped, destination)
        self._before = counters
