"""All pages of the port: path → page. Pages with figures are for those who may monitor."""

from collections.abc import Callable

from attrs import define, field, frozen

from trio_stomp.base import Pieces
from trio_stomp.transport import HttpRequest
from trio_stomp.web._pieces import in_one
from trio_stomp.web._routes import refuse_method, respond
from trio_stomp.web._static import read_files


@frozen
class Page:
    """One page.

    Args:
      answer: Makes the whole answer to a GET or HEAD of it, in pieces.
      is_private: It tells figures of the broker.
    """

    answer: Callable[[HttpRequest], Pieces[bytes]]
    is_private: bool = True


@define(eq=False, repr=False)
class Site:
    """The pages of a broker.

    Args:
      version: Of the broker.
      address: Where it listens, for people.
      why_unready: Why nobody should be sent here now; "" = there is no reason.
      pages: By path, beside those that every broker has.
    """

    version: str
    address: str
    why_unready: Callable[[], str]
    pages: dict[str, Page] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        # The dashboard is for everybody: it holds no figures, it asks for them as a client.
        for path, file in read_files(self.version, self.address).items():
            self.pages.setdefault(path, Page(in_one(file.answer), is_private=False))

    def is_private(self, request: HttpRequest) -> bool:
        """Return whether the page that is asked for tells figures."""
        page = self.pages.get(request.path)
        return page is not None and page.is_private

    def respond(self, request: HttpRequest) -> Pieces[bytes]:
        """Make the whole answer in pieces. The caller has checked that it may be told."""
        page = self.pages.get(request.path)
        if page is None:
            return respond(request, unready=self.why_unready())
        if request.method not in ("GET", "HEAD"):
            return refuse_method(request)
        return (yield from page.answer(request))
