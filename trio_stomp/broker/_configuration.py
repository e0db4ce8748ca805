"""What a new destination is told of its policy, or of the options where no policy names it."""

from typing import TYPE_CHECKING, Protocol

from trio_stomp.broker._destination import Kind

if TYPE_CHECKING:
    from trio_stomp.broker._destination_policy import PolicyBook
    from trio_stomp.broker._policies import BrokerPolicies
    from trio_stomp.broker._route import Route
    from trio_stomp.broker._streams import Streams


class ConfigurationHost(Protocol):
    """Where policies stand."""

    policies: "BrokerPolicies"
    book: "PolicyBook"
    streams: "Streams"


def configure(route: "Route", host: ConfigurationHost) -> None:
    """Give a new route what holds for it."""
    policy = host.book.policy_for(route.name)
    ttl_ms = policy.ttl_ms
    if not ttl_ms and route.kind in (Kind.TOPIC, Kind.WORK):
        ttl_ms = host.policies.ttl_ms
    route.ttl_s = ttl_ms / 1000
    route.retain = policy.retain
    route.persistent = policy.persistent
    if policy is not host.book.default:
        route.slow_consumer = policy.slow_consumer
    elif route.kind is Kind.QUEUE:
        route.persistent = host.policies.persistent
    if policy.stream and route.kind is Kind.TOPIC and not route.private:
        route.stream = host.streams.of_topic(route.name, policy)
