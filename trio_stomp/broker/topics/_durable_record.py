"""Durable subscriptions as the store keeps them: a setting each, and a place for the messages."""

import json
from typing import TYPE_CHECKING

from trio_stomp.broker.durability import Log
from trio_stomp.broker.names import compile_pattern
from trio_stomp.broker.topics._binding import Binding, BindingHost
from trio_stomp.store import DropPlace

if TYPE_CHECKING:
    from collections.abc import Callable

    from trio_stomp.broker.queues import QueueBook
    from trio_stomp.broker.routing import Destinations
    from trio_stomp.broker.selectors import Selector

PREFIX = "durable:"
"""How settings and places of durable subscriptions begin."""


OWNER_ENDS = "%01"
"""What no name holds as it is quoted."""


def place_of(name: str, owner: str) -> str:
    """Return the store's place, and setting, of a new durable subscription.

    One that is found in the store keeps its place: older brokers knew no owner in it.
    """
    return PREFIX + (_quoted(owner) + OWNER_ENDS if owner else "") + _quoted(name)


def _quoted(name: str) -> str:
    # No database takes a NUL in a text.
    return name.replace("%", "%25").replace("\0", "%00")


def remember(log: Log, binding: Binding) -> None:
    """Tell the store of a durable subscription."""
    told = {
        "name": binding.durable,
        "destinations": [name for name, _ in binding.places],
        "selector": binding.selector_text,
        "no_local": binding.no_local,
        "owner": binding.owner,
    }
    log.keep(binding.queue.place, json.dumps(told))


def forget(log: Log, binding: Binding) -> None:
    """Tell the store that a durable subscription is no more, nor what waits for it."""
    place = binding.queue.place
    with log.together():
        log.forget(place)
        log.write(DropPlace(place))


def read_back(
    place: str,
    text: str,
    number: int,
    *,
    host: BindingHost,
    destinations: "Destinations",
    queues: "QueueBook",
    compile_selector: "Callable[[str], Selector]",
    wildcards: str,
) -> Binding:
    """Return the feed that ``remember`` wrote down.

    Args:
      place: What the store calls it.
      text: The record.
      number: Its place among the subscribers.
      host: The core.
      destinations: The destinations.
      queues: The queues.
      compile_selector: Parses a selector.
      wildcards: The wildcard grammar.

    Raises:
      ProtocolError, ValueError, KeyError: it cannot be served any more.
    """
    told = json.loads(text)
    name, selector = told["name"], told["selector"]
    # What was taken once is taken again, whatever the limits are now.
    places = [
        (each, compile_pattern(each, wildcards, max_words=None)) for each in told["destinations"]
    ]
    destination = destinations.detached(*places[0])
    label = f"{places[0][0]} of {name}".replace("\0", "/")
    queue = queues.private(destination, label, place)
    binding = Binding(number, places=places, queue=queue, host=host, client=None, durable=name)
    binding.selector = compile_selector(selector) if selector else None
    binding.selector_text, binding.no_local = selector, told["no_local"]
    binding.owner = told.get("owner", "")  # absent in what was written before there were users
    binding.is_welcomed = True
    return binding
