"""Frames of an open WebSocket, compared with a reader written from RFC 6455 section 5.2."""

import codecs
import random
import struct
from collections.abc import Iterable, Iterator

from attrs import define, field

from _fuzz.target import Target, check, check_equal, cut
from trio_stomp.transport import WebSocketClose, WebSocketCodec

LIMITS = (100, 16_384)
EITHER = frozenset({0, 1002, 1007, 1009})
WHOLE_BYTES = 8191
"""Frames up to this size may be buffered before they are checked."""
UNDECODED_BYTES = 3
"""A character may be waited for."""
TEXTS = (b"", b"SEND\n\n\0", b"\n", "é€😀".encode(), b"\xe2\x82", b"\xac", b"\xff", b"x" * 125)
CLOSES = (b"", b"\x03", b"\x03\xe8", b"\x03\xe8bye", b"\x03\xed", b"\x0b\xb8", b"\x03\xe8\xff")
SIZES = (1, 5, 11, 30, 70, 100, 124, 125, 126, 127, 200, 300)
LONG_SIZES = (8190, 8191, 8192, 9000)
FIRSTS = (0x81, 0x82, 0x01, 0x02, 0x00, 0x80, 0x89, 0x8A, 0x88, 0x09, 0xC1, 0x83, 0x8B)


def make(name: str) -> Target:
    """The target."""
    files = ("transport/websocket/_websocket.py", "transport/websocket/_websocket_frames.py")
    words = [frame(first, text) for first in FIRSTS for text in (b"", b"a\0", b"\xc3")]
    words += [frame(0x88, payload) for payload in CLOSES]
    words += [b"\xfe\x00\x7e", b"\xff" + bytes(7) + b"\x01", b"\xff" * 9, b"\x81\x05hello"]
    return Target(name, run, files, generate, words, 20_000)


def frame(
    first: int, payload: bytes, key: bytes = bytes(4), form: int = 0, mask: int = 0x80
) -> bytes:
    """Return a frame from a client, in any form, valid or invalid."""
    size = len(payload)
    form = form or (1 if size < 126 else 2 if size < 65_536 else 8)
    length = bytes([mask | (size if form == 1 else 126 if form == 2 else 127)])
    if form > 1:
        length += size.to_bytes(form, "big")
    if mask:
        payload = key + bytes(byte ^ key[n % 4] for n, byte in enumerate(payload))
    return bytes([first]) + length + payload


def generate(chance: random.Random) -> bytes:
    """Return some frames, mostly valid. Data after an invalid one would not be read."""
    frames = []
    for _ in range(chance.randint(1, 6)):
        size = chance.choice(SIZES if chance.random() < 0.95 else LONG_SIZES)
        payload = chance.choice((*TEXTS, *CLOSES, *[b"z" * size] * 6, chance.randbytes(size)))
        key = chance.choice((bytes(4), chance.randbytes(4)))
        is_odd = chance.random() < 0.2
        first = chance.choice(FIRSTS if is_odd else FIRSTS[:2])
        mask = 0 if is_odd and chance.random() < 0.2 else 0x80
        form = chance.choice((0, 0, 2, 8)) if is_odd and len(payload) < 126 else 0
        frames.append(frame(first, payload, key, form, mask))
    return chance.randbytes(1) + b"".join(frames)


@define
class Reading:
    """The expected results for the bytes of a client.

    Args:
      whole: The payload of complete data frames before any fault.
      begun: The same, with the payload of an incomplete frame.
      codes: The permitted codes of a Close; 0 = the connection may stay open.
    """

    whole: bytes = b""
    begun: bytes = b""
    codes: frozenset[int] = frozenset({0})
    pings: list[bytes] = field(factory=list)


def frames_in(data: bytes) -> Iterator[tuple[int, int, int, bool, bytes, int]]:
    """Yield first byte, form and length of each frame, whether it is masked, its payload, and the
    number of missing bytes."""
    while len(data) >= 2:
        first, second = data[0], data[1]
        form = {126: 2, 127: 8}.get(second & 127, 0)
        at = 2 + form + (4 if second & 128 else 0)
        if len(data) < at:
            return
        length = int.from_bytes(data[2 : 2 + form], "big") if form else second & 127
        key = data[at - 4 : at] if second & 128 else bytes(4)
        masked = data[at : at + length]
        payload = bytes(byte ^ key[n % 4] for n, byte in enumerate(masked))
        yield first, form, length, bool(second & 128), payload, length - len(masked)
        data = data[at + length :]


