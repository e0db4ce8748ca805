"""The pages of the port, by path. Those with figures need the right to monitor."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from attrs import define, field, frozen

from trio_stomp.base import Pieces
from trio_stomp.transport import HttpError, HttpRequest
from trio_stomp.web._pieces import in_one
from trio_stomp.web._routes import refuse_method, respond
from trio_stomp.web._static import read_files

if TYPE_CHECKING:
    from trio_stomp.server import WebOperation


@frozen
class Page:
    """A page.

    Args:
      answer: Makes the answer to a GET or HEAD, in pieces.
      is_private: Whether it contains figures of the broker.
    """

    answer: Callable[[HttpRequest], Pieces[bytes]]
    is_private: bool = True


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
            self.pages.setdefault(path, Page(in_one(file.answer), is_private=False))

    def is_private(self, request: HttpRequest) -> bool:
        """Return whether the requested page contains figures."""
        page = self.pages.get(request.path)
        return page is not None and page.is_private

    def operation(self, request: HttpRequest) -> "WebOperation | None":
        """Return the requested operation, or None.

        Raises:
          HttpError: its parameters or the method are wrong.
        """
        make = self.operations.get((request.method, request.path))
        if make is not None:
            return make(request)
        methods = [method for method, path in self.operations if path == request.path]
        if not methods:
            return None
        raise HttpError(
            405,
            f"{request.path} answers {methods[0]} only",
            (("Allow", ", ".join(methods)),),
            "method-not-allowed",
        )

    def respond(self, request: HttpRequest) -> Pieces[bytes]:
        """Make the answer in pieces. The caller has checked the right to see it."""
        page = self.pages.get(request.path)
        if page is None:
            return respond(request, unready=self.why_unready())
        if request.method not in ("GET", "HEAD"):
            return refuse_method(request)
        return (yield from page.answer(request))
