"""Kinds of destinations, by their names."""

import re
from enum import Enum

from trio_stomp.base import CloseReason, ProtocolError

DIAG_EVENT = "DIAG/event/"
RESERVED = frozenset(
    f"DIAG/{name}"
    for name in (
        "session",
        "ws_buffer",
        "stale",
        "queues",
        "destinations",
        "latency",
        "process",
        "connections",
    )
)
"""Topics that only the broker publishes to."""

TRACE = "DIAG/trace"
"""Requests for traces of a connection or a destination."""
EXPLAIN = "DIAG/explain"
"""Requests for explanations of what happened to a message."""
LEFT = "DIAG/left"
"""Requests about scheduled messages and last values."""
MONITOR = "/queue/monitor"
"""stompserver's statistics: a topic of the broker, although its name is that of a queue."""
STREAM = "/stream/"
"""Prefix of streams."""
DIAG_STREAM = "/stream/DIAG"
"""The stream of all DIAG messages."""
DEAD_LETTERS = "/queue/DLQ."
"""Prefix of the names of default dead-letter queues."""
STOMPSERVER_DEAD_LETTERS = "/queue/deadletter"
"""stompserver's dead-letter queue."""
PRIVATE_QUEUE = "/reply-queue/"
PRIVATE_TOPIC = "/reply-topic/"
"""Prefixes of temporary destinations, in the names for other clients."""
PRIVATE = (PRIVATE_QUEUE, PRIVATE_TOPIC)
_QUEUE, _TOPIC = "/queue/", "/topic/"
_NEAR = re.compile(r"[\s/\\]*+(queue|topic)s?[/\\:]", re.IGNORECASE)
_REST_WORDS = frozenset({">", "**", "#"})


class Kind(Enum):
    """The kind of a destination, which decides how it delivers."""

    TOPIC = "topic"
    WORK = "work-queue"
    DIAG = "diag"
    QUEUE = "queue"
    STREAM = "stream"


def classify(name: str) -> Kind:
    """Return the kind of a destination or pattern."""
    if name.startswith("#") and name != "#":
        return Kind.WORK
    if name.startswith("DIAG"):
        return Kind.DIAG
    if name.startswith(STREAM):
        return Kind.STREAM
    if name == "/queue" or name.startswith(("/queue/", PRIVATE_QUEUE)):
        return Kind.TOPIC if name == MONITOR else Kind.QUEUE
    return Kind.TOPIC


def nearly(name: str) -> str:
    """Return ``/queue/`` or ``/topic/`` if a name has a similar prefix, as ``queue/x``, or ""."""
    found = _NEAR.match(name)
    if found is None or found[0] in (_QUEUE, _TOPIC):
        return ""
    return f"/{found[1].lower()}/"


def check_length(name: str, limit: int) -> None:
    """Check the length of a name.

    Raises:
      ProtocolError: ``name`` has more than ``limit`` bytes.
    """
    if len(name) > limit or len(name.encode()) > limit:
        raise ProtocolError(
            "destination-too-long",
            f"destination:{name[:40]}… has more than {limit} bytes (option max_destination_bytes)",
            reason=CloseReason.LIMIT_EXCEEDED,
        )


def check_public(name: str) -> None:
    """Check that a destination belongs to nobody, so that rules decide who may use it.

    Raises:
      ProtocolError: It is private to a connection.
    """
    if name.startswith(PRIVATE):
        raise ProtocolError(
            "not-allowed",
            f"destination:{name[:80]} belongs to another connection; only that may use it, and"
            " others send there",
            reason=CloseReason.UNSUPPORTED,
        )


def is_reserved(name: str) -> bool:
    """Return whether only the broker publishes to ``name``."""
    return name in RESERVED or name.startswith(DIAG_EVENT) or name == MONITOR


def check_sendable(name: str, grammar: str) -> None:
    """Check that clients may send to a name.

    Args:
      name: The destination.
      grammar: The wildcard grammar, as for ``compile_pattern``.

    Raises:
      ProtocolError: It is a wildcard or one of the broker's own topics.
    """
    last = name.replace("/", ".").rpartition(".")[2]
    if "*" in name or (grammar == "native" and last in _REST_WORDS):
        raise ProtocolError(
            "wildcard-in-send",
            f"Can not have wildcard in message destination! destination:{name[:80]};"
            " wildcards are for SUBSCRIBE",
        )
    if is_reserved(name):
        raise ProtocolError(
            "reserved-destination",
            f"destination:{name[:80]} is published by the broker only; SUBSCRIBE to it, or send a "
            "request to another DIAG destination such as DIAG/mine",
        )
