"""STOMP in binary WebSocket messages, over a stream of either async library."""

from collections.abc import Callable

from attrs import define
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Ping,
    RejectConnection,
    Request,
    TextMessage,
)
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from trio_stomp.client.loops import Stream

READ_BYTES = 65536


@define(eq=False, repr=False)
class WebSocketPipe:
    """Carries the bytes of STOMP in WebSocket messages, whose bounds mean nothing.

    Only ``send`` waits for the peer to read, so that the pipe goes on reading meanwhile: the answer
    to a PING goes with the next ``send``. Only the newest PING is answered.
    """

    stream: Stream
    _protocol: WSConnection
    on_reply: Callable[[], None] = lambda: None
    _reply: bytes = b""
    _is_sending: bool = False
    _is_closed: bool = False
    """The peer sent CLOSE, or broke a rule of WebSocket."""

    async def send(self, data: bytes) -> None:
        """Implement ``Pipe.send``."""
        try:
            message = self._protocol.send(BytesMessage(data))
        except LocalProtocolError as error:
            raise ConnectionError("the peer has closed the WebSocket") from error
        reply, self._reply = self._reply, b""
        self._is_sending = True
        await self.stream.send_all(reply + message)
        self._is_sending = False

    async def receive(self) -> bytes:
        """Implement ``Pipe.receive``."""
        while not (data := self._contents()):
            if self._is_closed:
                if not self._is_sending:
                    await self.stream.send_all(self._reply)
                return b""
            received = await self.stream.receive_some(READ_BYTES)
            if not received:
                return b""
            self._protocol.receive_data(bytes(received))
        return data

    def _contents(self) -> bytes:
        """Return the contents of received messages, and process control frames."""
        contents: list[bytes] = []
        for event in () if self._is_closed else self._protocol.events():
            if isinstance(event, BytesMessage):
                contents.append(bytes(event.data))
            elif isinstance(event, TextMessage):
                contents.append(event.data.encode())
            elif isinstance(event, Ping):
                if not self._reply:
                    self.on_reply()
                self._reply = self._protocol.send(event.response())
            elif isinstance(event, CloseConnection):
                self._reply = self._protocol.send(event.response())
                self._is_closed = True
        return b"".join(contents)


async def upgrade(stream: Stream, host: str, path: str, subprotocols: list[str]) -> WebSocketPipe:
    """Shake hands with the server.

    Args:
      stream: A new connection.
      host: The Host header.
      path: The path and query.
      subprotocols: The offered protocols, the preferred one last.

    Raises:
      ConnectionError: the peer refused, or speaks no WebSocket.
      Exception: one of ``Loop.broken``; the stream broke.
    """
    protocol = WSConnection(ConnectionType.CLIENT)
    request = Request(host=host, target=path, subprotocols=subprotocols[::-1])
    await stream.send_all(protocol.send(request))
    while True:
        received = await stream.receive_some(READ_BYTES)
        if not received:
            raise ConnectionError("it closed the connection")
        try:
            protocol.receive_data(bytes(received))
            answer = next(iter(protocol.events()), None)
        except (RemoteProtocolError, ValueError) as error:
            raise ConnectionError(f"it does not speak WebSocket: {error}") from error
        if isinstance(answer, AcceptConnection):
            return WebSocketPipe(stream, protocol)
        if isinstance(answer, RejectConnection):
            raise ConnectionError(f"it answered {answer.status_code}")
