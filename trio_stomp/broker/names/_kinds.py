"""What a destination's name says about it."""

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
"""Where one asks for the frames of a connection, or of a destination."""
EXPLAIN = "DIAG/explain"
"""Where one asks what happened to a message."""
LEFT = "DIAG/left"
"""The destination of questions about scheduled messages and last values."""
MONITOR = "/queue/monitor"
"""stompserver's statistics: a topic of the broker's own, in the name space of queues."""
STREAM = "/stream/"
"""How the logs of topics begin, which are subscribed to from any offset."""
DIAG_STREAM = "/stream/DIAG"
"""The log of all that the broker tells of itself."""
PRIVATE_QUEUE = "/reply-queue/"
PRIVATE_TOPIC = "/reply-topic/"
"""How the temporary destinations of a connection begin, as others call them."""
_QUEUE, _TOPIC = "/queue/", "/topic/"
_NEAR = re.compile(r"/?(queue|topic)s?/", re.IGNORECASE)
_REST_WORDS = frozenset({">", "**", "#"})


class Kind(Enum):
    """The kind of a destination: how it delivers."""

    TOPIC = "topic"
    WORK = "work-queue"
    DIAG = "diag"
    QUEUE = "queue"
    STREAM = "stream"


def classify(name: str) -> Kind:
    """Return the kind of a destination or pattern, by its first characters."""
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
    """Return ``/queue/`` or ``/topic/`` if a name nearly begins so, as ``queue/x`` does, or ""."""
    found = _NEAR.match(name)
    if found is None or found[0] in (_QUEUE, _TOPIC):
        return ""
    return f"/{found[1].lower()}/"


def check_length(name: str, limit: int) -> None:
    """Refuse a name that is too long to be remembered.

    Raises:
      ProtocolError: ``name`` has more than ``limit`` bytes.
    """
    if len(name) > limit or len(name.encode()) > limit:
        raise ProtocolError(
            "destination-too-long",
            f"destination:{name[:40]}… has more than {limit} bytes (option max_destination_bytes)",
            reason=CloseReason.LIMIT_EXCEEDED,
        )


def is_reserved(name: str) -> bool:
    """Return whether only the broker publishes to ``name``."""
    return name in RESERVED or name.startswith(DIAG_EVENT) or name == MONITOR


def check_sendable(name: str, grammar: str) -> None:
    """Refuse a SEND to a wildcard or to one of the broker's own topics.

    Raises:
      ProtocolError: naming the destination and the rule.
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
