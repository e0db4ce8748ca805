"""All requests of the interface, and the pages that are other addresses of some."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from trio_stomp.web._site import Site
from trio_stomp.web.management._access import Access
from trio_stomp.web.management._changes import Changes
from trio_stomp.web.management._core import Core
from trio_stomp.web.management._definitions import Definitions
from trio_stomp.web.management._history import History
from trio_stomp.web.management._leftovers import Leftovers
from trio_stomp.web.management._lists import Lists
from trio_stomp.web.management._operations import MessageOperations
from trio_stomp.web.management._overview import Overview, SettingRequests
from trio_stomp.web.management._queues import QueueRequests
from trio_stomp.web.management._streams import StreamRequests
from trio_stomp.web.management._subscriptions import SubscriptionLists
from trio_stomp.web.management._views import Views
from trio_stomp.web.management.requests import Endpoint, document

if TYPE_CHECKING:
    from trio_stomp.diag import Figures
    from trio_stomp.server import Server

PAGES: Mapping[str, str] = MappingProxyType(
    {
        "overview": "/varz",
        "connections": "/connz",
        "subscriptions": "/subsz",
        "queues": "/queuez",
        "explain": "/explain",
    }
)
"""Other addresses of some requests, with the names of NATS's monitoring."""
EXPLAIN = "explain"


def endpoints(server: "Server", core: Core, figures: "Figures") -> list[Endpoint]:
    """Return all requests of the interface."""
    manager = core.manager
    access = Access(server, manager, figures)
    groups = (
        Overview(server, figures),
        Lists(server, figures),
        SubscriptionLists(server, figures),
        Views(server, core, figures),
        History(server, manager, figures),
        MessageOperations(server, manager),
        QueueRequests(server, manager),
        StreamRequests(server, manager, figures),
        Leftovers(server, manager, figures),
        access,
        SettingRequests(core, figures),
        Definitions(server, core, figures),
        Changes(server, manager),
    )
    found = [each for group in groups for each in group.endpoints()]
    access.operations = [each for each in found if each.method == "POST"]
    return [*found, document(found)]


def add_interface(site: Site, server: "Server", core: Core, figures: "Figures") -> None:
    """Add the requests of the management interface, and their pages, to a site."""
    for each in endpoints(server, core, figures):
        each.add_to(site)
        if each.name in PAGES:
            site.pages[PAGES[each.name]] = each.page(in_json=each.name == EXPLAIN)
