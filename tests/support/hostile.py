"""Helpers for tests of hostile input: raw WebSocket frames and sockets, cuts, counted work.

Everything here is written from RFC 6455 and the STOMP specification alone; none of it calls the
code under test, except that ``hear`` drives a ``WebSocketCodec``.
"""

import base64
import hashlib
import struct
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import suppress

import pytest
import trio
import trio.testing
from attrs import define, field, frozen

from tests.support.fakes import (
    Client,
    Dial,
    FrameReader,
    Pipe,
    Received,
    StreamPipe,
    WebSocketPipe,
    frame_bytes,
    open_dial,
    until,
)
from trio_stomp.transport import WebSocketCodec

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
MASK = b"\x37\xfa\x21\x3d"
AMPLE = 1 << 26
PATIENCE_S = 5.0

NONCE = base64.b64encode(bytes(range(16)))
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

HELLO = frame_bytes("CONNECT", {"accept-version": "1.2", "host": "x"})
QUIET = {"diag_interval_s": 0.0, "websocket_ping_s": 0.0}

# --- frames of a client -----------------------------------------------------------------------


def masked(payload: bytes, key: bytes = MASK) -> bytes:
    """Return ``payload`` masked with ``key`` (RFC 6455 section 5.3). Twice returns the payload."""
    long_key = (key * (len(payload) // 4 + 1))[: len(payload)]
    mixed = int.from_bytes(payload, "big") ^ int.from_bytes(long_key, "big")
    return mixed.to_bytes(len(payload), "big")


def ws(
    opcode: int,
    payload: bytes = b"",
    *,
    fin: bool = True,
    rsv: int = 0,
    mask: bytes | None = MASK,
    width: int = 0,
) -> bytes:
    """A frame by the picture of RFC 6455 section 5.2, right or wrong.

    Args:
      rsv: The three reserved bits as a number: 4 = RSV1.
      mask: None = an unmasked frame, which no client may send.
      width: Bytes of the length (1, 2 or 8); 0 = the shortest form.
    """
    length = len(payload)
    width = width or (1 if length < 126 else 2 if length < 65536 else 8)
    bit = 0 if mask is None else 0x80
    head = bytes([fin << 7 | rsv << 4 | opcode])
    if width == 1:
        head += bytes([bit | length])
    else:
        head += bytes([bit | (126 if width == 2 else 127)]) + length.to_bytes(width, "big")
    return head + payload if mask is None else head + mask + masked(payload, mask)


def close_body(code: int, reason: bytes = b"") -> bytes:
    """The payload of a Close."""
    return struct.pack(">H", code) + reason


def fragments(opcode: int, parts: Sequence[bytes]) -> list[bytes]:
    """Return the frames of one message, one for each part."""
    last = len(parts) - 1
    return [
        ws(CONTINUATION if place else opcode, part, fin=place == last)
        for place, part in enumerate(parts)
    ]


# --- frames of the server ---------------------------------------------------------------------


def split_server_frames(data: bytes) -> tuple[list[tuple[int, bytes]], bytes]:
    """Return the whole frames in ``data`` as first byte and payload, and the rest.

    Fails the test on anything that a server must not send: a mask, reserved bits, a fragment, a
    length that is not the shortest, a control frame over 125 bytes, data after a Close.
    """
    frames: list[tuple[int, bytes]] = []
    while len(data) >= 2:
        first, short = data[0], data[1]
        assert first in (0x81, 0x82, 0x88, 0x89, 0x8A), data[:20]
        assert not short & 0x80, "the server masked a frame (section 5.1)"
        width = {126: 2, 127: 8}.get(short, 0)
        if len(data) < 2 + width:
            break
        length = int.from_bytes(data[2 : 2 + width], "big") if width else short
        assert width != 2 or length > 125, "not the shortest form (section 5.2)"
        assert width != 8 or length > 65535, "not the shortest form (section 5.2)"
        assert first < 0x88 or width == 0, "a long control frame (section 5.5)"
        end = 2 + width + length
        if len(data) < end:
            break
        assert not frames or frames[-1][0] != 0x88, "a frame behind a Close (section 5.5.1)"
        payload = data[2 + width : end]
        if first == 0x81:
            payload.decode()  # section 8.1
        frames.append((first, payload))
        data = data[end:]
    return frames, data


def server_frames(data: bytes) -> list[tuple[int, bytes]]:
    """Return the broker's frames in bytes that must be complete frames."""
    frames, rest = split_server_frames(data)
    assert rest == b"", rest[:40]
    return frames


# --- the codec --------------------------------------------------------------------------------


@frozen
class Farewell:
    """The output of a codec for some bytes.

    Args:
      data: Payload of the data messages.
      pongs: Payloads of its pongs, in order.
      close: Payload of the Close that it sent; None = none.
      code: Why it is closed, as a number; None = it is open.
      by_peer: The peer closed.
    """

    data: bytes
    pongs: tuple[bytes, ...]
    close: bytes | None
    code: int | None
    by_peer: bool


def hear(chunks: Iterable[bytes], max_message_bytes: int = AMPLE) -> Farewell:
    """Feed a new codec."""
    codec = WebSocketCodec(max_message_bytes=max_message_bytes)
    data = replies = b""
    for chunk in chunks:
        data += codec.receive_data(chunk)
        replies += codec.take_replies()
    frames = server_frames(replies)
    closes = [payload for first, payload in frames if first == 0x88]
    assert len(closes) <= 1
    return Farewell(
        data,
        tuple(payload for first, payload in frames if first == 0x8A),
        closes[0] if closes else None,
        codec.closed.code if codec.closed else None,
        codec.closed.by_peer if codec.closed else False,
    )


def octets(data: bytes) -> list[bytes]:
    """``data`` byte by byte."""
    return [data[place : place + 1] for place in range(len(data))]


def pieces(data: bytes, size: int) -> list[bytes]:
    """``data`` in pieces of ``size`` bytes."""
    return [data[place : place + size] for place in range(0, len(data), size)]


def every_chop(frames: Sequence[bytes], single_cuts: int = 400) -> Iterator[list[bytes]]:
    """Yield the frames as one piece, one by one, byte by byte, and split in two at every position.

    Args:
      single_cuts: Above this number of bytes, do not split at every position.
    """
    data = b"".join(frames)
    yield [data]
    yield list(frames)
    yield octets(data) if len(data) < 5000 else pieces(data, 997)
    if len(data) <= single_cuts:
        for place in range(1, len(data)):
            yield [data[:place], data[place:]]


# --- STOMP --------------------------------------------------------------------------------------


def send(body: bytes = b"", destination: str = "/t") -> bytes:
    """Return a SEND. Its body contains no NUL."""
    return frame_bytes("SEND", {"destination": destination}, body)


def padded(size: int, filler: bytes = b"x") -> bytes:
    """STOMP bytes of exactly this many: a SEND, or heart-beats where none fits."""
    spare = size - len(send())
    return b"\n" * size if spare < 0 else send(filler * spare)


def sent_bodies(data: bytes) -> list[bytes]:
    """The bodies of the SENDs in ``data``, which are whole and hold no NUL."""
    bodies = []
    for part in data.split(b"\0"):
        head, blank, body = part.lstrip(b"\n").partition(b"\n\n")
        if blank:
            assert head.startswith(b"SEND\n"), part
            bodies.append(body)
    return bodies


# --- a raw WebSocket to a broker --------------------------------------------------------------


def request(line: bytes = b"GET /ws HTTP/1.1", **changes: bytes | None) -> bytes:
    """The opening handshake, with some headers changed, added, or left out if None."""
    headers: dict[str, bytes | None] = {
        "Host": b"broker",
        "Upgrade": b"websocket",
        "Connection": b"Upgrade",
        "Sec-WebSocket-Key": NONCE,
        "Sec-WebSocket-Version": b"13",
    }
    headers.update({name.replace("_", "-"): text for name, text in changes.items()})
    lines = [b"%b: %b" % (name.encode(), text) for name, text in headers.items() if text]
    return b"\r\n".join([line, *lines, b"", b""])


async def read_head(stream: trio.abc.Stream) -> tuple[bytes, bytes]:
    """Return the head of an HTTP response, and the bytes after it."""
    data = b""
    with trio.fail_after(PATIENCE_S):
        while b"\r\n\r\n" not in data:
            part = bytes(await stream.receive_some())
            assert part, f"closed after {data!r}"
            data += part
    head, _, rest = data.partition(b"\r\n\r\n")
    return head, rest


async def read_all(stream: trio.abc.Stream) -> bytes:
    """Return all bytes until the broker closes."""
    data = b""
    with trio.fail_after(PATIENCE_S):
        while part := bytes(await stream.receive_some()):
            data += part
    return data


async def send_chunks(stream: trio.abc.Stream, chunks: Iterable[bytes]) -> None:
    """Send bytes, and let the broker read each chunk alone."""
    for chunk in chunks:
        await stream.send_all(chunk)
        await trio.testing.wait_all_tasks_blocked()


@define(eq=False)
class RawSocket:
    """An open WebSocket of which every byte is the test's own."""

    stream: trio.abc.Stream
    frames: list[tuple[int, bytes]] = field(factory=list)
    reader: FrameReader = field(factory=FrameReader)
    received: list[Received] = field(factory=list)
    is_ended: bool = False
    _rest: bytes = b""

    async def send(self, *chunks: bytes) -> None:
        """Send raw bytes, letting the broker read between two chunks."""
        with suppress(trio.BrokenResourceError), trio.fail_after(PATIENCE_S):
            for chunk in chunks:
                await self.stream.send_all(chunk)
                if len(chunks) > 1:
                    await trio.testing.wait_all_tasks_blocked()

    async def read(self) -> None:
        """Read once."""
        with trio.fail_after(PATIENCE_S):
            data = bytes(await self.stream.receive_some())
        self.is_ended = not data
        self._note(data)

    def _note(self, data: bytes) -> None:
        frames, self._rest = split_server_frames(self._rest + data)
        if frames and self.frames:
            assert self.frames[-1][0] != 0x88, "a frame behind a Close (section 5.5.1)"
        self.frames += frames
        for first, payload in frames:
            if first in (0x81, 0x82):
                self.reader.feed(payload)
        while (frame := self.reader.next()) is not None:
            self.received.append(frame)
            if frame.command == "CONNECTED":
                self.reader.version = frame["version"]

    async def until(self, condition: Callable[["RawSocket"], bool]) -> None:
        """Read until ``condition`` holds. Fail if the broker closes before."""
        while not condition(self):
            assert not self.is_ended, self.frames[-3:]
            await self.read()

    async def until_receipt(self, id: str) -> None:
        """Read until the RECEIPT with this id."""
        await self.until(lambda it: any(f.get("receipt-id") == id for f in it.received))

    async def until_end(self) -> None:
        """Read until the broker closes the stream."""
        while not self.is_ended:
            await self.read()
        assert self._rest == b""

    @property
    def pongs(self) -> tuple[bytes, ...]:
        """Payloads of the pongs received."""
        return tuple(payload for first, payload in self.frames if first == 0x8A)

    @property
    def bodies(self) -> list[bytes]:
        """Bodies of the MESSAGEs received."""
        return [frame.body for frame in self.received if frame.command == "MESSAGE"]

    @property
    def close_payload(self) -> bytes | None:
        """Return the payload of the broker's Close, if it arrived."""
        first, payload = self.frames[-1] if self.frames else (0, b"")
        return payload if first == 0x88 else None

    @property
    def close_code(self) -> int | None:
        """Return the code of the broker's Close, or None."""
        payload = self.close_payload
        return struct.unpack(">H", payload[:2])[0] if payload else None


async def open_socket(dial: Dial, **changes: bytes) -> RawSocket:
    """Open a WebSocket by hand."""
    stream = await dial.stream()
    await stream.send_all(request(**changes))
    head, rest = await read_head(stream)
    assert head.startswith(b"HTTP/1.1 101 "), head
    accept = base64.b64encode(hashlib.sha1(NONCE + GUID).digest())
    assert b"\r\nSec-WebSocket-Accept: " + accept in head
    socket = RawSocket(stream)
    socket._note(rest)
    return socket


async def open_session(dial: Dial, destination: str = "/t") -> RawSocket:
    """Open one with a STOMP session that is subscribed to ``destination``."""
    socket = await open_socket(dial)
    pairs = {"destination": destination, "id": "1", "receipt": "ready"}
    await socket.send(ws(TEXT, HELLO), ws(TEXT, frame_bytes("SUBSCRIBE", pairs)))
    await socket.until_receipt("ready")
    return socket


# --- peers ----------------------------------------------------------------------------------------


@pytest.fixture
async def dial() -> AsyncIterator[Dial]:
    """Yield a broker in memory that sends nothing on its own initiative."""
    async with open_dial(**QUIET) as dial:
        yield dial


async def connect_narrow(dial: Dial, *, websocket: bool = False, answers: bool = True) -> Client:
    """Return a connected client whose broker waits with each write until the client has read."""
    await dial.start()
    stream = dial.listener.connect_narrow()
    dial._streams.append(stream)
    pipe: Pipe = StreamPipe(stream)
    if websocket:
        pipe = opened = WebSocketPipe(stream, answers=answers)
        await opened.shake_hands()
    client = Client(pipe)
    await client.connect()
    return client


def endings(dial: Dial) -> dict[str, int]:
    """Return the number of connections by close reason."""
    return {reason.text: count for reason, count in dial.server.ended.items() if count}


async def expect_left(dial: Dial, count: int, ended: dict[str, int] | None = None) -> None:
    """Wait until ``count`` connections are left. The others must have given all memory back.

    Args:
      ended: The number of the others by close reason; None = any.
    """
    await until(lambda: len(dial.server.connections) == count, 0.1)
    assert dial.server.memory.used_bytes == 0
    assert ended is None or endings(dial) == ended


# --- work -----------------------------------------------------------------------------------------


def calls_of(work: Callable[[], object]) -> int:
    """Return the number of calls of ``work`` in Python and C, which other processes do not
    affect."""
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls
