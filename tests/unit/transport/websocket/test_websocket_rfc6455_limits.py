"""RFC 6455 section 10.4 and RFC 7692, case by case: large, many, too large, and compressed.

Sections 9 and 10 (limits, performance), 12 and 13 (compression) of the Autobahn suite. It measures
time; these tests count calls. The broker never agrees to compression, so its cases check only that,
and that the reserved bit is refused. Nothing is inflated, so there can be no zip bomb.
"""

import zlib
from itertools import pairwise

import pytest
import trio

from tests.support.fakes import Dial, open_dial, until
from tests.support.hostile import (
    BINARY,
    CONTINUATION,
    HELLO,
    PING,
    QUIET,
    TEXT,
    calls_of,
    close_body,
    endings,
    fragments,
    hear,
    open_session,
    open_socket,
    padded,
    pieces,
    read_all,
    read_head,
    request,
    send,
    ws,
)
from tests.support.hostile import dial as dial
from trio_stomp.transport import WebSocketCodec

MIB = 1 << 20
KINDS = pytest.mark.parametrize(("opcode", "filler"), [(TEXT, b"*"), (BINARY, b"\xfe")])


# --- 9.1-9.6 large messages ---------------------------------------------------------------------


SIZES = (64 * 1024, 256 * 1024, MIB, 4 * MIB, 16 * MIB)
PARTS = (64, 256, 1024, 1300, 2048, 4096, 16_384, 262_144)


@pytest.mark.covers("W13", "W14", "W22", "X07")
@KINDS
@pytest.mark.parametrize(
    ("size", "part"), [*((size, 65_536) for size in SIZES), *((MIB, part) for part in PARTS)]
)
def test_9_1_to_9_6_a_large_message_at_once_in_chops_or_in_fragments(
    opcode: int, filler: bytes, size: int, part: int
) -> None:
    data = padded(size, filler)
    frame = ws(opcode, data)
    for chunks in ([frame], pieces(frame, part), fragments(opcode, pieces(data, part))):
        result = hear(chunks)
        assert (result.data, result.code) == (data, None)


@pytest.mark.covers("W22")
def test_a_large_frame_is_never_held() -> None:
    """Large frames are passed on in pieces, so a wrong length makes nothing accumulate."""
    codec = WebSocketCodec(max_message_bytes=16 * MIB)
    frame = ws(BINARY, padded(MIB))
    for chunk in pieces(frame, 1000):
        codec.receive_data(chunk)
        assert codec.statistics().buffered_bytes <= 14


# --- 9.7, 9.8 many small messages ---------------------------------------------------------------


@pytest.mark.covers("X06")
@KINDS
@pytest.mark.parametrize("size", [0, 16, 64, 256, 1024, 4096])
def test_9_7_a_thousand_messages(opcode: int, filler: bytes, size: int) -> None:
    data = padded(size, filler)
    frame = ws(opcode, data)
    for chunks in ([frame] * 1000, [frame * 1000], pieces(frame * 1000, 1460)):
        result = hear(chunks)
        assert result.data == data * 1000
        assert result.code is None


@pytest.mark.parametrize(
    "unit",
    [
        pytest.param(ws(TEXT), id="empty-messages"),
        pytest.param(ws(PING, b"p" * 125), id="pings"),
        pytest.param(ws(0xA), id="pongs"),
        pytest.param(ws(TEXT, b"\n") + ws(PING), id="heart-beats-and-pings"),
        pytest.param(b"".join(fragments(TEXT, [b"", b"", b""])), id="empty-fragments"),
    ],
)
def test_meaningless_frames_cost_in_proportion(unit: bytes) -> None:
    """In a flood of the smallest frames, the work is in proportion to the bytes."""

    def work(count: int) -> int:
        chunks = pieces(unit * count, 1460)
        return calls_of(lambda: hear(chunks))

    assert work(4000) / work(1000) < 4.2


def test_an_endless_message_of_empty_fragments_is_of_no_use() -> None:
    """Without payload no limit is ever exceeded, but nothing accumulates either."""
    codec = WebSocketCodec(max_message_bytes=1000)
    codec.receive_data(ws(TEXT, fin=False))
    empty = ws(CONTINUATION, fin=False) * 1000

    def feed() -> None:
        assert codec.receive_data(empty) == b""

    costs = [calls_of(feed) for _ in range(5)]
    assert all(after <= before * 1.05 for before, after in pairwise(costs))
    assert codec.statistics().buffered_bytes == 0
    assert codec.closed is None


# --- the limit of a message, to the byte ---------------------------------------------------------


