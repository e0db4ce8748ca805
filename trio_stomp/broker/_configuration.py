"""Applying policies and options to destinations."""

from typing import TYPE_CHECKING, Protocol

from trio_stomp.broker.names import Kind
from trio_stomp.broker.queues import queue_of
from trio_stomp.broker.topics import Binding

if TYPE_CHECKING:
    from trio_stomp.broker.delivery import BrokerPolicies, Destination, Work
    from trio_stomp.broker.routing import Destinations, PolicyBook
    from trio_stomp.broker.streams import Streams
    from trio_stomp.broker.topics import Bindings

STEP = 8
"""Destinations configured in one piece of work."""


class ConfigurationHost(Protocol):
    """The part of the core that applying policies uses."""

    policies: "BrokerPolicies"
    book: "PolicyBook"
    streams: "Streams"


def configure(destination: "Destination", host: ConfigurationHost) -> None:
    """Apply policy and options to a destination, at its creation and when policies change."""
    policy = host.book.policy_for(destination.name)
    is_named = policy is not host.book.default
    ttl_ms = policy.ttl_ms
    if not ttl_ms and destination.kind in (Kind.TOPIC, Kind.WORK):
        ttl_ms = host.policies.ttl_ms
    destination.ttl_s = ttl_ms / 1000
    destination.retain = policy.retain
    destination.slow_consumer = policy.slow_consumer if is_named else ""
    is_queue = destination.kind is Kind.QUEUE and not is_named
    destination.persistent = host.policies.persistent if is_queue else policy.persistent
    if destination.kind is Kind.TOPIC and not destination.private:
        destination.stream = (
            host.streams.of_topic(destination.name, policy) if policy.stream else None
        )
    queue = queue_of(destination)
    if queue is not None:
        queue.policy = policy


def configuring(
    destinations: "Destinations", bindings: "Bindings", host: ConfigurationHost
) -> "Work":
    """Apply policies to all existing destinations and bindings, in pieces."""
    for index, destination in enumerate(list(destinations)):
        if destinations.has(destination):
            configure(destination, host)
            for binding in destination.exact:
                if isinstance(binding, Binding):
                    _configure_feed(binding, host)
        if index % STEP == STEP - 1:
            yield
    for index, binding in enumerate(list(bindings.durables)):
        _configure_feed(binding, host)
        if index % STEP == STEP - 1:
            yield


def _configure_feed(binding: Binding, host: ConfigurationHost) -> None:
    binding.queue.policy = host.book.policy_for(binding.queue.destination.name)
