"""One connection to a NATS server: a reader, a writer that batches, and pings."""

import ssl
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager

import trio
from attrs import define, field

from trio_stomp._version import __version__
from trio_stomp.nats._address import Address, NatsOptions
from trio_stomp.nats._errors import Disconnected, Refused
from trio_stomp.nats.codec import (
    PING,
    PONG,
    Event,
    Info,
    Message,
    NatsDecoder,
    NatsError,
    NatsProtocolError,
    Signal,
    encode_connect,
)

RECEIVE_BYTES = 256 * 1024
LINGER_S = 1.0
"""Time to wait for an error that explains a failed write."""
DEFAULT_MAX_PAYLOAD = 1024 * 1024
SILENT_PINGS = 2
"""A server that sent nothing during this many PINGs is considered dead."""
MAX_PINGS = 64
"""A server that did not answer this many PINGs is considered dead, whatever else it sends."""


@define(eq=False, repr=False)
class Link:
    """An open connection. Created by ``open_link``. It ends once, and cannot be reopened.

    Args:
      receive: Called with the messages of each read, in order. It must not raise.
      on_fault: Called with each error that the server reports.
      info: The server's latest description of itself.
    """

    address: Address
    options: NatsOptions
    receive: Callable[[list[Message]], None]
    on_fault: Callable[[str], None]
    info: Mapping[str, object] = field(factory=dict)
    max_payload: int = 0
    """The largest message that the server accepts, headers included, in bytes."""
    outgoing_bytes: int = 0
    """Bytes not yet accepted by the connection."""
    _stream: trio.abc.Stream = field(kw_only=True)
    _decoder: NatsDecoder = field(factory=NatsDecoder)
    _outgoing: list[bytes] = field(factory=list)
    _wake: trio.Event = field(factory=trio.Event)
    _pings: deque[trio.Event] = field(factory=deque)
    """PINGs without a PONG so far, oldest first."""
    _has_received: bool = False
    """The server has sent something since the last PING."""
    _fault: str = ""
    _reason: NatsError | None = None
    _scope: trio.CancelScope = field(factory=trio.CancelScope)

    async def shake_hands(self) -> None:
        """Wait until the server has accepted the credentials.

        Raises:
          Refused: the server refuses TLS, the credentials, or another connection.
          Disconnected: the connection ended.
          NatsProtocolError: the peer is not a NATS server.
        """
        while not self.max_payload:  # until INFO has come
            self._take(await self._read())
        if self.address.is_tls or self.options.tls or self.info.get("tls_required"):
            await self._start_tls()
        welcome = trio.Event()
        self._pings.append(welcome)
        try:
            await self._stream.send_all(encode_connect(self._introduction()) + PING)
        except trio.BrokenResourceError as error:
            raise Disconnected(f"{self.address}: the connection broke") from error
        while not welcome.is_set():
            self._take(await self._read())
            if self._fault:
                raise Refused(f"{self.address} refuses the connection: {self._fault}")

    async def _start_tls(self) -> None:
        if not (self.info.get("tls_required") or self.info.get("tls_available")):
            raise Refused(
                f"{self.address} does not offer TLS: configure it there, or write nats:// and give"
                " neither cluster_ca nor cluster_cert"
            )
        if not self._decoder.is_empty:
            raise NatsProtocolError(f"{self.address} sent more than INFO before TLS was agreed on")
        context = self.options.tls or ssl.create_default_context()
        stream = trio.SSLStream(self._stream, context, server_hostname=self.address.host)
        self._stream = stream
        try:
            await stream.do_handshake()
        except trio.BrokenResourceError as error:
            raise Refused(f"TLS with {self.address} failed: {error.__cause__ or error}") from error

    def _introduction(self) -> dict[str, object]:
        """Return the fields of CONNECT."""
        address, options = self.address, self.options
        return {
            "verbose": False,
            "pedantic": False,
            "headers": True,
            "no_responders": True,
            "protocol": 1,
            "lang": "python-trio",
            "version": __version__,
            "name": options.name,
            **({"auth_token": options.token} if options.token else {}),
            **({"user": address.login, "pass": address.passcode} if address.login else {}),
        }

    def say(self, data: bytes) -> None:
        """Queue bytes of whole operations for writing. They are lost if the connection ends."""
        self.outgoing_bytes += len(data)
        self._outgoing.append(data)
        if len(self._outgoing) == 1:
            self._wake.set()

    async def flush(self) -> bool:
        """Wait until the server has processed all earlier operations.

        Returns:
          False if the connection ended first.
        """
        if self._reason is None:
            answered = trio.Event()
            self._pings.append(answered)
            self.say(PING)
            await answered.wait()
        return self._reason is None

    def end(self, reason: NatsError) -> None:
        """End the connection. The first reason is kept."""
        if self._reason is None:
            self._reason = reason
            for ping in self._pings:
                ping.set()
            self._scope.cancel()

    async def close(self) -> None:
        """Close the connection at once."""
        await trio.aclose_forcefully(self._stream)

    async def run(self) -> NatsError:
        """Read and write until the connection ends, and return the reason."""
        with self._scope:
            async with trio.open_nursery() as tasks:
                tasks.start_soon(self._write)
                tasks.start_soon(self._watch)
                await self._read_on()
        assert self._reason is not None
        return self._reason

    async def _read_on(self) -> None:
        try:
            while True:
                events = await self._read()
                self._has_received = True
                self._take(events)
        except NatsError as error:
            self.end(error)

    async def _read(self) -> list[Event]:
        """Return the events of one read, which may be none.

        Raises:
          Disconnected: The connection ended.
          NatsProtocolError: The server broke a rule.
        """
        if self._decoder.error is not None:
            raise self._decoder.error
        try:
            data = await self._stream.receive_some(RECEIVE_BYTES)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            data = b""
        if not data:
            raise Disconnected(f"{self.address}: {self._fault or 'the connection ended'}")
        return self._decoder.feed(bytes(data))

    def _take(self, events: list[Event]) -> None:
        messages: list[Message] = []
        for event in events:
            if isinstance(event, Message):
                messages.append(event)
            elif event is Signal.PING:
                self.say(PONG)
            elif event is Signal.PONG:
                if self._pings:
                    self._pings.popleft().set()
            elif isinstance(event, Info):
                self.info = event.fields
                size = event.fields.get("max_payload")
                self.max_payload = size if isinstance(size, int) else DEFAULT_MAX_PAYLOAD
            else:
                self._fault = event.text
                self.on_fault(event.text)
        if messages:
            self.receive(messages)

    async def _write(self) -> None:
        try:
            while True:
                if not self._outgoing:
                    self._wake = trio.Event()
                    await self._wake.wait()
                data = b"".join(self._outgoing)
                self._outgoing.clear()
                await self._stream.send_all(data)
                self.outgoing_bytes -= len(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            # The reader ends the connection, as an error that explains it may have arrived.
            await trio.sleep(LINGER_S)
            self.end(Disconnected(f"{self.address}: the connection broke"))

    async def _watch(self) -> None:
        silent = 0
        while True:
            await trio.sleep(self.options.ping_s)
            silent = 0 if self._has_received else silent + 1
            if silent >= SILENT_PINGS or len(self._pings) >= MAX_PINGS:
                return self.end(Disconnected(f"{self.address} has been silent for too long"))
            self._has_received = False
            self._pings.append(trio.Event())
            self.say(PING)


@asynccontextmanager
async def open_link(
    address: Address,
    options: NatsOptions,
    receive: Callable[[list[Message]], None],
    on_fault: Callable[[str], None],
) -> AsyncGenerator[Link, None]:
    """Connect to a server, and close the connection when the block ends.

    Raises:
      Disconnected: the server cannot be reached, or does not answer within ``connect_s``.
      Refused: the server refuses TLS, the credentials, or another connection.
      NatsProtocolError: the peer is not a NATS server.
    """
    try:
        with trio.fail_after(options.connect_s):
            stream = await trio.open_tcp_stream(address.host, address.port)
    except (OSError, trio.TooSlowError) as error:
        raise Disconnected(f"{address} cannot be reached: {error or 'no answer'}") from error
    link = Link(address, options, receive, on_fault, stream=stream)
    try:
        with trio.move_on_after(options.connect_s) as scope:
            await link.shake_hands()
        if scope.cancelled_caught:
            raise Disconnected(f"{address} does not answer; does a server of NATS listen there?")
        yield link
    finally:
        link.end(Disconnected(f"{address}: this client closed the connection"))
        await link.close()
