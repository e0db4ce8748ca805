"""HTTP on the shared port: request heads, the upgrade to WebSocket, responses.

Handles: one request head of limited size; the opening handshake of RFC 6455 section 4.2; short
responses, after which the connection closes. Does not handle: request bodies, further requests on
the same connection, extensions (none is accepted), the pages.

``wsproto`` could do the handshake, but takes ``Upgrade`` for a single token, looks at the last
``Connection`` header only, and accepts any key. So the rules are checked here; only the accept
token comes from it.
"""

import base64
import binascii
import json
from collections.abc import Sequence
from http import HTTPStatus

import h11
from wsproto.utilities import generate_accept_token

from trio_stomp.base import StompError, value

WEBSOCKET_VERSION = b"13"
KEY_BYTES = 16

# Best first. The first three are registered with IANA; clients of ActiveMQ offer ``stomp``.
SUBPROTOCOLS = ("v12.stomp", "v11.stomp", "v10.stomp", "stomp")

# RFC 9110 section 15.5.22: a 426 names the protocol, and Connection covers the Upgrade header.
UPGRADE_REQUIRED_HEADERS = (("Upgrade", "websocket"), ("Connection", "Upgrade, close"))

# On every response: no framing, no use by other sites, no referrer. A page extends the policy of
# its content as needed.
PROTECTING_HEADERS = (
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
)

_PLAIN_TEXT = "text/plain; charset=utf-8"


class HttpError(StompError):
    """A request that cannot be served. Send ``response``, then close the connection.

    Args:
      status: The HTTP status code.
      text: One line for the body of the response.
      headers: Headers in addition to the usual ones.
      code: A stable word for programs, for a response in JSON; "" = one in plain text.
    """

    def __init__(
        self, status: int, text: str, headers: Sequence[tuple[str, str]] = (), code: str = ""
    ) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.headers = tuple(headers)
        self.code = code

    def response(self) -> bytes:
        """Return the encoded response."""
        if not self.code:
            return encode_response(self.status, self.headers, f"{self.text}\n".encode())
        record = json.dumps({"error": self.text, "code": self.code})
        headers = (("Content-Type", "application/json"), *self.headers)
        return encode_response(self.status, headers, f"{record}\n".encode())


@value
class HttpRequest:
    """The head of a request, with names of headers in lower case."""

    method: str
    target: str
    headers: tuple[tuple[bytes, bytes], ...]
    http_version: str = "1.1"

    @property
    def path(self) -> str:
        """Return the path without the query. The target may be absolute (RFC 9112, 3.2.2)."""
        path = self.target.partition("?")[0]
        if path.startswith("/"):
            return path
        _, slash, rest = path.partition("://")[2].partition("/")
        return slash + rest or "/"

    @property
    def wants_websocket(self) -> bool:
        """Return whether the client requests the upgrade, correctly or not."""
        return b"websocket" in self.tokens(b"upgrade")

    def values(self, name: bytes) -> list[bytes]:
        """Return the content of each header ``name``, which must be in lower case."""
        return [content for other, content in self.headers if other == name]

    def tokens(self, name: bytes) -> list[bytes]:
        """Return the comma-separated tokens of all headers ``name``, in lower case."""
        listed = b",".join(self.values(name)).lower().split(b",")
        return [token.strip() for token in listed]


@value
class Upgrade:
    """The response that opens the WebSocket, and the accepted subprotocol."""

    response: bytes
    subprotocol: str | None


class RequestReader:
    """Reads one request head.

    Args:
      max_bytes: Maximum size of the head, with request line and blank line.
    """

    __slots__ = ("_connection", "_max_bytes", "_received")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._received = 0
        self._connection = h11.Connection(h11.SERVER, max_incomplete_event_size=max_bytes)

    @property
    def trailing(self) -> bytes:
        """Return the bytes after the head: the first frames of a client that does not wait."""
        return self._connection.trailing_data[0]

    def receive_data(self, data: bytes) -> HttpRequest | None:
        """Return the request once its head is complete, else None. A reader reads one request.

        Raises:
          HttpError: 400 if this is not an HTTP request, 431 if its head is too large.
        """
        self._received += len(data)
        try:
            self._connection.receive_data(data)
            event = self._connection.next_event()
        except h11.RemoteProtocolError as error:
            # h11 quotes the peer's bytes in some errors; they are not sent back.
            reason = str(error).partition(": bytearray(")[0]
            raise HttpError(error.error_status_hint, f"bad request: {reason}") from None
        if not isinstance(event, h11.Request):
            return None
        # h11 limits only incomplete heads, and a whole head may arrive in one read.
        if self._received - len(self.trailing) > self._max_bytes:
            raise HttpError(431, f"bad request: head is longer than {self._max_bytes} bytes")
        return HttpRequest(
            method=event.method.decode("ascii"),
            target=event.target.decode("ascii"),
            headers=tuple(event.headers),
            http_version=event.http_version.decode("ascii"),
        )


