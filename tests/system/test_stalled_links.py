"""Links between nodes through which nothing passes any more, although they stay open."""

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import pytest
import trio
from attrs import define, evolve, field

from tests.support.fakes import until
from tests.support.partitions import A, B, Partitions, partitions
from tests.support.startup import address_of
from trio_stomp.cluster.routing import _link

STORED = {"persistent": "true"}


@define(eq=False)
class Relay:
    """Relays connections to an address, until those that exist stall: it neither reads nor writes.

    Args:
      host, port: The address.
    """

    host: str
    port: int
    beats: Counter[str] = field(factory=Counter)
    """Heart-beats that passed, by direction."""
    _stalled: trio.Event = field(factory=trio.Event)
    """Set = the connections that exist stall."""

    def stall(self) -> None:
        self._stalled.set()
        self._stalled = trio.Event()

    async def serve(self, near: trio.SocketStream) -> None:
        stalled = self._stalled
        async with await trio.open_tcp_stream(self.host, self.port) as far, near:
            async with trio.open_nursery() as pumps:
                pumps.start_soon(self._pump, "to", near, far, pumps.cancel_scope)
                pumps.start_soon(self._pump, "from", far, near, pumps.cancel_scope)
                await stalled.wait()
                pumps.cancel_scope.cancel()
            if stalled.is_set():
                await trio.sleep_forever()

    async def _pump(
        self, way: str, source: trio.SocketStream, into: trio.SocketStream, both: trio.CancelScope
    ) -> None:
        with suppress(trio.BrokenResourceError):
            while data := await source.receive_some(4096):
                self.beats[way] += data == b"\n"
                await into.send_all(data)
        both.cancel()


@asynccontextmanager
async def relayed() -> AsyncGenerator[tuple[Partitions, Relay], None]:
    """Run partitions, the second of which is reached through a relay."""
    async with partitions() as here:
        owner = here.owners[1]
        contact = owner.gate.owner
        assert contact is not None
        relay = Relay(contact.host, contact.port)
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        here.tasks.start_soon(trio.serve_listeners, relay.serve, [listener])
        port = int(address_of(listener).rpartition(":")[2])
        owner.gate.point_to(evolve(contact, port=port))
        yield here, relay


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_link, "BEAT_S", 0.3)
    monkeypatch.setattr(_link, "SILENT_S", 1.5)


async def test_a_client_of_a_stalled_link_is_disconnected_and_its_owner_forgets_it() -> None:
    async with relayed() as (here, relay):
        client = await here.client()
        await client.publish(B, b"1", headers=STORED, receipt=True)
        connections = here.owners[1].server.connections
        other = await here.client()
        await other.publish(A, b"1", headers=STORED, receipt=True)
        relay.stall()
        await client.publish(B, b"2", headers=STORED)
        await client.read_to_end()
        client = await here.client()
        await client.publish(B, b"2", headers=STORED, receipt=True)
        await until(lambda: len(connections) == 1, 0.01)
        await other.publish(A, b"2", headers=STORED, receipt=True)


async def test_an_idle_link_has_heart_beats_both_ways_whatever_the_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_link, "SILENT_S", 20.0)
    async with relayed() as (here, relay):
        client = await here.client("1.0")
        await client.publish(B, b"1", headers=STORED, receipt=True)
        await until(lambda: min(relay.beats["to"], relay.beats["from"]) > 3, 0.01)
        await client.publish(B, b"2", headers=STORED, receipt=True)


async def test_messages_that_are_sent_on_take_another_connection_when_one_stalls() -> None:
    async with relayed() as (here, relay):
        client = await here.client()
        await client.publish(f"{A},{B}", b"1", headers=STORED, receipt=True)
        await until(lambda: here.owners[1].waits(B) == 1, 0.01)
        relay.stall()
        await client.publish(f"{A},{B}", b"2", headers=STORED, receipt=True)
        await until(lambda: here.owners[1].waits(B) == 2 and not here.owners[0].forwards, 0.01)
