"""Transports to the broker: TCP, TLS, WebSocket, or a stream of the application."""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Protocol
from urllib.parse import urlsplit

import trio
from attrs import define, field, frozen

from trio_stomp.base import OptionError, sole
from trio_stomp.client._errors import ConnectFailed

Connector = Callable[[], Awaitable[trio.abc.Stream]]
"""Opens a new stream to the broker with each call."""

READ_BYTES = 65536
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
    connector: Connector | None = field(default=None, repr=False)
    ssl_context: ssl.SSLContext | None = field(default=None, repr=False)

    @property
    def address(self) -> str:
        """Return the broker's address for errors."""
        if self.connector is not None:
            return "the connector"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_endpoint(where: str | Connector, ssl_context: ssl.SSLContext | None = None) -> Endpoint:
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
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "") if is_websocket else ""
    port = _PORTS[scheme] if port is None else port
    return Endpoint(host, port, scheme in _SECRET, path, ssl_context=ssl_context)


class Pipe(Protocol):
    """Sends and receives the bytes of STOMP over any transport.

    Both methods raise ``trio.BrokenResourceError`` or ``trio.ClosedResourceError`` once the
    connection is broken.
    """

    async def send(self, data: bytes) -> None:
        """Send the bytes of whole frames."""

    async def receive(self) -> bytes:
        """Return the next bytes, or b"" at the end."""


@define(eq=False, repr=False)
class StreamPipe:
    """Carries the bytes of STOMP directly in a stream."""

    stream: trio.abc.Stream

    async def send(self, data: bytes) -> None:
        """Implement ``Pipe.send``."""
        await self.stream.send_all(data)

    async def receive(self) -> bytes:
        """Implement ``Pipe.receive``."""
        return bytes(await self.stream.receive_some(READ_BYTES))


@define(eq=False, repr=False)
class WebSocketPipe:
    """Carries the bytes of STOMP in binary WebSocket messages, by trio-websocket."""

    connection: Any
    closed: type[Exception]

    async def send(self, data: bytes) -> None:
        """Implement ``Pipe.send``."""
        try:
            await self.connection.send_message(data)
        except self.closed as error:
            raise trio.BrokenResourceError(str(error)) from error

    async def receive(self) -> bytes:
        """Implement ``Pipe.receive``."""
        try:
            while not (message := await self.connection.get_message()):
                pass  # an empty message carries nothing, and is not the end
        except self.closed:
            return b""
        return message.encode() if isinstance(message, str) else bytes(message)


@asynccontextmanager
async def open_pipe(
    endpoint: Endpoint, versions: tuple[str, ...], max_message_bytes: int
) -> AsyncIterator[Pipe]:
    """Connect for the block, and close at its end without waiting.

    Raises:
      ConnectFailed: the broker cannot be reached.
      OptionError: trio-websocket is not installed.
    """
    stream = await _dial(endpoint)
    try:
        if not endpoint.path:
            yield StreamPipe(stream)
            return
        async with _upgraded(endpoint, stream, versions, max_message_bytes) as pipe:
            yield pipe
    finally:
        await trio.aclose_forcefully(stream)


async def _dial(endpoint: Endpoint) -> trio.abc.Stream:
    with _raising_connect_failed(endpoint):
        if endpoint.connector is not None:
            return await endpoint.connector()
        stream = await trio.open_tcp_stream(endpoint.host, endpoint.port)
        if not endpoint.is_secret:
            return stream
    try:
        context = endpoint.ssl_context or ssl.create_default_context()
        secret = trio.SSLStream(
            stream, context, server_hostname=endpoint.host, https_compatible=True
        )
        with _raising_connect_failed(endpoint):
            await secret.do_handshake()
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise
    return secret


@contextmanager
def _raising_connect_failed(endpoint: Endpoint) -> Iterator[None]:
    try:
        yield
    except (OSError, trio.BrokenResourceError, trio.ClosedResourceError, ssl.CertificateError) as e:
        cause = e.__cause__ if isinstance(e, trio.BrokenResourceError) and e.__cause__ else e
        if isinstance(cause, ssl.SSLCertVerificationError):
            untrusted = f"its certificate is not trusted: {cause.verify_message}"
            raise ConnectFailed(f"no connection to {endpoint.address}: {untrusted}") from cause
        raise ConnectFailed(f"no connection to {endpoint.address}: {cause}") from e


@asynccontextmanager
async def _upgraded(
    endpoint: Endpoint, stream: trio.abc.Stream, versions: tuple[str, ...], max_message_bytes: int
) -> AsyncIterator[Pipe]:
    try:
        import trio_websocket
    except ImportError:
        raise OptionError(
            "ws:// and wss:// need trio-websocket: pip install trio-websocket"
        ) from None
    raised: BaseExceptionGroup[BaseException] | None = None
    try:
        async with trio.open_nursery() as nursery:
            connection = await trio_websocket.wrap_client_stream(
                nursery,
                stream,  # type: ignore[arg-type]
                endpoint.host if endpoint.port in (0, 80, 443) else endpoint.address,
                endpoint.path,
                subprotocols=[_SUBPROTOCOLS[name] for name in reversed(versions)],
                max_message_size=max_message_bytes,
                receive_buffer_size=READ_BYTES,
            )
            yield WebSocketPipe(connection, trio_websocket.ConnectionClosed)
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raised = group
    if raised is None:
        return
    refused, other = raised.split(trio_websocket.HandshakeError)
    if other is not None:
        raise sole(other)
    status = getattr(sole(refused) if refused else None, "status_code", None)
    what = f"it answered {status}" if status else "it closed the connection"
    raise ConnectFailed(
        f"no WebSocket at {endpoint.address}{endpoint.path.partition('?')[0]}: {what}"
    )
