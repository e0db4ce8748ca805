"""Frames that ask for something → events: which headers each needs, by version."""

from trio_stomp._errors import ProtocolError
from trio_stomp.frames import Frame
from trio_stomp.protocol._events import Acked, Subscribed, Unsubscribed
from trio_stomp.protocol._versions import Version

ACK_MODES = ("auto", "client", "client-individual")


def subscribed(frame: Frame, version: Version) -> Subscribed:
    """SUBSCRIBE.

    Raises:
      ProtocolError: no destination (S05), no id (S06), or an unknown ack mode (S09).
    """
    destination = needed(frame, "destination", version)
    identity = frame.get("id")
    if identity is None and version.needs_id:
        raise missing(frame, "id", version)
    ack = frame.get("ack") or "auto"
    if ack not in ACK_MODES:
        raise ProtocolError("invalid-ack-mode", f"ack:{ack[:40]} is none of {', '.join(ACK_MODES)}")
    return Subscribed(identity, destination, ack, frame.headers, frame.receipt)


def unsubscribed(frame: Frame, version: Version) -> Unsubscribed:
    """UNSUBSCRIBE, by id, or in STOMP 1.0 by destination (S13, S14).

    Raises:
      ProtocolError: neither is told.
    """
    identity, destination = frame.get("id"), frame.get("destination")
    if identity is None and version.needs_id:
        raise missing(frame, "id", version)
    if identity is None and not destination:
        raise missing(frame, "id or destination", version)
    return Unsubscribed(identity, destination, frame.receipt, frame.headers)


def acked(frame: Frame, version: Version, *, by_message_id: bool) -> Acked:
    """ACK or NACK of one delivery.

    Args:
      by_message_id: Whether a 1.2 client may tell ``message-id`` as in 1.1, as some dialects let.

    Raises:
      ProtocolError: NACK in STOMP 1.0 (A12), or a header is missing (A06-A08).
    """
    negative = frame.command == "NACK"
    if negative and not version.nacks:
        raise ProtocolError("unknown-command", f"STOMP {version.name} has no NACK")
    header = "id" if version.acks_by_header else "message-id"
    told = frame.get(header)
    if told is None and by_message_id:
        told = frame.get("message-id")
    if told is None:
        source = "ack" if version.acks_by_header else "message-id"
        raise ProtocolError(
            "header-missing",
            f"{frame.command} of STOMP {version.name} needs the header {header}, with the value"
            f" of the MESSAGE's {source} header",
        )
    subscription = None
    if not version.acks_by_header and version.needs_id:
        subscription = needed(frame, "subscription", version)
    requeue = (frame.get("requeue") or "true").lower() != "false"
    receipts = () if frame.receipt is None else ((1, frame.receipt),)
    return Acked((told.encode(),), header, subscription, negative, requeue, receipts)


def needed(frame: Frame, name: str, version: Version) -> str:
    """The value of header ``name``.

    Raises:
      ProtocolError: it is missing or empty.
    """
    text = frame.get(name)
    if not text:
        raise missing(frame, name, version)
    return text


def missing(frame: Frame, name: str, version: Version) -> ProtocolError:
    """The error for a header that is not there."""
    return ProtocolError(
        "header-missing", f"{frame.command} of STOMP {version.name} needs the header {name}"
    )
