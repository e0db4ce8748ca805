"""ERROR frames."""

from trio_stomp.base import CloseReason, FrameBug, ProtocolError, RemoteError
from trio_stomp.broker.headers._error_texts import ErrorTexts, find_text
from trio_stomp.frames import SECRET_HEADERS, V1_2, FrameRun, HeaderRules, Headers, encode_frame
from trio_stomp.protocol import (
    SUPPORTED,
    Acked,
    Committed,
    Disconnected,
    Event,
    Subscribed,
    Unsubscribed,
)


def add_origin(error: RemoteError, event: Event) -> None:
    """Add the receipt and the excerpt of the event's frame to an error, unless it has them."""
    if error.receipt_id is None:
        error.receipt_id = receipt_of(event)
    if not error.excerpt:
        error.excerpt = excerpt_of(event)


def excerpt_of(event: Event) -> bytes:
    """Return the start of the event's frame without secrets, or b"" if it is not known."""
    match event:
        case FrameRun(head=head):
            return quote("SEND", head.headers)
        case Subscribed(headers=headers):
            return quote("SUBSCRIBE", headers)
        case Unsubscribed(headers=headers):
            return quote("UNSUBSCRIBE", headers)
        case Acked(ids, header):
            return quote("NACK" if event.negative else "ACK", ((header, ids[0].decode()),))
    return b""


def receipt_of(event: Event) -> bytes | None:
    """Return the ``receipt`` header of the event's frame, or None."""
    if isinstance(event, FrameRun):
        # The first frame of a run is at fault. A later one may have requested the receipt.
        return next((receipt for index, receipt in event.receipts if index == 1), None)
    if isinstance(event, Acked):
        return event.receipts[0][1] if event.receipts else None
    if isinstance(event, Subscribed | Unsubscribed | Disconnected | Committed):
        return event.receipt
    return None


_CONTROL = dict.fromkeys(range(32), " ")
_QUOTED_BYTES = 512


def error_frame(error: RemoteError, rules: HeaderRules, texts: ErrorTexts = ()) -> bytes:
    """Return an ERROR with ``message``, ``code`` and, if known, ``receipt-id`` (R06, R07).

    The body quotes the start of the frame at fault without secrets, and has no traces or paths
    (R13). After a failed negotiation it lists the supported versions (C05). With another broker's
    texts, ``message`` and body are that broker's, and ``detail`` has our message.

    Args:
      error: The error, with receipt id and excerpt.
      rules: The header rules of the client's version.
      texts: Texts of another broker, if the dialect has any.
    """
    message = error.message.translate(_CONTROL)
    foreign = find_text(texts, error, "id" if rules is V1_2 else "message-id") if texts else None
    headers = [("message", message), ("code", error.code), ("content-type", "text/plain")]
    if error.code == "unsupported-version":
        headers.append(("version", SUPPORTED))
    headers += error.headers
    body = f"{error.message}\n".encode()
    if error.excerpt:
        body = b"The frame\n-----\n%b\n-----\n%b" % (error.excerpt, body)
    if foreign is not None:
        headers[0] = ("message", foreign[0])
        headers.append(("detail", message))
        body = foreign[1].encode()
    frame = encode_frame("ERROR", headers, rules, body)
    if error.receipt_id is not None:
        # The id is already escaped: insert it as it is, after the command.
        frame = b"ERROR\nreceipt-id:%b%b" % (error.receipt_id, frame[5:])
    return frame


def internal_error(bug: Exception | None = None) -> ProtocolError:
    """Return the error for a bug of the broker, without details (R13).

    Args:
      bug: The exception, which may know the frame's receipt.
    """
    return ProtocolError(
        "internal-error",
        "the broker failed to process this frame; see its log",
        reason=CloseReason.INTERNAL_ERROR,
        receipt_id=bug.args[0] if isinstance(bug, FrameBug) else None,
    )


def quote(command: str, headers: Headers) -> bytes:
    """Return the start of a frame without secrets, for an ERROR."""
    lines = [command]
    for name, text in headers:
        shown = "***" if name.lower().strip() in SECRET_HEADERS else text
        lines.append(f"{name}:{shown}")
    return "\n".join(lines).encode()[:_QUOTED_BYTES]
