"""Transports to the broker: TCP, TLS, WebSocket, or a stream of the application."""

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol
from urllib.parse import urlsplit

from attrs import define, field, frozen

from trio_stomp.base import OptionError
from trio_stomp.client._errors import ConnectFailed
from trio_stomp.client._websocket import READ_BYTES, upgrade
from trio_stomp.client.loops import AsyncioConnector, Connector, Loop, Stream

DEFAULT_PORT = 61613
_PORTS = {"stomp": DEFAULT_PORT, "stomps": 61614, "ws": 80, "wss": 443}
_SECRET = ("stomps", "wss")
_WEBSOCKET = ("ws", "wss")
_SUBPROTOCOLS = {"1.2": "v12.stomp", "1.1": "v11.stomp", "1.0": "v10.stomp"}


@frozen
class Endpoint:
    """The address of the broker, and how to connect to it.

    Args:
      connector: Opens the stream; None = TCP to ``host`` and ``port``.
      path: The path of the WebSocket; "" = no WebSocket.
    """

    host: str
    port: int = 0
    is_secret: bool = False
    path: str = ""
    connector: Connector | AsyncioConnector | None = field(default=None, repr=False)
    ssl_context: ssl.SSLContext | None = field(default=None, repr=False)

    @property
    def address(self) -> str:
        """Return the broker's address for errors."""
        if self.connector is not None:
            return "the connector"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_endpoint(
    where: str | Connector | AsyncioConnector, ssl_context: ssl.SSLContext | None = None
) -> Endpoint:
    """Parse an address.

    Raises:
      OptionError: it is invalid; it is not quoted if it may hold a secret.
    """
    if not isinstance(where, str):
        return Endpoint("localhost", connector=where, ssl_context=ssl_context)
    if "@" in where:
        raise OptionError(
            "the url contains credentials: pass them as login= and passcode=, or token="
        )
    try:
        parts = urlsplit(where)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise OptionError(f"{where!r} is not a URL; write stomp://host:port") from None
    scheme = parts.scheme
    if scheme not in _PORTS or not host:
        raise OptionError(
            f"{where!r} is not the address of a broker; write stomp://host:port, or with stomps, "
            "ws, wss"
        )
    is_websocket = scheme in _WEBSOCKET
    if not is_websocket and (parts.path not in ("", "/") or parts.query):
        raise OptionError(f"{where!r}: only ws:// and wss:// have a path")
    if not all("!" <= each <= "~" for each in parts.path + parts.query):
        raise OptionError("the path of the url has blanks or other characters to percent-encode")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "") if is_websocket else ""
    port = _PORTS[scheme] if port is None else port
    return Endpoint(host, port, scheme in _SECRET, path, ssl_context=ssl_context)


class Pipe(Protocol):
    """Sends and receives the bytes of STOMP over any transport.

    Both methods raise one of ``Loop.broken`` once the connection is broken.
    """

    on_reply: Callable[[], None]
    """Called when the transport has control data, which the next ``send`` sends along.
    """

    async def send(self, data: bytes) -> None:
        """Send the bytes of whole frames."""

    async def receive(self) -> bytes:
        """Return the next bytes, or b"" at the end."""


@define(eq=False, repr=False)
class StreamPipe:
    """Carries the bytes of STOMP directly in a stream."""

    stream: Stream
    on_reply: Callable[[], None] = lambda: None

    async def send(self, data: bytes) -> None:
        """Implement ``Pipe.send``."""
        await self.stream.send_all(data)

    async def receive(self) -> bytes:
        """Implement ``Pipe.receive``."""
        return bytes(await self.stream.receive_some(READ_BYTES))


@asynccontextmanager
async def open_pipe(
    endpoint: Endpoint, versions: tuple[str, ...], loop: Loop
) -> AsyncIterator[Pipe]:
    """Connect for the block, and close at its end without waiting.

    Raises:
      ConnectFailed: the broker cannot be reached.
    """
    stream = await _dial(endpoint, loop)
    try:
        if not endpoint.path:
            yield StreamPipe(stream)
            return
        host = endpoint.host if endpoint.port in (0, 80, 443) else endpoint.address
        try:
            pipe = await upgrade(
                stream, host, endpoint.path, [_SUBPROTOCOLS[each] for each in versions]
            )
        except loop.broken as error:
            place = endpoint.address + endpoint.path.partition("?")[0]
            why = str(error) or "it closed the connection"
            raise ConnectFailed(f"no WebSocket at {place}: {why}") from error
        yield pipe
    finally:
        await loop.close(stream)


async def _dial(endpoint: Endpoint, loop: Loop) -> Stream:
    try:
        if endpoint.connector is not None:
            return await loop.call(endpoint.connector)
        context = (
            (endpoint.ssl_context or ssl.create_default_context()) if endpoint.is_secret else None
        )
        return await loop.connect(endpoint.host, endpoint.port, context)
    except loop.broken as error:
        is_wrapped = not isinstance(error, OSError) and error.__cause__ is not None
        cause = error.__cause__ if is_wrapped else error
        if isinstance(cause, ssl.SSLCertVerificationError):
            untrusted = f"its certificate is not trusted: {cause.verify_message}"
            raise ConnectFailed(f"no connection to {endpoint.address}: {untrusted}") from cause
        raise ConnectFailed(f"no connection to {endpoint.address}: {cause}") from error
