"""The scenarios of the seed's own JavaScript tests (SEEDS.md A13), by the readings of section E.

The seed's raw frames have neither NUL nor, often, a blank line: a stream has no use for the borders
of packets, so here they have both (E13). DISCONNECT and ERROR close the connection (E8, E9), so a
step behind one of them begins with a new connection. Headers are compared without order (E14).
TTL many-to-one and the plain round robin are in tests/conformance/test_s_messages.py.
"""

import pytest
import trio

from tests.support.fakes import (
    MEMORY,
    TCP,
    WS_MEMORY,
    WS_TCP,
    Client,
    Dial,
    bodies,
    frame_bytes,
    gather,
    open_dial,
    until,
)
from tests.support.hostile import QUIET

VERSIONS = ("1.0", "1.1", "1.2")
EACH_WAY = pytest.mark.parametrize(
    "transport", [MEMORY, pytest.param(TCP, marks=pytest.mark.full), WS_MEMORY]
)


async def ask(client: Client, query: str) -> str:
    """The answer to the DIAG command, which works before CONNECT too."""
    await client.send("DIAG", {}, query.encode())
    answer = await client.receive()
    assert answer.command == "DIAG"
    name, _, text = answer.body.decode().partition(":")
    assert name == query
    return text


async def sizes(dial: Dial) -> dict[str, int]:
    """Return the four figures, requested on a separate connection without CONNECT."""
    client = await dial.open()
    words = ("session-size", "session-encoded-size", "session-connected-size", "pubsub-size")
    figures = {word: int(await ask(client, word)) for word in words}
    await client.aclose()
    await until(lambda: not any(c.is_open is False for c in dial.server.connections))
    figures["session-size"] -= 1  # itself
    figures["session-encoded-size"] -= dial.is_websocket
    return figures


# --- raw/stomp.protocol.test.js -------------------------------------------------------------------


@EACH_WAY
async def test_protocol(transport: str) -> None:
    """The 38 steps, in their order."""
    async with open_dial(transport, **QUIET) as dial:
        ws = int(dial.is_websocket)

        # 1: before CONNECT
        client = await dial.open()
        assert await ask(client, "session-connected-size") == "0"
        assert await ask(client, "session-size") == "1"
        assert await ask(client, "session-encoded-size") == str(ws)

        # 2, 3: STOMP 1.2
        await client.send("STOMP", {"accept-version": "1.2", "host": "localhost"})
        connected = await client.receive()
        assert (connected.command, connected["version"]) == ("CONNECTED", "1.2")
        assert connected["session"].isdigit()
        client.version = client.reader.version = "1.2"
        assert await ask(client, "session-connected-size") == "1"
        assert await ask(client, "session-size") == "1"

        # 4: DISCONNECT with a receipt; the broker closes then
        await client.send("DISCONNECT", {"receipt": "77"})
        receipt = await client.receive()
        assert (receipt.command, receipt["receipt-id"]) == ("RECEIPT", "77")
        await client.expect_closed()
        await client.aclose()

        # 5, 6: the legacy command; another version
        for version in ("1.2", "1.1"):
            client = await dial.connect(version)
            await client.disconnect()

        # 7: CR LF behind the command, LF behind the headers
        client = await dial.open()
        await client.send_bytes(b"CONNECT\r\naccept-version:1.2\nhost:localhost\n\n\0")
        assert (await client.receive()).command == "CONNECTED"
        client.version = client.reader.version = "1.2"

        # 8-11: what SUBSCRIBE and UNSUBSCRIBE need; an ERROR instead of a RECEIPT
        for command, headers, missing in (
            ("SUBSCRIBE", {"id": "1"}, "destination"),
            ("SUBSCRIBE", {"destination": "/a"}, "id"),
            ("UNSUBSCRIBE", {"destination": "/a"}, "id"),
        ):
            await client.send(command, {**headers, "receipt": "9"})
            error = await client.expect_error("header-missing")
            assert missing in error["message"]
            await client.aclose()
            client = await dial.connect()

        # 12: an unknown header with CONNECT is ignored; a body, as the seed sends, is refused (F26)
        await client.aclose()
        client = await dial.open()
        await client.send_bytes(b"CONNECT\naccept-version:1.2\nhost:x\n\njunk\0")
        await client.expect_error("body-not-allowed")
        await client.aclose()
        client = await dial.connect("1.2", {"junk": "1"})

        # 13-17: subscriptions, and how they are counted
        await client.subscribe("/*", id="1")
        assert await ask(client, "pubsub-size") == "1"
        await client.subscribe("/a_topic", id="2")  # the seed uses the id 1 again: E10
        assert await ask(client, "pubsub-size") == "2"
        assert await ask(client, "subs") == "/*,/a_topic"

        # 18: the other one stays
        await client.send("UNSUBSCRIBE", {"destination": "/a_topic", "id": "2", "receipt": "u"})
        assert (await client.receive())["receipt-id"] == "u"
        assert await ask(client, "pubsub-size") == "1"

        # 19: DISCONNECT takes the subscriptions away
        await client.disconnect()
        await until(lambda: not dial.server.connections)
        assert (await sizes(dial))["pubsub-size"] == 0

        # 20-22: the wildcard takes a rest, an empty one too; headers pass
        client = await dial.connect()
        await client.subscribe("/topic/*", id="1")
        for destination in ("/topic/a", "/topic/"):
            pairs = {"custom-header": "test", "content-type": "text/plain"}
            await client.publish(destination, b"hello", headers=pairs)
            message = await client.receive()
            assert message.command == "MESSAGE"
            assert message["destination"] == destination
            assert message["subscription"] == "1"
            assert message["custom-header"] == "test"
            assert message["content-type"] == "text/plain"
            assert message["content-length"] == "5"
            assert message["message-id"]
            assert message.body == b"hello"

        # 23
        await client.disconnect()

        # 24: not connected
        for command in ("SEND", "SUBSCRIBE", "UNSUBSCRIBE", "DISCONNECT"):
            client = await dial.open()
            await client.send(command, {"destination": "/a", "id": "1", "receipt": "1"})
            error = await client.expect_error("not-connected")
            assert "Not connected!" in error["message"]
            await client.aclose()

        # 25
        client = await dial.connect()
        await client.send("INVALID")
        error = await client.expect_error("unknown-command")
        assert "Invalid message!" in error["message"]
        await client.aclose()
        await until(lambda: not dial.server.connections)
        assert set((await sizes(dial)).values()) == {0}


