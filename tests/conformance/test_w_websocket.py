"""The WebSocket below STOMP, and plain HTTP (CONFORMANCE.md 2.8, X11-X13), byte for byte."""

import base64
import hashlib
import logging
import struct
from contextlib import suppress

import pytest
import trio
from trio.testing import MockClock

from tests.support.fakes import TCP, Dial, frame_bytes, open_dial, until

KEY = base64.b64encode(bytes(range(16)))
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
HELLO = frame_bytes("CONNECT", {"accept-version": "1.2", "host": "x"})


def request(**changes: bytes | None) -> bytes:
    """The opening handshake, with some headers changed, or left out if None."""
    headers: dict[str, bytes | None] = {
        "Host": b"broker",
        "Upgrade": b"websocket",
        "Connection": b"Upgrade",
        "Sec-WebSocket-Key": KEY,
        "Sec-WebSocket-Version": b"13",
    }
    for name, value in changes.items():
        headers[name.replace("_", "-")] = value
    first = headers.pop("line", None) or b"GET /ws HTTP/1.1"
    lines = [b"%b: %b" % (name.encode(), value) for name, value in headers.items() if value]
    return b"\r\n".join([first, *lines, b"", b""])


def masked(opcode: int, payload: bytes, *, first: int | None = None, mask: bool = True) -> bytes:
    """A client's frame."""
    head = bytes([opcode | 0x80 if first is None else first])
    length, bit = len(payload), 0x80 if mask else 0
    if length < 126:
        head += bytes([bit | length])
    elif length < 65536:
        head += bytes([bit | 126]) + struct.pack(">H", length)
    else:
        head += bytes([bit | 127]) + struct.pack(">Q", length)
    if not mask:
        return head + payload
    key = b"\x11\x22\x33\x44"
    return head + key + bytes(byte ^ key[place % 4] for place, byte in enumerate(payload))


async def read_head(stream: trio.abc.Stream) -> tuple[bytes, bytes]:
    """The head of an HTTP answer, and what came behind it."""
    data = b""
    with trio.fail_after(5):
        while b"\r\n\r\n" not in data:
            part = await stream.receive_some()
            assert part, f"closed after {data!r}"
            data += part
    head, _, rest = data.partition(b"\r\n\r\n")
    return head, rest


async def read_all(stream: trio.abc.Stream) -> bytes:
    """All until the broker closes."""
    data = b""
    with trio.fail_after(5):
        while part := await stream.receive_some():
            data += part
    return data


async def opened(dial: Dial, behind: bytes = b"") -> tuple[trio.abc.Stream, bytes]:
    """An open WebSocket, and what came behind the answer."""
    stream = await dial.stream()
    await stream.send_all(request() + behind)
    head, rest = await read_head(stream)
    assert head.startswith(b"HTTP/1.1 101 ")
    return stream, rest


def frames_in(data: bytes) -> list[tuple[int, bytes]]:
    """The broker's frames as first byte and payload; fails on a masked or long-winded one."""
    out = []
    while data:
        first, length = data[0], data[1]
        assert not length & 0x80, "the server masked a frame (W09)"
        start = 2
        if length == 126:
            (length,), start = struct.unpack(">H", data[2:4]), 4
            assert length > 125
        elif length == 127:
            (length,), start = struct.unpack(">Q", data[2:10]), 10
            assert length > 65535
        assert len(data) >= start + length
        out.append((first, data[start : start + length]))
        data = data[start + length :]
    return out


async def end_of(stream: trio.abc.Stream, rest: bytes = b"") -> tuple[int, list[tuple[int, bytes]]]:
    """The code of the broker's Close, and the frames before it; nothing follows a Close."""
    frames = frames_in(rest + await read_all(stream))
    assert [first for first, _ in frames].count(0x88) == 1, frames
    first, payload = frames[-1]
    assert first == 0x88
    return struct.unpack(">H", payload[:2])[0], frames[:-1]


# --- the opening handshake ----------------------------------------------------------------------