def accept_websocket(request: HttpRequest) -> Upgrade:
    """Check the opening handshake, and return the response with the best STOMP subprotocol offered.

    Without a known subprotocol in the offer, the response has none: the version of STOMP follows
    from CONNECT in any case.

    Raises:
      HttpError: 400, or 426 for another version of WebSocket (RFC 6455 section 4.2.1).
    """
    if request.method != "GET":
        raise HttpError(400, "the WebSocket handshake is a GET request")
    if request.http_version < "1.1":
        raise HttpError(400, "the WebSocket handshake needs HTTP/1.1")
    if len(request.values(b"host")) != 1:
        raise HttpError(400, "the WebSocket handshake needs one header 'Host'")
    # RFC 9110 section 7.8: a body would have to be read before the new protocol begins. If a proxy
    # read a body where the broker sees frames, clients could smuggle frames through it.
    lengths = request.values(b"content-length")
    if request.values(b"transfer-encoding") or any(int(length) for length in lengths):
        raise HttpError(400, "the WebSocket handshake must not have a body")
    if not request.wants_websocket:
        raise HttpError(400, "the WebSocket handshake needs the header 'Upgrade: websocket'")
    if b"upgrade" not in request.tokens(b"connection"):
        raise HttpError(400, "the WebSocket handshake needs the header 'Connection: Upgrade'")
    if request.values(b"sec-websocket-version") != [WEBSOCKET_VERSION]:
        version = (("Sec-WebSocket-Version", WEBSOCKET_VERSION.decode()),)
        text = "only version 13 of WebSocket is supported"
        raise HttpError(426, text, (*UPGRADE_REQUIRED_HEADERS, *version))
    return _accept(_checked_key(request), _choose_subprotocol(request))


def encode_response(
    status: int, headers: Sequence[tuple[str, str]], body: bytes | None, *, head_only: bool = False
) -> bytes:
    """Return an encoded response, after which the connection is closed.

    Args:
      status: The HTTP status code.
      headers: Headers before the usual ones, which they replace if they have the same name.
      body: The body; None = it follows, and ends with the connection.
      head_only: Omit the body but not its length, for HEAD (RFC 9110 section 9.3.2).
    """
    given = {name.lower() for name, _ in headers}
    usual = (
        ("Content-Type", _PLAIN_TEXT),
        ("Connection", "close"),
        *PROTECTING_HEADERS,
        ("Server", "trio_stomp"),  # without the version, which would help attackers only
    )
    all_headers = [*headers, *(item for item in usual if item[0].lower() not in given)]
    if body is not None:
        all_headers.append(("Content-Length", str(len(body))))
    # h11 refuses headers with line ends in them.
    response = h11.Response(
        status_code=status, headers=all_headers, reason=HTTPStatus(status).phrase
    )
    head = h11.Connection(h11.SERVER).send(response) or b""
    return head if head_only or body is None else head + body


def _checked_key(request: HttpRequest) -> bytes:
    keys = request.values(b"sec-websocket-key")
    if len(keys) != 1:
        raise HttpError(400, "the WebSocket handshake needs one header 'Sec-WebSocket-Key'")
    try:
        decoded = base64.b64decode(keys[0], validate=True)
    except binascii.Error:
        decoded = b""
    if len(decoded) != KEY_BYTES:
        raise HttpError(400, "the header 'Sec-WebSocket-Key' must hold 16 bytes in base64")
    return keys[0]


def _choose_subprotocol(request: HttpRequest) -> str | None:
    # RFC 6455 section 4.1: the comparison is case-sensitive.
    offers = b",".join(request.values(b"sec-websocket-protocol")).split(b",")
    offered = {offer.strip() for offer in offers}
    return next((name for name in SUBPROTOCOLS if name.encode() in offered), None)


def _accept(key: bytes, subprotocol: str | None) -> Upgrade:
    headers = [
        (b"Upgrade", b"websocket"),
        (b"Connection", b"Upgrade"),
        (b"Sec-WebSocket-Accept", generate_accept_token(key)),
    ]
    if subprotocol is not None:
        headers.append((b"Sec-WebSocket-Protocol", subprotocol.encode()))
    lines = [b"HTTP/1.1 101 Switching Protocols", *(b"%b: %b" % header for header in headers)]
    return Upgrade(response=b"\r\n".join([*lines, b"", b""]), subprotocol=subprotocol)
