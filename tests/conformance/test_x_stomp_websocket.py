"""STOMP in WebSocket messages (CONFORMANCE.md 2.9)."""

import pytest
import trio
from wsproto.events import Ping, TextMessage

from tests.support.fakes import (
    WS_MEMORY,
    Client,
    Dial,
    WebSocketPipe,
    bodies,
    frame_bytes,
    gaps_between,
    open_dial,
)

HELLO = frame_bytes("CONNECT", {"accept-version": "1.2", "host": "x"})


@pytest.mark.covers("X01", "X02", "X03")
@pytest.mark.parametrize(
    ("offered", "agreed"),
    [
        (("v10.stomp", "v11.stomp", "v12.stomp"), "v12.stomp"),
        (("v10.stomp",), "v10.stomp"),
        ((), None),
        (("mqtt",), None),
    ],
)
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
async def test_the_version_follows_connect(
    ws_dial: Dial, offered: tuple[str, ...], agreed: str | None, version: str
) -> None:
    pipe = WebSocketPipe(await ws_dial.stream())
    await pipe.shake_hands(offered)
    assert pipe.subprotocol == agreed
    client = Client(pipe)
    connected = await client.connect(version)
    assert connected["version"] == version


@pytest.mark.covers("X04")
async def test_text_and_binary_may_be_mixed(ws_dial: Dial) -> None:
    client = await ws_dial.connect()
    await client.subscribe("/t")
    for number in range(6):
        client.websocket.binary = number % 2 == 0
        await client.publish("/t", b"%d" % number)
    # And within one STOMP frame.
    raw = frame_bytes("SEND", {"destination": "/t"}, b"6")
    client.websocket.binary = True
    await client.send_bytes(raw[:10])
    client.websocket.binary = False
    await client.send_bytes(raw[10:])
    assert bodies(await client.fence()) == [b"%d" % number for number in range(7)]


@pytest.mark.covers("X05")
@pytest.mark.parametrize(
    ("mode", "are_text"),
    [
        ("auto", [True, True, False]),
        ("text", [True, True, False]),  # invalid UTF-8 would end the client's connection
        ("binary", [False, False, False]),
    ],
)
async def test_kinds_of_messages_sent(ws_dial: Dial, mode: str, are_text: list[bool]) -> None:
    ws_dial.use(websocket_frames=mode)
    client = await ws_dial.connect()
    await client.subscribe("/t")
    pipe = client.websocket
    pipe.messages.clear()
    await client.publish("/t", b"plain", "é".encode(), b"\xff\xfe")
    await client.receive_many(3)
    assert [isinstance(message, str) for message in pipe.messages] == are_text


@pytest.mark.covers("X06", "X08")
async def test_many_frames_in_one_message(ws_dial: Dial) -> None:
    client = await ws_dial.connect()
    await client.subscribe("/t")
    raw = b"\n".join(frame_bytes("SEND", {"destination": "/t"}, b"%d" % n) for n in range(50))
    await client.send_bytes(b"\n" + raw + b"\n")
    await client.send_bytes(b"\n")
    assert bodies(await client.fence()) == [b"%d" % n for n in range(50)]


@pytest.mark.covers("X07")
@pytest.mark.parametrize("size", [1, 7, 8192, 16384])
async def test_one_frame_over_many_messages(ws_dial: Dial, size: int) -> None:
    client = await ws_dial.connect()
    await client.subscribe("/t")
    body = ("é€😀" * (10 if size < 100 else 5000)).encode()
    raw = frame_bytes("SEND", {"destination": "/t", "long": "header"}, body)
    client.websocket.binary = True
    for place in range(0, len(raw), size):
        await client.send_bytes(raw[place : place + size])
    assert (await client.receive()).body == body


@pytest.mark.covers("X09")
async def test_one_frame_in_each_message(ws_dial: Dial) -> None:
    """Old clients parse one frame a message, whatever the writer joined."""
    client = await ws_dial.connect()
    await client.subscribe("/t", id="a")
    await client.subscribe("/t", id="longer-id")
    pipe = client.websocket
    pipe.messages.clear()
    other = await ws_dial.connect()
    await other.publish("/t", *[b"%d" % n for n in range(100)], receipt=True)
    await client.receive_many(200)
    assert len(pipe.messages) == 200
    for message in pipe.messages:
        assert isinstance(message, str)
        assert message.startswith("MESSAGE\n")
        assert message.endswith("\0\n")
        assert message.count("\0") == 1


