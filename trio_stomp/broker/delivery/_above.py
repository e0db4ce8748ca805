"""Objects of higher rooms that destinations and subscriptions refer to, as protocols.

A room that needs more of one checks its class, as in ``isinstance(destination.queue, Queue)``.
"""

from collections.abc import Collection
from typing import Protocol

from trio_stomp.broker.headers import SubscribeOptions


class AnyQueue(Protocol):
    """The queue of a destination: ``queues.Queue``."""

    @property
    def is_idle(self) -> bool:
        """Return whether the queue has neither messages nor consumers."""


class AnyConsumer(Protocol):
    """The consumer of a subscription: ``queues.Consumer``."""

    ack: str
    options: SubscribeOptions

    @property
    def unacked(self) -> Collection[int]:
        """Return the numbers of its unacknowledged deliveries."""
