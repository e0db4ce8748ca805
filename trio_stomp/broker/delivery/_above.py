"""The states that rooms above keep at destinations and subscriptions, as this room knows them.

A room that needs more of one tells it by its class, as in ``isinstance(destination.queue, Queue)``.
"""

from collections.abc import Collection
from typing import Protocol

from trio_stomp.broker.headers import SubscribeOptions


class AnyQueue(Protocol):
    """The queue of a destination: ``queues.Queue``."""

    @property
    def is_idle(self) -> bool:
        """Return whether nothing would be lost if it were forgotten."""


class AnyConsumer(Protocol):
    """The consumer of a subscription: ``queues.Consumer``."""

    ack: str
    options: SubscribeOptions

    @property
    def unacked(self) -> Collection[int]:
        """Return the numbers of the deliveries that it has not acknowledged."""
