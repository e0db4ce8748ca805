"""How tests compose a broker: without tasks, or with parts of their own.

No other module of the tests reaches into the composition.
"""

import trio

from trio_stomp.startup import _serve as composition

__all__ = [
    "Embedding",
    "address_of",
    "composition",
    "make_server",
    "serve_one",
    "use_settings",
]

Embedding = composition.Embedding
serve_one = composition.serve_one
make_server = composition._assemble
"""Returns the server of settings, security and a handle; nothing runs."""
use_settings = composition._use
"""Adopts other settings, as a broker does that reads its files again."""


def address_of(listener: trio.abc.Listener[trio.abc.Stream]) -> str:
    """Return a listener's address, ``host:port``, or ``in-memory`` without a socket."""
    if not isinstance(listener, trio.SocketListener):
        return "in-memory"
    host, port = listener.socket.getsockname()[:2]
    return f"{host}:{port}"
