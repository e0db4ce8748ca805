"""A broker that was started as a program starts one, over real sockets."""

import re
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import trio
from attrs import define, evolve, field

from tests.support.fakes import Client, StreamPipe
from trio_stomp import ServerHandle, Settings, serve
from trio_stomp.broker import DestinationPolicy

QUIET = {"diag_interval_s": 0, "heartbeat_send_ms": 0, "heartbeat_expect_ms": 0}


@define
class Served:
    """A broker and its clients."""

    handle: ServerHandle
    settings: Settings
    clients: list[Client] = field(factory=list)

    async def use(self, policies: Mapping[str, DestinationPolicy]) -> None:
        """Replace the policies of destinations, as a reload does."""
        self.settings = evolve(self.settings, destinations=tuple(policies.items()))
        await self.handle.reload(self.settings)

    async def stream(self) -> trio.SocketStream:
        """Open a connection."""
        host, _, port = self.handle.addresses[0].rpartition(":")
        return await trio.open_tcp_stream(host, int(port))

    async def open(self, context: ssl.SSLContext | None = None) -> Client:
        """Connect without sending anything, in the clear or over TLS."""
        stream: trio.abc.Stream = await self.stream()
        if context is not None:
            stream = trio.SSLStream(stream, context, server_hostname="127.0.0.1")
        client = Client(StreamPipe(stream))
        self.clients.append(client)
        return client

    async def connect(self, headers: dict[str, str]) -> Client:
        """Connect and open a session."""
        client = await self.open()
        await client.connect("1.2", headers)
        return client


@asynccontextmanager
async def served(**options: object) -> AsyncIterator[Served]:
    """Run a broker until the block ends, and hang up on its clients."""
    async with served_with({}, options) as made:
        yield made


@asynccontextmanager
async def served_with(
    policies: Mapping[str, DestinationPolicy], options: Mapping[str, object]
) -> AsyncIterator[Served]:
    """Run a broker with policies of destinations."""
    settings = Settings.of(**{"port": 0, **QUIET, **options})
    settings = evolve(settings, destinations=tuple(policies.items()))
    async with trio.open_nursery() as nursery:
        made = Served(await nursery.start(serve, settings), settings)
        try:
            yield made
        finally:
            for client in made.clients:
                client.abort()
            made.handle.stop()


async def used_bytes(made: Served) -> int:
    """Return the broker's own figure of its messages in memory."""
    async with await made.stream() as stream:
        await stream.send_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        page = b"".join([piece async for piece in stream])
    found = re.search(rb"^trio_stomp_memory_used_bytes (\S+)", page, re.MULTILINE)
    assert found is not None
    return int(float(found[1]))


async def sends(broker: Served, to: str, *bodies: str, **headers: str) -> None:
    """Send durable messages, from a connection of their own."""
    client = await broker.connect({})
    encoded = [body.encode() for body in bodies]
    more = {"persistent": "true", **headers}
    await client.publish(to, *encoded, headers=more, receipt=True)


async def taken(client: Client, count: int) -> list[str]:
    """Receive and acknowledge messages, and return their bodies."""
    bodies = []
    for _ in range(count):
        message = await client.receive()
        await client.send("ACK", {"id": message["ack"]})
        bodies.append(message.body.decode())
    return bodies


async def is_quiet(client: Client) -> bool:
    """Return whether nothing comes."""
    with trio.move_on_after(0.3):
        return not await client.receive()
    return True
