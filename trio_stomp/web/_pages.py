"""Registration of the pages with figures."""

from typing import TYPE_CHECKING

from trio_stomp.transport import HttpRequest
from trio_stomp.web._health import Disk, Health
from trio_stomp.web._options import WebOptions
from trio_stomp.web._pieces import in_one
from trio_stomp.web._query import NOT_KEPT, Answer, page
from trio_stomp.web._site import Page, Site

if TYPE_CHECKING:
    from trio_stomp.diag import Figures
    from trio_stomp.server import Server
    from trio_stomp.web._metrics import Owned

_NO_LIBRARY = (
    "/metrics needs prometheus-client on the broker's side: pip install prometheus-client\n"
)


def add_pages(
    site: Site, server: "Server", figures: "Figures", options: WebOptions, data_dir: str = ""
) -> None:
    """Let a site answer ``/metrics`` and ``/healthz``.

    Args:
      site: The site to extend.
      server: The server, which is complete before the first request.
      figures: The figures of that server.
      options: The options of the pages.
      data_dir: The directory of the store; "" = none. Its disk is measured once, here.
    """
    site.pages["/healthz"] = page(in_one(Health(server, figures, Disk(data_dir)).healthz))
    site.pages["/metrics"] = _metrics(server, figures, options)


def add_node_metrics(
    site: Site, server: "Server", figures: "Figures", options: WebOptions, owned: "Owned"
) -> None:
    """Let the site of a node's router answer ``/metrics`` for the node.

    Args:
      site: The site, which has pages.
      server: The router's server.
      figures: Its figures.
      options: The options of the pages.
      owned: Returns the brokers of the partitions that the node owns at the moment.
    """
    try:
        from trio_stomp.web._metrics import BrokerCollector, Metrics, NodeCollector
    except ImportError:
        return  # the page says what is missing
    router = BrokerCollector(server, figures, options.metrics_destinations)
    site.pages["/metrics"] = page(Metrics(NodeCollector(router, owned)).answer)


def _metrics(server: "Server", figures: "Figures", options: WebOptions) -> Page:
    try:
        # Imported late, as it is optional.
        from trio_stomp.web._metrics import BrokerCollector, Metrics
    except ImportError:
        return page(in_one(_not_implemented))
    return page(Metrics(BrokerCollector(server, figures, options.metrics_destinations)).answer)


def _not_implemented(_request: HttpRequest) -> Answer:
    return 501, NOT_KEPT, _NO_LIBRARY.encode()
