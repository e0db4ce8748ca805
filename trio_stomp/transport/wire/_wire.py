"""The bytes of one connection: a socket driven without waiting where possible, or any stream."""

import socket
import struct
from collections.abc import Sequence
from typing import ClassVar, Protocol

import trio
from attrs import define

from trio_stomp.transport.wire._memory_stream import MemoryStream
from trio_stomp.transport.wire._sliced_poll import DirectSocket, PolledSocket, SlicedPoll

try:
    import fcntl
    import termios
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

MAX_BEHIND = 63
"""Pieces that are sent along at once: a system call takes a limited number (IOV_MAX)."""
Piece = bytes | memoryview
MAX_LAYERS = 8
"""Streams around a stream that are looked through: TLS around a socket is one."""
_INT = struct.Struct("i")
_TESTING = ["trio", "testing"]
"""The package of the other streams that stay within this process. Known by name, so that a broker
that serves sockets does not import it."""


class Wire(Protocol):
    """A connection's bytes: one task reads, one writes.

    Args:
      remote: The peer's address, for people.
      is_loopback: Whether the peer is on this machine.
    """

    remote: str
    is_loopback: bool

    @property
    def gathers(self) -> bool:
        """Return whether it sends pieces as they are. For others they had better be joined."""

    async def receive_some(self, max_bytes: int) -> bytes:
        """Return up to ``max_bytes`` that the peer sent, empty when it will send no more.

        Raises:
          trio.BrokenResourceError: the connection is lost.

        Checkpoint: always, and it is the only one of a busy reader. Cancel: nothing is lost.
        """

    def send_nowait(self, data: Piece, behind: Sequence[Piece] = ()) -> int:
        """Send what can be sent without waiting, and return how many bytes that was, perhaps none.

        Args:
          data: What comes next.
          behind: What comes behind it, and is sent along as if it were joined to it; only if
            the wire ``gathers``, and at most ``MAX_BEHIND`` pieces.

        Raises:
          trio.BrokenResourceError: the connection is lost.
        """

    async def wait_sent(self, data: bytes | memoryview) -> int:
        """Wait until something can be sent, send it, and return how many bytes, at least one.

        Raises:
          trio.BrokenResourceError: the connection is lost.

        Checkpoint: always. Cancel: the peer may have got a part of ``data``.
        """

    def untaken(self) -> int:
        """Return how many sent bytes the peer's machine has not confirmed, 0 if unknown."""

    async def send_eof(self) -> None:
        """Tell the peer that nothing more comes, if the transport can."""

    async def aclose(self) -> None:
        """Close at once. Checkpoint: always."""


@define(eq=False)
class SocketWire:
    """A TCP socket. Reads and writes go straight to it and wait for the kernel only if they must.

    A trio socket's ``recv`` costs twice the system call, and a memory channel between dispatcher
    and writer a task switch for each message: the dispatcher may send here by itself instead.
    """

    gathers: ClassVar[bool] = True

    remote: str
    is_loopback: bool
    _socket: socket.socket
    _place: DirectSocket | PolledSocket
    """Where its reader waits."""
    _is_drained: bool = True
    """The last read took all that there was, so that the next one would find nothing."""

    @classmethod
    def over(cls, stream: trio.SocketStream, poll: SlicedPoll | None = None) -> "SocketWire":
        """Take over the socket of a stream, which must not be used any more."""
        raw = socket.socket(fileno=stream.socket.detach())
        raw.setblocking(False)
        try:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        except OSError:
            pass  # the peer is gone already: reading will tell
        return cls(*_peer(raw), raw, (poll or SlicedPoll()).enter(raw.fileno()))

    async def receive_some(self, max_bytes: int) -> bytes:
        # Asking first would cost a system call and an exception for each of a consumer's ACKs.
        must_wait = self._is_drained
        if not must_wait:
            await trio.lowlevel.checkpoint()
        while True:
            try:
                if must_wait:
                    await self._place.wait_readable()
                data = self._socket.recv(max_bytes)
            except BlockingIOError:
                must_wait = True
            except (OSError, trio.ClosedResourceError) as error:
                raise trio.BrokenResourceError from error
            else:
                self._is_drained = len(data) < max_bytes
                self._place.is_new = False
                return data

    def send_nowait(self, data: Piece, behind: Sequence[Piece] = ()) -> int:
        try:
            if behind:
                return self._socket.sendmsg((data, *behind))
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise trio.BrokenResourceError from error

    async def wait_sent(self, data: bytes | memoryview) -> int:
        while True:
            try:
                await trio.lowlevel.wait_writable(self._socket)
            except trio.ClosedResourceError as error:
                raise trio.BrokenResourceError from error
            sent = self.send_nowait(data)
            if sent:
                return sent

    def untaken(self) -> int:
        if fcntl is None:
            return 0
        try:
            told = fcntl.ioctl(self._socket, termios.TIOCOUTQ, bytes(_INT.size))
        except (OSError, ValueError):
            return 0  # closed, or a system that tells this of terminals only
        return int(_INT.unpack(told)[0])

    async def send_eof(self) -> None:
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError as error:
            raise trio.BrokenResourceError from error

    async def aclose(self) -> None:
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._place.forget()
            self._socket.close()
        await trio.lowlevel.checkpoint()