@pytest.mark.covers("W01", "W04", "W06")
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"Upgrade": b"WebSocket"},
        {"Upgrade": b"h2c, websocket"},
        {"Connection": b"keep-alive, UPGRADE"},
        {"line": b"GET / HTTP/1.1"},
        {"line": b"GET /any/path?x=y HTTP/1.1"},
        {"Sec_WebSocket_Extensions": b"permessage-deflate; client_max_window_bits"},
    ],
)
async def test_the_handshake(raw_dial: Dial, changes: dict[str, bytes]) -> None:
    stream = await raw_dial.stream()
    await stream.send_all(request(**changes))
    head, rest = await read_head(stream)
    lines = head.split(b"\r\n")
    assert lines[0].startswith(b"HTTP/1.1 101 ")
    headers = dict(line.lower().split(b": ", 1) for line in lines[1:])
    accept = base64.b64encode(hashlib.sha1(KEY + GUID).digest())
    assert headers[b"sec-websocket-accept"] == accept.lower()
    assert headers[b"upgrade"] == b"websocket"
    assert headers[b"connection"] == b"upgrade"
    assert b"sec-websocket-protocol" not in headers
    assert b"sec-websocket-extensions" not in headers
    assert rest == b""


@pytest.mark.covers("W05", "X01")
@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        (b"v10.stomp, v11.stomp, v12.stomp", b"v12.stomp"),
        (b"v11.stomp,v10.stomp", b"v11.stomp"),
        (b"v10.stomp", b"v10.stomp"),
        (b"stomp", b"stomp"),
        (b"mqtt, v10.stomp", b"v10.stomp"),
        (b"mqtt", None),
        (b"V12.STOMP", None),
    ],
)
async def test_the_subprotocol(raw_dial: Dial, offered: bytes, chosen: bytes | None) -> None:
    stream = await raw_dial.stream()
    await stream.send_all(request(Sec_WebSocket_Protocol=offered))
    head, _ = await read_head(stream)
    answers = [line for line in head.split(b"\r\n") if b"Protocol:" in line]
    expected = [] if chosen is None else [b"Sec-WebSocket-Protocol: " + chosen]
    assert answers == expected


@pytest.mark.covers("W01", "W02", "W03", "W08")
@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"line": b"POST /ws HTTP/1.1"}, 400),
        ({"line": b"GET /ws HTTP/1.0"}, 400),
        ({"Host": None}, 400),
        ({"Connection": b"keep-alive"}, 400),
        ({"Sec_WebSocket_Key": None}, 400),
        ({"Sec_WebSocket_Key": b"short"}, 400),
        ({"Sec_WebSocket_Key": base64.b64encode(b"x" * 15)}, 400),
        ({"Sec_WebSocket_Version": b"8"}, 426),
        ({"Sec_WebSocket_Version": None}, 426),
    ],
)
async def test_bad_handshakes(raw_dial: Dial, changes: dict[str, bytes], status: int) -> None:
    stream = await raw_dial.stream()
    await stream.send_all(request(**changes))
    answer = await read_all(stream)
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    if status == 426:
        assert b"\r\nSec-WebSocket-Version: 13\r\n" in answer


@pytest.mark.covers("W08", "X13")
@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"GET / HTTP/1.1", 200),
        (b"HEAD / HTTP/1.1", 200),
        (b"GET /favicon.ico HTTP/1.1", 404),
        (b"GET /ws HTTP/1.1", 426),
        (b"POST / HTTP/1.1", 405),
        (b"DELETE /x HTTP/1.1", 404),
        (b"OPTIONS / HTTP/1.1", 405),
        (b"CONNECT broker:80 HTTP/1.1", 405),
        (b"GET /", 400),
    ],
)
async def test_plain_http_is_answered_and_closed(raw_dial: Dial, line: bytes, status: int) -> None:
    stream = await raw_dial.stream()
    await stream.send_all(line + b"\r\nHost: broker\r\n\r\n")
    answer = await read_all(stream)
    assert answer.startswith(b"HTTP/1.1 %d " % status), answer[:100]
    head, _, body = answer.partition(b"\r\n\r\n")
    connection = [line for line in head.lower().split(b"\r\n") if line.startswith(b"connection:")]
    assert len(connection) == 1
    assert connection[0].endswith(b"close")
    if not line.startswith(b"HEAD"):
        assert b"content-length: %d\r\n" % len(body) in head.lower() + b"\r\n"


@pytest.mark.covers("W24", "C15")
@pytest.mark.parametrize("step", [100, 3000, 70_000])
async def test_too_long_a_head_is_an_http_answer(raw_dial: Dial, step: int) -> None:
    raw_dial.use(max_opening_bytes=4096)
    stream = await raw_dial.stream()
    head = b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X-Filler: xxxxxxxxxxxxxxxx\r\n" * 500
    with trio.move_on_after(5):
        with suppress(trio.BrokenResourceError):
            for place in range(0, len(head), step):
                await stream.send_all(head[place : place + step])
                await trio.lowlevel.checkpoint()
    assert (await read_all(stream)).startswith(b"HTTP/1.1 431 ")


