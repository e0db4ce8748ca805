"""The listeners for clients: configured ports, or those of an embedding program."""

from collections.abc import Sequence
from contextlib import AsyncExitStack

import trio

from trio_stomp.base import is_loopback
from trio_stomp.config import Settings
from trio_stomp.server import Entrance, EventFeed, ServerHandle
from trio_stomp.startup._security import ListenAddress, Security

Listeners = Sequence[trio.abc.Listener[trio.abc.Stream]]

MAX_LAYERS = 8
"""Maximum number of wrappers to look through; TLS around a socket is one."""


async def check_addresses(
    settings: Settings, security: Security, listeners: Listeners | None
) -> None:
    """Refuse to listen beyond loopback without authentication, or without encryption.

    If the address of a program's listener is unknown, each of its streams is judged by its remote
    address (``trio_stomp.transport.wire_over``).

    Args:
      settings: The settings, with the address to listen on.
      security: Authentication and TLS.
      listeners: The program's listeners; None = the address of the settings.

    Raises:
      OptionError: listening there is not safe; the text names the address and the remedies.
      OSError: the host is unknown.
    """
    if listeners is None:
        host, port = settings.listen.host, settings.listen.port
        # As ``trio.open_tcp_listeners``: without the flag, ``*`` is loopback.
        found = await trio.socket.getaddrinfo(
            host, port, type=trio.socket.SOCK_STREAM, flags=trio.socket.AI_PASSIVE
        )
        hosts = [(str(listener[0]), False) for *_, listener in found]
    else:
        hosts = [
            (str(name[0]), _is_encrypted(each))
            for each in listeners
            if (listening := _socket_of(each)) is not None
            and isinstance(name := listening.getsockname(), tuple)  # others are Unix sockets
        ]
    security.check_addresses(
        [ListenAddress(host, is_loopback(host), secret) for host, secret in hosts]
    )


def _is_encrypted(listener: trio.abc.Listener[trio.abc.Stream]) -> bool:
    """Return whether Trio's TLS wraps the listener. Other TLS streams are not recognized."""
    inner: object = listener
    for _ in range(MAX_LAYERS):
        if isinstance(inner, trio.SSLListener):
            return True
        inner = getattr(inner, "transport_listener", None)
    return False


def _socket_of(listener: trio.abc.Listener[trio.abc.Stream]) -> trio.socket.SocketType | None:
    """Return the listening socket below all wrappers, or None if there is none.

    A wrapper has its inner listener in ``transport_listener``, as ``trio.SSLListener`` does.
    """
    inner: object = listener
    for _ in range(MAX_LAYERS):
        if isinstance(inner, trio.SocketListener):
            return inner.socket
        inner = getattr(inner, "transport_listener", None)
    return None


async def open_entrances(
    settings: Settings, security: Security, listeners: Listeners | None, unused: AsyncExitStack
) -> list[Entrance]:
    """Return the given listeners, or those of the settings.

    Args:
      settings: The settings.
      security: Authentication and TLS.
      listeners: The program's listeners; None = those of the settings.
      unused: Closes the opened listeners, unless the server takes them over.

    Raises:
      OSError: listening on an address failed.
    """
    transport, host = settings.transport, settings.listen.host
    tls = security.tls_way
    if listeners is not None:
        return [Entrance(each, tls) for each in listeners]
    ports = [(settings.listen.port, tls)]
    if transport.tls_port:
        ports.append((transport.tls_port, "required"))
    entrances = []
    for port, way in ports:
        for listener in await trio.open_tcp_listeners(port, host=host):
            unused.push_async_callback(trio.aclose_forcefully, listener)
            entrances.append(Entrance(listener, way))
    return entrances


def handle_of(entrances: Sequence[Entrance], feed: EventFeed, node: str = "") -> ServerHandle:
    """Return the handle of a broker, or a node, with these entrances."""
    return ServerHandle(
        tuple(address_of(each.listener) for each in entrances if each.tls != "required"),
        tuple(address_of(each.listener) for each in entrances if each.tls == "required"),
        feed=feed,
        node=node,
    )


def address_of(listener: trio.abc.Listener[trio.abc.Stream]) -> str:
    """Return a listener's address: ``host:port``, ``unix``, or ``in-memory`` without a socket."""
    listening = _socket_of(listener)
    if listening is None:
        return "in-memory"
    name = listening.getsockname()
    if not isinstance(name, tuple):
        return "unix"
    host, port = name[:2]
    return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
