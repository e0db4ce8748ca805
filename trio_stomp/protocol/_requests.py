"""Converts frames to events, and checks their required headers by version."""

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
"""Headers with the name of a durable subscription, in Artemis' order. ActiveMQ before 5.7 misspelt
the last one."""

ACK_MODES = ("auto", "client", "client-individual")


def subscribed(frame: Frame, version: Version, *, is_lenient: bool = False) -> Subscribed:
    """Return the event of a SUBSCRIBE.

    Args:
      frame: The frame.
      version: The STOMP version of the session.
      is_lenient: Require no id in any version, as in STOMP 1.0.

    Raises:
      ProtocolError: the destination (S05) or id (S06) is missing, or the ack mode unknown (S09).
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
    """Return the event of an UNSUBSCRIBE.

    It needs an id, a durable name or, in STOMP 1.0, a destination (S13, S14).

    Args:
      frame: The frame.
      version: The STOMP version of the session.
      is_lenient: Accept a destination in any version.

    Raises:
      ProtocolError: all of them are missing.
    """
    identity, destination = frame.get("id"), frame.get("destination")
    if identity is None and not any(map(frame.get, DURABLE_NAMES)):
        if version.needs_id and not is_lenient:
            raise missing(frame, "id", version)
        if not destination:
            raise missing(frame, "id or destination", version)
    return Unsubscribed(identity, destination, frame.receipt, frame.headers)


def acked(frame: Frame, version: Version, *, is_lenient: bool = False) -> Acked:
    """Return the event of an ACK or NACK. ``message-id`` is accepted in every version.

    Args:
      frame: The frame.
      version: The STOMP version of the session.
      is_lenient: Accept NACK in STOMP 1.0, and ignore ``subscription``.

    Raises:
      ProtocolError: it is a NACK in STOMP 1.0 (A12), or a header is missing (A06-A08).
    """
    negative = frame.command == "NACK"
    if negative and not (version.nacks or is_lenient):
        raise ProtocolError("unknown-command", f"STOMP {version.name} has no NACK")
    header = "id" if version.acks_by_header else "message-id"
    identity = frame.get(header)
    if identity is None:
        header = "message-id"
        identity = frame.get(header)
    if identity is None:
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
        (identity.encode(),),
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
    """Return the error for a missing header."""
    return ProtocolError(
        "header-missing", f"{frame.command} of STOMP {version.name} needs the header {name}"
    )
