"""Options in the headers of a SUBSCRIBE, with the aliases of all dialects."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from attrs import frozen

from trio_stomp.base import ProtocolError
from trio_stomp.broker.headers._dialect import (
    ANY_NUMBER,
    DSUB,
    Dialect,
    invalid_value,
    is_true,
    read_number,
)
from trio_stomp.broker.names import Kind
from trio_stomp.frames import Headers
from trio_stomp.protocol import DURABLE_NAMES

PREFETCH_COUNT = 100
PREFETCH_BYTES = 1024 * 1024

PREFETCH_COUNT_MAX = 16_384
"""The largest window; greater ones are lowered to it, and "no limit" is it. So an ACK of all that a
consumer holds is done at once. The limit in bytes applies, too."""

_AMBIGUOUS = "exclusive"
"""This header requests an exclusive consumer, but for RabbitMQ a queue of the connection's own."""


@frozen
class SubscribeOptions:
    """The options of a SUBSCRIBE.

    Args:
      prefetch_count: Limit of unacknowledged messages, at least 1.
      prefetch_bytes: Limit of their bodies in bytes. One message is always allowed.
      selector: The text of the selector; "" = all messages.
      priority: Consumers of higher priority are served first.
      exclusive: Be the only active consumer.
      browser: Browse, without consuming.
      browser_end: End a browser's listing with a MESSAGE ``browser:end``.
      no_local: Skip messages of the own connection.
      durable: The key of a durable subscription, ``client-id NUL name`` (without client id: ``NUL
        name``); "" = not durable.
      shared: The name of a queue that subscribers of a topic share while there are any; "" = none.
      retroactive: Get the last value or window of a topic first.
    """

    prefetch_count: int = PREFETCH_COUNT
    prefetch_bytes: int = PREFETCH_BYTES
    selector: str = ""
    priority: int = 0
    exclusive: bool = False
    browser: bool = False
    browser_end: bool = True
    no_local: bool = False
    durable: str = ""
    shared: str = ""
    retroactive: bool = False


PLAIN_SUBSCRIBE = SubscribeOptions()
"""The options of a SUBSCRIBE without special headers, shared by all of them."""


def parse_subscribe_options(
    headers: Headers, destination: str, kind: Kind, dialect: Dialect, client_id: str
) -> SubscribeOptions:
    """Return the options in a SUBSCRIBE's headers: ``PLAIN_SUBSCRIBE`` if there are none.

    Args:
      headers: The headers. Of several aliases, as of repeated headers, the first counts (F36); of
        several names of a durable subscription, the one that Artemis prefers.
      destination: The native name, from ``resolve``.
      kind: The kind of the destination.
      dialect: The dialect of the client.
      client_id: The ``client-id`` of CONNECT, or "".

    Raises:
      ProtocolError: A value is invalid, or a durable subscription has no name.
    """
    found: dict[str, Any] = {}
    for name, text in headers:
        meaning = _MEANINGS.get(name)
        if meaning is not None and not (name == _AMBIGUOUS and dialect.exclusive_means_private):
            for field, value in meaning(name, text):
                found.setdefault(field, value)
    # Topics have no exclusive consumers, and each subscriber already has its own messages.
    if kind in _TO_EVERYBODY:
        found.pop("exclusive", None)
    # Queues keep their messages anyway, so only topics have durable subscriptions.
    if dialect.destination_aliases and destination.startswith(DSUB):
        found["durable"] = "\0" + destination.removeprefix(DSUB)
    elif kind is Kind.TOPIC:
        if durable := durable_name(headers, client_id):
            found["durable"] = durable
        elif shared := dict(headers).get("x-queue-name"):
            found["shared"] = shared
    elif dialect.durable_queue_is_error and any(name in DURABLE_NAMES for name, _ in headers):
        raise ProtocolError(
            "unsupported",
            f"destination:{destination[:80]} is no topic, and only topics have durable"
            " subscriptions; leave their name out: a queue keeps its messages anyway",
        )
    return SubscribeOptions(**found) if found else PLAIN_SUBSCRIBE


