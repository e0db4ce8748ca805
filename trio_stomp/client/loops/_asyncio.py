"""The functions of ``Loop`` on asyncio.

A cancellation happens once, as everywhere in asyncio: a block that catches ``CancelledError`` goes
on. Nothing needs the task that opened a client to be the one that closes it, so fixtures and
generators that are resumed by other tasks work.
"""

import asyncio
import math
import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Any, Self, cast

from attrs import define, field, frozen

from trio_stomp.client._errors import ClientClosed
from trio_stomp.client.loops._loop import AsyncioConnector, Connector, Receiver, Sender, Stream


class WouldBlock(asyncio.QueueEmpty, asyncio.QueueFull):
    """The channel is empty or full."""


@define(eq=False)
class _Scope:
    """Cancels the task within the block.

    The cancellation is always delivered by the event loop, never by the task itself, so it reaches
    the task within the block or not at all.
    """

    _deadline: float = math.inf
    _is_cancelled: bool = False
    _has_struck: bool = False
    _task: "asyncio.Task[Any] | None" = None
    _cancelled_before: int = 0
    _timer: asyncio.Handle | None = None

    @property
    def deadline(self) -> float:
        """The time of the event loop at which the block is cancelled."""
        return self._deadline

    @deadline.setter
    def deadline(self, deadline: float) -> None:
        self._deadline = deadline
        self._arm()

    def cancel(self) -> None:
        """Implement ``Scope.cancel``."""
        self._is_cancelled = True
        self._arm()

    def _arm(self) -> None:
        self._disarm()
        if self._task is None or self._has_struck:
            return
        loop = asyncio.get_running_loop()
        if self._is_cancelled:
            self._timer = loop.call_soon(self._strike, self._task)
        elif self._deadline < math.inf:
            self._timer = loop.call_at(self._deadline, self._strike, self._task)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _strike(self, task: "asyncio.Task[Any]") -> None:
        self._has_struck = True
        task.cancel()

    def __enter__(self) -> Self:
        task = self._task = asyncio.current_task()
        assert task is not None  # the client runs in tasks
        self._cancelled_before = task.cancelling()
        self._arm()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        self._disarm()
        task, self._task = self._task, None
        if task is None or not self._has_struck:
            return False
        is_ours = task.uncancel() <= self._cancelled_before
        return is_ours and kind is asyncio.CancelledError


@frozen
class _Nursery:
    cancel_scope: _Scope
    _group: asyncio.TaskGroup

    def start_soon(self, function: Callable[[], Awaitable[object]]) -> None:
        """Implement ``Nursery.start_soon``."""
        self._group.create_task(_run(function))


async def _run(function: Callable[[], Awaitable[object]]) -> None:
    await function()


@define(eq=False)
class _ParkingLot:
    _parked: "deque[asyncio.Future[None]]" = field(factory=deque)

    def __bool__(self) -> bool:
        return bool(self._parked)

    async def park(self) -> None:
        """Implement ``ParkingLot.park``."""
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._parked.append(woken)
        try:
            await woken
        except asyncio.CancelledError:
            if woken.cancelled():
                # Not there if it was unparked between the cancellation and this line.
                with suppress(ValueError):
                    self._parked.remove(woken)
            else:
                self.unpark()  # woken and cancelled at once: the next task is woken instead
            raise

    def unpark(self) -> None:
        """Implement ``ParkingLot.unpark``."""
        while self._parked:
            woken = self._parked.popleft()
            if not woken.done():
                return woken.set_result(None)

    def unpark_all(self) -> None:
        """Implement ``ParkingLot.unpark_all``."""
        while self._parked:
            self.unpark()


@define(eq=False)
class _Channel:
    _size: int
    _items: deque[Any] = field(factory=deque)
    _is_closed: bool = False
    _lot: _ParkingLot = field(factory=_ParkingLot)

    def send_nowait(self, item: object) -> None:
        """Implement ``Sender.send_nowait``."""
        if len(self._items) >= self._size:
            raise WouldBlock
        self._items.append(item)
        self._lot.unpark()

    def close(self) -> None:
        """Implement ``Sender.close``."""
        self._is_closed = True
        self._lot.unpark_all()

    def receive_nowait(self) -> Any:  # noqa: ANN401
        """Implement ``Receiver.receive_nowait``."""
        if self._items:
            return self._items.popleft()
        raise ClientClosed("the client has ended") if self._is_closed else WouldBlock

    async def receive(self) -> Any:  # noqa: ANN401
        """Implement ``Receiver.receive``."""
        while not self._items and not self._is_closed:
            await self._lot.park()
        return self.receive_nowait()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:  # noqa: ANN401
        try:
            return await self.receive()
        except ClientClosed:
            raise StopAsyncIteration from None


@frozen
class _Stream:
    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter

    def __attrs_post_init__(self) -> None:
        # ``drain`` then waits until the system has all bytes. The client limits unsent bytes.
        self._writer.transport.set_write_buffer_limits(0)

    async def send_all(self, data: bytes) -> None:
        """Implement ``Stream.send_all``."""
        self._writer.write(data)
        await self._writer.drain()

    async def receive_some(self, max_bytes: int) -> bytes:
        """Implement ``Stream.receive_some``."""
        return await self._reader.read(max_bytes)

    def abort(self) -> None:
        """Close at once."""
        self._writer.transport.abort()


class AsyncioLoop:
    """Implements ``Loop`` on asyncio.

    Raises:
      RuntimeError: no event loop is running.
    """

    broken = (OSError,)
    would_block = WouldBlock
    event = asyncio.Event
    parking_lot = _ParkingLot
    scope = _Scope
    sleep = staticmethod(asyncio.sleep)

    def __init__(self) -> None:
        self.current_time = asyncio.get_running_loop().time

    def move_on_after(self, seconds: float) -> _Scope:
        """Implement ``Loop.move_on_after``."""
        return _Scope(self.current_time() + seconds)

    @asynccontextmanager
    async def open_nursery(self) -> AsyncIterator[_Nursery]:
        """Implement ``Loop.open_nursery``."""
        with _Scope() as scope:
            async with asyncio.TaskGroup() as group:
                yield _Nursery(scope, group)

    def open_channel(self, size: int) -> tuple[Sender[Any], Receiver[Any]]:
        """Implement ``Loop.open_channel``."""
        channel = _Channel(size)
        return channel, channel

    async def sleep_until(self, time: float) -> None:
        """Implement ``Loop.sleep_until``."""
        await asyncio.sleep(time - self.current_time())

    async def checkpoint(self) -> None:
        """Implement ``Loop.checkpoint``."""
        await asyncio.sleep(0)

    async def checkpoint_if_cancelled(self) -> None:
        """Do nothing: a running task has no pending cancellation, except by itself."""

    async def connect(self, host: str, port: int, context: ssl.SSLContext | None) -> Stream:
        """Implement ``Loop.connect``."""
        return _Stream(*await asyncio.open_connection(host, port, ssl=context))

    async def call(self, connector: Connector | AsyncioConnector) -> Stream:
        """Implement ``Loop.call``."""
        streams = await connector()
        return _Stream(*cast("tuple[asyncio.StreamReader, asyncio.StreamWriter]", streams))

    async def close(self, stream: Stream) -> None:
        """Implement ``Loop.close``."""
        cast("_Stream", stream).abort()
