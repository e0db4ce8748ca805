"""The network between nodes and the engine, in virtual time: it delays, stalls and is cut."""

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import trio
from attrs import define, field

from _cluster.determinism import PROCESS

SHORT_S, LONG_S = 0.0002, 0.002
"""The time that bytes take one way."""
ENDED = b""


class Server(Protocol):
    """The target of connections."""

    def accepts(self, host: str) -> bool:
        """Return whether a server runs under this name."""

    def open(self, host: str, say: "Callable[[bytes], None]") -> "Callable[[bytes], None]":
        """Accept a connection. Return a function that takes its bytes, and ``ENDED`` at the end."""


@define(eq=False)
class Place:
    """A machine's place in the network.

    Args:
      is_cut: No connection is possible.
      stalled: The directions in which bytes wait: ``up`` to the engine, ``down`` from it.
    """

    is_cut: bool = False
    stalled: set[str] = field(factory=set)
    wires: "dict[Wire, None]" = field(factory=dict)
    passes: trio.Event = field(factory=trio.Event)

    def stall(self, *ways: str) -> None:
        """Let bytes wait until ``go_on``."""
        self.stalled.update(ways)
        self.passes = trio.Event()

    def go_on(self) -> None:
        """Deliver all waiting bytes."""
        self.stalled.clear()
        self.passes.set()
        for wire in list(self.wires):
            wire.up.release()
            wire.down.release()

    def cut(self) -> None:
        """End all connections. No other is possible until ``is_cut`` is set to False."""
        self.is_cut = True
        self.drop()

    def drop(self) -> None:
        """End all connections."""
        for wire in list(self.wires):
            wire.break_off()


@define(eq=False)
class Network:
    """Lets everything happen that is due: arrivals, heart-beats, the ends of faults."""

    chance: random.Random
    server: Server = field(init=False)
    _agenda: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = field(factory=list)
    _numbers: "itertools.count[int]" = field(factory=itertools.count)
    _scope: trio.CancelScope = field(factory=trio.CancelScope)

    def at(self, delay_s: float, function: Callable[..., None], *args: Any) -> None:  # noqa: ANN401
        """Call a function after a time, with positional arguments."""
        due = trio.current_time() + delay_s
        heapq.heappush(self._agenda, (due, next(self._numbers), function, args))
        self._scope.deadline = min(self._scope.deadline, due)

    async def run(self) -> None:
        """Run events when they are due. Ends by cancellation only."""
        while True:
            agenda = self._agenda
            with trio.CancelScope(deadline=agenda[0][0] if agenda else float("inf")) as self._scope:
                await trio.sleep_forever()
            while agenda and agenda[0][0] <= trio.current_time():
                _, _, function, args = heapq.heappop(agenda)
                function(*args)

    def delay_s(self) -> float:
        """Return the time that bytes take."""
        return self.chance.uniform(SHORT_S, LONG_S)

    async def connect(self, host: str, _port: int) -> trio.abc.Stream:
        """Stand for ``trio.open_tcp_stream``, in a node's task."""
        process: Any = PROCESS.get()
        place: Place = process.place
        await trio.sleep(self.delay_s())
        while place.stalled:
            await place.passes.wait()
        if process.is_dead or place.is_cut or not self.server.accepts(host):
            raise OSError("connection refused")
        return Wire(self, place, host)


@define(eq=False)
class Pipe:
    """One direction of a connection. What is pushed arrives in order."""

    network: Network
    place: Place
    way: str
    take: Callable[[bytes], None]
    is_broken: bool = False
    _last: float = 0.0
    _held: deque[bytes] = field(factory=deque)

    def push(self, data: bytes) -> None:
        """Send bytes."""
        now = trio.current_time()
        self._last = max(self._last, now + self.network.delay_s())
        self.network.at(self._last - now, self._arrive, data)

    def _arrive(self, data: bytes) -> None:
        if self.is_broken:
            return
        if self.way in self.place.stalled or self._held:
            self._held.append(data)
        else:
            self.take(data)

    def release(self) -> None:
        """Deliver the waiting items."""
        while self._held and not self.is_broken:
            self.take(self._held.popleft())


class Wire(trio.abc.Stream):
    """A connection, at the node's end."""

    def __init__(self, network: Network, place: Place, host: str) -> None:
        self._place = place
        self._inbox: list[bytes] = []
        self._has_ended = False
        self._news = trio.Event()
        self.down = Pipe(network, place, "down", self._take)
        self._feed = network.server.open(host, self.down.push)
        self.up = Pipe(network, place, "up", self._feed)
        place.wires[self] = None

    def _take(self, data: bytes) -> None:
        if data == ENDED:
            self._end()
        else:
            self._inbox.append(data)
        self._news.set()

    def _end(self) -> None:
        self._has_ended = self.down.is_broken = self.up.is_broken = True
        self._place.wires.pop(self, None)

    def break_off(self) -> None:
        """End the connection at both ends immediately. Data in transit are lost."""
        if not self._has_ended:
            self._end()
            self._news.set()
            self._feed(ENDED)

    async def send_all(self, data: "bytes | bytearray | memoryview") -> None:
        """Implement ``SendStream.send_all``."""
        await trio.lowlevel.checkpoint()
        if self._has_ended:
            raise trio.BrokenResourceError
        self.up.push(bytes(data))

    async def wait_send_all_might_not_block(self) -> None:
        """Implement ``SendStream.wait_send_all_might_not_block``."""
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:  # noqa: ARG002
        """Implement ``ReceiveStream.receive_some``."""
        await trio.lowlevel.checkpoint()
        while not self._inbox:
            if self._has_ended:
                return b""
            self._news = trio.Event()
            await self._news.wait()
        data = b"".join(self._inbox)
        self._inbox.clear()
        return data

    async def aclose(self) -> None:
        """Implement ``AsyncResource.aclose``."""
        self.break_off()
        await trio.lowlevel.checkpoint()