# --- raw/stomp.queue.test.js, websocket/stomp.queue-test2 -----------------------------------------


@EACH_WAY
async def test_a_thousand_subscriptions_on_one_connection(transport: str) -> None:
    """1,000 SUBSCRIBEs to one wildcard, then SENDs below it: every copy arrives, none is an ERROR.

    The seed sends 1,000 times, for a million MESSAGEs; 5 do for the same paths.
    """
    async with open_dial(transport, **QUIET) as dial:
        client = await dial.connect()
        subscribes = b"".join(
            frame_bytes("SUBSCRIBE", {"destination": "/topic/*", "id": f"s{number}"})
            for number in range(1000)
        )
        await client.send_bytes(subscribes)
        assert await client.fence() == []
        ids: set[str] = set()
        for number in range(5):
            await client.publish(f"/topic/{number}", b"%d" % number)
            got = await client.receive_many(1000)
            assert {frame.command for frame in got} == {"MESSAGE"}
            assert {frame.body for frame in got} == {b"%d" % number}
            assert {frame["subscription"] for frame in got} == {f"s{n}" for n in range(1000)}
            ids |= {frame["message-id"] for frame in got}
        assert len(ids) == 5_000
        await client.publish("/ready", b"not subscribed to")
        assert await client.fence() == []


# --- raw/stomp.connection.test.js, raw/stomp.connection.subscription.test.js ----------------------


@pytest.mark.parametrize(("transport", "count"), [(TCP, 1023), (WS_TCP, 200)])
async def test_many_connect_in_parallel(transport: str, count: int) -> None:
    """Each one is CONNECTED with a unique session number, and subscribes."""
    async with open_dial(transport, **QUIET) as dial:
        await dial.start()
        sessions: list[str] = []
        clients: list[Client] = []

        async def connect() -> None:
            client = await dial.open()
            connected = await client.connect()
            sessions.append(connected["session"])
            await client.subscribe("/topic/*")
            clients.append(client)

        await gather(*[connect] * count)
        assert len(set(sessions)) == count
        assert all(session.isdigit() for session in sessions)
        assert len(dial.server.broker.subscriptions) == count
        await clients[0].publish("/topic/x", b"to all")
        for client in clients:
            assert (await client.receive()).body == b"to all"


# --- websocket/stomp.connect.load-test ------------------------------------------------------------


@pytest.mark.parametrize("transport", [pytest.param(WS_MEMORY, marks=pytest.mark.full), WS_TCP])
async def test_many_come_send_receive_and_go(transport: str) -> None:
    async with open_dial(transport, **QUIET) as dial:
        await dial.start()
        done = 0

        async def visit(number: int) -> None:
            nonlocal done
            client = await dial.connect()
            await client.subscribe(f"/topic/{number}")
            await client.publish(f"/topic/{number}", b"mine %d" % number)
            assert (await client.receive()).body == b"mine %d" % number
            await client.disconnect()
            done += 1

        async with trio.open_nursery() as nursery:
            for number in range(200):
                nursery.start_soon(visit, number)
        assert done == 200


# --- websocket/stomp.TTL.* ------------------------------------------------------------------------


@pytest.mark.parametrize("transport", [MEMORY, WS_MEMORY])
async def test_ttl_one_to_one(autojump_clock, transport: str) -> None:
    """800 clients each send to their own topic before they subscribe to it."""
    async with open_dial(transport, **QUIET, ttl_ms=60_000) as dial:
        await dial.start()
        done = 0

        async def one(number: int) -> None:
            nonlocal done
            client = await dial.connect()
            await client.publish(f"/topic/{number}", b"%d" % number)
            await trio.sleep(number % 7)
            before = await client.subscribe(f"/topic/{number}")
            got = before or [await client.receive()]
            assert bodies(got) == [b"%d" % number]
            await client.disconnect()
            done += 1

        async with trio.open_nursery() as nursery:
            for number in range(200 if transport == WS_MEMORY else 800):
                nursery.start_soon(one, number)
        assert done >= 200
        assert dial.server.broker.stale.size == 0


