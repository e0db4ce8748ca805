"""For tests of the client: links that break where the test says, and a broker that is a script."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import trio
from attrs import define, evolve, field

from tests.support.fakes import MEMORY, Dial, MemoryListener, abort, open_dial
from tests.support.startup import make_server
from trio_stomp import ServerHandle, Settings
from trio_stomp.broker import DestinationPolicy
from trio_stomp.client import Client, ReconnectPolicy, open_client
from trio_stomp.server import Server
from trio_stomp.startup import Security

QUICK = ReconnectPolicy(first_delay_s=0.1, random=lambda: 1.0)
NEVER = 1 << 60


@define(eq=False)
class CutStream(trio.abc.Stream):
    """A stream that breaks after a number of bytes, which are still transferred."""

    inner: trio.abc.Stream
    sends: int = NEVER
    receives: int = NEVER
    sent: int = 0
    received: int = 0

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        left = self.sends - self.sent
        if left < len(data):
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await self.inner.send_all(bytes(data)[:left])
            self.sent += left
            self.cut()
            raise trio.BrokenResourceError("cut")
        self.sent += len(data)
        await self.inner.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self.inner.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        left = self.receives - self.received
        if left <= 0:
            await trio.lowlevel.checkpoint()
            self.cut()
            raise trio.BrokenResourceError("cut")
        data = bytes(await self.inner.receive_some(min(left, max_bytes or left)))
        self.received += len(data)
        return data

    async def aclose(self) -> None:
        await self.inner.aclose()

    def cut(self) -> None:
        """Break now."""
        abort(self.inner)


class BreakingStream(trio.abc.Stream):
    """A stream that returns its data without waiting, then breaks. It discards what is sent."""

    def __init__(self, *pieces: bytes, takes: bool = True) -> None:
        self.pieces = [*pieces]
        self.takes = takes

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        if not self.pieces:
            raise trio.BrokenResourceError("reset")
        return self.pieces.pop(0)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()
        if not self.takes:
            raise trio.BrokenResourceError("reset")

    async def wait_send_all_might_not_block(self) -> None:
        raise AssertionError

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


@define(eq=False)
class Links:
    """A connector to a broker with links that break.

    Args:
      plans: For each link in order: bytes that it sends, bytes that it receives. Further links
        hold.
    """

    dial: Callable[[], Awaitable[trio.abc.Stream]]
    plans: Sequence[tuple[int, int]] = ()
    opened: list[CutStream] = field(factory=list)
    times: list[float] = field(factory=list)
    is_down: bool = False

    async def __call__(self) -> trio.abc.Stream:
        self.times.append(trio.current_time())
        if self.is_down:
            raise ConnectionRefusedError("nobody is there")
        number = len(self.opened)
        sends, receives = self.plans[number] if number < len(self.plans) else (NEVER, NEVER)
        stream = CutStream(await self.dial(), sends, receives)
        self.opened.append(stream)
        return stream

    def cut(self) -> None:
        """Break the newest link."""
        self.opened[-1].cut()


@define(eq=False)
class Scripted:
    """A broker's end of links, played by the test."""

    listener: MemoryListener = field(factory=MemoryListener)

    async def __call__(self) -> trio.abc.Stream:
        """Connect, as a client does."""
        return self.listener.connect()

    async def connect_narrow(self) -> trio.abc.Stream:
        """Connect over a link with almost no buffer."""
        return self.listener.connect_narrow()

    async def accept(self, headers: bytes = b"") -> trio.abc.Stream:
        """Accept a connection and welcome the client."""
        stream = await self.listener.accept()
        await read_until(stream, b"\n\n\0")
        await stream.send_all(b"CONNECTED\nversion:1.2\n%b\n\0" % headers)
        return stream


@asynccontextmanager
async def playing(serve: Callable[[Scripted], Awaitable[object]]) -> AsyncIterator[Scripted]:
    """Run ``serve`` as the broker's end of a connector while the block runs."""
    peer = Scripted()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, peer)
        yield peer


@asynccontextmanager
async def open_played(
    serve: Callable[[Scripted], Awaitable[object]], reconnect: ReconnectPolicy | None = QUICK
) -> AsyncIterator[Client]:
    """Connect a client to a broker that ``serve`` plays; its end is waited for for 1 s."""
    async with (
        playing(serve) as peer,
        open_client(peer, reconnect=reconnect, close_timeout_s=1) as client,
    ):
        yield client


async def just_open(where: Any, **options: Any) -> None:
    """Connect a client, and leave."""
    async with open_client(where, **options):
        pass


async def confirm(stream: trio.abc.Stream) -> bytes:
    """Answer the next frame with its receipt, and return the frame."""
    result = await read_until(stream, b"\n\n\0")
    await stream.send_all(b"RECEIPT\nreceipt-id:%b\n\n\0" % receipt_of(result))
    return result


async def read_until(stream: trio.abc.Stream, end: bytes) -> bytes:
    """Return what the client sends, up to ``end``."""
    data = b""
    while end not in data:
        more = await stream.receive_some()
        assert more, f"the client closed; {data!r} came"
        data += bytes(more)
    return data


def receipt_of(data: bytes) -> bytes:
    """The receipt that the last frame in ``data`` asks for."""
    return data.rpartition(b"\nreceipt:")[2].partition(b"\n")[0]


@asynccontextmanager
async def open_broker(transport: str = MEMORY, /, **options: object) -> AsyncIterator[Dial]:
    """Run a broker. Connecting to it takes no (virtual) time."""
    async with open_dial(transport, **options) as dial:
        await dial.start()
        yield dial


@asynccontextmanager
async def open_linked(
    reconnect: ReconnectPolicy | None = QUICK,
) -> AsyncIterator[tuple[Client, Links]]:
    """Run a broker and a client of it whose links can be cut."""
    async with open_broker() as dial:
        links = Links(dial.stream)
        async with open_client(links, reconnect=reconnect) as client:
            yield client, links


@asynccontextmanager
async def open_keeper(*policies: tuple[str, DestinationPolicy]) -> AsyncIterator[Dial]:
    """Run a broker in memory with policies. At the end its streams may still hold messages."""
    async with trio.open_nursery() as nursery:
        dial = Dial(MEMORY, {})
        dial._nursery = nursery

        def assemble(settings: Settings, security: Security, handle: ServerHandle) -> Server:
            return make_server(evolve(settings, destinations=policies), security, handle)

        dial.assemble = assemble
        await dial.start()
        try:
            yield dial
        finally:
            dial.hang_up()
        await dial.stop()
