"""A pair of connected streams in memory."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import trio
from attrs import define, field

BUFFER_BYTES = 1024 * 1024
"""Default size of the buffer of one direction."""


class Direction(Protocol):
    """The bytes in transit from one end to the other."""

    is_ended: bool
    """The sender has closed its end."""

    def room(self) -> int:
        """Return the number of bytes that can be sent now, 0 or less if none."""

    def put(self, data: memoryview) -> int:
        """Send as many bytes of ``data`` as possible, and return their number."""

    def check_sending(self) -> None:
        """Raise the error that sending would raise now, if any."""

    async def wait_change(self) -> None:
        """Wait until ``room`` or ``check_sending`` may have changed. Checkpoint: always."""

    async def receive(self, max_bytes: int) -> bytes:
        """Return the next bytes, b"" at the end. Checkpoint: only if it has to wait."""

    def end(self) -> None:
        """Close the sender's end."""

    def leave(self) -> None:
        """Close the reader's end."""


@define(eq=False, repr=False)
class _Buffer:
    """A direction without faults."""

    buffer_bytes: int
    held: bytearray = field(factory=bytearray)
    is_ended: bool = False
    is_left: bool = False
    changed: trio.lowlevel.ParkingLot = field(factory=trio.lowlevel.ParkingLot)

    def room(self) -> int:
        return self.buffer_bytes - len(self.held)

    def put(self, data: memoryview) -> int:
        self.held += data
        self.changed.unpark_all()
        return len(data)

    def check_sending(self) -> None:
        if self.is_left:
            raise trio.BrokenResourceError("the other end of the stream was closed")

    async def wait_change(self) -> None:
        await self.changed.park()

    async def receive(self, max_bytes: int) -> bytes:
        while not self.is_left and not self.held and not self.is_ended:
            await self.changed.park()
        if self.is_left:
            raise trio.ClosedResourceError("this end of the stream was closed")
        data = bytes(self.held[:max_bytes])
        del self.held[:max_bytes]
        self.changed.unpark_all()
        return data

    def end(self) -> None:
        self.is_ended = True
        self.changed.unpark_all()

    def leave(self) -> None:
        self.is_left = True
        self.held.clear()
        self.changed.unpark_all()


@define(eq=False, repr=False)
class MemoryStream(trio.abc.HalfCloseableStream):
    """One end of a pair, from ``memory_stream_pair``, or over faulty links in tests."""

    _incoming: Direction
    _outgoing: Direction
    _is_closed: bool = False
    _is_sending: bool = False
    _is_receiving: bool = False

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        with self._sending():
            await trio.lowlevel.checkpoint()
            self._check_sending()
            rest = memoryview(data)
            while rest:
                room = await self._wait_room()
                rest = rest[self._outgoing.put(rest[:room]) :]

    async def wait_send_all_might_not_block(self) -> None:
        with self._sending():
            await trio.lowlevel.checkpoint()
            await self._wait_room()

    async def _wait_room(self) -> int:
        """Wait until bytes can be sent, and return their number. Checkpoint: only if it waits."""
        while self._check_sending() and self._outgoing.room() <= 0:
            await self._outgoing.wait_change()
        return self._outgoing.room()

    def _check_sending(self) -> bool:
        """Return True, or raise the error that sending would raise."""
        if self._is_closed or self._outgoing.is_ended:
            raise trio.ClosedResourceError("this end of the stream was closed")
        self._outgoing.check_sending()
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
            return await self._incoming.receive(max_bytes or sys.maxsize)
        finally:
            self._is_receiving = False

    async def aclose(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._outgoing.end()
            self._incoming.leave()
        await trio.lowlevel.checkpoint()


def memory_stream_pair(buffer_bytes: int = BUFFER_BYTES) -> tuple[MemoryStream, MemoryStream]:
    """Return two connected streams in memory.

    Unlike Trio's, which are for tests, they have bounded buffers.

    Args:
      buffer_bytes: Size of the buffer of each direction, 1 or more. Senders wait while it is full.
    """
    there, back = _Buffer(buffer_bytes), _Buffer(buffer_bytes)
    return MemoryStream(there, back), MemoryStream(back, there)
