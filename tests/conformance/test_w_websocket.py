"""The WebSocket below STOMP, and plain HTTP (CONFORMANCE.md 2.8, X11-X13), byte for byte."""

import base64
import hashlib
import logging
import struct
from contextlib import suppress

import pytest
import trio

from tests.support.fakes import TCP, Dial, frame_bytes, open_dial
from tests.support.hostile import (
    GUID,
    HELLO,
    NONCE,
    read_all,
    read_head,
    request,
    server_frames,
    ws,
)


async def opened(dial: Dial, behind: bytes = b"") -> tuple[trio.abc.Stream, bytes]:
    """Return an open WebSocket, and the bytes after the answer."""
    stream = await dial.stream()
    await stream.send_all(request() + behind)
    head, rest = await read_head(stream)
    assert head.startswith(b"HTTP/1.1 101 ")
    return stream, rest


async def end_of(stream: trio.abc.Stream, rest: bytes = b"") -> tuple[int, list[tuple[int, bytes]]]:
    """Return the code of the broker's Close, and the frames before it. Nothing follows a Close."""
    frames = server_frames(rest + await read_all(stream))
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
        {"Upgrade": b"h2c, websocket"},
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
    accept = base64.b64encode(hashlib.sha1(NONCE + GUID).digest())
    assert headers[b"sec-websocket-accept"] == accept.lower()
    assert headers[b"upgrade"] == b"websocket"
    assert headers[b"connection"] == b"upgrade"
    assert b"sec-websocket-protocol" not in headers
    assert b"sec-websocket-extensions" not in headers
    assert rest == b""


@pytest.mark.covers("W01", "W02", "W03", "W08")
@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"line": b"POST /ws HTTP/1.1"}, 400),
        ({"Sec_WebSocket_Key": b"short"}, 400),
        ({"Sec_WebSocket_Version": b"8"}, 426),
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


@pytest.mark.covers("W24")
async def test_half_a_request_is_not_answered_in_stomp(autojump_clock) -> None:
    async with open_dial(connect_timeout_s=3.0) as dial:
        stream = await dial.stream()
        await stream.send_all(b"GET / HTTP/1.1\r\n")
        assert not (await read_all(stream)).startswith(b"ERROR")


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


# --- frames -------------------------------------------------------------------------------------


@pytest.mark.covers("W09", "W13", "X09")
@pytest.mark.parametrize("size", [10, 200, 40_000, 70_000])
async def test_server_frames_are_well_formed(raw_dial: Dial, size: int) -> None:
    stream, _ = await opened(raw_dial)
    subscribe = frame_bytes("SUBSCRIBE", {"destination": "/t", "id": "1"})
    send = frame_bytes("SEND", {"destination": "/t"}, b"x" * size)
    await stream.send_all(ws(1, HELLO) + ws(1, subscribe) + ws(1, send * 2))
    await stream.send_all(ws(1, frame_bytes("DISCONNECT", {"receipt": "bye"})))
    await trio.lowlevel.checkpoint()
    data = b""
    with trio.fail_after(5):
        while b"receipt-id:bye" not in data:
            data += await stream.receive_some()
        await stream.send_all(ws(8, b"\x03\xe8"))
        data += await read_all(stream)
    frames = server_frames(data)
    commands = [payload.partition(b"\n")[0] for _, payload in frames[:-1]]
    assert commands == [b"CONNECTED", b"MESSAGE", b"MESSAGE", b"RECEIPT"]
    assert all(first == 0x81 and payload.endswith(b"\0\n") for first, payload in frames[:-1])
    assert frames[-1] == (0x88, b"\x03\xe8" + b"client-disconnect")


@pytest.mark.covers("W17", "R03")
async def test_frames_before_a_close_are_answered_before_it(raw_dial: Dial) -> None:
    """In one packet: SENDs with receipts, then Close. No data may follow our Close."""
    stream, _ = await opened(raw_dial)
    out = ws(1, HELLO)
    out += ws(1, frame_bytes("SUBSCRIBE", {"destination": "/t", "id": "1", "receipt": "a"}))
    out += ws(1, frame_bytes("SEND", {"destination": "/t", "receipt": "b"}, b"x"))
    await stream.send_all(out + ws(8, b"\x03\xe8"))
    code, frames = await end_of(stream)
    assert code == 1000
    commands = [payload.partition(b"\n")[0] for _, payload in frames]
    assert commands == [b"CONNECTED", b"RECEIPT", b"MESSAGE", b"RECEIPT"]


@pytest.mark.covers("W17")
async def test_no_message_overtakes_or_follows_the_close(raw_dial: Dial) -> None:
    """Other clients publish to the leaving one."""
    publisher = await raw_dial.connect()
    stream, _ = await opened(raw_dial)
    subscribe = frame_bytes("SUBSCRIBE", {"destination": "/t", "id": "1", "receipt": "a"})
    await stream.send_all(ws(1, HELLO) + ws(1, subscribe))
    got = b""
    with trio.fail_after(5):
        while b"receipt-id:a" not in got:
            got += await stream.receive_some()
    await publisher.publish("/t", *[b"x" * 300] * 200)
    await stream.send_all(ws(8, b"\x03\xe8"))
    await publisher.publish("/t", *[b"x" * 300] * 200)
    code, _ = await end_of(stream, got)
    assert code == 1000


@pytest.mark.covers("W09", "X02")
async def test_frames_in_the_same_packet_as_the_request(raw_dial: Dial) -> None:
    """A client that does not wait for the 101."""
    stream, rest = await opened(raw_dial, ws(1, HELLO))
    with trio.fail_after(5):
        while b"CONNECTED" not in rest:
            rest += await stream.receive_some()


async def test_over_real_sockets_an_error_is_not_lost_to_a_reset() -> None:
    """The client is in the middle of a large message when the broker closes with 1009."""
    async with open_dial(TCP, max_body_bytes=1000, max_header_block_bytes=1000) as dial:
        stream, _ = await opened(dial)
        await stream.send_all(ws(1, HELLO))

        async def send() -> None:
            with suppress(trio.BrokenResourceError):
                await stream.send_all(ws(2, b"x" * 3_000_000))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            code, _ = await end_of(stream)
            assert code == 1009
            nursery.cancel_scope.cancel()
