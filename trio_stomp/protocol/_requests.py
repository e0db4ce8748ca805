"""Frames that ask for something → events: which headers each needs, by version."""

from trio_stomp.base import ProtocolError
from trio_stomp.frames import Frame
from trio_stomp.protocol._events import Acked, Subscribed, Unsubscribed
from trio_stomp.protocol._versions import Version

DURABLE_NAMES = (
    "durable-subscriber-name",
    "durable-subscription-name",
    "activemq.subscriptionName",
    "activemq.subcriptionName",
)
"""In Artemis' order; the last is how ActiveMQ misspelt it before 5.7."""

ACK_MODES = ("auto", "client", "client-individual")


def subscribed(frame: Frame, version: Version, *, is_lenient: bool = False) -> Subscribed:
    """SUBSCRIBE.

    Args:
      frame: The frame.
      version: The STOMP version of the session.
      is_lenient: It needs no id in any version, as in STOMP 1.0.

    Raises:
      ProtocolError: no destination (S05), no id (S06), or an unknown ack mode (S09).
    """
    destination = needed(frame, "destination", version)
    identity = frame.get("id")
    if identity is None and version.needs_id and not is_lenient:
        raise missing(frame, "id", version)
    ack = frame.get("ack") or "auto"
    if ack not in ACK_MODES:
        raise ProtocolError(
            "invalid-ack-mode", f"ack:{ack[:40]} is not one of {', '.join(ACK_MODES)}"
        )
    return Subscribed(identity, destination, ack, frame.headers, frame.receipt)


def unsubscribed(frame: Frame, version: Version, *, is_lenient: bool = False) -> Unsubscribed:
    """UNSUBSCRIBE, by id, by a durable name, or in STOMP 1.0 by destination (S13, S14).

    Args:
      frame: The frame.
      version: The STOMP version of the session.
      is_lenient: By destination in any version.

    Raises:
      ProtocolError: neither is told.
    """
    identity, destination = frame.get("id"), frame.get("destination")
    if identity is None and not any(map(frame.get, DURABLE_NAMES)):
        if version.needs_id and not is_lenient:
            raise missing(frame, "id", version)
        if not destination:
            raise missing(frame, "id or destination", version)
    return Unsubscribed(identity, destination, frame.receipt, frame.headers)


def acked(frame: Frame, version: Version, *, is_lenient: bool = False) -> Acked:
    """Parse ACK or NACK of one delivery. ``message-id`` is accepted in every version.

    Args:
      frame: The frame.
      version: The STOMP version of the session.
      is_lenient: NACK works in STOMP 1.0, and ``subscription`` is not looked at.

    Raises:
      ProtocolError: NACK in STOMP 1.0 (A12), or a header is missing (A06-A08).
    """
    negative = frame.command == "NACK"
    if negative and not (version.nacks or is_lenient):
        raise ProtocolError("unknown-command", f"STOMP {version.name} has no NACK")
    header = "id" if version.acks_by_header else "message-id"
    told = frame.get(header)
    if told is None:
        header = "message-id"
        told = frame.get(header)
    if told is None:
        header, source = ("id", "ack") if version.acks_by_header else (header, header)
        raise ProtocolError(
            "header-missing",
            f"{frame.command} of STOMP {version.name} needs the header {header}, with the value"
            f" of the MESSAGE's {source} header",
        )
    subscription = None
    if version.needs_id and not (version.acks_by_header or is_lenient):
        subscription = frame.get("subscription") or None
    requeue = (frame.get("requeue") or "true").lower() != "false"
    receipts = () if frame.receipt is None else ((1, frame.receipt),)
    return Acked(
        (told.encode(),),
        header=header,
        subscription=subscription,
        negative=negative,
        requeue=requeue,
        receipts=receipts,
    )


def needed(frame: Frame, name: str, version: Version) -> str:
    """Return the value of header ``name``.

    Raises:
      ProtocolError: it is missing or empty.
    """
    text = frame.get(name)
    if not text:
        raise missing(frame, name, version)
    return text


def missing(frame: Frame, name: str, version: Version) -> ProtocolError:
    """Return the error for a header that is not there."""
    return ProtocolError(
        "header-missing", f"{frame.command} of STOMP {version.name} needs the header {name}"
    )
