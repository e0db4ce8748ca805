"""All pages of the port: path → page. Pages with figures are for those who may monitor."""

from collections.abc import Callable

from attrs import define, field, frozen

from trio_stomp.transport import HttpRequest
from trio_stomp.web._routes import respond


@frozen
class Page:
    """One page.

    Args:
      answer: The whole answer to a GET or HEAD of it.
      is_private: It tells figures of the broker.
    """

    answer: Callable[[HttpRequest], bytes]
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

    def is_private(self, request: HttpRequest) -> bool:
        """Whether the page that it asks for tells figures."""
        page = self.pages.get(request.path)
        return page is not None and page.is_private

    def respond(self, request: HttpRequest) -> bytes:
        """The whole answer; whether it may be told has been asked before."""
        page = self.pages.get(request.path)
        if page is not None and request.method in ("GET", "HEAD"):
            return page.answer(request)
        return respond(
            request, version=self.version, address=self.address, unready=self.why_unready()
        )