@pytest.mark.covers("W24")
async def test_half_a_request_is_not_answered_in_stomp(autojump_clock: MockClock) -> None:
    async with open_dial(connect_timeout_s=3.0) as dial:
        stream = await dial.stream()
        await stream.send_all(b"GET / HTTP/1.1\r\n")
        assert not (await read_all(stream)).startswith(b"ERROR")


@pytest.mark.covers("X11", "X12")
async def test_http_byte_by_byte(raw_dial: Dial) -> None:
    stream = await raw_dial.stream()
    for place in range(len(request())):
        await stream.send_all(request()[place : place + 1])
        await trio.lowlevel.checkpoint()
    head, _ = await read_head(stream)
    assert head.startswith(b"HTTP/1.1 101 ")


@pytest.mark.covers("X11", "X12")
@pytest.mark.parametrize("command", ["CONNECT", "STOMP"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
async def test_stomp_byte_by_byte(raw_dial: Dial, command: str, line_end: str) -> None:
    """CONNECT is a method of HTTP too: the byte behind it decides."""
    stream = await raw_dial.stream()
    data = line_end + command + f"{line_end}accept-version:1.2{line_end}host:x{line_end * 2}\0"
    for letter in data:
        await stream.send_all(letter.encode())
        await trio.lowlevel.checkpoint()
    with trio.fail_after(5):
        assert (await stream.receive_some()).startswith(b"CONNECTED\nversion:1.2\n")


@pytest.mark.covers("X12")
@pytest.mark.parametrize("size", [1, 2, 300])
async def test_a_tls_hello_is_closed_with_one_line_in_the_log(
    raw_dial: Dial, caplog: pytest.LogCaptureFixture, size: int
) -> None:
    caplog.set_level(logging.WARNING)
    stream = await raw_dial.stream()
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)) * 2
    await stream.send_all(hello[:size])
    assert await read_all(stream) == b""
    lines = [record.getMessage() for record in caplog.records if record.name == "trio_stomp"]
    assert len(lines) == 1
    assert "TLS" in lines[0]


async def test_a_full_broker_answers_an_upgrade_with_503(raw_dial: Dial) -> None:
    raw_dial.use(max_connections=1)
    await raw_dial.connect()
    stream = await raw_dial.stream()
    await stream.send_all(request())
    assert (await read_all(stream)).startswith(b"HTTP/1.1 503 ")
    stream = await raw_dial.stream()
    await stream.send_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (await read_all(stream)).startswith(b"HTTP/1.1 503 ")


# --- frames -------------------------------------------------------------------------------------


@pytest.mark.covers("W09", "W13", "X09")
@pytest.mark.parametrize("size", [10, 200, 40_000, 70_000])
async def test_what_the_broker_sends_is_well_formed(raw_dial: Dial, size: int) -> None:
    stream, _ = await opened(raw_dial)
    subscribe = frame_bytes("SUBSCRIBE", {"destination": "/t", "id": "1"})
    send = frame_bytes("SEND", {"destination": "/t"}, b"x" * size)
    await stream.send_all(masked(1, HELLO) + masked(1, subscribe) + masked(1, send * 2))
    await stream.send_all(masked(1, frame_bytes("DISCONNECT", {"receipt": "bye"})))
    await trio.lowlevel.checkpoint()
    data = b""
    with trio.fail_after(5):
        while b"receipt-id:bye" not in data:
            data += await stream.receive_some()
        await stream.send_all(masked(8, b"\x03\xe8"))
        data += await read_all(stream)
    frames = frames_in(data)
    commands = [payload.partition(b"\n")[0] for _, payload in frames[:-1]]
    assert commands == [b"CONNECTED", b"MESSAGE", b"MESSAGE", b"RECEIPT"]
    assert all(first == 0x81 and payload.endswith(b"\0\n") for first, payload in frames[:-1])
    assert frames[-1] == (0x88, b"\x03\xe8" + b"client-disconnect")


