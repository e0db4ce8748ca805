"""Which answer a path gets that is no page: a pure function from request to response."""

from trio_stomp.transport import UPGRADE_REQUIRED_HEADERS, HttpRequest, encode_response

# The paths that clients know brokers by: RabbitMQ's /ws, ActiveMQ's /stomp and the last word of
# SockJS. The upgrade is accepted on any path, and only /…/{server}/{session}/websocket may mean
# more by it than STOMP; here it only matters what a plain GET is told.
WEBSOCKET_PATHS = frozenset({"/ws", "/stomp"})
WEBSOCKET_SUFFIX = "/websocket"

LIVE = "/livez"
HEALTH_PATHS = frozenset({LIVE, "/readyz"})
_NOT_KEPT = (("Cache-Control", "no-store"),)


def respond(request: HttpRequest, *, unready: str = "") -> bytes:
    """Return the whole answer to a request that is no upgrade to WebSocket, and for no page.

    Args:
      request: The request.
      unready: Why the broker should get no more work now; "" = it is ready.
    """
    path = request.path
    is_websocket_path = path in WEBSOCKET_PATHS or path.endswith(WEBSOCKET_SUFFIX)
    if path not in HEALTH_PATHS and not is_websocket_path:
        return _answer(request, 404, "Nothing is here. The dashboard is at /\n")
    if request.method not in ("GET", "HEAD"):
        return refuse_method(request)
    if is_websocket_path:
        text = "STOMP over WebSocket is spoken here: connect with a WebSocket client.\n"
        return _answer(request, 426, text, UPGRADE_REQUIRED_HEADERS)
    if path == LIVE or not unready:
        return _answer(request, 200, "ok\n", _NOT_KEPT)
    return _answer(request, 503, f"{unready}\n", _NOT_KEPT)


def refuse_method(request: HttpRequest) -> bytes:
    """Return the answer to a method that what is here does not have."""
    text = "Only GET and HEAD are answered here.\n"
    return _answer(request, 405, text, (("Allow", "GET, HEAD"),))


def _answer(
    request: HttpRequest, status: int, text: str, headers: tuple[tuple[str, str], ...] = ()
) -> bytes:
    body = text.encode(errors="replace")
    return encode_response(status, headers, body, head_only=request.method == "HEAD")
