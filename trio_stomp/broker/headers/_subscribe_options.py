"""What the headers of a SUBSCRIBE ask for, in the words of every dialect, as one internal value."""

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

PREFETCH_COUNT_MAX = 65_535
"""What "no limit" becomes: the most that AMQP's own prefetch can say. The bytes still bound it."""

_AMBIGUOUS = "exclusive"
"""The bare header: one active consumer, but to RabbitMQ a queue of the connection's own."""


@frozen
class SubscribeOptions:
    """The meaning of one SUBSCRIBE's headers.

    Args:
      prefetch_count: Messages that may be unacknowledged at once, at least 1.
      prefetch_bytes: The same in bytes of body; one message is always allowed.
      selector: Text of a selector; "" = every message.
      priority: Consumers of higher priority are served first.
      exclusive: Wants to be the only active consumer.
      browser: Looks without consuming.
      browser_end: Whether a browser is told the end by a MESSAGE with ``browser:end``.
      no_local: Does not want what its own connection sends.
      durable: Name of a durable topic subscription, ``client-id NUL name`` (no client id: ``NUL
        name``); "" = none.
      retroactive: Wants the retained value or window of a topic first.
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
    retroactive: bool = False


PLAIN_SUBSCRIBE = SubscribeOptions()
"""What a SUBSCRIBE without any special header means: the one instance for all of them."""


def parse_subscribe_options(
    headers: Headers, destination: str, kind: Kind, dialect: Dialect, client_id: str
) -> SubscribeOptions:
    """Return the options in a SUBSCRIBE's headers: ``PLAIN_SUBSCRIBE`` if there are none.

    Args:
      headers: Of two aliases of one value the first counts, as of a repeated header (F36); of
        the names of a durable subscription the one that Artemis prefers.
      destination: As ``resolve`` gave it.
      kind: What the destination is.
      dialect: The dialect of the client.
      client_id: The ``client-id`` of CONNECT, or "".

    Raises:
      ProtocolError: a value that is none, or a durable subscription without a name.
    """
    found: dict[str, Any] = {}
    for name, text in headers:
        meaning = _MEANINGS.get(name)
        if meaning is not None and not (name == _AMBIGUOUS and dialect.exclusive_means_private):
            for field, value in meaning(name, text):
                found.setdefault(field, value)
    # A topic has no single consumer; what RabbitMQ means there, each subscriber has anyway.
    if kind in _TO_EVERYBODY:
        found.pop("exclusive", None)
    durable = _durable(headers, destination, kind, dialect, client_id)
    if durable:
        found["durable"] = durable
    return SubscribeOptions(**found) if found else PLAIN_SUBSCRIBE


def wants_durable_end(headers: Headers, client_id: str = "") -> str:
    """Which durable subscription an UNSUBSCRIBE ends for good, as in ``SubscribeOptions.durable``.

    It only finds the subscription: whether the client may end it is for the one stored to say.

    Returns:
      Its name; "" if the subscriber merely leaves, and a durable subscription stays.

    Raises:
      ProtocolError: a durable subscription without a name.
    """
    return _durable_name(headers, client_id)


def _durable(
    headers: Headers, destination: str, kind: Kind, dialect: Dialect, client_id: str
) -> str:
    if dialect.destination_aliases and destination.startswith(DSUB):
        return "\0" + destination.removeprefix(DSUB)
    # A queue keeps its messages for whoever comes: there is nothing to be made durable.
    return _durable_name(headers, client_id) if kind is Kind.TOPIC else ""


def _durable_name(headers: Headers, client_id: str) -> str:
    said = {name: text for name, text in headers if name in _DURABLE_HEADERS}
    if not said:
        return ""
    name = next((said[each] for each in DURABLE_NAMES if said.get(each)), "")
    if not name:
        if not (is_true(said.get("durable", "")) or is_true(said.get("persistent", ""))):
            return ""
        # RabbitMQ: the queue behind it would end with its subscriber.
        if is_true(said.get("auto-delete", "")):
            return ""
        name = said.get("x-queue-name") or said.get("id") or ""
        if not name:
            raise ProtocolError(
                "header-missing",
                "durable:true needs a name to come back to: send the header id as well,"
                " or durable-subscription-name",
            )
    # CONNECT's comes first: it is the one that was authenticated with the connection.
    return f"{client_id or said.get('client-id', '')}\0{name}"


def consumes(kind: Kind, ack: str, options: SubscribeOptions) -> bool:
    """Return whether its messages come from queues: all but plain subscriptions to topics."""
    return kind is Kind.QUEUE or ack != "auto" or bool(options.durable)


_Found = tuple[tuple[str, Any], ...]


def _messages(name: str, text: str) -> _Found:
    """RabbitMQ: 0 = no limit."""
    return (("prefetch_count", read_number(name, text) or PREFETCH_COUNT_MAX),)


def _messages_or_one(name: str, text: str) -> _Found:
    """ActiveMQ: 0 = the next only when asked for, which in STOMP is by ACK."""
    return (("prefetch_count", max(1, read_number(name, text))),)


def _bytes(name: str, text: str) -> _Found:
    """Artemis: -1 = as much as the broker sees fit, 0 = one message at a time."""
    size = read_number(name, text, -1)
    return () if size < 0 else (("prefetch_bytes", max(1, size)),)


def _credit(name: str, text: str) -> _Found:
    """Apollo: ``count[,bytes]``, where a window of 0 leaves the decision to the other one."""
    parts = text.split(",")
    if len(parts) > 2:
        raise invalid_value(name, text, "of the form count[,bytes]")
    count = read_number(name, parts[0])
    if len(parts) == 1:
        return (("prefetch_count", count or PREFETCH_COUNT_MAX),)
    size = read_number(name, parts[1])
    if not size:
        return (("prefetch_count", max(1, count)),)
    return (("prefetch_count", count or PREFETCH_COUNT_MAX), ("prefetch_bytes", size))


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
"""Header → the fields that it sets; what is not here (``activemq.dispatchAsync``…) is ignored."""

_DURABLE_HEADERS = frozenset(
    {*DURABLE_NAMES, "durable", "persistent", "auto-delete", "x-queue-name", "id", "client-id"}
)
