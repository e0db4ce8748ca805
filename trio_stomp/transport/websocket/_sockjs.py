"""SockJS on a WebSocket: its paths, its frames, its page ``/info``.

Spec: SockJS protocol 0.3.3, of which this is the transport ``websocket``; the transports of plain
HTTP are not spoken. What a SockJS client sends are JSON strings; it is sent ``o``, then ``a["…"]``,
``h`` when nothing else goes out, and at the end ``c[code,"reason"]``.

Does not handle: what the strings mean; when to send ``h``.
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
"""The protocol's own figure: proxies close what is silent for longer."""

JSON_GROWTH = 6
"""A byte takes up to six in JSON: NUL is ``\\u0000``."""

UNSUPPORTED_DATA = 1003

# Something, three words, of which two are without dots: 'server' and 'session' of the protocol.
_SESSION = re.compile(r"/.+/[^/.]+/[^/.]+/websocket", re.DOTALL)
_INFO = re.compile(r"/.+/info", re.DOTALL)

# Word for word as the protocol's own tests want it.
_NOT_CACHED = ("Cache-Control", "no-store, no-cache, must-revalidate, max-age=0")
_JSON = ("Content-Type", "application/json; charset=UTF-8")

_INVALID_BYTE = re.compile("[\udc80-\udcff]")

_quote = json.JSONEncoder(ensure_ascii=False).encode


def asks_sockjs(request: HttpRequest, subprotocol: str | None) -> bool:
    """Return whether an upgrade asks for SockJS, and not for STOMP itself.

    Its path ends in ``/{server}/{session}/websocket``, with something before it; and it has not
    agreed on a subprotocol of STOMP, which SockJS clients offer none of.
    """
    return subprotocol is None and _SESSION.fullmatch(request.path) is not None


def asks_sockjs_info(request: HttpRequest) -> bool:
    """Return whether a plain request is for the page that SockJS clients read first."""
    return _INFO.fullmatch(request.path) is not None


def sockjs_info(
    request: HttpRequest, allowed_origins: str, *, local_only: bool, entropy: int
) -> bytes:
    """Return the whole answer to a request for that page.

    It is told to the pages that may connect: what ``check_origin`` lets through may read it, too.

    Args:
      request: The request.
      allowed_origins: As for ``check_origin``.
      local_only: As for ``check_origin``.
      entropy: Random, of 32 bits.

    Raises:
      HttpError: 403 for a foreign page, 405 for another method.
    """
    if request.method not in ("GET", "HEAD"):
        raise HttpError(405, "only GET and HEAD are answered here", (("Allow", "GET, HEAD"),))
    check_origin(request, allowed_origins, local_only=local_only)
    headers = [_JSON, _NOT_CACHED, ("Vary", "Origin")]
    origins = request.values(b"origin")
    if len(origins) == 1 and origins[0].isascii():
        # SockJS asks with credentials, and then a browser takes no star. Nothing here is secret.
        headers.append(("Access-Control-Allow-Origin", origins[0].decode()))
        headers.append(("Access-Control-Allow-Credentials", "true"))
    told = {"websocket": True, "origins": ["*:*"], "cookie_needed": False, "entropy": entropy}
    return encode_response(
        200, headers, json.dumps(told).encode(), head_only=request.method == "HEAD"
    )


@define(eq=False)
class SockJsCodec(WebSocketCodec):
    """A WebSocket whose text messages are JSON strings, whose contents are what is received.

    Where one string ends says no more than where a message does. What is no flat array of strings
    ends the connection with 1007, a binary message with 1003.
    """

    _strings: JsonStrings = field(factory=JsonStrings, init=False)

    def close(self, code: int, reason: str) -> bytes:
        """Return the last words of SockJS, and the Close frame, as ``WebSocketCodec`` does."""
        close = super().close(code, reason)
        return _goodbye(code, reason) + close if close else b""

    def _take_fast(self, _data: bytes, position: int, _out: list[bytes]) -> int:
        # The fast way hands on what is in many messages at once; here their borders count.
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
    """Return one small STOMP frame as the WebSocket message of SockJS that holds it.

    What is not UTF-8 (the quotation in an ERROR may be cut within a character) becomes ``?``, byte
    for byte, so that ``content-length`` stays right.
    """
    text = _INVALID_BYTE.sub("?", frame.decode(errors="surrogateescape"))
    return _message(b"a[%b]" % _quote(text).encode())


def quote_sockjs(data: bytes) -> bytes:
    """Return ``data`` as the inside of a JSON string.

    Raises:
      UnicodeDecodeError: it is not UTF-8, and no JSON string can say it.
    """
    return _quote(data.decode())[1:-1].encode()


def splice_sockjs(tails: list[bytes], prefix_length: int) -> list[bytes]:
    """Return tails that a quoted prefix joins into messages of SockJS, as ``splice`` does.

    Args:
      tails: An empty one, then what follows the prefix in each frame; it is not changed.
      prefix_length: Bytes of the prefix, as ``quote_sockjs`` returned it.

    Raises:
      UnicodeDecodeError: a tail is not UTF-8.
    """
    spliced = []
    behind = b""
    for tail in tails[1:]:
        quoted = quote_sockjs(tail)
        # Three bytes stand before the prefix, two behind the tail.
        header = frame_header(TEXT, 3 + prefix_length + len(quoted) + 2)
        spliced.append(b'%b%ba["' % (behind, header))
        behind = quoted + b'"]'
    spliced.append(behind)
    return spliced


def _goodbye(code: int, reason: str) -> bytes:
    return _message(b"c[%d,%b]" % (code, _quote(reason).encode(errors="replace")))


def _message(data: bytes) -> bytes:
    return frame_header(TEXT, len(data)) + data
