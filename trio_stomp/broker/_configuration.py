"""Applying policies and options to destinations."""

from typing import TYPE_CHECKING

from attrs import define

from trio_stomp.broker.names import Kind
from trio_stomp.broker.queues import Queue, QueueBook
from trio_stomp.broker.topics import Binding

if TYPE_CHECKING:
    from trio_stomp.broker.delivery import BrokerPolicies, Destination, Work
    from trio_stomp.broker.routing import Destinations
    from trio_stomp.broker.streams import Streams
    from trio_stomp.broker.topics import Bindings

STEP = 8
"""Destinations configured in one piece of work."""


@define(eq=False, repr=False)
class Configurator:
    """Applies policies and options to destinations.

    Args:
      policies: Limits and policies of the whole broker.
      queues: Has the policies of destinations.
      streams: Opens the streams of topics.
    """

    policies: "BrokerPolicies"
    queues: QueueBook
    streams: "Streams"

    def configure(self, destination: "Destination") -> None:
        """Apply policy and options to a destination, at its creation and when policies change."""
        book = self.queues.policies
        policy = book.policy_for(destination.name)
        is_named = policy is not book.default
        ttl_ms = policy.ttl_ms
        if not ttl_ms and destination.kind in (Kind.TOPIC, Kind.WORK):
            ttl_ms = self.policies.ttl_ms
        destination.ttl_s = ttl_ms / 1000
        destination.retain = policy.retain
        destination.slow_consumer = policy.slow_consumer if is_named else ""
        is_queue = destination.kind is Kind.QUEUE and not is_named
        destination.persistent = self.policies.persistent if is_queue else policy.persistent
        if destination.kind is Kind.TOPIC and not destination.private:
            destination.stream = (
                self.streams.of_topic(destination.name, policy) if policy.stream else None
            )
        if isinstance(destination.queue, Queue):
            destination.queue.configure(policy)

    def configuring(self, destinations: "Destinations", bindings: "Bindings") -> "Work":
        """Apply policies to all existing destinations and bindings, in pieces."""
        for index, destination in enumerate(list(destinations)):
            if destinations.has(destination):
                self.configure(destination)
                for binding in destination.exact:
                    if isinstance(binding, Binding):
                        self._configure_feed(binding)
            if index % STEP == STEP - 1:
                yield
        for index, binding in enumerate(list(bindings.durables)):
            self._configure_feed(binding)
            if index % STEP == STEP - 1:
                yield

    def _configure_feed(self, binding: Binding) -> None:
        queue = binding.queue
        queue.configure(self.queues.policies.policy_for(queue.destination.name))
