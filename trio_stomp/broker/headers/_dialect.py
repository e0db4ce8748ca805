"""The dialects of STOMP brokers: conflicting behaviours, and translation of destinations.

A ``Dialect`` has only the behaviours that conflict. docs/reference/dialects.md has the whole table.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

from attrs import frozen

from trio_stomp.base import MAX_INTEGER, OptionError, ProtocolError
from trio_stomp.broker.headers._error_texts import RABBITMQ_TEXTS, ErrorTexts
from trio_stomp.broker.names import PRIVATE_QUEUE, PRIVATE_TOPIC
from trio_stomp.frames import Headers

NATIVE = "native"
RABBITMQ = "rabbitmq"
ACTIVEMQ = "activemq"
ARTEMIS = "artemis"
APOLLO = "apollo"
STOMPICA = "stompica"

ANYCAST = "ANYCAST"
MULTICAST = "MULTICAST"

DSUB = "/dsub/"
"""Apollo's prefix for the backlog of a durable subscription."""

ANY_NUMBER = -MAX_INTEGER
"""The ``least`` of ``read_number`` that accepts every number."""

MAX_COMPOSITE = 64
"""Limit of names in a composite destination, so that a small frame makes few messages."""

_QUEUE = "/queue/"
_TOPIC = "/topic/"
_HANDED_ON = (_QUEUE, _TOPIC, "/temp-queue/", "/temp-topic/")
_SAYS_ITS_KIND = ("/", "#", "DIAG")
_URI = re.compile(r"(?:temp-)?(?:queue|topic)://")
_NUMBER = re.compile(r"[ \t]*([+-]?)([0-9]+)[ \t]*")
_JMS_SENDER = "jmsxuserid"
_ROUTING_HEADERS = frozenset({"destination-type", "subscription-type"})


@frozen
class Dialect:
    """The behaviours of one dialect that conflict with others.

    Args:
      word: The name in the option ``dialect``.
      exclusive_means_private: ``exclusive:true`` requests a queue of the connection's own;
        otherwise an exclusive consumer.
      redelivered_always: Each MESSAGE has ``redelivered``, also with the value ``false``.
      is_lenient: In each version SUBSCRIBE needs no ``id``, NACK works, and the header
        ``subscription`` of an ACK is ignored.
      keeps_socket_after_error: ERROR does not end the connection.
      keeps_socket_after_disconnect: DISCONNECT ends the session, and CONNECT may open another.
      allows_repeated_subscription_id: A subscription id in use is valid for another destination.
      wildcards: Grammar of SUBSCRIBE: ``native``, or ``seed`` (every ``*`` means the rest).
      refuses_client_message_id: SEND with ``message-id`` is an ERROR; otherwise the header is
        dropped.
      connected_answers: The headers of CONNECTED that answer ``request-id`` of CONNECT. With
        ``receipt-id``, ``receipt`` is answered too.
      composite_destinations: ``a,b`` means two destinations; otherwise a comma is part of a name.
      bare_is_queue: A name without a prefix is a queue; otherwise a topic.
      knows_all_prefixes: A destination is a bare name, or a prefix of docs/reference/dialects.md
        and one word; anything else is an ERROR. Otherwise it is a topic of that name.
      knows_addresses: ``jms.queue.x``, ``jms.topic.x`` and ``address::queue`` have their meaning in
        Artemis; otherwise they are plain names.
      shares_durables: Connections of one client id share a durable subscription; otherwise the
        newest takes it over.
      destination_aliases: Spellings of other brokers are translated; otherwise names are opaque.
      expiration_zero_is_now: A message with a TTL of 0 ms expires unless it is delivered at once;
        otherwise 0 means no TTL.
      queue_arguments_must_agree: A SUBSCRIBE with different ``x-…`` arguments for a queue is an
        ERROR; otherwise it is logged.
      receipts_at_commit: The RECEIPT of a SEND in a transaction follows after COMMIT; otherwise at
        once.
      error_texts: Texts of its ERRORs, which programs compare; empty = the broker's own.
      sender_header: The header that claims the identity of the sender, in lower case; "" = none.
      names_remotely: A ``reply-to`` to a temporary destination becomes ``/remote-temp-queue/…``;
        otherwise ``/reply-queue/…``.
      durable_queue_is_error: A SUBSCRIBE to a queue with the name of a durable subscription is an
        ERROR; otherwise the name has no effect.
      has_text_messages: A SEND without ``content-length`` is a text, and its MESSAGE has none;
        otherwise each MESSAGE with a body has one.
      refuses_false_sender: A false claim is an ERROR; otherwise it is removed.
    """

    word: str
    exclusive_means_private: bool = False
    redelivered_always: bool = False
    is_lenient: bool = False
    keeps_socket_after_error: bool = False
    keeps_socket_after_disconnect: bool = False
    allows_repeated_subscription_id: bool = False
    wildcards: str = "native"
    refuses_client_message_id: bool = False
    connected_answers: tuple[str, ...] = ()
    composite_destinations: bool = False
    bare_is_queue: bool = False
    knows_all_prefixes: bool = False
    knows_addresses: bool = False
    shares_durables: bool = False
    destination_aliases: bool = True
    expiration_zero_is_now: bool = False
    queue_arguments_must_agree: bool = False
    receipts_at_commit: bool = False
    error_texts: ErrorTexts = ()
    sender_header: str = ""
    refuses_false_sender: bool = False
    names_remotely: bool = False
    durable_queue_is_error: bool = False
    has_text_messages: bool = False


