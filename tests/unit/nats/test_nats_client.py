"""A client against a scripted server, over real sockets: its links, requests and subscriptions."""

import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio
from attrs import evolve
from trio.testing import memory_stream_pair

from tests.support.nats import ScriptedServer, Session, scripted_server
from trio_stomp.nats import (
    Address,
    Disconnected,
    Message,
    NatsClient,
    NatsError,
    NatsOptions,
    NoAnswer,
    NoResponders,
    OutgoingFull,
    encode_headers,
    open_client,
)
from trio_stomp.nats._link import Link

QUICK = NatsOptions((), connect_s=0.5, ping_s=0.05, answer_s=0.2, first_wait_s=0.01)
CALM = evolve(QUICK, ping_s=10.0, answer_s=10.0)


@pytest.fixture
async def server() -> AsyncGenerator[ScriptedServer, None]:
    async with scripted_server() as server:
        yield server


@asynccontextmanager
async def connected(
    server: ScriptedServer, options: NatsOptions = CALM, faults: list[str] | None = None
) -> AsyncGenerator[tuple[NatsClient, Session], None]:
    """A client that has connected, and the server's end."""
    options = evolve(options, servers=(server.address,))
    faults = [] if faults is None else faults
    async with open_client(options, on_fault=faults.append) as client:
        session = await server.session()
        await session.welcome()
        await session.expect(b"SUB _INBOX.")
        await client.wait_until_connected()
        yield client, session
        await session.stream.aclose()  # or closing waits for the answer to a PING


async def faults_of(
    server: ScriptedServer,
    address: Address | None = None,
    tls: ssl.SSLContext | None = None,
) -> str:
    """Return why a client could not connect, once it has told."""
    result = trio.Event()
    faults: list[str] = []

    def take(fault: str) -> None:
        faults.append(fault)
        result.set()

    options = evolve(QUICK, servers=(address or server.address,), tls=tls)
    async with open_client(options, on_fault=take):
        await result.wait()
    return faults[0]


async def test_identity_and_permissions_of_the_client(server: ScriptedServer) -> None:
    address = evolve(server.address, login="joe", passcode="secret")
    options = evolve(CALM, servers=(address,), token="t")
    async with open_client(options):
        connect = await (await server.session()).welcome()
    assert {name: connect[name] for name in ("user", "pass", "auth_token")} == {
        "user": "joe",
        "pass": "secret",
        "auth_token": "t",
    }
    assert (connect["headers"], connect["no_responders"], connect["verbose"]) == (True, True, False)
    assert "secret" not in repr(options)


async def test_messages_come_in_order_and_one_ends(server: ScriptedServer) -> None:
    async with connected(server) as (client, session):
        got: list[Message] = []
        other: list[Message] = []
        first = client.subscribe(b"a.*", got.extend)
        second = client.subscribe(b"b", other.extend, group=b"g")
        assert await session.expect(b"SUB a.* ") == first.sid
        assert await session.expect(b"SUB b g ") == second.sid
        for sid, body in ((first.sid, b"1"), (second.sid, b"2"), (first.sid, b"3"), (b"99", b"4")):
            await session.say(b"MSG a.x %b 1\r\n%b\r\n" % (sid, body))
        await session.say(b"PING\r\n")
        await session.expect(b"PONG")
        assert [message.payload for message in got] == [b"1", b"3"]
        assert [message.payload for message in other] == [b"2"]
        client.unsubscribe(first)
        assert await session.expect(b"UNSUB ") == first.sid
        client.unsubscribe(first)
        client.unsubscribe(second)
        assert await session.expect(b"UNSUB ") == second.sid


async def test_published_data_are_written_before_the_client_closes(
    server: ScriptedServer,
) -> None:
    async with trio.open_nursery() as tasks:

        async def serve() -> None:
            session = await server.session()
            await session.welcome()
            assert await session.expect(b"HPUB ") == b"a re 18 19"
            await session.expect(b"PING")
            await session.say(b"PONG\r\n")

        tasks.start_soon(serve)
        async with open_client(evolve(CALM, servers=(server.address,))) as client:
            await client.wait_until_connected()
            client.publish(b"a", b"x", reply=b"re", headers=encode_headers({b"a": b"1"}))


