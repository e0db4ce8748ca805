"""Two streams that are each other's far end, in memory."""

from collections.abc import Iterator
from contextlib import contextmanager

import trio
from attrs import define, field

BUFFER_BYTES = 1024 * 1024
"""What may be under way in one direction; then the sender waits for the reader."""


@define(eq=False, repr=False)
class _Direction:
    """Bytes on their way from one end to the other."""

    buffer_bytes: int
    held: bytearray = field(factory=bytearray)
    is_ended: bool = False
    """Whoever sends has said that nothing more comes."""
    is_left: bool = False
    """Whoever receives has closed its end."""
    changed: trio.lowlevel.ParkingLot = field(factory=trio.lowlevel.ParkingLot)

    @property
    def room(self) -> int:
        return self.buffer_bytes - len(self.held)

    def end(self) -> None:
        self.is_ended = True
        self.changed.unpark_all()

    def leave(self) -> None:
        self.is_left = True
        self.held.clear()
        self.changed.unpark_all()


@define(eq=False, repr=False)
class MemoryStream(trio.abc.HalfCloseableStream):
    """One end of a pair; made by ``memory_stream_pair``."""

    _incoming: _Direction
    _outgoing: _Direction
    _is_closed: bool = False
    _is_sending: bool = False
    _is_receiving: bool = False

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        with self._sending():
            await trio.lowlevel.checkpoint()
            self._check_sending()
            rest = memoryview(data)
            while rest and await self._wait_room():
                part = rest[: self._outgoing.room]
                self._outgoing.held += part
                self._outgoing.changed.unpark_all()
                rest = rest[len(part) :]

    async def wait_send_all_might_not_block(self) -> None:
        with self._sending():
            await trio.lowlevel.checkpoint()
            await self._wait_room()

    async def _wait_room(self) -> bool:
        """Always true, or it raises. Checkpoint: if it has to wait."""
        while self._check_sending() and self._outgoing.room <= 0:
            await self._outgoing.changed.park()
        return True

    def _check_sending(self) -> bool:
        """Always true, or it raises."""
        if self._is_closed or self._outgoing.is_ended:
            raise trio.ClosedResourceError("this end of the stream was closed")
        if self._outgoing.is_left:
            raise trio.BrokenResourceError("the other end of the stream was closed")
        return True

    @contextmanager
    def _sending(self) -> Iterator[None]:
        if self._is_sending:
            raise trio.BusyResourceError("another task is sending on this stream")
        self._is_sending = True
        try:
            yield
        finally:
            self._is_sending = False

    async def send_eof(self) -> None:
        with self._sending():
            await trio.lowlevel.checkpoint()
            if self._is_closed:
                raise trio.ClosedResourceError("this end of the stream was closed")
            self._outgoing.end()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        if max_bytes is not None and not isinstance(max_bytes, int):
            raise TypeError("max_bytes must be a whole number")
        if max_bytes is not None and max_bytes < 1:
            raise ValueError("max_bytes must be 1 or more")
        if self._is_receiving:
            raise trio.BusyResourceError("another task is receiving on this stream")
        self._is_receiving = True
        try:
            await trio.lowlevel.checkpoint()
            return await self._receive(max_bytes)
        finally:
            self._is_receiving = False

    async def _receive(self, max_bytes: int | None) -> bytes:
        incoming = self._incoming
        while not self._is_closed and not incoming.held and not incoming.is_ended:
            await incoming.changed.park()
        if self._is_closed:
            raise trio.ClosedResourceError("this end of the stream was closed")
        data = bytes(incoming.held[:max_bytes])
        del incoming.held[:max_bytes]
        incoming.changed.unpark_all()
        return data

    async def aclose(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._outgoing.end()
            self._incoming.leave()
        await trio.lowlevel.checkpoint()


def memory_stream_pair(buffer_bytes: int = BUFFER_BYTES) -> tuple[MemoryStream, MemoryStream]:
    """Two streams in memory: what is sent into one comes out of the other.

    Unlike Trio's, which are for tests, they hold a bounded number of bytes.

    Args:
      buffer_bytes: What may be under way in each direction, 1 or more; then the sender waits.
    """
    there, back = _Direction(buffer_bytes), _Direction(buffer_bytes)
    return MemoryStream(there, back), MemoryStream(back, there)
