"""Durable subscriptions as the store keeps them: a setting each, and a place for the messages."""

import json
from typing import TYPE_CHECKING

from trio_stomp.broker._feed import Feed, FeedHost
from trio_stomp.broker._log import Log
from trio_stomp.broker._wildcards import compile_pattern
from trio_stomp.store import DropPlace

if TYPE_CHECKING:
    from collections.abc import Callable

    from trio_stomp.broker._queues import QueueBook
    from trio_stomp.broker._route import RouteTable
    from trio_stomp.broker._selector import Selector

PREFIX = "durable:"
"""How settings and places of durable subscriptions begin."""


OWNER_ENDS = "%01"
"""What no name holds as it is quoted."""


def place_of(name: str, owner: str) -> str:
    """What the store calls the place of a new durable subscription's messages, and its setting.

    One that is found in the store keeps its place: older brokers knew no owner in it.
    """
    return PREFIX + (_quoted(owner) + OWNER_ENDS if owner else "") + _quoted(name)


def _quoted(name: str) -> str:
    # No database takes a NUL in a text.
    return name.replace("%", "%25").replace("\0", "%00")


def remember(log: Log, feed: Feed) -> None:
    """Tell the store of a durable subscription."""
    told = {
        "name": feed.durable,
        "destinations": [name for name, _ in feed.places],
        "selector": feed.selector_text,
        "no_local": feed.no_local,
        "owner": feed.owner,
    }
    log.keep(feed.queue.place, json.dumps(told))


def forget(log: Log, feed: Feed) -> None:
    """Tell the store that a durable subscription is no more, nor what waits for it."""
    place = feed.queue.place
    with log.together():
        log.forget(place)
        log.write(DropPlace(place))


def read_back(
    place: str,
    text: str,
    number: int,
    host: FeedHost,
    routes: "RouteTable",
    queues: "QueueBook",
    compile_selector: "Callable[[str], Selector]",
    wildcards: str,
) -> Feed:
    """The feed that ``remember`` wrote down.

    Args:
      place: What the store calls it.
      number: Its place among the subscribers.

    Raises:
      ProtocolError, ValueError, KeyError: it cannot be served any more.
    """
    told = json.loads(text)
    name, selector = told["name"], told["selector"]
    # What was taken once is taken again, whatever the limits are now.
    places = [
        (each, compile_pattern(each, wildcards, max_words=None)) for each in told["destinations"]
    ]
    route = routes.detached(*places[0])
    label = f"{places[0][0]} of {name}".replace("\0", "/")
    queue = queues.private(route, label, place)
    feed = Feed(number, places, queue, host, None, name)
    feed.selector = compile_selector(selector) if selector else None
    feed.selector_text, feed.no_local = selector, told["no_local"]
    feed.owner = told.get("owner", "")  # absent in what was written before there were users
    feed.is_welcomed = True
    return feed