async def test_a_message_larger_than_the_server_takes_is_refused_here(
    server: ScriptedServer,
) -> None:
    async with connected(server) as (client, session):
        client.publish(b"a", bytes(100))
        with pytest.raises(NatsError, match=r"101 bytes for b'a' is larger than 100.*max_payload"):
            client.publish(b"a", bytes(101))
        await session.say(b'INFO {"max_payload":200}\r\nPING\r\n')
        await session.expect(b"PONG")
        client.publish(b"a", bytes(101))


async def test_outgoing_data_for_a_server_that_does_not_read_are_bounded(
    server: ScriptedServer,
) -> None:
    async with connected(server, evolve(CALM, max_outgoing_bytes=5_000_000)) as (client, session):
        await session.say(b'INFO {"max_payload":100000}\r\nPING\r\n')
        await session.expect(b"PONG")

        async def flood() -> None:
            for _ in range(1000):
                client.publish(b"a", bytes(100_000))
                await trio.lowlevel.checkpoint()

        with pytest.raises(OutgoingFull):
            await flood()
        assert await session.expect(b"PUB a") == b"100000"


# --- requests -------------------------------------------------------------------------------------


async def test_requests_get_their_own_answers(server: ScriptedServer) -> None:
    async with connected(server) as (client, session), trio.open_nursery() as tasks:
        answers: dict[bytes, bytes] = {}

        async def ask(body: bytes) -> None:
            answers[body] = (await client.request(b"q", body)).payload

        tasks.start_soon(ask, b"1")
        tasks.start_soon(ask, b"2")
        asked: dict[bytes, bytes] = {}
        for _ in range(2):
            reply, _, _ = (await session.expect(b"PUB q ")).partition(b" ")
            asked[await session.line()] = reply
        for body in (b"2", b"1"):
            await session.say(b"MSG %b 1 1\r\n%b\r\n" % (asked[body], body))
            await session.say(b"MSG %b 1 1\r\nx\r\n" % asked[body])  # a second one is ignored
    assert answers == {b"1": b"1", b"2": b"2"}


async def test_a_request_without_responders_is_an_error(server: ScriptedServer) -> None:
    async with connected(server, QUICK) as (client, session), trio.open_nursery() as tasks:

        async def refuse() -> None:
            reply, _, _ = (await session.expect(b"PUB q ")).partition(b" ")
            await session.say(b"HMSG %b 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n" % reply)

        tasks.start_soon(refuse)
        with pytest.raises(NoResponders):
            await client.request(b"q", b"")


async def test_a_request_without_an_answer_ends(server: ScriptedServer) -> None:
    async with connected(server, evolve(CALM, answer_s=0.2)) as (client, _):
        start = trio.current_time()
        with pytest.raises(NoAnswer):
            await client.request(b"q", b"")
        assert 0.15 < trio.current_time() - start < 2


async def test_a_request_given_up_is_forgotten(server: ScriptedServer) -> None:
    async with connected(server) as (client, _):
        with trio.move_on_after(0.05):
            await client.request(b"q", b"")
        assert not client._requests


# --- ends -----------------------------------------------------------------------------------------


async def test_after_an_end_it_connects_again_with_its_subscriptions(
    server: ScriptedServer,
) -> None:
    async with connected(server) as (client, session), trio.open_nursery() as tasks:
        changes: list[bool] = []
        client.on_change = lambda: changes.append(client.is_connected)
        lost: list[str] = []
        got: list[Message] = []
        kept = client.subscribe(b"kept", got.extend, on_lost=lambda: lost.append("kept"))
        ended = client.subscribe(b"ended", got.extend, on_lost=lambda: lost.append("ended"))
        client.unsubscribe(ended)

        async def ask() -> None:
            with pytest.raises(Disconnected):
                await client.request(b"q", b"")
            with pytest.raises(Disconnected):
                await client.flush()

        tasks.start_soon(ask)
        await session.expect(b"PUB q ")
        await session.stream.aclose()
        again = await server.session()
        assert not client.is_connected
        assert client.info == {}
        for try_it in (
            lambda: client.publish(b"a", b""),
            lambda: client.start_request(b"a", b"", changes.append),  # type: ignore[arg-type]
        ):
            with pytest.raises(Disconnected):
                try_it()
        later = client.subscribe(b"later", got.extend)
        await again.welcome()
        assert await again.expect(b"SUB kept ") == kept.sid
        assert await again.expect(b"SUB later ") == later.sid
        await client.wait_until_connected()
        assert changes == [False, True]
        assert lost == ["kept"]


