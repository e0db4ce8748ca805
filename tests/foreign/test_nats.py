"""Our client of NATS with the real server, with nats-py as a peer, and over kills of servers."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
import trustme

from tests.support.fakes import until
from tests.support.nats import NatsProcess, running_nats
from trio_stomp.nats import (
    Address,
    Follower,
    JetStream,
    JetStreamError,
    Message,
    NatsClient,
    NatsError,
    NatsOptions,
    NotFound,
    Puller,
    StreamInfo,
    WrongLastSequence,
    encode_headers,
    expecting,
    follow,
    open_client,
    parse_headers,
)

nats_py = pytest.importorskip("nats")

pytestmark = pytest.mark.foreign
STREAM = {"name": "LOG", "subjects": ["log.>"], "storage": "file"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsProcess]:
    with running_nats(tmp_path) as (server,):
        yield server


@asynccontextmanager
async def connected(
    *addresses: Address, tls: ssl.SSLContext | None = None
) -> AsyncGenerator[NatsClient, None]:
    """A client that is connected, within 20 s for all that the test does."""
    with trio.fail_after(20):
        async with open_client(NatsOptions(addresses, tls=tls)) as client:
            await client.wait_until_connected()
            yield client


async def with_nats_py(address: Address, use: Callable[[object], Awaitable[None]]) -> None:
    """Run ``use`` with a client of nats-py, in a thread of its own."""

    async def run() -> None:
        client = await nats_py.connect(str(address))
        await use(client)
        await client.close()

    await trio.to_thread.run_sync(asyncio.run, run())


async def test_nats_py_and_we_understand_each_other(server: NatsProcess) -> None:
    async with connected(server.address) as client:

        def answer(messages: list[Message]) -> None:
            for message in messages:
                reported = parse_headers(message.headers).fields.get(b"told", b"")
                client.publish(
                    message.reply,
                    message.payload + reported,
                    headers=encode_headers({b"by": b"us"}),
                )

        client.subscribe(b"echo.*", answer)
        await client.flush()
        seen: list[tuple[bytes, dict[str, str]]] = []

        async def ask(peer: object) -> None:
            found = await peer.request("echo.a", b"hello ", headers={"told": "x"})  # type: ignore[attr-defined]
            seen.append((found.data, found.headers))

            async def serve(message: object) -> None:
                await message.respond(b"pong")  # type: ignore[attr-defined]

            await peer.subscribe("theirs", cb=serve)  # type: ignore[attr-defined]
            await peer.flush()  # type: ignore[attr-defined]
            from_theirs.append((await ask_theirs()).payload)

        from_theirs: list[bytes] = []
        request = partial(client.request, b"theirs", b"ping")
        token = trio.lowlevel.current_trio_token()

        async def ask_theirs() -> Message:
            return await asyncio.to_thread(partial(trio.from_thread.run, request, trio_token=token))

        await with_nats_py(server.address, ask)
    assert seen == [(b"hello x", {"by": "us"})]
    assert from_theirs == [b"pong"]


async def test_streams(server: NatsProcess) -> None:
    async with connected(server.address) as client:
        log = JetStream(client)
        made = await log.create_stream(STREAM)
        assert (made.last, made.messages) == (0, 0)
        for number in range(5):
            published = await log.publish(b"log.a", b"%d" % number, headers=expecting(number))
            assert (published.sequence, published.is_duplicate) == (number + 1, False)
        with pytest.raises(WrongLastSequence):
            await log.publish(b"log.a", b"stale", headers=expecting(4))
        with pytest.raises(WrongLastSequence):
            await log.publish(b"log.a", b"stale", headers=expecting(1, of_subject=True))
        await log.publish(b"log.b", b"first", headers=expecting(0, of_subject=True))
        for is_duplicate in (False, True):
            again = await log.publish(b"log.c", b"x", headers={b"Nats-Msg-Id": b"1"})
            assert (again.sequence, again.is_duplicate) == (7, is_duplicate)
        assert await log.message("LOG", seq=2) == (2, b"1")
        assert await log.message("LOG", last_by_subj="log.a") == (5, b"4")
        assert await log.purge("LOG", below=4) == 3
        state = await log.stream("LOG")
        assert (state.first, state.last, state.messages) == (4, 7, 4)
        with pytest.raises(NotFound):
            await log.message("LOG", seq=2)
        with pytest.raises(JetStreamError, match=r"subjects overlap"):
            await log.create_stream({**STREAM, "name": "OTHER"})
        assert (await log.update_stream({**STREAM, "max_msgs": 9})).config["max_msgs"] == 9
        await log.delete_stream("LOG")
        with pytest.raises(NotFound):
            await log.stream("LOG")


async def test_a_consumer_is_asked_and_acknowledged(server: NatsProcess) -> None:
    async with connected(server.address) as client:
        log = JetStream(client)
        await log.create_stream(STREAM)
        for number in range(250):
            client.publish(b"log.a", b"%d" % number)
        config = {"durable_name": "w", "ack_policy": "explicit", "ack_wait": 30 * 10**9}
        order = {"stream_name": "LOG", "config": config}
        await log.call("CONSUMER.CREATE.LOG.w", order)
        next_subject = b"$JS.API.CONSUMER.MSG.NEXT.LOG.w"
        puller = Puller(client, next_subject, window=20, window_bytes=1 << 20, beat_s=0.2)
        got: list[bytes] = []
        while len(got) < 250:
            messages = await puller.receive()
            assert len(messages) <= 40
            got += [message.payload for message in messages]
            puller.acknowledge(messages)
        with trio.move_on_after(1.5) as scope:  # heart-beats come, and are no message
            await puller.receive()
        assert scope.cancelled_caught
        assert got == [b"%d" % number for number in range(250)]
        assert (await log.call("CONSUMER.INFO.LOG.w"))["num_ack_pending"] == 0
        await log.call("CONSUMER.DELETE.LOG.w")
        with pytest.raises(NatsError):
            await puller.receive()
        puller.close()


async def follow_to(follower: Follower, last: int) -> list[int]:
    """Return the sequences up to ``last``."""
    sequences: list[int] = []
    while not sequences or sequences[-1] < last:
        sequences += [entry.sequence for entry in await follower.receive()]
    return sequences


async def test_a_follower_misses_nothing_when_the_server_is_killed(server: NatsProcess) -> None:
    async with connected(server.address) as client:
        log = JetStream(client)
        await log.create_stream(STREAM)
        async with follow(log, "LOG", after=2) as follower:
            follower.window = 16
            for number in range(100):
                await log.publish(b"log.a", b"", headers=expecting(number))
            assert await follow_to(follower, 100) == list(range(3, 101))
            server.kill()
            await until(lambda: not client.is_connected)
            server.start()
            await client.wait_until_connected()
            last = (await stream_when_ready(log)).last
            assert last == 100
            await log.publish(b"log.a", b"", headers=expecting(100))
            assert await follow_to(follower, 101) == [101]
            await log.purge("LOG", below=100)
        async with follow(log, "LOG", after=0) as follower:  # the jump shows the missing messages
            assert await follow_to(follower, 101) == [100, 101]
        await log.delete_stream("LOG")
        async with follow(log, "LOG", after=0) as follower:
            with pytest.raises(NotFound):
                await follower.receive()


async def stream_when_ready(log: JetStream) -> StreamInfo:
    """Return the state of the stream once a server reports it."""
    while True:
        try:
            return await log.stream("LOG")
        except NatsError:
            await trio.sleep(0.05)


async def test_three_servers_and_the_death_of_the_leader(tmp_path: Path) -> None:
    with running_nats(tmp_path, nodes=3) as servers:
        async with connected(*(each.address for each in servers)) as client:
            log = JetStream(client)
            await create_when_ready(log, {**STREAM, "num_replicas": 3})
            async with follow(log, "LOG", after=0) as follower:
                for number in range(50):
                    await log.publish(b"log.a", b"%d" % number, headers=expecting(number))
                assert await follow_to(follower, 50) == list(range(1, 51))
                leader = (await log.stream("LOG")).leader
                servers[int(leader[1:])].kill()
                await client.wait_until_connected()
                info = await stream_when_ready(log)
                assert info.last == 50
                assert len(info.followers) == 2
                await publish_when_ready(log, b"50", 50)
                assert await follow_to(follower, 51) == [51]


async def create_when_ready(log: JetStream, config: dict[str, object]) -> None:
    while True:
        try:
            await log.create_stream(config)
        except NatsError:
            await trio.sleep(0.1)
        else:
            return


async def publish_when_ready(log: JetStream, body: bytes, last: int) -> None:
    """Publish until a leader stores it: once, as the sequence is expected."""
    while True:
        try:
            await log.publish(b"log.a", body, headers=expecting(last))
        except WrongLastSequence:
            return  # an earlier attempt was stored
        except NatsError:
            await trio.sleep(0.1)
        else:
            return


async def test_tls_and_logins(tmp_path: Path) -> None:
    authority = trustme.CA()
    files = [str(tmp_path / name) for name in ("cert.pem", "key.pem")]
    certificate = authority.issue_cert("127.0.0.1", "localhost")
    certificate.cert_chain_pems[0].write_to_path(files[0])
    certificate.private_key_pem.write_to_path(files[1])
    words = ["--tls", "--tlscert", files[0], "--tlskey", files[1], "--user", "joe", "--pass", "p"]
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with running_nats(tmp_path, *words) as (server,):
        port = server.port
        login = Address("localhost", port, is_tls=True, login="joe", passcode="p")
        async with connected(login, tls=context) as client:
            got: list[Message] = []
            client.subscribe(b"a", got.extend)
            client.publish(b"a", b"secret")
            await client.flush()
            assert [each.payload for each in got] == [b"secret"]
        for address, trusted, expected in (
            (Address("localhost", port, login="joe", passcode="q"), context, "Authorization"),
            (Address("localhost", port, login="joe", passcode="p"), None, "certificate"),
        ):
            faults: list[str] = []
            async with open_client(
                NatsOptions([address], tls=trusted), on_fault=faults.append
            ) as client:
                await until(lambda: any(expected in fault for fault in faults))  # noqa: B023
                assert not client.is_connected
