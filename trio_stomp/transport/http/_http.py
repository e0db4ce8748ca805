"""What is HTTP on the port: the head of a request, the upgrade to WebSocket, plain answers.

Handles: one request head, bounded; the opening handshake of RFC 6455 section 4.2; short answers,
after which the connection closes. Does not handle: request bodies, further requests on the same
connection, extensions (none is ever agreed to), which page answers which path.

``wsproto`` could do the handshake, but takes ``Upgrade`` for one token, the last ``Connection``
for the only one, and any key. So the rules are checked here; the token is still its own.
"""

import base64
import binascii
from collections.abc import Sequence
from http import HTTPStatus

import h11
from wsproto.utilities import generate_accept_token

from trio_stomp.base import StompError, value

WEBSOCKET_VERSION = b"13"
KEY_BYTES = 16

# Best first. The first three are registered with IANA; ``stomp`` is what ActiveMQ's clients ask.
SUBPROTOCOLS = ("v12.stomp", "v11.stomp", "v10.stomp", "stomp")

# RFC 9110 section 15.5.22: a 426 names the protocol, and Connection covers the Upgrade header.
UPGRADE_REQUIRED_HEADERS = (("Upgrade", "websocket"), ("Connection", "Upgrade, close"))

# On every answer, whatever it is: it is shown in no frame, lent to no other site, and tells
# nobody where its reader came from. A page adds what it needs to the policy of its content.
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
    """A request that cannot be served. ``response`` tells the peer, then the connection closes.

    Args:
      status: The HTTP status code.
      text: One line for people, the body of the answer.
      headers: What the answer carries beside the usual headers.
    """

    def __init__(self, status: int, text: str, headers: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.headers = tuple(headers)

    def response(self) -> bytes:
        """Return the whole answer as it goes on the wire."""
        return encode_response(self.status, self.headers, f"{self.text}\n".encode())


@value
class HttpRequest:
    """The head of a request, with names of headers in lower case."""

    method: str
    target: str
    headers: tuple[tuple[bytes, bytes], ...]
    http_version: str = "1.1"

    @property
    def path(self) -> str:
        """The path without the query, of an absolute target too (RFC 9112 section 3.2.2)."""
        path = self.target.partition("?")[0]
        if path.startswith("/"):
            return path
        _, slash, rest = path.partition("://")[2].partition("/")
        return slash + rest or "/"

    @property
    def wants_websocket(self) -> bool:
        """Return whether the client asks for the upgrade, rightly or not."""
        return b"websocket" in self.tokens(b"upgrade")

    def values(self, name: bytes) -> list[bytes]:
        """Return the content of each header called ``name``, which is in lower case."""
        return [content for other, content in self.headers if other == name]

    def tokens(self, name: bytes) -> list[bytes]:
        """Return the comma-separated tokens of all headers ``name``, in lower case."""
        listed = b",".join(self.values(name)).lower().split(b",")
        return [token.strip() for token in listed]


@value
class Upgrade:
    """The answer that opens the WebSocket, and the subprotocol that it agrees to."""

    response: bytes
    subprotocol: str | None


class RequestReader:
    """Reads one request head.

    Args:
      max_bytes: Longest head, request line and blank line included; more is answered by 431.
    """

    __slots__ = ("_connection", "_max_bytes", "_received")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._received = 0
        self._connection = h11.Connection(h11.SERVER, max_incomplete_event_size=max_bytes)

    @property
    def trailing(self) -> bytes:
        """Return what came behind the head: the first frames of a client that does not wait."""
        return self._connection.trailing_data[0]

    def receive_data(self, data: bytes) -> HttpRequest | None:
        """Return the request once its head is whole. Then the reader is used up.

        Raises:
          HttpError: 400 if this is no HTTP request, 431 if its head is too large.
        """
        self._received += len(data)
        try:
            self._connection.receive_data(data)
            event = self._connection.next_event()
        except h11.RemoteProtocolError as error:
            # h11 quotes the peer's bytes in some errors; they are not worth sending back.
            reason = str(error).partition(": bytearray(")[0]
            raise HttpError(error.error_status_hint, f"bad request: {reason}") from None
        if not isinstance(event, h11.Request):
            return None
        # h11 bounds only what it must wait for, and a head may come whole in one read.
        if self._received - len(self.trailing) > self._max_bytes:
            raise HttpError(431, f"bad request: head is longer than {self._max_bytes} bytes")
        return HttpRequest(
            method=event.method.decode("ascii"),
            target=event.target.decode("ascii"),
            headers=tuple(event.headers),
            http_version=event.http_version.decode("ascii"),
        )


def accept_websocket(request: HttpRequest) -> Upgrade:
    """Check the opening handshake and answer it, with the best STOMP subprotocol offered.

    A client that offers none, or none that we know, gets none in the answer: the version of
    STOMP follows from CONNECT in any case.

    Raises:
      HttpError: 400, or 426 for another version of WebSocket (RFC 6455 section 4.2.1).
    """
    if request.method != "GET":
        raise HttpError(400, "the WebSocket handshake is a GET request")
    if request.http_version < "1.1":
        raise HttpError(400, "the WebSocket handshake needs HTTP/1.1")
    if len(request.values(b"host")) != 1:
        raise HttpError(400, "the WebSocket handshake needs one header 'Host'")
    # RFC 9110 section 7.8: a body would have to be read before the new protocol begins. A proxy
    # that reads one where we see frames would let a client smuggle.
    lengths = request.values(b"content-length")
    if request.values(b"transfer-encoding") or any(int(length) for length in lengths):
        raise HttpError(400, "the WebSocket handshake has no body; leave it out")
    if not request.wants_websocket:
        raise HttpError(400, "the WebSocket handshake needs the header 'Upgrade: websocket'")
    if b"upgrade" not in request.tokens(b"connection"):
        raise HttpError(400, "the WebSocket handshake needs the header 'Connection: Upgrade'")
    if request.values(b"sec-websocket-version") != [WEBSOCKET_VERSION]:
        version = (("Sec-WebSocket-Version", WEBSOCKET_VERSION.decode()),)
        text = "only version 13 of WebSocket is spoken here"
        raise HttpError(426, text, (*UPGRADE_REQUIRED_HEADERS, *version))
    return _accept(_checked_key(request), _choose_subprotocol(request))


def encode_response(
    status: int,
    headers: Sequence[tuple[str, str]],
    body: bytes,
    *,
    head_only: bool = False,
) -> bytes:
    """Return a whole answer, after which the connection is closed.

    Args:
      status: The status.
      headers: Put before the usual ones, and instead of those of the same name.
      body: The body.
      head_only: Leave the body out but tell its length, as HEAD asks (RFC 9110 section 9.3.2).
    """
    given = {name.lower() for name, _ in headers}
    usual = (
        ("Content-Type", _PLAIN_TEXT),
        ("Content-Length", str(len(body))),
        ("Connection", "close"),
        *PROTECTING_HEADERS,
        ("Server", "trio_stomp"),  # without the version: it only helps those who look for holes
    )
    all_headers = [*headers, *(item for item in usual if item[0].lower() not in given)]
    # h11 refuses a header that would break out of its line.
    response = h11.Response(
        status_code=status, headers=all_headers, reason=HTTPStatus(status).phrase
    )
    head = h11.Connection(h11.SERVER).send(response) or b""
    return head if head_only else head + body


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
    # Compared as they are: RFC 6455 section 4.1 does not make them case-insensitive.
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
