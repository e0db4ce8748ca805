"""The ERROR frame: what went wrong, for programs, for people, and with the frame at fault."""

from trio_stomp.base import CloseReason, ProtocolError, RemoteError
from trio_stomp.broker.headers._error_texts import ErrorTexts, find_text
from trio_stomp.frames import SECRET_HEADERS, V1_2, HeaderRules, Headers, encode_frame
from trio_stomp.protocol import SUPPORTED

_CONTROL = dict.fromkeys(range(32), " ")
_QUOTED_BYTES = 512


def error_frame(error: RemoteError, rules: HeaderRules, texts: ErrorTexts = ()) -> bytes:
    """ERROR with ``message``, ``code`` and, if known, ``receipt-id`` (R06, R07).

    The body quotes the start of the frame at fault without secrets, and nothing of ours: no
    traces, no paths (R13). A failed negotiation lists the versions spoken here (C05). In another
    broker's words ``message`` and body are that one's, and what we would say is in ``detail``.

    Args:
      error: What is told.
      rules: Of the peer's version.
      texts: Another broker's words, if the dialect has any.
    """
    message = error.message.translate(_CONTROL)
    theirs = find_text(texts, error, "id" if rules is V1_2 else "message-id") if texts else None
    headers = [("message", message), ("code", error.code), ("content-type", "text/plain")]
    if error.code == "unsupported-version":
        headers.append(("version", SUPPORTED))
    headers += error.headers
    body = f"{error.message}\n".encode()
    if error.excerpt:
        body = b"The frame\n-----\n%b\n-----\n%b" % (error.excerpt, body)
    if theirs is not None:
        headers[0] = ("message", theirs[0])
        headers.append(("detail", message))
        body = theirs[1].encode()
    frame = encode_frame("ERROR", headers, rules, body)
    if error.receipt_id is not None:
        # The id is escaped already: it goes in as it is, behind the command.
        frame = b"ERROR\nreceipt-id:%b%b" % (error.receipt_id, frame[5:])
    return frame


def internal_error() -> ProtocolError:
    """Return the error that a peer is told of a bug: nothing of its details (R13)."""
    return ProtocolError(
        "internal-error",
        "the broker failed to process this frame; its log says more",
        reason=CloseReason.INTERNAL_ERROR,
    )


def quote(command: str, headers: Headers) -> bytes:
    """Return the start of a frame as an ERROR quotes it, without secrets."""
    lines = [command]
    for name, text in headers:
        shown = "***" if name.lower().strip() in SECRET_HEADERS else text
        lines.append(f"{name}:{shown}")
    return "\n".join(lines).encode()[:_QUOTED_BYTES]