def durable_name(headers: Headers, client_id: str = "") -> str:
    """Return the durable subscription that a SUBSCRIBE begins, or that an UNSUBSCRIBE deletes.

    This does not check whether the client may do that.

    Returns:
      The key, as ``SubscribeOptions.durable``, or "" if none is meant.

    Raises:
      ProtocolError: A durable subscription has no name.
    """
    fields = {name: text for name, text in headers if name in _DURABLE_HEADERS}
    name = next((fields[each] for each in DURABLE_NAMES if fields.get(each)), "")
    if not name:
        asks = [fields[each] for each in ("durable", "persistent") if each in fields]
        if not any(map(is_true, asks)):
            return ""
        # In RabbitMQ its queue ends with the subscriber.
        if is_true(fields.get("auto-delete", "")):
            return ""
        name = fields.get("x-queue-name") or fields.get("id") or ""
        if not name:
            raise ProtocolError(
                "header-missing",
                "durable:true needs a name to come back to: send the header id as well,"
                " or durable-subscription-name",
            )
    # The client id of CONNECT has precedence, because it was authenticated.
    return f"{client_id or fields.get('client-id', '')}\0{name}"


_Found = tuple[tuple[str, Any], ...]


def _messages(name: str, text: str) -> _Found:
    """Parse RabbitMQ's prefetch: 0 = no limit."""
    return (("prefetch_count", _window(read_number(name, text))),)


def _window(count: int) -> int:
    """Return the window of a consumer that asks for ``count``; 0 = as large as possible."""
    return min(count or PREFETCH_COUNT_MAX, PREFETCH_COUNT_MAX)


def _messages_or_one(name: str, text: str) -> _Found:
    """Parse ActiveMQ's prefetch: 0 = pull, which in STOMP means one message for each ACK."""
    return (("prefetch_count", _window(max(1, read_number(name, text)))),)


def _bytes(name: str, text: str) -> _Found:
    """Parse Artemis' window: -1 = the broker's default, 0 = one message at a time."""
    size = read_number(name, text, -1)
    return () if size < 0 else (("prefetch_bytes", max(1, size)),)


def _credit(name: str, text: str) -> _Found:
    """Parse Apollo's ``count[,bytes]``, where the value 0 sets no limit."""
    parts = text.split(",")
    if len(parts) > 2:
        raise invalid_value(name, text, "of the form count[,bytes]")
    count = read_number(name, parts[0])
    if len(parts) == 1:
        return (("prefetch_count", _window(count)),)
    size = read_number(name, parts[1])
    if not size:
        return (("prefetch_count", _window(max(1, count))),)
    return (("prefetch_count", _window(count)), ("prefetch_bytes", size))


def _priority(name: str, text: str) -> _Found:
    return (("priority", read_number(name, text, ANY_NUMBER)),)


def _selector(_: str, text: str) -> _Found:
    return (("selector", text),)


def _flag(field: str) -> Callable[[str, str], _Found]:
    def read(_: str, text: str) -> _Found:
        return ((field, True),) if is_true(text) else ()

    return read


def _browser_end(_: str, text: str) -> _Found:
    return (("browser_end", False),) if text.strip().lower() == "false" else ()


_TO_EVERYBODY = frozenset({Kind.TOPIC, Kind.DIAG})

_MEANINGS: Final[Mapping[str, Callable[[str, str], _Found]]] = {
    "prefetch-count": _messages,
    "activemq.prefetchSize": _messages_or_one,
    "consumer-window-size": _bytes,
    "credit": _credit,
    "selector": _selector,
    "x-priority": _priority,
    "activemq.priority": _priority,
    _AMBIGUOUS: _flag("exclusive"),
    "activemq.exclusive": _flag("exclusive"),
    "browser": _flag("browser"),
    "browser-end": _browser_end,
    "no-local": _flag("no_local"),
    "activemq.noLocal": _flag("no_local"),
    "activemq.retroactive": _flag("retroactive"),
}
"""Header → a parser that returns the fields that it sets. Other headers are ignored."""

SUBSCRIBE_HEADERS = frozenset(_MEANINGS)

_DURABLE_HEADERS = frozenset(
    {*DURABLE_NAMES, "durable", "persistent", "auto-delete", "x-queue-name", "id", "client-id"}
)
