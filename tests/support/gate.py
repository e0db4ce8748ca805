"""A relay in a thread between clients, on any async library, and a broker, that can be worsened."""

import math
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import trio
from attrs import define, field

RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""SO_LINGER: close with a reset."""
LOST = (trio.BrokenResourceError, trio.ClosedResourceError, OSError)


@define(eq=False)
class Gate:
    """A proxy that relays bytes in both directions.

    Args:
      to_port: The broker's port.
      cut_after: The links are cut once this many further bytes have passed to the client.
      resets: Whether a cut resets the connections, or closes them in order.
    """

    to_port: int
    cut_after: float = math.inf
    resets: bool = False
    links: int = 0
    passed: int = 0
    """Bytes to the client."""
    port: int = 0
    _is_open: trio.Event = field(factory=trio.Event)
    _scopes: set[trio.CancelScope] = field(factory=set)
    _token: trio.lowlevel.TrioToken | None = None
    _started: threading.Event = field(factory=threading.Event)
    _stop: Callable[[], None] = lambda: None

    @property
    def url(self) -> str:
        """The URL for clients."""
        return f"stomp://127.0.0.1:{self.port}"

    def hold(self) -> None:
        """Stop reading, from both sides."""
        self._call(self._hold)

    def release(self) -> None:
        """Read again."""
        self._call(self._release)

    def cut(self) -> None:
        """Cut all links."""
        self._call(self._cut)

    def _call(self, function: Callable[[], None]) -> None:
        done = threading.Event()

        def call() -> None:
            function()
            done.set()

        assert self._token is not None
        self._token.run_sync_soon(call)
        assert done.wait(30)

    def _hold(self) -> None:
        self._is_open = trio.Event()

    def _release(self) -> None:
        self._is_open.set()

    def _cut(self) -> None:
        for scope in tuple(self._scopes):
            scope.cancel()

    async def _main(self) -> None:
        self._is_open.set()
        async with trio.open_nursery() as nursery:
            (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
            self.port = listener.socket.getsockname()[1]
            self._token = trio.lowlevel.current_trio_token()
            self._stop = nursery.cancel_scope.cancel
            self._started.set()
            await trio.serve_listeners(self._link, [listener])

    async def _link(self, client: trio.SocketStream) -> None:
        self.links += 1
        broker = await trio.open_tcp_stream("127.0.0.1", self.to_port)
        with trio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._pass_on, client, broker, scope)
                    await self._pass_on(broker, client, scope)
            finally:
                self._scopes.discard(scope)
                for each in (client, broker):
                    if self.resets:
                        each.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
                    each.socket.close()

    async def _pass_on(
        self, source: trio.SocketStream, target: trio.SocketStream, scope: trio.CancelScope
    ) -> None:
        to_broker = target.socket.getpeername()[1] == self.to_port
        with suppress(*LOST):
            while data := bytes(await source.receive_some(65536)):
                await self._is_open.wait()
                if not to_broker:
                    data = data[: int(min(len(data), self.cut_after))]
                    self.cut_after -= len(data)
                    self.passed += len(data)
                await target.send_all(data)
                if self.cut_after <= 0:
                    self.cut_after = math.inf
                    return scope.cancel()
        scope.cancel()


@contextmanager
def open_gate(to_port: int) -> Iterator[Gate]:
    """Run a gate in a thread for the block."""
    gate = Gate(to_port)
    thread = threading.Thread(target=trio.run, args=(gate._main,), daemon=True)
    thread.start()
    gate._started.wait(30)
    try:
        yield gate
    finally:
        gate._call(gate._stop)
        thread.join(30)
