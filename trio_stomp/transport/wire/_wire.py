"""The bytes of one connection: a socket that is used without waiting if possible, or any stream."""

import socket
import struct
from collections.abc import Sequence
from typing import ClassVar, Protocol

import trio
from attrs import define

from trio_stomp.base import is_loopback
from trio_stomp.transport.wire._memory_stream import MemoryStream
from trio_stomp.transport.wire._sliced_poll import DirectSocket, PolledSocket, SlicedPoll

try:
    import fcntl
    import termios
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

MAX_BEHIND = 63
"""Maximum number of further pieces in one call, because IOV_MAX limits system calls."""
Piece = bytes | memoryview
RECEIVE_BYTES = 64 * 1024
MAX_LAYERS = 8
"""Maximum number of nested streams to look through, such as TLS over a socket."""
_INT = struct.Struct("i")
_TESTING = ["trio", "testing"]
"""The package of Trio's memory streams. Named here to avoid importing it."""


class Wire(Protocol):
    """A connection's bytes. One task reads, one writes.

    Args:
      remote: The peer's address, for logs.
      is_loopback: Whether the peer is on this machine.
    """

    remote: str
    is_loopback: bool

    @property
    def gathers(self) -> bool:
        """Return whether it can send several pieces in one call. Else join them first."""

    async def receive_some(self, max_bytes: int) -> bytes:
        """Return up to ``max_bytes`` from the peer, b"" at the end.

        Raises:
          trio.BrokenResourceError: the connection is lost.

        Checkpoint: always; a busy reader has no other. Cancel: nothing is lost.
        """

    def send_nowait(self, data: Piece, behind: Sequence[Piece] = ()) -> int:
        """Send as much as possible without waiting, and return the number of bytes, perhaps 0.

        Args:
          data: The first piece.
          behind: At most ``MAX_BEHIND`` pieces that follow it; () unless the wire ``gathers``.

        Raises:
          trio.BrokenResourceError: the connection is lost.
        """

    async def wait_sent(self, data: bytes | memoryview) -> int:
        """Wait until bytes can be sent, send them, and return their number, at least 1.

        Raises:
          trio.BrokenResourceError: the connection is lost.

        Checkpoint: always. Cancel: the peer may have received a part of ``data``.
        """

    def untaken(self) -> int:
        """Return the number of sent bytes not confirmed by the peer's system, or 0 if unknown."""

    async def send_eof(self) -> None:
        """Close the sending side, if the transport supports that.

        Raises:
          trio.BrokenResourceError: the connection is lost.
        """

    async def aclose(self) -> None:
        """Close at once. Checkpoint: always."""


@define(eq=False)
class SocketWire:
    """A TCP socket. Reads and writes call it directly, and wait for the kernel only if they must.

    A Trio socket's ``recv`` costs twice the system call. A memory channel between dispatcher and
    writer would cost a task switch for each message, so the dispatcher sends here itself.
    """

    gathers: ClassVar[bool] = True

    remote: str
    is_loopback: bool
    _socket: socket.socket
    _waiter: DirectSocket | PolledSocket
    """The object that its reader waits with."""
    _is_drained: bool = True
    """The last read emptied the socket, so the next one has to wait."""

    @classmethod
    def over(cls, stream: trio.SocketStream, poll: SlicedPoll | None = None) -> "SocketWire":
        """Take over the socket of a stream, which must not be used any more."""
        raw = socket.socket(fileno=stream.socket.detach())
        raw.setblocking(False)
        try:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        except OSError:
            pass  # the peer has already left; reading will report that
        return cls(*_peer(raw), raw, (poll or SlicedPoll()).enter(raw.fileno()))

    async def receive_some(self, max_bytes: int) -> bytes:
        # A vain recv() would cost a system call and an exception for each ACK of a consumer.
        must_wait = self._is_drained
        if not must_wait:
            await trio.lowlevel.checkpoint()
        while True:
            try:
                if must_wait:
                    await self._waiter.wait_readable()
                data = self._socket.recv(max_bytes)
            except BlockingIOError:
                must_wait = True
            except (OSError, trio.ClosedResourceError) as error:
                raise trio.BrokenResourceError from error
            else:
                self._is_drained = len(data) < max_bytes
                self._waiter.is_new = False
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
            result = fcntl.ioctl(self._socket, termios.TIOCOUTQ, bytes(_INT.size))
        except (OSError, ValueError):
            return 0  # closed, or a system that supports this for terminals only
        return int(_INT.unpack(result)[0])

    async def send_eof(self) -> None:
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError as error:
            raise trio.BrokenResourceError from error

    async def aclose(self) -> None:
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._waiter.forget()
            self._socket.close()
        await trio.lowlevel.checkpoint()


@define(eq=False)
class StreamWire:
    """Any Trio stream: Trio's TLS, memory streams, streams of an embedding program."""

    gathers: ClassVar[bool] = False

    remote: str
    is_loopback: bool
    _stream: trio.abc.Stream
    is_secret: bool = False
    """Whether it is known to be encrypted, by Trio's TLS."""

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


@define(eq=False)
class WireStream(trio.abc.HalfCloseableStream):
    """A Trio stream over a wire, for code that waits for all it sends."""

    wire: Wire

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Implement ``trio.abc.SendStream``."""
        rest = memoryview(data).cast("B")
        sent = self.wire.send_nowait(rest)
        await trio.lowlevel.checkpoint()
        while sent < len(rest):
            sent += await self.wire.wait_sent(rest[sent:])

    async def wait_send_all_might_not_block(self) -> None:
        """Implement ``trio.abc.SendStream``."""
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Implement ``trio.abc.ReceiveStream``."""
        return await self.wire.receive_some(max_bytes or RECEIVE_BYTES)

    async def send_eof(self) -> None:
        """Implement ``trio.abc.HalfCloseableStream``."""
        await self.wire.send_eof()

    async def aclose(self) -> None:
        """Implement ``trio.abc.AsyncResource``."""
        await self.wire.aclose()


def wire_over(stream: trio.abc.Stream, poll: SlicedPoll | None = None) -> Wire:
    """Return the best wire for a stream from a listener. The stream must not be used any more.

    A stream over another one must name it by ``transport_stream``, as ``trio.SSLStream`` does. A
    peer that cannot be determined counts as one of another machine, which needs a login.
    """
    if isinstance(stream, WireStream):
        return stream.wire
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
    """Return the peer's address of a possibly nested stream, and whether it is on this machine."""
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
    return (f"[{host}]:{name[1]}" if ":" in host else f"{host}:{name[1]}"), is_loopback(host)
