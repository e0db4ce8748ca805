"""Answers to requests that are neither upgrades nor pages: pure functions."""

from trio_stomp.transport import UPGRADE_REQUIRED_HEADERS, HttpRequest, encode_response

# Common WebSocket paths: RabbitMQ's /ws, ActiveMQ's /stomp and the last segment of SockJS. The
# upgrade is accepted on any path (only /…/{server}/{session}/websocket may be SockJS); these only
# determine the answer to a plain GET.
WEBSOCKET_PATHS = frozenset({"/ws", "/stomp"})
WEBSOCKET_SUFFIX = "/websocket"

LIVE = "/livez"
HEALTH_PATHS = frozenset({LIVE, "/readyz"})
_NOT_KEPT = (("Cache-Control", "no-store"),)


def respond(request: HttpRequest, *, unready: str = "") -> bytes:
    """Return the answer to a request that is neither an upgrade to WebSocket nor for a page.

    Args:
      request: The request.
      unready: Why the broker should get no clients now; "" = it is ready.
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
    """Return the answer to an unsupported method."""
    text = "Only GET and HEAD are answered here.\n"
    return _answer(request, 405, text, (("Allow", "GET, HEAD"),))


def _answer(
    request: HttpRequest, status: int, text: str, headers: tuple[tuple[str, str], ...] = ()
) -> bytes:
    body = text.encode(errors="replace")
    return encode_response(status, headers, body, head_only=request.method == "HEAD")