def read(data: bytes, limit: int) -> Reading:
    """Read all that a client ever sends."""
    found = Reading()
    decoder = codecs.getincrementaldecoder("utf-8")()
    is_open, is_text, size = False, False, 0
    for first, form, length, masked, payload, missing in frames_in(data):
        opcode, is_last = first & 15, bool(first & 128)
        is_control = opcode >= 8
        faults = set[int]()
        if first & 0x70 or opcode in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15) or not masked:
            faults.add(1002)
        if length < {0: 0, 2: 126, 8: 65_536}[form] or length >= 1 << 63:
            faults.add(1002)
        if is_control and (length > 125 or not is_last):
            faults.add(1002)
        if not is_control:
            size = size + length if opcode == 0 else length
            if (opcode == 0) is not is_open:
                faults.add(1002)
            if size > limit:
                faults.add(1009)
        if faults:
            found.codes = frozenset(faults | ({0} if missing else set()))
            found.begun += payload
            return found
        if not is_control:
            found.begun += payload
            if opcode:
                is_text = opcode == 1
                decoder.reset()
            is_open = not is_last
            if is_text:
                try:
                    decoder.decode(payload, final=is_last and not missing)
                except UnicodeDecodeError:
                    found.codes = frozenset({1007, 0} if missing else {1007})
                    return found
        if missing:
            return found
        if opcode == 8:
            found.codes = close_codes(payload)
            return found
        if opcode == 9:
            found.pings.append(payload)
        if not is_control:
            found.whole += payload
    return found


def close_codes(payload: bytes) -> frozenset[int]:
    """Return the close codes that are permitted after a Close (RFC 6455 section 7.4)."""
    if not payload:
        return frozenset({1005})
    code = int.from_bytes(payload[:2], "big")
    is_known = code in (*range(1000, 1004), *range(1007, 1012)) or 3000 <= code < 5000
    try:
        payload[2:].decode()
    except UnicodeDecodeError:
        return frozenset({1002, 1007})
    if len(payload) == 1 or not 1000 <= code < 5000 or code in (1004, 1005, 1006, 1015):
        return frozenset({1002})
    return frozenset({code}) if is_known else frozenset({code, 1002})


def run(data: bytes) -> None:
    """Feed a codec. The first byte selects its limit and the cuts."""
    limit = LIMITS[(data[0] if data else 0) & 1]
    stream, ways = cut(data)
    expected = read(stream, limit)
    first: WebSocketClose | None = None
    for number, chunks in enumerate([[stream], *ways]):
        payload, closed, replies = feed(chunks, limit)
        if number == 0:
            first = closed
        values = (closed.code, closed.by_peer) if closed else None
        check_equal(values, (first.code, first.by_peer) if first else None, "closed when cut")
        check(
            (closed.code if closed else 0) in expected.codes, f"closed: {closed}, {expected.codes}"
        )
        check(expected.begun.startswith(payload), f"payload: {payload!r:.200}")
        check(
            len(payload) >= len(expected.whole) - UNDECODED_BYTES,
            f"payload lost: {len(expected.whole)} came to {len(payload)}",
        )
        if closed is None:
            check_equal(payload[: len(expected.whole)], expected.whole[: len(payload)], "payload")
        judge_replies(replies, closed, expected.pings)


def feed(chunks: Iterable[bytes], limit: int) -> tuple[bytes, WebSocketClose | None, bytes]:
    """Return payload, end and replies."""
    codec = WebSocketCodec(max_message_bytes=limit)
    payload = replies = b""
    for chunk in chunks:
        payload += codec.receive_data(chunk)
        replies += codec.take_replies()
        held = codec.statistics().buffered_bytes
        check(held <= WHOLE_BYTES + 14, f"buffers: {held} bytes")
    return payload, codec.closed, replies


def judge_replies(replies: bytes, closed: WebSocketClose | None, pings: list[bytes]) -> None:
    """Check the replies: a pong for a ping, a Close for a Close or a fault, nothing after it."""
    is_closed = False
    for first, form, length, masked, payload, missing in frames_in(replies):
        check(not is_closed, "reply: behind Close")
        check(not masked and not missing and not form and length < 126, "reply: not well-formed")
        if first == 0x8A:
            check(payload in pings, f"pong: no ping {payload!r}")
        else:
            check_equal(first, 0x88, "reply's opcode")
            is_closed = True
            check(closed is not None, "Close: but not closed")
            if closed is not None:
                code = struct.pack(">H", closed.code) if closed.code != 1005 else b""
                check_equal(payload[:2], code, "code of Close")
    check_equal(is_closed, closed is not None, "Close sent")