# --- websocket/stomp.roundrobin -------------------------------------------------------------------


async def test_round_robin_includes_a_wildcard_member() -> None:
    """SEEDS.md A7: three, then a fourth that is subscribed to everything (E36)."""
    async with open_dial(**QUIET) as dial:
        members = [await dial.connect() for _ in range(3)]
        for member in members:
            await member.subscribe("#work/*")
        sender = await dial.connect()
        await sender.publish("#work/a", *[b"m%d" % n for n in range(7)], receipt=True)
        got = [bodies(await member.fence()) for member in members]
        assert got == [[b"m0", b"m3", b"m6"], [b"m1", b"m4"], [b"m2", b"m5"]]
        star = await dial.connect()
        await star.subscribe("*")
        await sender.publish("#work/a", *[b"n%d" % n for n in range(8)], receipt=True)
        counts = [len(bodies(await member.fence())) for member in members]
        assert counts == [2, 2, 2]
        taken = [frame for frame in await star.fence() if frame["destination"] == "#work/a"]
        assert len(taken) == 2


async def test_round_robin_has_a_counter_for_each_destination() -> None:
    """E7: interleaved destinations do not disturb each other's balance."""
    async with open_dial(**QUIET) as dial:
        members = [await dial.connect() for _ in range(2)]
        for member in members:
            await member.subscribe("#a", id="a")
            await member.subscribe("#b", id="b")
        sender = await dial.connect()
        for number in range(10):
            await sender.publish("#a", b"%d" % number)
            await sender.publish("#b", b"%d" % number, receipt=True)
        for place, member in enumerate(members):
            got = await member.fence()
            for name in "ab":
                own = [int(frame.body) for frame in got if frame["subscription"] == name]
                assert own == list(range(place, 10, 2))


# --- websocket/stomp.diag.* -----------------------------------------------------------------------


@EACH_WAY
@pytest.mark.parametrize("version", VERSIONS)
async def test_diag_on_request(transport: str, version: str) -> None:
    """SEND ``session``, ``ws_buffer``, ``stale``, …: the MESSAGE has the figures (A8)."""
    async with open_dial(transport, **QUIET) as dial:
        client = await dial.connect(version)
        topic = "DIAG/0.123"
        await client.subscribe(topic, id="d1")
        await client.subscribe("/topic/a", id="2")

        async def request(word: bytes) -> dict[str, str]:
            await client.publish(topic, word, headers={"ts": "1700000000000"})
            message = await client.receive()
            assert message.command == "MESSAGE"
            assert message.body == word
            assert message["subscription"] == "d1"
            assert message["ts"] == "1700000000000"
            usual = {"destination", "subscription", "message-id", "content-length", "ts"}
            return {name: text for name, text in message.headers if name not in usual}

        ws = str(int(dial.is_websocket))
        assert await request(b"session") == {
            "clients": "1",
            "websockets": ws,
            "stomp_connected": "1",
            "subscriptions": "2",
        }
        buffers = await request(b"ws_buffer")
        assert set(buffers) == {"allocated", "hits", "misses"}
        assert buffers["allocated"] == "0"
        assert (int(buffers["misses"]) > 0) == dial.is_websocket
        assert await request(b"stale") == {
            "input-queue-size": "0",
            "output-queue-size": "0",
            "stale-queue-size": "0",
        }
        assert await request(b"session-size") == {"session-size": "1"}
        assert await request(b"session-encoded-size") == {"session-encoded-size": ws}
        assert await request(b"session-connected-size") == {"session-connected-size": "1"}
        assert await request(b"pubsub-size") == {"pubsub-size": "2"}
        assert await request(b"anything else") == {}


# --- websocket/stomp.listen.durable ---------------------------------------------------------------


async def test_a_listener_that_comes_back_hears_on(autojump_clock) -> None:
    """Subscribed to everything, hung up on again and again, 100 ms apart."""
    async with open_dial(WS_MEMORY, **QUIET, ttl_ms=60_000) as dial:
        sender = await dial.connect()
        reported: list[bytes] = []
        for number in range(20):
            listener = await dial.connect()
            reported += bodies(await listener.subscribe("/*"))
            await sender.publish(f"/topic/{number}", b"live %d" % number, receipt=True)
            reported += bodies(await listener.fence())
            listener.abort()
            await until(lambda: len(dial.server.connections) == 1, 0.01)
            await sender.publish(f"/topic/{number}", b"meanwhile %d" % number, receipt=True)
            await trio.sleep(0.1)
        expected = [b"live 0"]
        for number in range(1, 20):
            expected += [b"meanwhile %d" % (number - 1), b"live %d" % number]
        assert reported == expected
