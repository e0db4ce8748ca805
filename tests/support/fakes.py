"""Shared helpers of the tests of several floors: listeners, clients, a broker in memory, an outbox.

The client here is written from the specification alone and shares no code with the broker, so it
understands what a foreign client would understand.
"""

import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import pairwise
from typing import Any, Protocol

import trio
import trio.testing
from _oracle.server_frames import FrameReader as FrameReader
from _oracle.server_frames import Received as Received
from _oracle.server_frames import bodies as bodies
from _oracle.server_frames import escape as escape
from attrs import define, field
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    Pong,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)

from tests.support.startup import Embedding, address_of, make_server
from tests.support.tls import authority
from trio_stomp import ServerHandle, Settings
from trio_stomp.broker import Broker, Delivery
from trio_stomp.cluster import Contact, Gate
from trio_stomp.cluster.routing import Placement, Router, make_core
from trio_stomp.server import Door, Entrance, InnerServer, Server, ServerLimits
from trio_stomp.startup import Security

PATIENCE_S = 30.0
"""A client that waits longer for the broker has found a bug. Virtual time under a mock clock."""

READ_BYTES = 65536

Headers = Mapping[str, str] | Sequence[tuple[str, str]]

# --- the listener -----------------------------------------------------------------------------


class MemoryListener(trio.abc.Listener[trio.abc.Stream]):
    """A listener for connections over pairs of memory streams."""

    def __init__(self, backlog: int = 100_000) -> None:
        self._to_accept, self._accepted = trio.open_memory_channel[trio.abc.Stream](backlog)

    async def accept(self) -> trio.abc.Stream:
        """Return the server's end of the next connection."""
        try:
            return await self._accepted.receive()
        except trio.EndOfChannel as error:
            raise trio.ClosedResourceError from error

    async def aclose(self) -> None:
        with suppress(trio.WouldBlock, trio.ClosedResourceError, trio.EndOfChannel):
            while True:
                abort(self._accepted.receive_nowait())  # as the kernel resets its backlog
        self._accepted.close()
        await trio.lowlevel.checkpoint()

    def connect(self) -> "MemoryStream":
        """Return the client's end of a new connection. The server's end waits to be accepted.

        Raises:
          trio.BrokenResourceError: the listener is closed.
        """
        ours, theirs = trio.testing.memory_stream_pair()
        self.hand_over(theirs)
        return ours

    def connect_narrow(self) -> trio.abc.Stream:
        """Connect over a stream whose sender waits until its peer has read everything."""
        ours, theirs = trio.testing.lockstep_stream_pair()
        self.hand_over(theirs)
        return ours

    def hand_over(self, stream: trio.abc.Stream) -> None:
        """Let ``stream`` be accepted next."""
        self._to_accept.send_nowait(stream)


MemoryStream = trio.StapledStream[trio.testing.MemorySendStream, trio.testing.MemoryReceiveStream]


# --- STOMP as a client sees it ----------------------------------------------------------------


