"""Floor 5: the web pages on the broker's port.

Handles: the dashboard's files, the answer to a WebSocket path without an upgrade, 404 and 405;
metrics, health, and figures as JSON.
Does not handle: reading requests and the upgrade (``transport``), sockets; the figures of the
dashboard, which it receives like any STOMP client (``static/``).
"""

from typing import TYPE_CHECKING

from trio_stomp._lazy import lazily

if TYPE_CHECKING:
    from trio_stomp.web._options import WebOptions as WebOptions
    from trio_stomp.web._pages import add_node_metrics as add_node_metrics
    from trio_stomp.web._pages import add_pages as add_pages
    from trio_stomp.web._pieces import in_one as in_one
    from trio_stomp.web._query import LIST_BYTES as LIST_BYTES
    from trio_stomp.web._query import MORE as MORE
    from trio_stomp.web._site import Page as Page
    from trio_stomp.web._site import Site as Site
    from trio_stomp.web._site import respond as respond
    from trio_stomp.web.declared import Number as Number
    from trio_stomp.web.management import PAGES as PAGES
    from trio_stomp.web.management import Core as Core
    from trio_stomp.web.management import add_interface as add_interface
else:
    # These import the broker, which would make commands slow that need the declarations alone.
    _HOMES = {
        "_options": "WebOptions",
        "_pages": "add_node_metrics add_pages",
        "_pieces": "in_one",
        "_query": "LIST_BYTES MORE",
        "declared": "Number",
        "_site": "Page Site respond",
        "management": "PAGES Core add_interface",
    }
    __getattr__, __dir__ = lazily(__name__, _HOMES)
