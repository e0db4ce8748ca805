"""SockJS over WebSocket: its paths, its frames, its page ``/info``.

Spec: SockJS protocol 0.3.3, transport ``websocket``; the HTTP transports are not supported. Clients
send JSON strings. The server sends ``o``, then ``a["…"]``, ``h`` as a heart-beat, and at the end
``c[code,"reason"]``.

Does not handle: the meaning of the strings; when to send ``h``.
"""

import json
import re
from typing import TYPE_CHECKING

from attrs import define, field
from wsproto.connection import ConnectionState
from wsproto.events import BytesMessage, TextMessage

from trio_stomp.transport.http import HttpError, HttpRequest, check_origin, encode_response
from trio_stomp.transport.websocket._json_strings import JsonStrings
from trio_stomp.transport.websocket._websocket import INVALID_TEXT, WebSocketCodec
from trio_stomp.transport.websocket._websocket_frames import TEXT, frame_header

if TYPE_CHECKING:
    from wsproto.events import Event

SOCKJS_OPEN = frame_header(TEXT, 1) + b"o"
SOCKJS_HEARTBEAT = frame_header(TEXT, 1) + b"h"

SOCKJS_HEARTBEAT_S = 25.0
"""The interval in the protocol's specification; proxies close connections silent for longer."""

JSON_GROWTH = 6
"""Maximum growth of a byte in JSON: NUL becomes ``\\u0000``."""

UNSUPPORTED_DATA = 1003

# A prefix, the protocol's 'server' and 'session' (without dots), and 'websocket'.
_SESSION = re.compile(r"/.+/[^/.]+/[^/.]+/websocket", re.DOTALL)
_INFO = re.compile(r"/.+/info", re.DOTALL)

# Exactly as the protocol's own tests expect it.
_NOT_CACHED = ("Cache-Control", "no-store, no-cache, must-revalidate, max-age=0")
_JSON = ("Content-Type", "application/json; charset=UTF-8")

_INVALID_BYTE = re.compile("[\udc80-\udcff]")

_quote = json.JSONEncoder(ensure_ascii=False).encode


def asks_sockjs(request: HttpRequest, subprotocol: str | None) -> bool:
    """Return whether an upgrade is for SockJS instead of plain STOMP.

    Its path is ``/{prefix}/{server}/{session}/websocket``, and no subprotocol of STOMP was
    accepted, as SockJS clients offer none.
    """
    return subprotocol is None and _SESSION.fullmatch(request.path) is not None


def asks_sockjs_info(request: HttpRequest) -> bool:
    """Return whether a request is for the page ``/info``, which SockJS clients read first."""
    return _INFO.fullmatch(request.path) is not None


def sockjs_info(
    request: HttpRequest, allowed_origins: str, *, local_only: bool, entropy: int
) -> bytes:
    """Return the encoded response to a request for ``/info``.

    Pages of all origins that ``check_origin`` accepts may read it.

    Args:
      request: The request.
      allowed_origins: The allowed origins, separated by commas (``check_origin``).
      local_only: Whether the same host counts only if it is loopback or an address.
      entropy: A random number of 32 bits.

    Raises:
      HttpError: 403 for a foreign page, 405 for another method.
    """
    if request.method not in ("GET", "HEAD"):
        raise HttpError(405, "only GET and HEAD are answered here", (("Allow", "GET, HEAD"),))
    check_origin(request, allowed_origins, local_only=local_only)
    headers = [_JSON, _NOT_CACHED, ("Vary", "Origin")]
    origins = request.values(b"origin")
    if len(origins) == 1 and origins[0].isascii():
        # SockJS sends credentials, for which browsers reject `*`. Nothing here is secret.
        headers.append(("Access-Control-Allow-Origin", origins[0].decode()))
        headers.append(("Access-Control-Allow-Credentials", "true"))
    info = {"websocket": True, "origins": ["*:*"], "cookie_needed": False, "entropy": entropy}
    return encode_response(
        200, headers, json.dumps(info).encode(), head_only=request.method == "HEAD"
    )


@define(eq=False)
class SockJsCodec(WebSocketCodec):
    """A WebSocket codec that returns the content of the JSON strings in text messages.

    The borders of strings have no meaning, like those of messages. A text message that is not a
    string or a flat array of strings ends the connection with 1007, a binary message with 1003.
    """

    _strings: JsonStrings = field(factory=JsonStrings, init=False)

    def close(self, code: int, reason: str) -> bytes:
        """Return the closing message of SockJS and the Close frame, or b"" if already sent."""
        close = super().close(code, reason)
        return _goodbye(code, reason) + close if close else b""

    def _take_fast(self, _data: bytes, position: int, _out: list[bytes]) -> int:
        # The fast path joins messages, but the JSON decoder must know where they end.
        return position

    def _handle(self, event: "Event", state: ConnectionState, out: list[bytes]) -> None:
        if isinstance(event, BytesMessage):
            self._end(UNSUPPORTED_DATA, "SockJS has text messages only", by_peer=False)
        elif isinstance(event, TextMessage):
            self._in_message = not event.message_finished
            try:
                out.append(self._strings.feed(event.data, is_end=event.message_finished))
            except ValueError as error:
                self._end(INVALID_TEXT, f"no message of SockJS: {error}", by_peer=False)
        else:
            super()._handle(event, state, out)

    def _end(self, code: int, reason: str, *, by_peer: bool) -> None:
        super()._end(code, reason, by_peer=by_peer)
        if self._close_due and not by_peer:
            self._close_due = _goodbye(code, reason) + self._close_due


def sockjs_message(frame: bytes) -> bytes:
    """Return a SockJS message with one small STOMP frame.

    Each byte that is not UTF-8 becomes ``?``, so that ``content-length`` stays right. (An ERROR may
    quote a part of a character.)
    """
    text = _INVALID_BYTE.sub("?", frame.decode(errors="surrogateescape"))
    return _message(b"a[%b]" % _quote(text).encode())


def quote_sockjs(data: bytes) -> bytes:
    """Return ``data`` as the content of a JSON string, without the quotes.

    Raises:
      UnicodeDecodeError: it is not UTF-8.
    """
    return _quote(data.decode())[1:-1].encode()


def splice_sockjs(tails: list[bytes], prefix_length: int) -> list[bytes]:
    """Return tails that a quoted prefix joins into SockJS messages, as ``splice`` does.

    Args:
      tails: An empty tail, then the rest of each frame after the prefix; not changed.
      prefix_length: Size of the quoted prefix (``quote_sockjs``), in bytes.

    Raises:
      UnicodeDecodeError: a tail is not UTF-8.
    """
    spliced = []
    behind = b""
    for tail in tails[1:]:
        quoted = quote_sockjs(tail)
        # Three bytes precede the prefix, two follow the tail.
        header = frame_header(TEXT, 3 + prefix_length + len(quoted) + 2)
        spliced.append(b'%b%ba["' % (behind, header))
        behind = quoted + b'"]'
    spliced.append(behind)
    return spliced


def _goodbye(code: int, reason: str) -> bytes:
    return _message(b"c[%d,%b]" % (code, _quote(reason).encode(errors="replace")))


def _message(data: bytes) -> bytes:
    return frame_header(TEXT, len(data)) + data