def frame_bytes(
    command: str, headers: Headers = (), body: bytes = b"", version: str = "1.0"
) -> bytes:
    """Return a frame as a client writes it."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    lines = "".join(f"{escape(name, version)}:{escape(text, version)}\n" for name, text in pairs)
    return f"{command}\n{lines}\n".encode() + body + b"\0"


# --- ways to the broker -----------------------------------------------------------------------


class Pipe(Protocol):
    """STOMP bytes in both directions, over any transport."""

    async def send_bytes(self, data: bytes) -> None:
        """Send STOMP bytes."""

    async def receive_bytes(self) -> bytes:
        """Return received STOMP bytes, or b"" at the end."""

    async def aclose(self) -> None:
        """Close as the transport does it in order."""

    def abort(self) -> None:
        """Close immediately, without a farewell."""


@define(eq=False)
class StreamPipe:
    """STOMP bytes are the stream's bytes."""

    stream: trio.abc.Stream

    async def send_bytes(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def receive_bytes(self) -> bytes:
        return bytes(await self.stream.receive_some(READ_BYTES))

    async def aclose(self) -> None:
        await self.stream.aclose()

    def abort(self) -> None:
        abort(self.stream)


@define(eq=False)
class WebSocketPipe:
    """STOMP bytes travel in WebSocket messages, by wsproto's client side.

    Args:
      binary: Send binary messages instead of text.
      answers: Answer pings and Close; a client that does not is a rude one.
    """

    stream: trio.abc.Stream
    binary: bool = False
    answers: bool = True
    subprotocol: str | None = None
    close_code: int | None = None
    close_reason: str | None = None
    close_seen: bool = False
    pings: int = 0
    pongs: list[bytes] = field(factory=list)
    messages: list[bytes | str] = field(factory=list)
    """Every message received, with its kind."""
    is_ended: bool = False
    _connection: WSConnection = field(factory=lambda: WSConnection(ConnectionType.CLIENT))
    _message: list[bytes | str] = field(factory=list)

    async def shake_hands(
        self,
        subprotocols: Sequence[str] = ("v12.stomp", "v11.stomp", "v10.stomp"),
        path: str = "/ws",
        behind: bytes = b"",
        headers: Sequence[tuple[str, str]] = (),
        host: str = "broker",
    ) -> None:
        """Open the WebSocket.

        Args:
          headers: Of the request, beside those of the handshake.
          behind: Raw bytes to send in the same packet as the request.
        """
        extra = [(name.encode(), text.encode()) for name, text in headers]
        request = Request(
            host=host, target=path, subprotocols=list(subprotocols), extra_headers=extra
        )
        await self.stream.send_all(self._connection.send(request) + behind)
        with trio.fail_after(PATIENCE_S):
            while True:
                data = bytes(await self.stream.receive_some(READ_BYTES))
                assert data, "the broker closed in the handshake"
                self._connection.receive_data(data)
                for event in self._connection.events():
                    if isinstance(event, AcceptConnection):
                        self.subprotocol = event.subprotocol
                        assert not event.extensions
                        return
                    assert not isinstance(event, RejectConnection | RejectData), event

    def wrap(self, data: bytes) -> bytes:
        """Return the bytes of one message with ``data``, which is binary if it is not UTF-8."""
        try:
            text = "" if self.binary else data.decode()
        except UnicodeDecodeError:
            text = ""
        return self._connection.send(TextMessage(text) if text else BytesMessage(data))

    async def send_bytes(self, data: bytes) -> None:
        if self.close_seen:
            raise trio.BrokenResourceError("the broker has sent Close")
        await self.stream.send_all(self.wrap(data))

    async def send_event(self, event: Event) -> None:
        """Send any WebSocket event."""
        await self.stream.send_all(self._connection.send(event))

    async def receive_bytes(self) -> bytes:
        while not self.is_ended:
            out = b""
            for event in self._connection.events():
                out += await self._handle(event)
            if out:
                return out
            data = bytes(await self.stream.receive_some(READ_BYTES))
            if not data:
                self.is_ended = True
                return b""
            self._connection.receive_data(data)
        return b""

    async def _handle(self, event: Event) -> bytes:
        if isinstance(event, TextMessage | BytesMessage):
            assert not self.close_seen, "data after Close"
            self._message.append(event.data if isinstance(event.data, str) else bytes(event.data))
            if not event.message_finished:
                return b""
            first, *others = self._message
            self._message = []
            for other in others:
                first += other  # type: ignore[operator]
            self.messages.append(first)
            return first.encode() if isinstance(first, str) else bytes(first)
        if isinstance(event, Ping):
            self.pings += 1
            if self.answers:
                await self.stream.send_all(self._connection.send(event.response()))
        elif isinstance(event, Pong):
            self.pongs.append(bytes(event.payload))
        elif isinstance(event, CloseConnection):
            self.close_seen = True
            self.close_code, self.close_reason = event.code, event.reason
            if self.answers and self._connection.state.name == "REMOTE_CLOSING":
                with trio.move_on_after(PATIENCE_S):
                    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                        await self.stream.send_all(self._connection.send(event.response()))
        return b""

    async def send_close(self, code: int = 1000) -> None:
        """Start the closing handshake."""
        await self.send_event(CloseConnection(code=code))

    async def aclose(self) -> None:
        await self.stream.aclose()

    def abort(self) -> None:
        abort(self.stream)


def abort(stream: trio.abc.Stream) -> None:
    """Close a stream immediately: a socket with a reset, a memory stream by ending."""
    if isinstance(stream, trio.SSLStream):
        stream = stream.transport_stream
    if isinstance(stream, trio.SocketStream):
        if stream.socket.fileno() >= 0:
            no_lingering = struct.pack("ii", 1, 0)
            stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, no_lingering)
            stream.socket.close()
    elif isinstance(stream, trio.StapledStream):
        for half in (stream.send_stream, stream.receive_stream):
            if hasattr(half, "close"):
                half.close()


