"""The network between nodes: their ports for each other, and the links through these."""

import math
from collections.abc import Callable

import trio
from attrs import define, evolve, field

from _cluster.determinism import PROCESS
from _cluster.network import LONG_S, Network
from trio_stomp.testing import Faults, Link

WAITING = 1000
"""The connections that a port holds until they are accepted."""


class Door(trio.abc.Listener[trio.abc.Stream]):
    """A port. As with a socket, connections wait here while nobody accepts any."""

    def __init__(self, close: Callable[[], None]) -> None:
        self._close = close
        self._sender, self._receiver = trio.open_memory_channel[trio.abc.Stream](WAITING)

    def offer(self, stream: trio.abc.Stream) -> None:
        """Let a connection wait until it is accepted."""
        self._sender.send_nowait(stream)

    def copy(self) -> "DoorCopy":
        """Return a listener at the same port."""
        return DoorCopy(self._receiver.clone())

    async def accept(self) -> trio.abc.Stream:
        """Implement ``Listener.accept``."""
        return await self._receiver.receive()

    async def aclose(self) -> None:
        """Implement ``AsyncResource.aclose``."""
        self._close()
        self._receiver.close()
        await trio.lowlevel.checkpoint()


class DoorCopy(trio.abc.Listener[trio.abc.Stream]):
    """Another listener at a port, which can be closed alone."""

    def __init__(self, receiver: trio.MemoryReceiveChannel[trio.abc.Stream]) -> None:
        self._receiver = receiver

    async def accept(self) -> trio.abc.Stream:
        """Implement ``Listener.accept``."""
        return await self._receiver.receive()

    async def aclose(self) -> None:
        """Implement ``AsyncResource.aclose``."""
        self._receiver.close()
        await trio.lowlevel.checkpoint()


@define(eq=False)
class Ways:
    """A machine's links with clients and other machines.

    Args:
      is_cut: No link with another machine is possible.
      slow_until: Bytes wait until then.
    """

    is_cut: bool = False
    slow_until: float = -math.inf
    links: dict[Link, None] = field(factory=dict)

    def drop(self) -> None:
        """End all links."""
        for link in self.links:
            link.cut()
        self.links.clear()


@define(eq=False)
class Streets(Network):
    """A network with links between nodes, too."""

    ways: dict[str, Ways] = field(factory=dict)
    """Those of each machine."""
    doors: dict[tuple[str, int], Door] = field(factory=dict)
    """The ports of each machine."""
    went_on_at: float = -math.inf
    """When bytes that a pause of a node or a stall had held went on."""

    def open_door(self, machine: str, port: int) -> Door:
        """Return a new port of a machine."""

        def close() -> None:
            if self.doors.get((machine, port)) is door:
                del self.doors[machine, port]

        door = self.doors[machine, port] = Door(close)
        return door

    def close_doors(self, machine: str) -> None:
        """Close the ports of a machine whose process was killed."""
        for key in [key for key in self.doors if key[0] == machine]:
            del self.doors[key]

    def link(self, *machines: str) -> Link:
        """Return a new link between machines, or of a client with one."""
        link = Link("", Faults(delay_s=self.chance.uniform(0, LONG_S)))
        for each in machines:
            self.ways[each].links[link] = None
        self._slow(link, machines)
        return link

    def _slow(self, link: Link, machines: tuple[str, ...]) -> None:
        late_s = max(self.ways[each].slow_until for each in machines) - trio.current_time()
        if late_s > 0:
            link.faults = evolve(link.faults, delay_s=late_s)
            self.at(late_s, self._hasten, link)

    def _hasten(self, link: Link) -> None:
        self.went_on_at = trio.current_time()
        link.faults = Faults(delay_s=self.chance.uniform(0, LONG_S))

    def stall(self, machine: str, seconds: float) -> None:
        """Let the bytes of a machine's links wait for a time."""
        ways = self.ways[machine]
        ways.slow_until = trio.current_time() + seconds
        for link in ways.links:
            self._slow(link, (machine,))

    async def connect(self, host: str, port: int) -> trio.abc.Stream:
        """Stand for ``trio.open_tcp_stream``, in a node's task."""
        process = PROCESS.get()
        ways = self.ways.get(host)
        if ways is None:
            return await super().connect(host, port)
        here = process.name  # type: ignore[union-attr]
        await trio.sleep(self.delay_s())
        is_cut = here != host and (ways.is_cut or self.ways[here].is_cut)
        door = self.doors.get((host, port))
        if process is None or process.is_dead or is_cut or door is None:
            raise OSError("connection refused")
        ours, theirs = self.link(here, host).ends()
        door.offer(theirs)
        return ours
