"""JetStream as a scripted server answers it: refusals, nonsense, gaps, silence."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio

from tests.support.fakes import until
from tests.support.nats import Session, scripted_server
from trio_stomp.nats import (
    Disconnected,
    Follower,
    JetStream,
    JetStreamError,
    Message,
    NatsError,
    NatsOptions,
    NatsProtocolError,
    NoAnswer,
    NotFound,
    Published,
    Puller,
    WrongLastSequence,
    open_client,
)
from trio_stomp.nats._consumer import Position, position_of

BEAT_S = 0.05


@asynccontextmanager
async def played() -> AsyncGenerator[tuple[JetStream, Session], None]:
    """JetStream of a client that has connected, and the server's end of it."""
    async with (
        scripted_server() as server,
        open_client(NatsOptions([server.address], ping_s=10)) as client,
    ):
        session = await server.session()
        await session.welcome(max_payload=1000)
        await client.wait_until_connected()
        yield JetStream(client), session
        await session.stream.aclose()


async def asked(session: Session, start: bytes) -> tuple[bytes, dict[str, object]]:
    """Return where the next request with ``start`` wants its answer, and its content."""
    reply = (await session.expect(b"PUB $JS.API." + start)).split()[-2]
    return reply, json.loads(await session.line() or b"{}")


async def answer(session: Session, reply: bytes, body: bytes, headers: bytes = b"") -> None:
    """Answer at a subject, to whichever subscription has it."""
    sid = session.sids.get(reply, b"1")
    words = b"HMSG %b %b %d %d" % (reply, sid, len(headers), len(headers) + len(body))
    if not headers:
        words = b"MSG %b %b %d" % (reply, sid, len(body))
    await session.say(words + b"\r\n" + headers + body + b"\r\n")


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        (b"hello", NatsProtocolError, "JSON"),
        (b"{}", NatsProtocolError, "without config"),
        (b'{"config":{},"state":{}}', NatsProtocolError, "without first_seq"),
        (b'{"error":{"code":404,"err_code":10059,"description":"gone"}}', NotFound, "gone"),
        (b'{"error":{"code":503,"err_code":1}}', JetStreamError, "503"),
        (b'{"error":{"err_code":1}}', NatsProtocolError, "without code"),
    ],
)
async def test_malformed_stream_states(body: bytes, kind: type[NatsError], text: str) -> None:
    async with played() as (jetstream, session), trio.open_nursery() as tasks:

        async def serve() -> None:
            await answer(session, (await asked(session, b"STREAM.INFO.S"))[0], body)

        tasks.start_soon(serve)
        with pytest.raises(kind, match=text):
            await jetstream.stream("S")


async def test_each_pending_publication_gets_its_own_result() -> None:
    found: list[object] = []

    async def publish(jetstream: JetStream) -> None:
        try:
            found.append(await jetstream.publish(b"s", b"x", headers={b"a": b"b"}))
        except NatsError as error:
            found.append(error)

    async with played() as (jetstream, session), trio.open_nursery() as tasks:
        for _ in range(3):
            tasks.start_soon(publish, jetstream)
        replies = [(await session.expect(b"HPUB s ")).split()[0] for _ in range(3)]
        refusal = b'{"error":{"code":400,"err_code":10071,"description":"wrong last"}}'
        await answer(session, replies[1], refusal)
        await answer(session, replies[0], b'{"stream":"S","seq":7}')
        await session.say(b"PING\r\n")
        await session.expect(b"PONG")
        await session.stream.aclose()
        await until(lambda: len(found) == 3)
        assert [type(each) for each in found if isinstance(each, NatsError)] == [
            WrongLastSequence,
            Disconnected,
        ]
        assert [each.sequence for each in found if isinstance(each, Published)] == [7]


@pytest.mark.parametrize(
    "reply",
    [
        b"$JS.ACK.S.c.1.7.3.99.4",
        b"$JS.ACK._.hash.S.c.1.7.3.99.4",
        b"$JS.ACK.domain.hash.S.c.1.7.3.99.4.random",
    ],
)
def test_positions_of_all_versions_of_servers(reply: bytes) -> None:
    assert position_of(Message(b"s", b"1", reply, b"", b"")) == Position(7, 3, 99, 4)


@pytest.mark.parametrize("reply", [b"", b"_INBOX.1", b"$JS.ACK.S.c.1.x.3.99.4"])
def test_a_message_that_no_consumer_delivered(reply: bytes) -> None:
    with pytest.raises(NatsProtocolError, match="no position"):
        position_of(Message(b"s", b"1", reply, b"", b""))