# --- the client -------------------------------------------------------------------------------


@define(eq=False)
class Client:
    """A STOMP client that acts only on the test's instructions."""

    pipe: Pipe
    version: str = "1.0"
    reader: FrameReader = field(factory=FrameReader)
    is_ended: bool = False
    receipts: int = 0

    @property
    def websocket(self) -> WebSocketPipe:
        """Return the WebSocket below, or fail the test if there is none."""
        assert isinstance(self.pipe, WebSocketPipe)
        return self.pipe

    async def send_bytes(self, data: bytes) -> None:
        """Send raw bytes of STOMP."""
        with trio.fail_after(PATIENCE_S):
            await self.pipe.send_bytes(data)

    async def send(self, command: str, headers: Headers = (), body: bytes = b"") -> None:
        """Send a frame. Header text is escaped for the session's version."""
        plain = command in ("CONNECT", "STOMP")
        data = frame_bytes(command, headers, body, "1.0" if plain else self.version)
        await self.send_bytes(data)

    async def receive(self) -> Received:
        """Return the next frame. Fail the test if none comes, or the connection ends."""
        with trio.fail_after(PATIENCE_S):
            while (frame := self.reader.next()) is None:
                data = await self._read()
                assert data, f"the broker closed; unread: {self.reader.rest!r}"
        return frame

    async def _read(self) -> bytes:
        data = await self.pipe.receive_bytes()
        self.reader.feed(data)
        self.is_ended = self.is_ended or not data
        return data

    async def receive_many(self, count: int) -> list[Received]:
        """The next ``count`` frames."""
        return [await self.receive() for _ in range(count)]

    async def connect(self, version: str = "1.2", headers: Headers = ()) -> Received:
        """Open a session of ``version``, and return the CONNECTED."""
        pairs = list(headers.items() if isinstance(headers, Mapping) else headers)
        if version != "1.0":
            pairs = [("accept-version", version), ("host", "test"), *pairs]
        await self.send("CONNECT", pairs)
        connected = await self.receive()
        assert connected.command == "CONNECTED", connected
        assert connected["version"] == version
        self.version = self.reader.version = version
        return connected

    async def subscribe(
        self, destination: str, id: str = "1", headers: Headers = ()
    ) -> list[Received]:
        """Subscribe and wait for the RECEIPT. Return the frames before it."""
        pairs = list(headers.items() if isinstance(headers, Mapping) else headers)
        receipt = self._new_receipt()
        every = [("destination", destination), ("id", id), ("receipt", receipt), *pairs]
        await self.send("SUBSCRIBE", every)
        return await self.receive_until_receipt(receipt)

    async def publish(
        self, destination: str, *bodies: bytes, headers: Headers = (), receipt: bool = False
    ) -> list[Received]:
        """SEND each body, in one write. With ``receipt``, wait until the last is processed."""
        pairs = list(headers.items() if isinstance(headers, Mapping) else headers)
        frames: list[bytes] = []
        name = ""
        for number, body in enumerate(bodies, 1):
            own = [("destination", destination), *pairs]
            if receipt and number == len(bodies):
                name = self._new_receipt()
                own.append(("receipt", name))
            frames.append(frame_bytes("SEND", own, body, self.version))
        await self.send_bytes(b"".join(frames))
        return await self.receive_until_receipt(name) if receipt else []

    async def fence(self) -> list[Received]:
        """Wait until all earlier frames are processed. Return the frames received meanwhile.

        Any client's frames count: the order in which two connections are read is not defined.
        """
        await trio.testing.wait_all_tasks_blocked()
        receipt = self._new_receipt()
        await self.send("SEND", {"destination": "fence", "receipt": receipt})
        return await self.receive_until_receipt(receipt)

    async def receive_until_receipt(self, receipt: str) -> list[Received]:
        """The frames before the RECEIPT with this id."""
        before: list[Received] = []
        while True:
            frame = await self.receive()
            if frame.command == "RECEIPT" and frame["receipt-id"] == receipt:
                return before
            assert frame.command != "ERROR", frame
            before.append(frame)

    async def expect_error(self, code: str) -> Received:
        """Check that the next frame is an ERROR with this code, and that the broker closes after
        it."""
        error = await self.receive()
        assert error.command == "ERROR", error
        assert error["code"] == code, error
        assert error["message"]
        await self.expect_closed()
        return error

    async def expect_closed(self) -> None:
        """Check that only heart-beats come, and the broker closes."""
        with trio.fail_after(PATIENCE_S):
            while not self.is_ended:
                try:
                    await self._read()
                except trio.BrokenResourceError:
                    raise AssertionError("the broker reset the connection") from None
                frame = self.reader.next()
                assert frame is None, frame
        assert self.reader.rest == b""

    async def read_to_end(self) -> list[Received]:
        """Return all frames until the broker closes."""
        frames: list[Received] = []
        with trio.fail_after(PATIENCE_S):
            while not self.is_ended:
                await self._read()
                while (frame := self.reader.next()) is not None:
                    frames.append(frame)
        return frames

    async def disconnect(self) -> None:
        """Send DISCONNECT and wait for the end."""
        receipt = self._new_receipt()
        await self.send("DISCONNECT", {"receipt": receipt})
        await self.receive_until_receipt(receipt)
        await self.expect_closed()
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connection without DISCONNECT."""
        await self.pipe.aclose()

    def abort(self) -> None:
        """Close the connection without a word of any protocol."""
        self.pipe.abort()

    def _new_receipt(self) -> str:
        self.receipts += 1
        return f"r{self.receipts}"


# --- a broker to dial -------------------------------------------------------------------------

MEMORY = "memory"
TCP = "tcp"
WS_MEMORY = "ws-memory"
WS_TCP = "ws-tcp"
TLS = "tls"
WSS = "wss"
RELAYED = "relayed"
"""TCP through another node of a cluster."""
ROUTED, ROUTED_WS = "routed", "routed-ws"
"""TCP and WebSocket through a node of a cluster with three partitions."""
INSIDE, INSIDE_WS = "inside", "inside-ws"
"""The same, through the node that owns all of them."""
TRANSPORTS = (
    *(MEMORY, TCP, WS_MEMORY, WS_TCP, TLS, WSS, RELAYED),
    *(ROUTED, ROUTED_WS, INSIDE, INSIDE_WS),
)
PARTITIONS = 3


@define(eq=False)
class Dial:
    """A broker that starts with the first connection, and its clients.

    Args:
      transport: One of TRANSPORTS.
    """

    transport: str
    options: dict[str, object] = field(factory=dict)
    server: Server = field(init=False)
    handle: ServerHandle = field(init=False)
    assemble: Callable[..., Server] = make_server
    security: Security = field(init=False)
    listener: MemoryListener = field(factory=MemoryListener)
    ended: trio.Event = field(factory=trio.Event)
    _nursery: trio.Nursery | None = None
    _is_started: bool = False
    _streams: list[trio.abc.Stream] = field(factory=list)
    _gate: trio.CancelScope = field(factory=trio.CancelScope)
    owners: list[tuple[Server, ServerHandle]] = field(factory=list)
    """The brokers of partitions."""
    gates: list[Gate] = field(factory=list)
    """The ways to them."""
    colocate: str = ""
    """Which destinations lie in one partition."""

    @property
    def is_websocket(self) -> bool:
        """Return whether clients use WebSocket."""
        return self.transport in (WS_MEMORY, WS_TCP, WSS, ROUTED_WS, INSIDE_WS)

    @property
    def is_tcp(self) -> bool:
        """Return whether there are real sockets."""
        return self.transport not in (MEMORY, WS_MEMORY)

    @property
    def is_routed(self) -> bool:
        """Return whether destinations are spread over partitions."""
        return self.transport in (ROUTED, ROUTED_WS, INSIDE, INSIDE_WS)

    @property
    def is_inside(self) -> bool:
        """Return whether the node of clients owns all partitions."""
        return self.transport in (INSIDE, INSIDE_WS)

    @property
    def brokers(self) -> list[Broker]:
        """Return the brokers that have destinations."""
        return [server.broker for server, _ in self.owners] or [self.server.broker]

    @property
    def is_secret(self) -> bool:
        """Return whether clients use TLS."""
        return self.transport in (TLS, WSS)

    def use(self, **options: object) -> None:
        """Choose settings, before the first dialling."""
        assert not self._is_started
        self.options.update(options)

    async def start(self) -> None:
        """Start the broker, unless it runs."""
        if self._is_started:
            return
        self._is_started = True
        assert self._nursery is not None
        if isinstance(trio.lowlevel.current_clock(), trio.testing.MockClock):
            await trio.sleep(1000)  # no clock of the real world begins at 0
        listeners: Sequence[trio.abc.Listener[trio.abc.Stream]] = [self.listener]
        if self.is_tcp:
            listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        if self.is_secret:
            self.options.setdefault("tls_cert", authority().certificate)
        settings = Settings.of(**self.options)
        self.security = Security(settings)
        self.security._open()  # not in a thread: a mock clock would not wait for that
        entrances = [Entrance(each, self.security.tls_way) for each in listeners]
        if self.transport == RELAYED:
            entrances, listeners = await self._relayed(entrances)
        self.handle = ServerHandle(tuple(address_of(listener) for listener in listeners))
        if self.is_routed:
            self.server = await self._routed(settings)
        else:
            self.server = self.assemble(settings, self.security, self.handle)
        started = trio.Event()
        self._nursery.start_soon(self._run, entrances, started.set)
        await started.wait()

    async def _relayed(
        self, entrances: Sequence[Entrance]
    ) -> tuple[list[Entrance], list[trio.SocketListener]]:
        """Have another node relay clients. Return the broker's entrances, and that node's."""
        host, _, port = address_of(entrances[0].listener).rpartition(":")
        owner = Contact("owner", host, int(port), "secret")
        listeners: list[trio.SocketListener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        gate = Gate(PATIENCE_S, owner)
        assert self._nursery is not None
        let_in = partial(Door(ServerLimits()).let_in, gate.serve, "off", b"", None)
        self._nursery.start_soon(self._serve_gate, let_in, listeners)
        return [Entrance(each.listener, "off", b"secret") for each in entrances], listeners

    async def _routed(self, settings: Settings) -> Server:
        """Start a broker for each partition. Return the server that routes clients to them."""
        assert self._nursery is not None
        placement = Placement(PARTITIONS, self.colocate)
        for number in range(PARTITIONS):
            (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
            port = listener.socket.getsockname()[1]
            contact = Contact(f"n{number}", "127.0.0.1", port, "secret")
            self.gates.append(Gate(PATIENCE_S, contact))
            handle = ServerHandle(())
            core = partial(make_core, placement, number)
            server = self._core(settings, handle, make_core=core)
            self.owners.append((server, handle))
            if self.is_inside:
                self.gates[-1].contact = contact
                self.gates[-1].settle(InnerServer(server))
            entrance = Entrance(listener, "off", b"secret")
            self._nursery.start_soon(server.run, [entrance], handle, lambda: None)
        route = partial(Router, placement=placement, gates=self.gates)
        server = self._core(settings, self.handle, route=route)
        router = server.dispatcher.core
        assert isinstance(router, Router)
        router.owners.join(server.dispatcher, self._nursery.start_soon)
        return server

    def _core(self, settings: Settings, handle: ServerHandle, **core: Callable[..., Any]) -> Server:
        embedding = Embedding(handle.feed, None, None, **core)  # type: ignore[arg-type]
        return self.assemble(settings, self.security, handle, None, embedding)

    async def _serve_gate(self, serve: Any, listeners: list[trio.SocketListener]) -> None:
        with self._gate:
            await trio.serve_listeners(serve, listeners)

    async def _run(self, entrances: Sequence[Entrance], started: Callable[[], None]) -> None:
        await self.server.run(entrances, self.handle, started)
        self.ended.set()

    async def stream(self) -> trio.abc.Stream:
        """Return a new connection on which nothing has been sent."""
        await self.start()
        stream: trio.abc.Stream
        if self.is_tcp:
            host, _, port = self.handle.addresses[0].rpartition(":")
            stream = await trio.open_tcp_stream(host, int(port))
            if self.is_secret:
                context = authority().client_context()
                stream = trio.SSLStream(stream, context, server_hostname=host)
        else:
            stream = self.listener.connect()
        self._streams.append(stream)
        return stream

    async def open(self) -> Client:
        """Return a client that has not sent CONNECT. A WebSocket is open."""
        stream = await self.stream()
        pipe: Pipe = StreamPipe(stream)
        if self.is_websocket:
            pipe = websocket = WebSocketPipe(stream)
            await websocket.shake_hands()
        return Client(pipe)

    async def connect(self, version: str = "1.2", headers: Headers = ()) -> Client:
        """Return a client with an open session."""
        client = await self.open()
        await client.connect(version, headers)
        return client

    async def stop(self) -> None:
        """Stop in order, and wait until the broker has ended."""
        self.handle.stop()
        with trio.fail_after(60):
            await self.ended.wait()

    def hang_up(self) -> None:
        """Close all clients' ends without a word."""
        for stream in self._streams:
            abort(stream)

    async def end(self) -> None:
        """Stop, and check that nothing is left behind."""
        if not self._is_started:
            return
        for stream in self._streams:
            await trio.aclose_forcefully(stream)
        await self.stop()
        self._gate.cancel()
        for _, handle in self.owners:
            handle.stop()
        self.assert_nothing_left()

    def assert_nothing_left(self) -> None:
        """Check that all counts of connections and bytes are those of the beginning."""
        server = self.server
        assert server.connections == {}
        assert server.admission.admitted == 0
        assert len(server.broker.clients) == 0
        assert len(server.broker.subscriptions) == 0
        assert (server.inbox.frames, server.inbox.bytes) == (0, 0)
        assert server.memory.used_bytes == server.broker.stale.bytes