@define(eq=False)
class StreamWire:
    """Any Trio stream: TLS of Trio's, memory streams, whatever an embedding program serves."""

    gathers: ClassVar[bool] = False

    remote: str
    is_loopback: bool
    _stream: trio.abc.Stream
    is_secret: bool = False
    """Whether it is encrypted, as far as can be seen: by Trio's TLS."""

    async def receive_some(self, max_bytes: int) -> bytes:
        try:
            return bytes(await self._stream.receive_some(max_bytes))
        except trio.ClosedResourceError as error:
            raise trio.BrokenResourceError from error

    def send_nowait(self, _data: Piece, _behind: Sequence[Piece] = ()) -> int:
        return 0

    async def wait_sent(self, data: bytes | memoryview) -> int:
        try:
            await self._stream.send_all(data)
        except trio.ClosedResourceError as error:
            raise trio.BrokenResourceError from error
        return len(data)

    def untaken(self) -> int:
        return 0

    async def send_eof(self) -> None:
        if isinstance(self._stream, trio.abc.HalfCloseableStream):
            await self._stream.send_eof()

    async def aclose(self) -> None:
        await trio.aclose_forcefully(self._stream)


def wire_over(stream: trio.abc.Stream, poll: SlicedPoll | None = None) -> Wire:
    """Return the best wire for a stream that a listener accepted, and take the stream over.

    A stream around another tells by ``transport_stream`` what it is around, as ``trio.SSLStream``
    does. One whose peer cannot be found out comes from another machine: to be wrong about that
    costs a login, and the other way round would save strangers one.
    """
    if isinstance(stream, trio.SocketStream):
        return SocketWire.over(stream, poll)
    return StreamWire(*_origin(stream), stream, _is_encrypted(stream))


def _is_encrypted(stream: trio.abc.Stream) -> bool:
    inner: object = stream
    for _ in range(MAX_LAYERS):
        if isinstance(inner, trio.SSLStream):
            return True
        inner = getattr(inner, "transport_stream", None)
    return False


def _origin(stream: trio.abc.Stream) -> tuple[str, bool]:
    """Return where a stream comes from, and whether that is this machine, whatever is around it."""
    inner: object = stream
    for _ in range(MAX_LAYERS):
        if isinstance(inner, trio.SocketStream):
            return _peer(inner.socket)
        if _is_in_memory(inner):
            return "in-memory", True
        inner = getattr(inner, "transport_stream", None)
    return "unknown", False


def _is_in_memory(stream: object) -> bool:
    if isinstance(stream, trio.StapledStream):
        return _is_in_memory(stream.send_stream) and _is_in_memory(stream.receive_stream)
    if isinstance(stream, MemoryStream):
        return True
    return type(stream).__module__.split(".")[:2] == _TESTING


def _peer(raw: socket.socket | trio.socket.SocketType) -> tuple[str, bool]:
    try:
        name = raw.getpeername()
    except OSError:
        return "unknown", False
    if not isinstance(name, tuple):
        return "unix", True
    host = str(name[0])
    is_loopback = host.startswith("127.") or host in ("::1", "::ffff:127.0.0.1")
    return (f"[{host}]:{name[1]}" if ":" in host else f"{host}:{name[1]}"), is_loopback
