"""Tells of messages that were thrown away: how many in an interval, for each reason."""

from typing import TYPE_CHECKING

from attrs import define, field

if TYPE_CHECKING:
    from trio_stomp.server import Server

INPUT_QUEUE_FULL = "input-queue-full"
NO_SUBSCRIBER = "no-subscriber"
STALE_QUEUE_FULL = "stale-queue-full"
BACKLOG_ABANDONED = "backlog-abandoned"
QUEUE_FULL = "queue-full"
BACKLOG_FULL = "backlog-full"
UNSENT = "unsent"
SLOW_LISTENER = "slow-consumer"
EVENTS_LOST = "too-many-events"
SCHEDULED = "scheduled"
DAMAGED = "damaged"
REVOKED = "revoked"
EXPIRED, OVERFLOW = "expired", "overflow"
"""Why messages die that are counted elsewhere: as expired, and as dropped by a full queue."""


def untold_drops(server: "Server") -> dict[str, int]:
    """Messages thrown away since the boot, for the reasons that nobody is told of as it happens."""
    broker = server.broker
    return {
        INPUT_QUEUE_FULL: server.inbox.dropped,
        NO_SUBSCRIBER: broker.fan_out.drops.no_subscriber,
        STALE_QUEUE_FULL: broker.stale.statistics.dropped,
        BACKLOG_ABANDONED: broker.fan_out.drops.backlog_abandoned,
        QUEUE_FULL: broker.overflow.dropped,
        BACKLOG_FULL: broker.bindings.dropped,
        UNSENT: server.outboxes.unsent,
        REVOKED: broker.authorizer.revoked,
    }


def all_drops(server: "Server") -> dict[str, int]:
    """Return the messages dropped since the boot, by reason, without those that expired.

    Each figure only grows.
    """
    broker = server.broker
    deaths, storage = broker.queues.deaths, broker.storage
    return {
        **untold_drops(server),
        SLOW_LISTENER: broker.fan_out.drops.slow_consumer,
        SCHEDULED: broker.scheduler.lost,
        DAMAGED: 0 if storage is None else storage.lost,
        **{
            death.value: count - deaths.kept[death]
            for death, count in deaths.buried.items()
            if death.value not in (EXPIRED, OVERFLOW)
        },
    }


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
        events = server.broker.events
        counters = {
            **untold_drops(server),
            SLOW_LISTENER: lost_by_listeners,
            EVENTS_LOST: events.lost,
        }
        for reason, count in counters.items():
            dropped = count - self._before.get(reason, 0)
            if dropped:
                destination = "DIAG" if reason == SLOW_LISTENER else ""
                events.tell("drop", destination=destination, reason=reason, detail=f"{dropped}")
        self._before = counters
