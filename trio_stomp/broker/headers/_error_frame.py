"""ERROR frames."""

from trio_stomp.base import CloseReason, FrameBug, ProtocolError, RemoteError
from trio_stomp.broker.headers._error_texts import ErrorTexts, find_text
from trio_stomp.frames import SECRET_HEADERS, V1_2, HeaderRules, Headers, encode_frame
from trio_stomp.protocol import SUPPORTED

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
