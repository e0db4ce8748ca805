"""The addresses of the interface, except for lists."""

from functools import partial
from typing import TYPE_CHECKING

from trio_stomp.server import API
from trio_stomp.web._query import page
from trio_stomp.web._site import Site
from trio_stomp.web.management._changes import close, pause, resume
from trio_stomp.web.management._operations import messages, move, purge, retry
from trio_stomp.web.management._views import Views

if TYPE_CHECKING:
    from trio_stomp.broker import Manager
    from trio_stomp.diag import Figures
    from trio_stomp.server import Server


def add_operations(site: Site, server: "Server", manager: "Manager") -> None:
    """Let a site do what operators request at ``/api/v1``."""
    for method, make in (
        ("GET", messages),
        ("POST", purge),
        ("POST", move),
        ("POST", retry),
        ("POST", pause),
        ("POST", resume),
        ("POST", close),
    ):
        site.operations[method, API + make.__name__] = partial(make, server, manager)


def add_views(site: Site, server: "Server", manager: "Manager", figures: "Figures") -> None:
    """Let a site show single queues and connections at ``/api/v1``."""
    views = Views(server, manager, figures)
    site.pages[API + "queue"] = page(views.queue)
    site.pages[API + "connection"] = page(views.connection)
    site.pages[API + "explain"] = site.pages["/explain"]