# --- consumers ------------------------------------------------------------------------------------


async def consumer_made(session: Session) -> int:
    """Take the request for a consumer, and return the sequence at which it begins."""
    reply, order = await asked(session, b"CONSUMER.CREATE.S.")
    await answer(session, reply, b"{}")
    config = order["config"]
    assert isinstance(config, dict)
    return int(config["opt_start_seq"])


async def deliver(session: Session, reply: bytes, sequence: int, delivery: int) -> None:
    """Deliver a message to who asked for it at ``reply``."""
    position = b"$JS.ACK.S.c.1.%d.%d.99.0" % (sequence, delivery)
    sid = session.sids[reply]
    await session.say(b"MSG s %b %b 1\r\nx\r\n" % (sid, position))


async def test_a_gap_makes_a_follower_begin_again_after_its_last_entry() -> None:
    async with played() as (jetstream, session), trio.open_nursery() as tasks:

        async def serve() -> None:
            assert await consumer_made(session) == 5
            reply, order = await asked(session, b"CONSUMER.MSG.NEXT.S.")
            assert order["batch"] == 1024
            await deliver(session, reply, 6, 1)  # 5 was deleted
            await deliver(session, reply, 9, 3)  # the second was lost on the way
            assert await consumer_made(session) == 7
            reply, _ = await asked(session, b"CONSUMER.MSG.NEXT.S.")
            await deliver(session, reply, 8, 1)

        tasks.start_soon(serve)
        follower = Follower(jetstream, "S", 4, beat_s=BEAT_S)
        got = [entry.sequence for _ in range(2) for entry in await follower.receive()]
        assert got == [6, 8]
        assert follower.last == 8
        follower.close()


@pytest.mark.parametrize(
    "status", [b"409 Consumer Deleted", b"503", b""], ids=["deleted", "gone", "silent"]
)
async def test_a_consumer_that_is_lost_is_made_again(status: bytes) -> None:
    async with played() as (jetstream, session), trio.open_nursery() as tasks:

        async def serve() -> None:
            await consumer_made(session)
            reply, _ = await asked(session, b"CONSUMER.MSG.NEXT.S.")
            if status:
                await answer(session, reply, b"", b"NATS/1.0 %b\r\n\r\n" % status)
            assert await consumer_made(session) == 1
            reply, _ = await asked(session, b"CONSUMER.MSG.NEXT.S.")
            await deliver(session, reply, 1, 1)

        tasks.start_soon(serve)
        follower = Follower(jetstream, "S", 0, beat_s=BEAT_S)
        assert [entry.sequence for entry in await follower.receive()] == [1]
        follower.close()


@pytest.mark.parametrize("code", [503, 400])
async def test_a_consumer_that_is_refused_for_now_is_asked_for_again(code: int) -> None:
    async with played() as (jetstream, session), trio.open_nursery() as tasks:

        async def serve() -> None:
            reply, _ = await asked(session, b"CONSUMER.CREATE.S.")
            await answer(session, reply, b'{"error":{"code":%d,"err_code":1}}' % code)
            if code == 503:
                await consumer_made(session)
                reply, _ = await asked(session, b"CONSUMER.MSG.NEXT.S.")
                await deliver(session, reply, 1, 1)

        tasks.start_soon(serve)
        follower = Follower(jetstream, "S", 0, beat_s=BEAT_S)
        if code == 503:
            assert len(await follower.receive()) == 1
        else:
            with pytest.raises(JetStreamError):
                await follower.receive()
        follower.close()


async def test_puller_repeats_unanswered_requests_and_learns_of_an_end() -> None:
    async with played() as (jetstream, session):
        puller = Puller(jetstream.client, b"$JS.API.N", window=4, window_bytes=100, beat_s=BEAT_S)
        async with trio.open_nursery() as tasks:

            async def serve() -> None:
                for number in (1, 2):  # each window ends with one message of four
                    reply, _ = await asked(session, b"N")
                    await deliver(session, reply, number, number)
                    over = b"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 3\r\n\r\n"
                    await answer(session, reply, b"", over)

            tasks.start_soon(serve)
            assert len(await puller.receive()) == 1
            assert len(await puller.receive()) == 1
        with pytest.raises(NoAnswer, match="silent"):
            await puller.receive()
        await session.stream.aclose()
        with pytest.raises(Disconnected):
            await puller.receive()
        puller.close()
