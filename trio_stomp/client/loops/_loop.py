"""The functions that each async library provides, in the vocabulary of Trio."""

import ssl
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

if TYPE_CHECKING:
    import asyncio

    import trio

Connector = Callable[[], Awaitable["trio.abc.Stream"]]
"""Opens a new stream to the broker with each call, on Trio."""

AsyncioConnector = Callable[[], Awaitable["tuple[asyncio.StreamReader, asyncio.StreamWriter]"]]
"""Opens a new connection to the broker with each call, as ``asyncio.open_connection`` does."""

Item = TypeVar("Item")
Item_co = TypeVar("Item_co", covariant=True)
Item_contra = TypeVar("Item_contra", contravariant=True)


class Event(Protocol):
    """A flag that is set once, and wakes the tasks that wait for it."""

    def set(self) -> object:
        """Set the flag, and wake all waiting tasks."""

    async def wait(self) -> object:
        """Wait until it is set."""


class ParkingLot(Protocol):
    """Waiting tasks, woken in their order. It is true while a task waits."""

    def __bool__(self) -> bool: ...

    async def park(self) -> None:
        """Wait to be woken."""

    def unpark(self) -> object:
        """Wake the task that has waited longest, if any."""

    def unpark_all(self) -> object:
        """Wake all waiting tasks."""


class Scope(Protocol):
    """A block that can be cancelled from outside, or at a deadline by ``Loop.current_time``."""

    deadline: float

    def cancel(self) -> None:
        """Cancel the block."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None: ...


class Nursery(Protocol):
    """A block that ends when its tasks have ended, and raises a group of errors."""

    @property
    def cancel_scope(self) -> Scope:
        """The scope of the block and its tasks."""

    def start_soon(self, function: Callable[[], Awaitable[object]], /) -> object:
        """Run a function in a task."""


class Stream(Protocol):
    """The bytes of a connection. If it breaks, its methods raise one of ``Loop.broken``."""

    async def send_all(self, data: bytes) -> None:
        """Send bytes, and wait until the system has them."""

    async def receive_some(self, max_bytes: int, /) -> bytes | bytearray:
        """Wait for bytes, and return them, or b"" at the end."""


class Sender(Protocol[Item_contra]):
    """The writing end of a channel."""

    def send_nowait(self, item: Item_contra, /) -> None:
        """Add an item, or raise ``Loop.would_block`` if the channel is full."""

    def close(self) -> None:
        """End the channel after its items."""


class Receiver(Protocol[Item_co]):
    """The reading end of a channel: ``async for item in receiver``."""

    async def receive(self) -> Item_co:
        """Wait for the next item, and return it.

        Raises:
          trio.EndOfChannel, or on asyncio ClientClosed: there are no more.
        """

    def receive_nowait(self) -> Item_co:
        """Return the next item without waiting.

        Raises:
          trio.WouldBlock, or on asyncio asyncio.QueueEmpty: there is none yet.
          trio.EndOfChannel, or on asyncio ClientClosed: there are no more.
        """

    def __aiter__(self) -> Self: ...

    async def __anext__(self) -> Item_co: ...


class Loop(Protocol):
    """The functions of one async library."""

    @property
    def broken(self) -> tuple[type[Exception], ...]:
        """The errors of a broken stream."""

    @property
    def would_block(self) -> type[Exception]:
        """The error of a ``…_nowait`` method that would have to wait."""

    def event(self) -> Event:
        """Return a new event."""

    def parking_lot(self) -> ParkingLot:
        """Return a new parking lot."""

    def scope(self, *, deadline: float = ...) -> Scope:
        """Return a new cancel scope."""

    def move_on_after(self, seconds: float, /) -> Scope:
        """Return a scope with a deadline from now."""

    def open_nursery(self) -> AbstractAsyncContextManager[Nursery]:
        """Run tasks within a block."""

    def open_channel(self, size: int) -> tuple[Sender[Any], Receiver[Any]]:
        """Return the ends of a channel for ``size`` items."""

    def current_time(self) -> float:
        """Return the time by the clock of deadlines, in seconds."""

    async def sleep(self, seconds: float, /) -> object:
        """Wait for a time."""

    async def sleep_until(self, time: float, /) -> object:
        """Wait until a time of ``current_time``."""

    async def checkpoint(self) -> object:
        """Let the other tasks run."""

    async def checkpoint_if_cancelled(self) -> object:
        """Raise a pending cancellation, if any."""

    async def connect(self, host: str, port: int, context: ssl.SSLContext | None) -> Stream:
        """Connect over TCP, or over TLS if there is a context."""

    async def call(self, connector: Connector | AsyncioConnector) -> Stream:
        """Open a stream with a function of the application."""

    async def close(self, stream: Stream, /) -> None:
        """Close a stream at once."""
