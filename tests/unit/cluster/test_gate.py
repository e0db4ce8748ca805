"""Relaying of clients through a standby to the owner, over real sockets."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
from attrs import define, field

from tests.support.fakes import until
from trio_stomp.cluster import Contact, Gate
from trio_stomp.cluster import _gate as module
from trio_stomp.server import Door, ServerLimits


@define
class Owner:
    """A node that records relayed bytes. The test answers each connection."""

    contact: Contact = field(init=False)
    came: list[trio.SocketStream] = field(factory=list)
    stop: trio.CancelScope = field(factory=trio.CancelScope)

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        async def keep(stream: trio.SocketStream) -> None:
            self.came.append(stream)
            await trio.sleep_forever()

        with self.stop:
            async with trio.open_nursery() as tasks:
                (listener,) = await tasks.start(partial(trio.serve_tcp, keep, 0, host="127.0.0.1"))
                self.contact = Contact("o", "127.0.0.1", listener.socket.getsockname()[1], "secret")
                task_status.started()

    async def read(self, end: bytes, number: int = 0) -> bytes:
        await until(lambda: len(self.came) > number)
        data = b""
        while not data.endswith(end):
            data += await self.came[number].receive_some()
        return data


@define
class Standby:
    gate: Gate
    port: int
    tasks: trio.Nursery
    clients: list[trio.SocketStream] = field(factory=list)

    async def client(self, first: bytes = b"CONNECT\n") -> trio.SocketStream:
        stream = await trio.open_tcp_stream("127.0.0.1", self.port)
        self.clients.append(stream)
        await stream.send_all(first)
        return stream

    async def owner(self) -> Owner:
        owner = Owner()
        await self.tasks.start(owner.run)
        return owner


@asynccontextmanager
async def standby(max_clients: int = 10, first_s: float = 5) -> AsyncGenerator[Standby, None]:
    gate, door = Gate(first_s), Door(ServerLimits(max_connections=max_clients))
    let_in = partial(door.let_in, gate.serve, "off", b"", None)
    with trio.fail_after(20):
        async with trio.open_nursery() as tasks:
            serve = partial(trio.serve_tcp, let_in, 0, host="127.0.0.1")
            (listener,) = await tasks.start(serve)
            yield (here := Standby(gate, listener.socket.getsockname()[1], tasks))
            for client in here.clients:
                await client.aclose()
            tasks.cancel_scope.cancel()
    assert not gate.relays


async def ends(stream: trio.SocketStream) -> bool:
    """Return whether a connection ends without a byte."""
    try:
        return not await stream.receive_some()
    except trio.BrokenResourceError:
        return True


async def test_bytes_pass_both_ways_and_each_end_is_passed_on() -> None:
    async with standby() as here:
        owner = await here.owner()
        here.gate.point_to(owner.contact)
        client = await here.client()
        assert b"secret" in (header := await owner.read(b"CONNECT\n"))
        assert header[:4] == b"\r\n\r\n"
        big = bytes(range(256)) * 4000  # more than the buffers on the way
        async with trio.open_nursery() as tasks:
            tasks.start_soon(client.send_all, big + b"!")
            assert await owner.read(b"!") == big + b"!"
        await client.send_eof()
        assert await owner.came[0].receive_some() == b""
        await owner.came[0].send_all(b"RECEIPT")  # processed frames are answered all the same
        assert await client.receive_some() == b"RECEIPT"
        await owner.came[0].aclose()
        assert await ends(client)


async def test_a_farewell_of_the_owner_is_not_destroyed_by_what_the_client_still_sends() -> None:
    async with standby() as here:
        owner = await here.owner()
        here.gate.point_to(owner.contact)
        client = await here.client()
        await owner.read(b"CONNECT\n")
        await owner.came[0].send_all(b"ERROR")
        await owner.came[0].send_eof()
        await client.send_all(b"SEND")
        assert await owner.read(b"SEND") == b"SEND"
        assert await client.receive_some() == b"ERROR"
        assert await ends(client)


async def test_clients_wait_for_an_owner_and_end_with_it() -> None:
    async with standby() as here:
        waiting = await here.client()
        await until(lambda: len(here.gate.relays) == 1)
        former, owner = await here.owner(), await here.owner()
        former.stop.cancel()
        await trio.sleep(0.05)  # it is dead and refuses connections, and no node has taken over yet
        here.gate.point_to(former.contact)
        await trio.sleep(0.1)
        here.gate.point_to(owner.contact)
        assert (await owner.read(b"CONNECT\n")).endswith(b"CONNECT\n")
        here.gate.point_to(owner.contact)  # renewed
        await waiting.send_all(b"more")
        assert await owner.read(b"more") == b"more"
        here.gate.point_to(None)
        assert await ends(waiting)


@pytest.mark.parametrize(
    ("first", "answer"),
    [
        (b"", b""),
        (b"\nCONNECT\n", b"ERROR\nmessage:no node owns the cluster at the moment"),
        (b"GET /varz HTTP/1.0\r\n\r\n", b"HTTP/1.1 503 "),
        (b"\x16\x03\x01", b""),
    ],
    ids=["silent", "stomp", "http", "tls"],
)
async def test_no_caller_waits_forever(
    monkeypatch: pytest.MonkeyPatch, first: bytes, answer: bytes
) -> None:
    monkeypatch.setattr(module, "WAIT_S", 0.05)
    async with standby(first_s=0.05) as here:
        client = await here.client(first)
        assert (await client.receive_some(len(answer) or 1)).startswith(answer)
        assert not answer or await client.receive_some()
        assert await ends(client)


async def test_more_clients_than_allowed_are_closed() -> None:
    async with standby(max_clients=1) as here:
        await here.client(b"")
        await until(lambda: len(here.gate.relays) == 1)
        client = await here.client()
        assert b"which is its limit" in await client.receive_some()
        assert await ends(client)


@pytest.mark.parametrize(
    ("request_line", "has_owner", "answer"),
    [
        (b"GET /livez HTTP/1.1\r\n\r\n", False, b"HTTP/1.1 200 "),
        (b"HEAD /readyz HTTP/1.0\r\n\r\n", True, b"HTTP/1.1 200 "),
        (b"GET /readyz?x HTTP/1.1\r\n\r\n", False, b"HTTP/1.1 503 "),
    ],
)
async def test_load_balancers_ask_the_node_itself(
    request_line: bytes, has_owner: bool, answer: bytes
) -> None:
    async with standby() as here:
        if has_owner:
            here.gate.point_to((await here.owner()).contact)
            here.gate.reached = here.gate.owner
        client = await here.client(request_line)
        assert (await client.receive_some()).startswith(answer)
        assert await ends(client)


async def test_a_node_that_hears_nothing_of_the_engine_is_not_ready() -> None:
    async with standby() as here:
        here.gate.point_to((await here.owner()).contact)
        here.gate.is_silent = lambda: True
        for is_reading, says in ((False, b"servers of NATS do not"), (True, b"reads its stored")):
            here.gate.is_reading = lambda found=is_reading: found  # type: ignore[misc]
            client = await here.client(b"GET /readyz HTTP/1.1\r\n\r\n")
            assert says in await client.receive_some()


@pytest.mark.parametrize("more", ["", " tls", " new", " new tls"])
def test_a_contact_of_a_newer_version_may_say_more(more: str) -> None:
    contact = Contact("n", "host", 1, "s", is_encrypted="tls" in more)
    assert Contact.parse("n", f"host 1 s{more}") == contact


@pytest.mark.parametrize("text", ["", "a b c", "host 1"])
def test_a_lease_without_an_address_has_no_contact(text: str) -> None:
    assert Contact.parse("n", text) is None
    contact = Contact("n", "::1", 5, "s")
    assert Contact.parse("n", str(contact)) == contact
