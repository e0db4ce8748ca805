"""Durable subscriptions in the store: a setting for each, and a place for its messages."""

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
"""Prefix of the settings and places of durable subscriptions."""


OWNER_ENDS = "%01"
"""Separates owner and name. No quoted name contains it."""


def key_of(name: str, owner: str) -> str:
    """Return the key of a new durable subscription's place and setting.

    A restored one keeps its key: older brokers wrote keys without an owner.
    """
    return PREFIX + (_quoted(owner) + OWNER_ENDS if owner else "") + _quoted(name)


def _quoted(name: str) -> str:
    # PostgreSQL accepts no NUL in text.
    return name.replace("%", "%25").replace("\0", "%00")


def remember(log: Log, binding: Binding) -> None:
    """Write a durable subscription to the store."""
    record = {
        "name": binding.durable,
        "destinations": [name for name, _ in binding.targets],
        "selector": binding.selector_text,
        "no_local": binding.no_local,
        "owner": binding.owner,
    }
    log.keep(binding.queue.place, json.dumps(record))


def forget(log: Log, binding: Binding) -> None:
    """Delete a durable subscription and its messages from the store."""
    place = binding.queue.place
    with log.atomically():
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
    """Return the binding that ``remember`` wrote.

    Args:
      place: The key of its place in the store.
      text: The record.
      number: Its position among the subscribers.
      host: Queues its messages.
      destinations: The destinations.
      queues: The queues.
      compile_selector: Parses a selector.
      wildcards: The wildcard grammar.

    Raises:
      ProtocolError, ValueError, KeyError: the record is damaged, or no longer valid.
    """
    record = json.loads(text)
    name, selector = record["name"], record["selector"]
    # A lowered limit must not reject what was accepted before.
    targets = [
        (each, compile_pattern(each, wildcards, max_words=None)) for each in record["destinations"]
    ]
    destination = destinations.detached(*targets[0])
    label = f"{targets[0][0]} of {name}".replace("\0", "/")
    queue = queues.private(destination, label, place)
    binding = Binding(number, targets=targets, queue=queue, host=host, durable=name)
    binding.selector = compile_selector(selector) if selector else None
    binding.selector_text, binding.no_local = selector, record["no_local"]
    binding.owner = record.get("owner", "")  # absent in records of older brokers
    binding.is_welcomed = True
    return binding