@pytest.mark.covers("X08", "H06")
async def test_a_heart_beat_is_a_message_of_its_own(autojump_clock) -> None:
    async with open_dial(WS_MEMORY) as dial:
        client = await dial.open()
        await client.connect("1.2", {"heart-beat": "0,1000"})
        client.websocket.messages.clear()
        assert await client.pipe.receive_bytes() == b"\n"
        assert client.websocket.messages == ["\n"]


@pytest.mark.covers("H05", "X08")
@pytest.mark.parametrize("pinging", ["broker", "client"])
async def test_pings_and_pongs_are_no_stomp_heart_beats(autojump_clock, pinging: str) -> None:
    """A browser shows its JavaScript neither: only messages keep a STOMP client content."""
    async with open_dial(WS_MEMORY, websocket_ping_s=3.0 if pinging == "broker" else 0.0) as dial:
        client = await dial.open()
        await client.connect("1.2", {"heart-beat": "0,5000"})
        times = [trio.current_time()]

        async def ping() -> None:
            while pinging == "client":
                await client.websocket.send_event(Ping(payload=b""))
                await trio.sleep(1)

        with trio.move_on_after(200):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ping)
                while await client.pipe.receive_bytes():
                    times.append(trio.current_time())
        times.append(trio.current_time())
        gaps = gaps_between(times)
        assert max(gaps) <= 5.0


@pytest.mark.covers("X10", "R09")
@pytest.mark.parametrize(
    ("frame", "code", "reason"),
    [
        (b"BOGUS\n\n\0", 1002, "protocol-error"),
        (b"SEND\n\nx\0", 1002, "protocol-error"),
        (b"SUBSCRIBE\nid:1\ndestination:/reply-queue/of-others\n\n\0", 1008, "unsupported"),
        (b"SEND\ndestination:/t\ncontent-length:99999999\n\n", 1009, "limit-exceeded"),
        (b"DISCONNECT\n\n\0", 1000, "client-disconnect"),
    ],
)
async def test_close_codes(ws_dial: Dial, frame: bytes, code: int, reason: str) -> None:
    client = await ws_dial.connect()
    await client.send_bytes(frame)
    frames = await client.read_to_end()
    assert [each.command for each in frames] == ([] if code == 1000 else ["ERROR"])
    assert (client.websocket.close_code, client.websocket.close_reason) == (code, reason)


@pytest.mark.covers("X10")
async def test_close_codes_of_an_opening(ws_dial: Dial) -> None:
    client = await ws_dial.open()
    await client.send_bytes(b"CONNECT\naccept-version:9\n\n\0")
    assert [each.command for each in await client.read_to_end()] == ["ERROR"]
    assert client.websocket.close_code == 1008


@pytest.mark.covers("X10")
async def test_going_away_is_1001(ws_dial: Dial) -> None:
    connected, fresh = await ws_dial.connect(), await ws_dial.open()
    ws_dial.handle.stop()
    assert await connected.read_to_end() == []
    assert connected.websocket.close_code == 1001
    assert connected.websocket.close_reason == "shutting-down"
    await fresh.read_to_end()
    assert fresh.websocket.close_code == 1001


@pytest.mark.covers("X10", "H07")
async def test_a_dead_heart_beat_is_1008(autojump_clock) -> None:
    async with open_dial(WS_MEMORY, websocket_ping_s=0.0) as dial:
        client = await dial.open()
        await client.connect("1.2", {"heart-beat": "1000,0"})
        await trio.sleep(1.5)
        (error,) = await client.read_to_end()
        assert error["code"] == "heart-beat-timeout"
        assert client.websocket.close_code == 1008


@pytest.mark.covers("X11")
async def test_connect_in_a_websocket_is_not_the_http_method(ws_dial: Dial) -> None:
    client = await ws_dial.open()
    for place in range(len(HELLO)):
        await client.websocket.send_event(TextMessage(HELLO[place : place + 1].decode()))
    assert (await client.receive()).command == "CONNECTED"


@pytest.mark.covers("X13")
@pytest.mark.parametrize("path", ["/", "/ws", "/stomp", "/any/other?token=1"])
async def test_every_path_will_do(ws_dial: Dial, path: str) -> None:
    pipe = WebSocketPipe(await ws_dial.stream())
    await pipe.shake_hands(path=path)
    assert (await Client(pipe).connect())["version"] == "1.2"
