"""Options in the headers of a SEND, with the aliases of a dialect.

A program's own headers may have any name and value, so another dialect's header means nothing, and
one with an invalid value is passed on and reported, never refused.
docs/reference/programs.md has the table.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from attrs import frozen

from trio_stomp.base import ProtocolError
from trio_stomp.broker.headers._dialect import (
    ACTIVEMQ,
    ANY_NUMBER,
    APOLLO,
    ARTEMIS,
    DIALECTS,
    NATIVE,
    RABBITMQ,
    Dialect,
    invalid_value,
    is_true,
    read_number,
    read_routing,
)
from trio_stomp.frames import Headers

PRIORITY_DEFAULT = 4
"""The priority of a message without this header, as in JMS."""

PRIORITY_MAX = 9

RETAIN_SET = "set"
RETAIN_REMOVE = "remove"
RETAIN_NOT = "not"
"""Whatever the policy, a message does not become a last value. No header says this."""


@frozen
class SendOptions:
    """The options of a SEND, computed once for each header block.

    Args:
      priority: 0 (last) to 9 (first).
      expires_ms: The expiry time in ms since 1970; 0 = never.
      ttl_ms: The TTL; 0 = none.
      group: The message group, whose messages all go to one consumer; "" = none.
      retain: ``set``, ``remove`` or "", for the last value of a topic.
      persistent: Store the message before the RECEIPT.
      max_exceptions: stompserver's limit of failed deliveries; -1 = none.
      reply_to: The destination of replies; "" = none.
      dedup_id: The id for duplicate detection; "" = none.
      dedup_line: The header line of those whose id it is; None = it is the sender's.
      scheduled: Whether any header of a schedule is present.
      routing: ANYCAST or MULTICAST, for ``resolve``; "" = not given.
      once: Headers of the expiry time and the id, which must not apply when it is sent again.
      ignored: The headers with an invalid value, separated by commas; "" = none.
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
    dedup_line: tuple[str, str] | None = None
    scheduled: bool = False
    routing: str = ""
    once: tuple[str, ...] = ()
    ignored: str = ""


PLAIN_SEND = SendOptions()
"""The options of a SEND without special headers, shared by all of them."""


def parse_send_options(headers: Headers, dialect: Dialect) -> SendOptions:
    """Return the options in a SEND's headers: ``PLAIN_SEND`` itself if there are none.

    Args:
      headers: The headers. Of several aliases, as of repeated headers, the first counts (F36).
      dialect: The dialect of the client.

    Raises:
      ProtocolError: The dialect refuses a header.
    """
    found: dict[str, Any] = {}
    meanings = _BY_DIALECT[dialect.word]
    for name, text in headers:
        meaning = meanings.get(name)
        if meaning is None:
            continue
        option, parse = meaning
        if option in _ONCE:
            found["once"] = (*found.get("once", ()), name)
        if option not in found:
            try:
                found[option] = parse(name, text)
            except ProtocolError:
                found["ignored"] = f"{found['ignored']},{name}" if "ignored" in found else name
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
    # RabbitMQ's clients use up to 255. Clamp it: a higher priority is still first.
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


_ONCE = frozenset({"expires_ms", "ttl_ms", "dedup_id"})
_Meaning = tuple[str, Callable[[str, str], Any]]
_JMS = (NATIVE, ACTIVEMQ, ARTEMIS)
_ROWS: tuple[tuple[str, _Meaning, tuple[str, ...]], ...] = (
    ("priority", ("priority", _priority), DIALECTS),
    ("persistent", ("persistent", _truth), DIALECTS),
    ("reply-to", ("reply_to", _text), DIALECTS),
    ("x-dedup-id", ("dedup_id", _text), DIALECTS),
    ("_AMQ_DUPL_ID", ("dedup_id", _text), (NATIVE, ARTEMIS)),
    ("expires", ("expires_ms", read_number), (*_JMS, APOLLO)),
    ("expiration", ("ttl_ms", read_number), (NATIVE, RABBITMQ)),
    ("ttl", ("ttl_ms", read_number), (NATIVE, APOLLO)),
    ("JMSXGroupID", ("group", _text), _JMS),
    ("message_group", ("group", _text), (NATIVE, APOLLO)),
    ("retain", ("retain", _retain), (NATIVE, APOLLO)),
    ("max-exceptions", ("max_exceptions", read_number), (NATIVE,)),
    ("AMQ_SCHEDULED_DELAY", ("scheduled", _present), _JMS),
    ("AMQ_SCHEDULED_TIME", ("scheduled", _present), _JMS),
    ("AMQ_SCHEDULED_PERIOD", ("scheduled", _present), _JMS),
    ("AMQ_SCHEDULED_REPEAT", ("scheduled", _present), _JMS),
    ("AMQ_SCHEDULED_CRON", ("scheduled", _present), _JMS),
    ("AMQ_SCHEDULER_ACTION", ("scheduled", _present), _JMS),
    ("destination-type", ("routing", read_routing), (NATIVE, ARTEMIS)),
    ("subscription-type", ("routing", read_routing), (NATIVE, ARTEMIS)),
)
"""A header, the option that it sets with its parser, and the dialects in which it does."""
_BY_DIALECT: Final[Mapping[str, Mapping[str, _Meaning]]] = {
    word: {name: meaning for name, meaning, words in _ROWS if word in words} for word in DIALECTS
}

SEND_HEADERS = frozenset(name for name, _, _ in _ROWS)