@asynccontextmanager
async def open_dial(transport: str = MEMORY, /, **options: object) -> AsyncIterator[Dial]:
    """Yield a broker to connect to. At the end, disconnect, stop and check it."""
    async with trio.open_nursery() as nursery:
        dial = Dial(transport, options)
        dial._nursery = nursery
        try:
            yield dial
        finally:
            dial.hang_up()  # after a failure too, so that it is the only one
        await dial.end()


# --- the core's outbox ------------------------------------------------------------------------


def lose(delivery: Delivery) -> int:
    """Discard a delivery. Return the number of lost messages."""
    if delivery.returns:
        return 0
    delivery.publication.destination.dropped += delivery.count
    return delivery.count


# --- helpers ----------------------------------------------------------------------------------


async def gather(*calls: Callable[[], Awaitable[object]]) -> None:
    """Run calls at the same time and wait for all."""

    async def run(call: Callable[[], Awaitable[object]]) -> None:
        await call()

    async with trio.open_nursery() as nursery:
        for call in calls:
            nursery.start_soon(run, call)


async def until(condition: Callable[[], bool], step_s: float = 0.0, limit_s: float = 60) -> None:
    """Wait until a condition holds. Fail the test if it never does.

    Args:
      step_s: Between two looks; 0 = look at each step of the scheduler, for real clocks.
    """
    with trio.fail_after(limit_s):
        while not condition():  # noqa: ASYNC110
            await trio.sleep(step_s)


def gaps_between(times: Sequence[float]) -> list[float]:
    """The distances between moments."""
    return [after - before for before, after in pairwise(times)]
