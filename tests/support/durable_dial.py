"""A broker with a store, and its clients."""

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
from attrs import define, field
from trio.testing import MockClock

from tests.support.fakes import MEMORY, Dial
from tests.support.gated_store import GatedStore
from tests.support.startup import make_server
from trio_stomp import ServerHandle, Settings
from trio_stomp.broker import Recovery
from trio_stomp.server import Server
from trio_stomp.startup import Security
from trio_stomp.store import Store

QUIET = {"diag_interval_s": 0.0, "websocket_ping_s": 0.0}


SAVED = {"persistent": "true"}


@define(eq=False)
class DurableDial(Dial):
    """A broker with a store, and its clients."""

    store: Store = field(factory=GatedStore, kw_only=True)

    def __attrs_post_init__(self) -> None:
        self.assemble = self._with_store

    def _with_store(self, settings: Settings, security: Security, handle: ServerHandle) -> Server:
        clock = trio.lowlevel.current_clock()
        if isinstance(clock, MockClock):
            clock.autojump_threshold = math.inf
        recovered = self.store.recover(lambda done, total: None)
        server = make_server(settings, security, handle, (self.store, recovered))
        Recovery(server.broker, recovered, self.store.read).run()
        server.diagnostics.begin()
        return server

    async def start(self) -> None:
        clock = trio.lowlevel.current_clock()
        if isinstance(clock, MockClock) and not self._is_started:
            clock.autojump_threshold = 0
        await super().start()

    async def end(self) -> None:
        clock = trio.lowlevel.current_clock()
        if isinstance(clock, MockClock):
            clock.autojump_threshold = 0.02
        await super().end()

    def assert_nothing_left(self) -> None:
        """Check that connections, clients and input are gone. Durable messages may remain."""
        assert self.server.connections == {}
        assert len(self.server.broker.clients) == 0
        assert (self.server.inbox.frames, self.server.inbox.bytes) == (0, 0)
        if isinstance(self.store, GatedStore):
            assert self.store.closed == 1

    def stored(self, queue: str) -> list[bytes]:
        """Return the stored messages of a queue, independently of the broker."""
        found: list[bytes] = []
        after, is_last = 0, False
        while not is_last:
            page = self.store.read(f"queue:{queue}", 4, after, 1 << 30)
            found += [bytes(body) for run in page.runs for body in run.bodies]
            after, is_last = page.next, page.is_last
        return found

    async def ask_http(self, path: str) -> int:
        """The status of an HTTP answer."""
        stream = await self.stream()
        await stream.send_all(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        answer = b""
        while b"\r\n\r\n" not in answer:
            more = bytes(await stream.receive_some(65536))
            assert more
            answer += more
        await trio.aclose_forcefully(stream)
        return int(answer.split()[1])


@asynccontextmanager
async def dialled(
    store: Store | None = None, transport: str = MEMORY, **options: object
) -> AsyncIterator[DurableDial]:
    async with trio.open_nursery() as nursery:
        dial = DurableDial(transport, {**QUIET, **options}, store=store or GatedStore())
        dial._nursery = nursery
        try:
            yield dial
        finally:
            if isinstance(dial.store, GatedStore):
                dial.store.go_on()
            dial.hang_up()
        await dial.end()


@asynccontextmanager
async def gated(
    transport: str = MEMORY, **options: object
) -> AsyncIterator[tuple[DurableDial, GatedStore]]:
    """Yield a broker, and its store, which hangs and fails on request."""
    store = GatedStore()
    async with dialled(store, transport, **options) as dial:
        yield dial, store