@pytest.mark.covers("W22", "X10")
@KINDS
@pytest.mark.parametrize("limit", [125, 126, 8191, 8192, 65_535, 65_536])
@pytest.mark.parametrize("how", ["whole", "halves", "chopped", "many"])
def test_the_limit_of_a_message(opcode: int, filler: bytes, limit: int, how: str) -> None:
    for size in (limit, limit + 1):
        data = filler * size if opcode == BINARY else b"*" * size
        frames = [ws(opcode, data)]
        if how == "halves":
            frames = fragments(opcode, [data[: size // 2], data[size // 2 :]])
        elif how == "many":
            frames = fragments(opcode, [*pieces(data, 100), b""])
        chunks = pieces(b"".join(frames), 997) if how == "chopped" else frames
        result = hear([*chunks, ws(PING, b"behind")], limit)
        if size == limit:
            assert (result.data, result.code, result.pongs) == (data, None, (b"behind",))
        else:
            assert (result.code, result.pongs) == (1009, ())
            assert len(result.data) <= limit
            assert result.close is not None
            assert result.close.startswith(close_body(1009))


@pytest.mark.covers("W22")
async def test_the_limit_of_a_message_on_a_connection(autojump_clock) -> None:
    """It is the largest frame that STOMP allows; the next byte is refused unread."""
    limits = {"max_body_bytes": 1000, "max_header_block_bytes": 1000}
    async with open_dial(**QUIET, **limits) as dial:
        for size in (3000, 3001):
            socket = await open_session(dial)
            await socket.send(ws(BINARY, b"\n" * size), ws(PING, b"?"))
            if size == 3000:
                await socket.until(lambda it: it.pongs == (b"?",))
                await socket.stream.aclose()
            else:
                await socket.until_end()
                assert socket.close_code == 1009
            await until(lambda: not dial.server.connections, 0.1)
        assert endings(dial) == {"client-closed": 1, "websocket-error": 1}


@pytest.mark.covers("W22")
@pytest.mark.parametrize("length", [1 << 31, 1 << 32, 1 << 62, (1 << 63) - 1])
async def test_an_announced_length_takes_no_memory(autojump_clock, dial: Dial, length: int) -> None:
    for first in (0x81, 0x82, 0x01, 0x02):
        socket = await open_session(dial)
        await socket.send(bytes([first]) + b"\xff" + length.to_bytes(8, "big") + b"mask")
        await socket.until_end()
        assert socket.close_code == 1009
    assert dial.server.memory.used_bytes == 0


@pytest.mark.covers("W13", "W22", "X06")
async def test_9_large_and_many_on_a_connection(autojump_clock, dial: Dial) -> None:
    socket = await open_session(dial)
    large = b"\xfe" * MIB
    await socket.send(*fragments(BINARY, pieces(send(large), 65_536)))
    await socket.until(lambda it: len(it.bodies) == 1)
    assert socket.bodies == [large]
    await socket.send(*pieces(ws(TEXT, send(b"small")) * 1000, 1460))
    await socket.until(lambda it: len(it.bodies) == 1001)
    assert set(socket.bodies[1:]) == {b"small"}


# --- 12, 13 compression --------------------------------------------------------------------------

OFFERS = [
    b"permessage-deflate",
    b"permessage-deflate; client_max_window_bits",
    b"permessage-deflate; client_no_context_takeover; server_max_window_bits=8",
    b"permessage-deflate; server_max_window_bits=9; client_max_window_bits=15, permessage-deflate",
    b"permessage-bzip2, x-webkit-deflate-frame, permessage-deflate",
    b"permessage-deflate; nonsense=1",
    b"x" * 2000,
]


@pytest.mark.covers("W06", "W11", "W23")
@pytest.mark.parametrize("offer", OFFERS, ids=range(len(OFFERS)))
async def test_no_compression_is_ever_agreed_to(autojump_clock, dial: Dial, offer: bytes) -> None:
    stream = await dial.stream()
    await stream.send_all(request(Sec_WebSocket_Extensions=offer))
    head, _ = await read_head(stream)
    assert head.startswith(b"HTTP/1.1 101 ")
    assert b"extensions" not in head.lower()
    assert b"deflate" not in head
    await stream.aclose()


def deflated(data: bytes) -> bytes:
    """Deflate data as a client of RFC 7692 would."""
    packer = zlib.compressobj(9, wbits=-15)
    return packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH)[:-4]


DEFLATED = deflated(HELLO)
BOMB = deflated(bytes(4 * MIB))


@pytest.mark.covers("W11", "W22", "W23")
@pytest.mark.parametrize("payload", [DEFLATED, BOMB], ids=["hello", "bomb"])
@pytest.mark.parametrize("opcode", [TEXT, BINARY])
@pytest.mark.parametrize("how", ["whole", "first-fragment", "last-fragment"])
async def test_a_compressed_message_breaks_the_protocol(
    autojump_clock, dial: Dial, payload: bytes, opcode: int, how: str
) -> None:
    frames = {
        "whole": [ws(opcode, payload, rsv=4)],
        "first-fragment": [ws(opcode, payload[:3], fin=False, rsv=4), ws(CONTINUATION, payload)],
        "last-fragment": [ws(opcode, b"", fin=False), ws(CONTINUATION, payload, rsv=4)],
    }[how]
    socket = await open_socket(dial, Sec_WebSocket_Extensions=b"permessage-deflate")
    await socket.send(*frames)
    await socket.until_end()
    assert socket.close_code == 1002
    assert socket.received == []
    assert dial.server.memory.used_bytes == 0


def test_the_bomb_is_one() -> None:
    assert len(zlib.decompressobj(wbits=-15).decompress(BOMB)) == 4 * MIB > 500 * len(BOMB)


# --- a WebSocket is not to be had in other ways -----------------------------------------------


@pytest.mark.covers("W08")
async def test_frames_before_the_handshake_are_no_websocket(autojump_clock, dial: Dial) -> None:
    stream = await dial.stream()
    await stream.send_all(ws(TEXT, HELLO))
    answer = await read_all(stream)
    assert answer.startswith(b"ERROR\n")
    assert b"\ncode:invalid-command\n" in answer


@pytest.mark.covers("W24")
async def test_pings_do_not_keep_an_unopened_session_alive(autojump_clock) -> None:
    async with open_dial(**QUIET, connect_timeout_s=3.0) as dial:
        socket = await open_socket(dial)
        before = trio.current_time()
        with trio.move_on_after(60):
            while not socket.is_ended:
                await socket.send(ws(PING))
                with trio.move_on_after(0.5):
                    await socket.until_end()
        assert trio.current_time() - before == pytest.approx(3.0, abs=0.6)
        assert socket.close_code == 1008
