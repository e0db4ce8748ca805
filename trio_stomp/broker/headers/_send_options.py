"""What the headers of a SEND ask for, in the words of every dialect, as one internal value."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from attrs import frozen

from trio_stomp.base import ProtocolError
from trio_stomp.broker.headers._dialect import (
    ANY_NUMBER,
    Dialect,
    invalid_value,
    is_true,
    read_number,
    read_routing,
)
from trio_stomp.frames import Headers

PRIORITY_DEFAULT = 4
"""JMS's, and what a message without a priority header has."""

PRIORITY_MAX = 9

RETAIN_SET = "set"
RETAIN_REMOVE = "remove"

DEDUP_HEADERS = ("x-dedup-id", "_AMQ_DUPL_ID")


@frozen
class SendOptions:
    """The meaning of one SEND's headers, computed once for each header block.

    Args:
      priority: 0 (last) to 9 (first).
      expires_ms: Wall time, in ms since 1970, from when it must not be delivered; 0 = never.
      ttl_ms: The same relative to its arrival; 0 = not told.
      group: Message group, whose messages all go to one consumer; "" = none.
      retain: ``set``, ``remove`` or "" (last value of a topic).
      persistent: Store before RECEIPT.
      max_exceptions: stompserver's bound of redeliveries; -1 = not told.
      reply_to: Where answers go; "" = not told.
      dedup_id: Sent twice with the same id, it is taken once; "" = none.
      scheduled: Whether any of the headers of schedules is there.
      routing: ANYCAST or MULTICAST, for ``resolve``; "" = not told.
    """

    priority: int = PRIORITY_DEFAULT
    expires_ms: int = 0
    ttl_ms: int = 0
    group: str = ""
    retain: str = ""
    persistent: bool = False
    max_exceptions: int = -1
    reply_to: str = ""
    dedup_id: str = ""
    scheduled: bool = False
    routing: str = ""


PLAIN_SEND = SendOptions()
"""What a SEND without any special header means: the one instance for all of them."""


def parse_send_options(headers: Headers, dialect: Dialect) -> SendOptions:
    """Return the meaning of a SEND's headers: ``PLAIN_SEND`` itself if there is nothing special.

    Args:
      headers: Of two aliases of one value the first counts, as of a repeated header (F36).
      dialect: The dialect of the client.

    Raises:
      ProtocolError: a value that is none, or a header that the dialect refuses.
    """
    found: dict[str, Any] = {}
    for name, text in headers:
        meaning = _MEANINGS.get(name)
        if meaning is not None and meaning[0] not in found:
            found[meaning[0]] = meaning[1](name, text)
    if dialect.refuses_client_message_id:
        _check_no_message_id(headers)
    if not found:
        return PLAIN_SEND
    if dialect.expiration_zero_is_now and found.get("ttl_ms") == 0:
        found["ttl_ms"] = 1
    return SendOptions(**found)


def _check_no_message_id(headers: Headers) -> None:
    for name, text in headers:
        if name == "message-id":
            raise ProtocolError(
                "header-not-allowed",
                f"message-id:{text[:60]} is not allowed in a SEND: the broker gives the ids",
            )


def _priority(name: str, text: str) -> int:
    # RabbitMQ's clients go up to 255: higher is still first, so it is no error.
    return max(0, min(PRIORITY_MAX, read_number(name, text, ANY_NUMBER)))


def _text(_: str, text: str) -> str:
    return text


def _truth(_: str, text: str) -> bool:
    return is_true(text)


def _present(_: str, __: str) -> bool:
    return True


def _retain(name: str, text: str) -> str:
    word = text.strip().lower()
    if word in (RETAIN_SET, "true"):
        return RETAIN_SET
    if word == RETAIN_REMOVE:
        return RETAIN_REMOVE
    if word in ("", "false"):
        return ""
    raise invalid_value(name, text, "set, true or remove")


_MEANINGS: Final[Mapping[str, tuple[str, Callable[[str, str], Any]]]] = {
    "priority": ("priority", _priority),
    "expires": ("expires_ms", read_number),
    "expiration": ("ttl_ms", read_number),
    "ttl": ("ttl_ms", read_number),
    "JMSXGroupID": ("group", _text),
    "message_group": ("group", _text),
    "retain": ("retain", _retain),
    "persistent": ("persistent", _truth),
    "max-exceptions": ("max_exceptions", read_number),
    "reply-to": ("reply_to", _text),
    "x-dedup-id": ("dedup_id", _text),
    "_AMQ_DUPL_ID": ("dedup_id", _text),
    "AMQ_SCHEDULED_DELAY": ("scheduled", _present),
    "AMQ_SCHEDULED_TIME": ("scheduled", _present),
    "AMQ_SCHEDULED_PERIOD": ("scheduled", _present),
    "AMQ_SCHEDULED_REPEAT": ("scheduled", _present),
    "AMQ_SCHEDULED_CRON": ("scheduled", _present),
    "AMQ_SCHEDULER_ACTION": ("scheduled", _present),
    "destination-type": ("routing", read_routing),
    "subscription-type": ("routing", read_routing),
}
"""Header → the field that it sets, and how it is read."""