@pytest.mark.covers("W10", "W11", "W12", "W14", "W16", "W17", "W20", "W21")
@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (masked(1, b"x", mask=False), 1002),
        (masked(1, b"x", first=0xC1), 1002),
        (masked(1, b"x", first=0x91), 1002),
        (masked(3, b"x"), 1002),
        (masked(11, b""), 1002),
        (masked(0, b"x"), 1002),
        (masked(1, b"x", first=0x01) + masked(1, b"y"), 1002),
        (masked(9, b"x" * 126), 1002),
        (masked(9, b"x", first=0x09), 1002),
        (masked(8, b"\x03"), 1002),
        (masked(8, b"\x03\xed"), 1002),
        (masked(8, b"\x00\x01"), 1002),
        (masked(8, b"\x03\xe8\xff"), 1007),
        (masked(1, b"\xff"), 1007),
        (masked(1, b"\xc3", first=0x01) + masked(0, b"x"), 1007),
    ],
)
async def test_broken_rules_end_the_connection(raw_dial: Dial, bad: bytes, code: int) -> None:
    stream, _ = await opened(raw_dial)
    await stream.send_all(masked(1, HELLO))
    with trio.fail_after(5):
        data = bytes(await stream.receive_some())
    await stream.send_all(bad)
    found, frames = await end_of(stream, data)
    assert found in (code, 1002)
    assert frames[0][1].startswith(b"CONNECTED\n")


@pytest.mark.covers("W14", "W15", "W20", "X07")
async def test_fragments_with_a_ping_between(raw_dial: Dial) -> None:
    stream, _ = await opened(raw_dial)
    send = frame_bytes("SEND", {"destination": "/t", "mark": "é"}, "€".encode())
    subscribe = frame_bytes("SUBSCRIBE", {"destination": "/t", "id": "1"})
    data = HELLO + subscribe + send
    out = masked(1, data[:1], first=0x01)
    for place in range(1, len(data)):
        out += masked(0, data[place : place + 1], first=0x00)
        if place == len(data) // 2:
            out += masked(9, b"now")
    out += masked(0, b"")
    await stream.send_all(out)
    got = b""
    with trio.fail_after(5):
        while "€".encode() not in got or b"\x8a\x03now" not in got:
            got += await stream.receive_some()
    assert "mark:é\n".encode() in got


@pytest.mark.covers("W15", "W19")
async def test_a_ping_is_answered_with_its_data(raw_dial: Dial) -> None:
    stream, _ = await opened(raw_dial)
    await stream.send_all(masked(9, b"p" * 125))
    with trio.fail_after(5):
        assert await stream.receive_some() == b"\x8a\x7d" + b"p" * 125
    await stream.send_all(masked(10, b"stray pong") + masked(9, b"1") + masked(9, b"2"))
    got = b""
    with trio.fail_after(5):
        while not got.endswith(b"\x8a\x012"):
            got += await stream.receive_some()


@pytest.mark.covers("W17", "W18", "W21")
@pytest.mark.parametrize(
    ("payload", "answer"),
    [
        (b"", b""),
        (b"\x03\xe8bye", b"\x03\xe8"),
        (b"\x03\xe9", b"\x03\xe9"),
        (b"\x0f\xa0", b"\x0f\xa0"),
    ],
)
async def test_a_close_is_answered_once_and_then_the_broker_closes(
    raw_dial: Dial, payload: bytes, answer: bytes
) -> None:
    stream, _ = await opened(raw_dial)
    await stream.send_all(masked(8, payload) + masked(9, b"late") + masked(8, payload))
    frames = frames_in(await read_all(stream))
    assert frames == [(0x88, answer)]


@pytest.mark.covers("W17", "R03")
async def test_what_came_before_a_close_is_answered_before_it(raw_dial: Dial) -> None:
    """In one packet: SENDs with receipts, then Close. No data may follow our Close."""
    stream, _ = await opened(raw_dial)
    out = masked(1, HELLO)
    out += masked(1, frame_bytes("SUBSCRIBE", {"destination": "/t", "id": "1", "receipt": "a"}))
    out += masked(1, frame_bytes("SEND", {"destination": "/t", "receipt": "b"}, b"x"))
    await stream.send_all(out + masked(8, b"\x03\xe8"))
    code, frames = await end_of(stream)
    assert code == 1000
    commands = [payload.partition(b"\n")[0] for _, payload in frames]
    assert commands == [b"CONNECTED", b"RECEIPT", b"MESSAGE", b"RECEIPT"]


@pytest.mark.covers("W17")
async def test_no_message_overtakes_or_follows_the_close(raw_dial: Dial) -> None:
    """Others publish to the one who is leaving."""
    publisher = await raw_dial.connect()
    stream, _ = await opened(raw_dial)
    subscribe = frame_bytes("SUBSCRIBE", {"destination": "/t", "id": "1", "receipt": "a"})
    await stream.send_all(masked(1, HELLO) + masked(1, subscribe))
    got = b""
    with trio.fail_after(5):
        while b"receipt-id:a" not in got:
            got += await stream.receive_some()
    await publisher.publish("/t", *[b"x" * 300] * 200)
    await stream.send_all(masked(8, b"\x03\xe8"))
    await publisher.publish("/t", *[b"x" * 300] * 200)
    code, _ = await end_of(stream, got)
    assert code == 1000