_DIALECTS: Final[Mapping[str, Dialect]] = {
    each.word: each
    for each in (
        Dialect(NATIVE, composite_destinations=True, sender_header=_JMS_SENDER),
        Dialect(
            RABBITMQ,
            exclusive_means_private=True,
            redelivered_always=True,
            is_lenient=True,
            refuses_client_message_id=True,
            bare_is_queue=True,
            knows_all_prefixes=True,
            expiration_zero_is_now=True,
            queue_arguments_must_agree=True,
            receipts_at_commit=True,
            error_texts=RABBITMQ_TEXTS,
            sender_header="user-id",
            refuses_false_sender=True,
        ),
        Dialect(
            ACTIVEMQ,
            connected_answers=("response-id", "receipt-id"),
            composite_destinations=True,
            bare_is_queue=True,
            sender_header=_JMS_SENDER,
            names_remotely=True,
            durable_queue_is_error=True,
            has_text_messages=True,
        ),
        Dialect(
            ARTEMIS,
            connected_answers=("response-id",),
            knows_addresses=True,
            shares_durables=True,
            sender_header=_JMS_SENDER,
            has_text_messages=True,
        ),
        Dialect(APOLLO, composite_destinations=True),
        Dialect(
            STOMPICA,
            keeps_socket_after_error=True,
            keeps_socket_after_disconnect=True,
            allows_repeated_subscription_id=True,
            wildcards="seed",
            destination_aliases=False,
        ),
    )
}

DIALECTS = tuple(_DIALECTS)
"""The names of all dialects, as choices of the option."""


def dialect(word: str) -> Dialect:
    """Return the dialect named ``word``.

    Raises:
      OptionError: There is no such dialect.
    """
    found = _DIALECTS.get(word)
    if found is None:
        raise OptionError(f"dialect is {word!r}, but must be one of {', '.join(DIALECTS)}")
    return found


def resolve(name: str, dialect: Dialect, routing: str = "") -> tuple[str, ...]:
    """Translate the destination of a SEND or SUBSCRIBE to native names.

    Args:
      name: The destination header.
      dialect: The dialect of the client.
      routing: ANYCAST, MULTICAST or ""; decides the kind of a bare name.

    Returns:
      One name; for a composite several, in order and without repetition.

    Raises:
      ProtocolError: The name is invalid, or has too many parts.
    """
    parts: tuple[str, ...] = (name,)
    if dialect.composite_destinations and "," in name:
        parts = _split(name)
    if not dialect.destination_aliases:
        return parts
    if len(parts) == 1:
        return (_translate(parts[0], routing, dialect),)
    return tuple(dict.fromkeys(_translate(part, routing, dialect) for part in parts))


def routing_of(headers: Headers) -> str:
    """Return ANYCAST or MULTICAST from Artemis' headers of SEND or SUBSCRIBE, or "".

    Raises:
      ProtocolError: The header has another value.
    """
    for name, text in headers:
        if name in _ROUTING_HEADERS:
            return read_routing(name, text)
    return ""


def read_routing(name: str, text: str) -> str:
    """Return ANYCAST or MULTICAST from the text of header ``name``.

    Raises:
      ProtocolError: The text is neither.
    """
    word = text.strip().upper()
    if word not in (ANYCAST, MULTICAST):
        raise invalid_value(name, text, f"{ANYCAST} or {MULTICAST}")
    return word


def read_number(name: str, text: str, least: int = 0) -> int:
    """Return the whole number in the text of header ``name``, at most ``MAX_INTEGER``.

    Raises:
      ProtocolError: The text is not a number, or the number is less than ``least``.
    """
    # Not int() alone: it accepts underscores and digits of every script.
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise invalid_value(name, text, "a whole number")
    number = capped(match[2]) * (-1 if match[1] == "-" else 1)
    if number < least:
        raise invalid_value(name, text, f"a whole number, {least} or more")
    return number


def capped(digits: str) -> int:
    """Return the number that ASCII digits write, or ``MAX_INTEGER`` if it is greater."""
    # A header may have thousands of digits, which int() refuses.
    return min(int(digits.lstrip("0")[:20] or "0"), MAX_INTEGER)


def is_true(text: str) -> bool:
    """Return whether a header is ``true``, in any case: Python clients write ``True``."""
    return text.strip().lower() == "true"


def invalid_value(name: str, text: str, rule: str) -> ProtocolError:
    """Return the error for an invalid value of header ``name``."""
    return ProtocolError("invalid-header-value", f"{name}:{text[:60]} is not {rule}")


