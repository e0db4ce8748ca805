"""Servers of NATS: a scripted one on a real socket, and the real one where it is installed."""

import json
import subprocess
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
import trio
from _cluster import machines
from _crash.broker import NotReady
from _crash.ports import free_ports
from attrs import define, field

from trio_stomp.nats import Address

MAX_S = 60
"""Longest time for a test with a scripted server: a client that waits for ever is a failure."""
INFO: Mapping[str, object] = {"server_id": "fake", "max_payload": 100, "headers": True}


@define(eq=False)
class Session:
    """A client's connection to a scripted server.

    Args:
      sids: Subscriptions by subject, as the lines that were read made them.
    """

    stream: trio.SocketStream
    sids: dict[bytes, bytes] = field(factory=dict)
    _received: bytearray = field(factory=bytearray)

    async def line(self) -> bytes:
        """Return the client's next line, without its end."""
        while b"\r\n" not in self._received:
            data = await self.stream.receive_some()
            assert data, "the client closed the connection"
            self._received += data
        line, _, rest = bytes(self._received).partition(b"\r\n")
        self._received[:] = rest
        if line.startswith(b"SUB "):
            _, subject, *_, sid = line.split()
            self.sids[subject] = sid
        return line

    async def expect(self, start: bytes) -> bytes:
        """Return the rest of the first line with ``start``; other lines are ignored."""
        while not (line := await self.line()).startswith(start):
            pass
        return line[len(start) :].strip()

    async def say(self, data: bytes) -> None:
        """Send bytes."""
        await self.stream.send_all(data)

    async def welcome(self, **info: object) -> dict[str, object]:
        """Do a server's part of the handshake, and return the fields of CONNECT."""
        await self.say(b"INFO %b\r\n" % json.dumps({**INFO, **info}).encode())
        connect = json.loads(await self.expect(b"CONNECT "))
        await self.expect(b"PING")
        await self.say(b"PONG\r\n")
        assert isinstance(connect, dict)
        return connect


@define(eq=False)
class ScriptedServer:
    """Listens, and hands connections to the test, one after the other."""

    address: Address
    _sessions: trio.MemoryReceiveChannel[Session]

    async def session(self) -> Session:
        """Return the next connection."""
        return await self._sessions.receive()


@asynccontextmanager
async def scripted_server() -> AsyncGenerator[ScriptedServer, None]:
    """Listen on a free port of loopback while the block runs, which must not take long."""
    into, out = trio.open_memory_channel[Session](10)

    async def keep(stream: trio.SocketStream) -> None:
        await into.send(Session(stream))
        await trio.sleep_forever()

    with trio.fail_after(MAX_S):
        async with trio.open_nursery() as tasks:
            listeners: list[trio.SocketListener] = await tasks.start(
                partial(trio.serve_tcp, keep, 0, host="127.0.0.1")
            )
            port = listeners[0].socket.getsockname()[1]
            yield ScriptedServer(Address("127.0.0.1", port), out)
            tasks.cancel_scope.cancel()


def nats_server() -> str:
    """Return the path of the server of NATS. Skip the test if it is not installed."""
    try:
        return machines.nats_server()
    except NotReady as error:
        pytest.skip(f"THE SERVER OF NATS IS NOT THERE: {error}")


@define(eq=False)
class NatsProcess:
    """A server of NATS, which can be killed and started again on the same port and files."""

    port: int
    arguments: Sequence[str]
    _process: "subprocess.Popen[bytes]" = field(init=False)

    @property
    def address(self) -> Address:
        """The address on which the server listens."""
        return Address("127.0.0.1", self.port)

    def start(self) -> None:
        """Start it. It may take some time to listen."""
        self._process = subprocess.Popen(
            [nats_server(), "-a", "127.0.0.1", "-p", str(self.port), *self.arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def kill(self) -> None:
        """Kill it, as ``kill -9`` does."""
        self._process.kill()
        self._process.wait()


@contextmanager
def running_nats(folder: Path, *arguments: str, nodes: int = 1) -> Iterator[list[NatsProcess]]:
    """Run servers with JetStream, of one cluster if there are several, while the block runs."""
    numbers = free_ports(2 * nodes)
    ports, routes = numbers[:nodes], numbers[nodes:]
    servers: list[NatsProcess] = []
    for number, (port, route) in enumerate(zip(ports, routes, strict=True)):
        words = ["-js", "-sd", str(folder / f"n{number}"), "-n", f"n{number}", *arguments]
        if nodes > 1:
            others = ",".join(f"nats://127.0.0.1:{each}" for each in routes)
            words += ["--cluster_name", "c", "--cluster", f"nats://127.0.0.1:{route}"]
            words += ["--routes", others]
        servers.append(NatsProcess(port, words))
    try:
        for server in servers:
            server.start()
        yield servers
    finally:
        for server in servers:
            with suppress(AttributeError):
                server.kill()