@pytest.mark.covers("W20")
async def test_a_character_may_be_cut_between_fragments(raw_dial: Dial) -> None:
    stream, _ = await opened(raw_dial)
    data = frame_bytes("CONNECT", {"accept-version": "1.2", "host": "é"})
    cut = data.index(b"\xc3") + 1
    await stream.send_all(masked(1, data[:cut], first=0x01) + masked(0, data[cut:]))
    with trio.fail_after(5):
        assert b"CONNECTED" in await stream.receive_some()


@pytest.mark.covers("W22", "X10")
@pytest.mark.parametrize("how", ["announced", "streamed", "fragments"])
async def test_a_message_over_the_limit_is_closed_with_1009(raw_dial: Dial, how: str) -> None:
    raw_dial.use(max_body_bytes=1000, max_header_block_bytes=1000)
    stream, _ = await opened(raw_dial)
    await stream.send_all(masked(1, HELLO))
    with trio.fail_after(5):
        data = bytes(await stream.receive_some())
    if how == "announced":
        bad = masked(2, b"x" * 10_000_000)[:14]
    elif how == "streamed":
        bad = masked(2, b"\n" * 300_000)
    else:
        bad = masked(2, b"\n" * 2000, first=0x02) + masked(0, b"\n" * 2000)
    with trio.move_on_after(5):
        with suppress(trio.BrokenResourceError):
            await stream.send_all(bad)
    code, _ = await end_of(stream, data)
    assert code == 1009


@pytest.mark.covers("W09", "X02")
async def test_frames_in_the_same_packet_as_the_request(raw_dial: Dial) -> None:
    """A client that does not wait for the 101."""
    stream, rest = await opened(raw_dial, masked(1, HELLO))
    with trio.fail_after(5):
        while b"CONNECTED" not in rest:
            rest += await stream.receive_some()


@pytest.mark.covers("W18")
async def test_the_broker_waits_for_the_answer_to_its_close_in_bounds(
    autojump_clock: MockClock,
) -> None:
    async with open_dial(linger_s=3.0) as dial:
        stream, _ = await opened(dial)
        await stream.send_all(masked(1, b"BOGUS\n\n\0"))
        with trio.fail_after(1):
            data = b""
            while b"\x88" not in data:
                data += await stream.receive_some()
        before = trio.current_time()
        await until(lambda: not dial.server.connections, 0.1)
        assert trio.current_time() - before == pytest.approx(3.0, abs=0.2)
        assert data.count(b"\x88") == 1


@pytest.mark.covers("W18")
async def test_the_broker_closes_at_once_when_its_close_is_answered(
    autojump_clock: MockClock,
) -> None:
    async with open_dial(linger_s=30.0) as dial:
        stream, _ = await opened(dial)
        await stream.send_all(masked(1, b"BOGUS\n\n\0"))
        data = b""
        while b"\x88" not in data:
            data += await stream.receive_some()
        before = trio.current_time()
        await stream.send_all(masked(8, b"\x03\xe8"))
        await until(lambda: not dial.server.connections, 0.1)
        assert trio.current_time() - before < 1


@pytest.mark.covers("W24")
async def test_a_websocket_that_never_connects_is_closed(autojump_clock: MockClock) -> None:
    async with open_dial(connect_timeout_s=3.0) as dial:
        stream, _ = await opened(dial)
        before = trio.current_time()
        code, frames = await end_of(stream)
        assert code == 1008
        assert frames[0][1].startswith(b"ERROR\n")
        assert trio.current_time() - before == pytest.approx(3.0, abs=0.1)


async def test_over_real_sockets_an_error_is_not_lost_to_a_reset() -> None:
    """The client is in the middle of a large message when the broker closes with 1009."""
    async with open_dial(TCP, max_body_bytes=1000, max_header_block_bytes=1000) as dial:
        stream, _ = await opened(dial)
        await stream.send_all(masked(1, HELLO))

        async def send() -> None:
            with suppress(trio.BrokenResourceError):
                await stream.send_all(masked(2, b"x" * 3_000_000))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            code, _ = await end_of(stream)
            assert code == 1009
            nursery.cancel_scope.cancel()
