"""What a new destination is told of its policy, or of the options where no policy names it."""

from typing import TYPE_CHECKING, Protocol

from trio_stomp.broker._destination import Kind
from trio_stomp.broker._feed import Feed

if TYPE_CHECKING:
    from trio_stomp.broker._destination_policy import PolicyBook
    from trio_stomp.broker._feeds import Feeds
    from trio_stomp.broker._policies import BrokerPolicies
    from trio_stomp.broker._route import Route, RouteTable
    from trio_stomp.broker._streams import Streams
    from trio_stomp.broker._turns import Work

STEP = 8
"""Destinations that are given their policies in one piece of work."""


class ConfigurationHost(Protocol):
    """Where policies stand."""

    policies: "BrokerPolicies"
    book: "PolicyBook"
    streams: "Streams"


def configure(route: "Route", host: ConfigurationHost) -> None:
    """Give a route what holds for it, when it is made and when policies change."""
    policy = host.book.policy_for(route.name)
    is_named = policy is not host.book.default
    ttl_ms = policy.ttl_ms
    if not ttl_ms and route.kind in (Kind.TOPIC, Kind.WORK):
        ttl_ms = host.policies.ttl_ms
    route.ttl_s = ttl_ms / 1000
    route.retain = policy.retain
    route.slow_consumer = policy.slow_consumer if is_named else ""
    is_queue = route.kind is Kind.QUEUE and not is_named
    route.persistent = host.policies.persistent if is_queue else policy.persistent
    if route.kind is Kind.TOPIC and not route.private:
        route.stream = host.streams.of_topic(route.name, policy) if policy.stream else None
    if route.queue is not None:
        route.queue.policy = policy


def configuring(routes: "RouteTable", feeds: "Feeds", host: ConfigurationHost) -> "Work":
    """Give all that is there already what holds for it by then, bit by bit."""
    for place, route in enumerate(list(routes)):
        if routes.has(route):
            configure(route, host)
            for feed in route.exact:
                if isinstance(feed, Feed):
                    _configure_feed(feed, host)
        if place % STEP == STEP - 1:
            yield
    for place, feed in enumerate(list(feeds.durables)):
        _configure_feed(feed, host)
        if place % STEP == STEP - 1:
            yield


def _configure_feed(feed: Feed, host: ConfigurationHost) -> None:
    feed.queue.policy = host.book.policy_for(feed.queue.route.name)