def _invalid_destination(name: str, rule: str) -> ProtocolError:
    return ProtocolError("invalid-destination", f"destination:{name[:80]} {rule}")


def _split(name: str) -> tuple[str, ...]:
    """Return the parts of a composite.

    Parts without a prefix get that of the first one, as in ActiveMQ.
    """
    parts = [stripped for part in name.split(",") if (stripped := part.strip())]
    if not parts:
        raise _invalid_destination(name, "is a composite without a destination")
    if len(parts) > MAX_COMPOSITE:
        raise _invalid_destination(
            name, f"is a composite of {len(parts)} parts, the limit is {MAX_COMPOSITE}"
        )
    kind = next((prefix for prefix in _HANDED_ON if parts[0].startswith(prefix)), "")
    for part in parts:
        # ActiveMQ's Java clients use this syntax. As a plain name it would be a useless queue.
        if _URI.match(part):
            raise _invalid_destination(
                name, f"holds {part[:40]!r}; in STOMP that is written /queue/… or /topic/…"
            )
    return tuple(part if part.startswith(_SAYS_ITS_KIND) else kind + part for part in parts)


def _translate(name: str, routing: str, dialect: Dialect) -> str:
    if dialect.knows_addresses:
        name = _of_address(name)
    if name == _QUEUE:
        raise _invalid_destination(name, "names no queue; write /queue/<name>")
    if name.startswith("/"):
        head, _, rest = name[1:].partition("/")
        if dialect.knows_all_prefixes:
            _check_prefix(name, head, rest)
        alias = _ALIASES.get(head)
        if alias is not None:
            return alias(name, rest)
    elif (
        name
        and dialect.bare_is_queue
        and routing != MULTICAST
        and not name.startswith(_SAYS_ITS_KIND)
    ):
        if dialect.knows_all_prefixes and "/" in name:
            raise _invalid_destination(name, _PREFIXES_RULE)
        return _QUEUE + name
    if routing == ANYCAST and not f"{name}/".startswith(_KNOWN):
        return "/queue" + name if name.startswith("/") else _QUEUE + name
    return name


def _check_prefix(name: str, head: str, rest: str) -> None:
    """Refuse names that RabbitMQ refuses, so that a typo does not become a topic."""
    is_word = bool(rest) and ("/" not in rest or rest.startswith(_DEAD))
    is_long = head == "exchange" and rest.count("/") > 1
    if head not in _PREFIXES or is_long or (head in _OF_ONE_WORD and not is_word):
        raise _invalid_destination(name, _PREFIXES_RULE)


def _of_address(name: str) -> str:
    """Translate Artemis' names: prefixes of JMS, and a queue after its address."""
    for prefix, ours in (("jms.queue.", _QUEUE), ("jms.topic.", _TOPIC)):
        if name.startswith(prefix):
            return ours + name.removeprefix(prefix)
    address, _, queue = name.partition("::")
    return _QUEUE + queue if address and queue else name


def _amq(name: str, rest: str) -> str:
    # RabbitMQ requires that this queue exists. Here a queue exists from its first use.
    return "/" + rest if rest.startswith("queue/") else name


def _exchange(name: str, rest: str) -> str:
    """Translate RabbitMQ's exchanges: ``amq.topic`` is ``/topic/``.

    All others keep their name, so that their keys do not collide with each other or with topics.
    """
    exchange, _, key = rest.partition("/")
    if not exchange:
        raise _invalid_destination(name, "names no exchange; write /exchange/<name>/<key>")
    if exchange == "amq.topic":
        if not key:
            raise _invalid_destination(name, "names no key; write /exchange/amq.topic/<key>")
        return _TOPIC + key
    # A fan-out exchange ignores the key.
    return "/exchange/amq.fanout" if exchange == "amq.fanout" else name


def _remote(name: str, rest: str) -> str:
    if not rest:
        raise _invalid_destination(name, "names no temporary destination")
    return (PRIVATE_TOPIC if name.startswith("/remote-temp-topic/") else PRIVATE_QUEUE) + rest


def _dsub(name: str, rest: str) -> str:
    if not rest:
        raise _invalid_destination(name, f"names no durable subscription; write {DSUB}<id>")
    return name


_ALIASES: Final[Mapping[str, Callable[[str, str], str]]] = {
    "amq": _amq,
    "exchange": _exchange,
    "remote-temp-queue": _remote,
    "remote-temp-topic": _remote,
    "dsub": _dsub,
}
_KNOWN = (*_HANDED_ON, PRIVATE_QUEUE, "#", "DIAG")
_OF_ONE_WORD = frozenset({"queue", "topic", "temp-queue", "temp-topic"})
_PREFIXES = frozenset({*_OF_ONE_WORD, *_ALIASES, "reply-queue", "stream"})
_DEAD = "DLQ."
_PREFIXES_RULE = (
    "is none of RabbitMQ's; write /queue/<name>, /topic/<name>, /exchange/<name>/<key>,"
    " /amq/queue/<name>, /temp-queue/<name> or /reply-queue/<name>, a name without further slashes"
)
