"""The pages of the port by path, and the answers to other requests that are no upgrades.

Pages with figures need a right, mostly that to monitor.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from attrs import define, field, frozen

from trio_stomp.base import ANONYMOUS, Identity, Pieces
from trio_stomp.broker import Action
from trio_stomp.server import API
from trio_stomp.transport import UPGRADE_REQUIRED_HEADERS, HttpError, HttpRequest, encode_response
from trio_stomp.web._pieces import in_one
from trio_stomp.web._static import read_files

if TYPE_CHECKING:
    from trio_stomp.server import WebOperation


Rights = Sequence[tuple[Action, str]]
"""Actions and destinations."""
WATCH: Rights = ((Action.MONITOR, "DIAG"),)
PAGE_METHODS = ("GET", "HEAD")
ADMIN: Rights = ((Action.ADMIN, "DIAG"),)

# Common WebSocket paths: RabbitMQ's /ws, ActiveMQ's /stomp and the last segment of SockJS. The
# upgrade is accepted on any path (only /…/{server}/{session}/websocket may be SockJS); these only
# determine the answer to a plain GET.
WEBSOCKET_PATHS = frozenset({"/ws", "/stomp"})
WEBSOCKET_SUFFIX = "/websocket"

LIVE = "/livez"
HEALTH_PATHS = frozenset({LIVE, "/readyz"})
_NOT_KEPT = (("Cache-Control", "no-store"),)


@frozen
class Page:
    """A page.

    Args:
      answer: Makes the answer to a GET or HEAD of a user, in pieces.
      rights: The rights that it requires, or a function that returns them; None = it is public.
    """

    answer: Callable[[HttpRequest, Identity], Pieces[bytes]]
    rights: Rights | Callable[[], Rights] | None = WATCH


@define(eq=False, repr=False)
class Site:
    """The pages of a broker.

    Args:
      version: The version of the broker.
      address: Its address, for people.
      why_unready: Returns why the broker should get no clients now; "" = it is ready.
      pages: Further pages by path.
      operations: Make operations of requests, by method and path.
    """

    version: str
    address: str
    why_unready: Callable[[], str]
    pages: dict[str, Page] = field(factory=dict)
    operations: "dict[tuple[str, str], Callable[[HttpRequest], WebOperation]]" = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        # The dashboard is public: it holds no figures, but requests them as a client.
        for path, file in read_files(self.version, self.address).items():
            self.pages.setdefault(path, Page(in_one(file.answer), None))

    def rights(self, request: HttpRequest) -> Rights | None:
        """Return the rights that the requested page requires; None = it is public."""
        page = self.pages.get(request.path)
        rights = None if page is None else page.rights
        return rights() if callable(rights) else rights

    def operation(self, request: HttpRequest) -> "WebOperation | None":
        """Return the requested operation, or None.

        Raises:
          HttpError: the address, the method or a parameter is wrong.
        """
        make = self.operations.get((request.method, request.path))
        if make is not None:
            return make(request)
        methods = [method for method, path in self.operations if path == request.path]
        if request.path in self.pages:
            methods += PAGE_METHODS
        if not request.path.startswith(API) or request.method in methods:
            return None
        if not methods:
            text = f"there is no {request.path[:80]!r}; GET {API}openapi.json lists the addresses"
            raise HttpError(404, text, code="no-such-address")
        raise HttpError(
            405,
            f"{request.path} answers {methods[0]} only",
            (("Allow", ", ".join(methods)),),
            "method-not-allowed",
        )

    def respond(self, request: HttpRequest, identity: Identity = ANONYMOUS) -> Pieces[bytes]:
        """Make the answer in pieces. The caller has checked the right to see it."""
        page = self.pages.get(request.path)
        if page is None:
            return respond(request, unready=self.why_unready())
        if request.method not in PAGE_METHODS:
            return refuse_method(request)
        return (yield from page.answer(request, identity))


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