async def test_a_silent_server_is_given_up(server: ScriptedServer) -> None:
    faults: list[str] = []
    async with connected(server, QUICK, faults) as (client, _):
        await server.session()
        assert not client.is_connected
    assert "silent" in faults[0]


async def test_a_server_that_answers_pings_is_not_given_up(server: ScriptedServer) -> None:
    async with connected(server, QUICK) as (client, session):
        for _ in range(5):
            await session.expect(b"PING")
            await session.say(b"PONG\r\n")
        assert client.is_connected


async def test_a_protocol_error_of_the_server_ends_the_connection_after_earlier_messages(
    server: ScriptedServer,
) -> None:
    faults: list[str] = []
    async with connected(server, CALM, faults) as (client, session):
        got: list[Message] = []
        sid = client.subscribe(b"a", got.extend).sid
        await session.say(b"MSG a %b 1\r\nx\r\nHTTP/1.1 400 Bad Request\r\n" % sid)
        await server.session()
        assert [message.payload for message in got] == [b"x"]
    assert "HTTP/1.1 400" in faults[0]


async def test_a_server_explains_an_end(server: ScriptedServer) -> None:
    faults: list[str] = []
    async with connected(server, CALM, faults) as (client, session):
        await session.say(b"-ERR 'Permissions Violation for Publish to \"x\"'\r\nPING\r\n")
        await session.expect(b"PONG")
        assert client.is_connected  # this one does not end it
        await session.say(b"-ERR 'Slow Consumer'\r\n")
        await session.stream.aclose()
        await server.session()
    assert "Permissions Violation" in faults[0]
    assert faults[1] == "Slow Consumer"
    assert faults[2].endswith(": Slow Consumer")


# --- those that cannot be connected to ------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        pytest.param(b"", "does not answer", id="silent"),
        pytest.param(b"SSH-2.0-x\r\n", "no operation of NATS", id="another-protocol"),
        pytest.param(b"INFO {}\r\n-ERR 'Authorization Violation'\r\n", "Authorization", id="login"),
        pytest.param(b'INFO {"tls_required":true}\r\n', "TLS", id="tls-that-fails"),
        pytest.param(
            b'INFO {"tls_required":true}\r\nMSG a 1 1', "before TLS", id="bytes-before-tls"
        ),
    ],
)
async def test_why_it_cannot_connect(server: ScriptedServer, wanted: bytes, expected: str) -> None:
    async with trio.open_nursery() as tasks:

        async def serve() -> None:
            session = await server.session()
            await session.say(wanted)
            if b"tls" in wanted:  # no handshake, but an end
                await trio.sleep(0.05)
                await session.say(b"no handshake")

        tasks.start_soon(serve)
        assert expected in await faults_of(server)


async def test_a_server_that_is_gone_before_it_is_answered_is_one_that_ended() -> None:
    """It is no end of the client, which connects to the next one."""
    near, far = memory_stream_pair()
    await far.send_all(b'INFO {"max_payload": 100}\r\n')
    await far.aclose()
    address = Address("127.0.0.1", 1)
    link = Link(address, NatsOptions([address]), len, len, stream=near)  # type: ignore[arg-type]
    with pytest.raises(Disconnected, match="the connection broke"):
        await link.shake_hands()


@pytest.mark.parametrize("is_tls", [True, False])
async def test_tls_that_is_asked_for_is_never_left_out(
    server: ScriptedServer, is_tls: bool
) -> None:
    """It is by ``tls://``, and by authorities or a certificate of the client's own."""
    async with trio.open_nursery() as tasks:

        async def serve() -> None:
            session = await server.session()
            await session.say(b"INFO {}\r\n")
            assert not await session.stream.receive_some()  # no login above all

        tasks.start_soon(serve)
        tls = None if is_tls else ssl.create_default_context()
        fault = await faults_of(server, evolve(server.address, is_tls=is_tls), tls=tls)
    assert "does not offer TLS" in fault


async def test_connect_without_a_listener(server: ScriptedServer) -> None:
    assert "cannot be reached" in await faults_of(server, Address("127.0.0.1", 1))
