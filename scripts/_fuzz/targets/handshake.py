"""HTTP heads, the upgrade to WebSocket, and the check of origins."""

import base64
import hashlib
import random
from collections.abc import Iterable

from _fuzz.target import Target, check, check_equal, cut
from trio_stomp.transport import (
    HttpError,
    HttpRequest,
    RequestReader,
    accept_websocket,
    check_origin,
    encode_response,
)

MAX_BYTES = 2048
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
KEY = b"dGhlIHNhbXBsZSBub25jZQ=="
LINES = (
    *(b"Host: example.com", b"Host: [::1]:61613", b"Host:", b"Host: a@b", b"Host: [", b"host: x"),
    *(b"Upgrade: websocket", b"Upgrade: h2c, WebSocket", b"Connection: Upgrade"),
    *(
        b"Connection: keep-alive, upgrade",
        b"Sec-WebSocket-Version: 13",
        b"Sec-WebSocket-Version: 8",
    ),
    *(b"Sec-WebSocket-Key: " + KEY, b"Sec-WebSocket-Key: " + KEY[:-1], b"Sec-WebSocket-Key: \xff"),
    *(b"Sec-WebSocket-Protocol: v12.stomp", b"Sec-WebSocket-Protocol: stomp, v10.stomp , x"),
    *(b"Origin: http://example.com", b"Origin: null", b"Origin: http://[::1", b"Origin: \xff"),
    *(b"Origin: http://localhost:8080", b"Origin: https://EXAMPLE.com/", b"Origin: http://["),
    *(
        b"Content-Length: 5",
        b"Content-Length: -1",
        b"Transfer-Encoding: chunked",
        b"X: " + b"y" * 900,
    ),
    *(b" folded", b"bad header: x", b"X:\0y", b":", b"Expect: 100-continue", b"\xc3\xa9: x"),
)
STARTS = (
    *(b"GET / HTTP/1.1", b"GET /ws?a=b HTTP/1.1", b"GET http://h/p?q HTTP/1.1", b"GET * HTTP/1.1"),
    *(b"POST / HTTP/1.1", b"GET / HTTP/1.0", b"GET / HTTP/2.0", b"OPTIONS * HTTP/1.1", b"GET /"),
    *(b"GET /\xff HTTP/1.1", b"GET  / HTTP/1.1", b"get / HTTP/1.1", b"CONNECT h:1 HTTP/1.1"),
    b"GET http:// HTTP/1.1",
)
GOOD = (LINES[0], LINES[6], LINES[8], LINES[10], LINES[12], LINES[15])
ALLOWED = ("", "*", "https://example.com, http://localhost:8080", ",", "null")


def make(name: str) -> Target:
    """The target."""
    files = ("transport/http/_http.py", "transport/http/_origin.py")
    words = (
        *LINES,
        *STARTS,
        *(line + b"\r\n" for line in LINES),
        b"\r\n",
        b"\r\n\r\n",
        b"\n",
        b"\0",
    )
    return Target(name, run, files, generate, words)


def generate(chance: random.Random) -> bytes:
    """Return the head of a request, valid or nearly so, and data after it."""
    lines = [STARTS[0] if chance.random() < 0.7 else chance.choice(STARTS)]
    lines += GOOD if chance.random() < 0.7 else chance.choices(GOOD, k=5)
    for _ in range(chance.choice((0, 0, 1, 1, 3))):
        lines.insert(chance.randint(1, len(lines)), chance.choice(LINES))
    eol = b"\r\n" if chance.random() < 0.9 else b"\n"
    return chance.randbytes(2) + eol.join(lines) + eol * 2 + chance.choice((b"", b"\x81\x80abcd"))


def run(data: bytes) -> None:
    """Read a head in several cuts, then answer it. The first byte selects the allowed origins."""
    allowed = ALLOWED[(data[0] if data else 0) % len(ALLOWED)]
    stream, ways = cut(data[1:])
    # Only a head that is complete in one read is refused for its length behind the others.
    expected = feed([stream])
    for chunks in ways:
        found = feed(chunks)
        if isinstance(found, HttpError) and found.status == 431:
            check(len(stream) > MAX_BYTES, "431: the head is short")
        elif isinstance(expected, HttpError):
            check(isinstance(found, HttpError), f"refused whole, but not cut: {expected}")
        else:
            check_equal(described(found), described(expected), "cut")
    if isinstance(expected, HttpError):
        judge_error(expected)
    elif expected is not None:
        answer(expected[0], allowed)


Found = tuple[HttpRequest, bytes] | HttpError | None


def feed(chunks: Iterable[bytes]) -> Found:
    """Return the request and the data after it, the refusal, or None if the head is incomplete."""
    reader = RequestReader(MAX_BYTES)
    behind = b""
    request: HttpRequest | None = None
    for chunk in filter(None, chunks):  # h11 takes empty data for the end
        if request is not None:
            behind += chunk
            continue
        try:
            request = reader.receive_data(chunk)
        except HttpError as error:
            return error
        behind = bytes(reader.trailing) if request is not None else b""
    return None if request is None else (request, behind)


def described(found: Found) -> object:
    """Return a comparable description."""
    if isinstance(found, HttpError) or found is None:
        return found
    request, behind = found
    return (request.method, request.target, request.headers, request.http_version, behind)


def judge_error(error: HttpError) -> None:
    """Check that a refusal can be sent as one response."""
    check(400 <= error.status < 600, f"status: {error.status}")
    result = error.response()
    head, blank, body = result.partition(b"\r\n\r\n")
    check(bool(blank), "answer: it has no end")
    check(b"content-length: %d" % len(body) in head.lower(), "answer: without its length")
    check(body.count(b"\n") == 1, f"answer: lines in {body!r:.200}")


def answer(request: HttpRequest, allowed: str) -> None:
    """Answer a head as the server does."""
    check(request.path.startswith("/"), f"path: {request.path!r:.100}")
    encode_response(404, (), request.path.encode())
    try:
        upgrade = accept_websocket(request)
    except HttpError as error:
        judge_error(error)
    else:
        keys = request.values(b"sec-websocket-key")
        check_equal(len(base64.b64decode(keys[0])), 16, "bytes of the key")
        token = base64.b64encode(hashlib.sha1(keys[0] + GUID).digest())
        check(b"\r\nSec-WebSocket-Accept: " + token + b"\r\n" in upgrade.response, "token: wrong")
        offered = b",".join(request.values(b"sec-websocket-protocol")).decode("latin-1")
        names = {name.strip() for name in offered.split(",")}
        check(
            upgrade.subprotocol is None or upgrade.subprotocol in names, "subprotocol: not offered"
        )
        check_equal(len(request.values(b"host")), 1, "Host headers")
    try:
        check_origin(request, allowed)
    except HttpError as error:
        check_equal(error.status, 403, "status")
        judge_error(error)
        check(allowed != "*", "refused: though all may connect")
    else:
        check_welcome(request, allowed)


def check_welcome(request: HttpRequest, allowed: str) -> None:
    """Check that a page which may connect is one of the allowed origins."""
    origins = request.values(b"origin")
    if origins and allowed not in ("", "*"):
        named = {name.strip().lower() for name in allowed.split(",")}
        seen = {origin.decode("latin-1").strip().rstrip("/").lower() for origin in origins}
        check(seen <= named, f"welcome: {seen - named}")
