"""The layers between frames and socket: WebSocket frames, TLS records, and cuts."""

import ssl
from collections.abc import Iterator
from contextlib import suppress
from random import Random

from _crash.link import Reply, reply_of

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
MAX_CUTS = 6
SINGLE_BYTES = 60
"""Maximum number of bytes that are sent one at a time."""
UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: v12.stomp\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


def cut(data: bytes, dice: Random) -> list[bytes]:
    """Cut bytes anywhere: not at all, at some places, or a part of them one by one."""
    way = dice.random()
    if way < 0.4 or len(data) < 2:
        return [data]
    if way < 0.8:
        places = sorted(dice.randrange(1, len(data)) for _ in range(dice.randint(1, MAX_CUTS)))
        return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True) if a < b]
    start = dice.randrange(len(data))
    end = min(len(data), start + SINGLE_BYTES)
    single = [data[n : n + 1] for n in range(start, end)]
    return [piece for piece in (data[:start], *single, data[end:]) if piece]


def client_frame(
    opcode: int, payload: bytes, dice: Random, *, fin: bool = True, is_masked: bool = True
) -> bytes:
    """Return a client's WebSocket frame (RFC 6455 section 5.2). An unmasked one is invalid."""
    size, bit = len(payload), 0x80 if is_masked else 0
    head = bytes([fin << 7 | opcode])
    if size < 126:
        head += bytes([bit | size])
    elif size < 1 << 16:
        head += bytes([bit | 126]) + size.to_bytes(2, "big")
    else:
        head += bytes([bit | 127]) + size.to_bytes(8, "big")
    if not is_masked:
        return head + payload
    key = dice.randbytes(4)
    mask = (key * (size // 4 + 1))[:size]
    mixed = int.from_bytes(payload, "big") ^ int.from_bytes(mask, "big")
    return head + key + mixed.to_bytes(size, "big")


def client_messages(pieces: list[bytes], dice: Random) -> list[bytes]:
    """Return each piece as a WebSocket message, or all as fragments of one."""
    if dice.random() < 0.5:
        return [client_frame(TEXT, piece, dice) for piece in pieces]
    last = len(pieces) - 1
    return [
        client_frame(CONTINUATION if n else TEXT, piece, dice, fin=n == last)
        for n, piece in enumerate(pieces)
    ]


class FrameCutter:
    """Finds frames in the broker's output. Bodies in the torture contain no NUL."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, data: bytes) -> list[Reply]:
        """Return the frames that end in ``data``."""
        first, *more = data.split(b"\0")
        self._parts.append(first)
        if not more:
            return []
        whole = [b"".join(self._parts), *more[:-1]]
        self._parts = [more[-1]]
        return [reply_of(frame) for frame in whole]


class WebSocketCutter:
    """Finds the frames in the output of a WebSocket server, after its answer to the upgrade."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield opcode and payload of each complete frame."""
        self._data += data
        while len(self._data) >= 2:
            size = self._data[1]
            width = {126: 2, 127: 8}.get(size, 0)
            start = 2 + width
            if width:
                size = int.from_bytes(self._data[2:start], "big")
            if len(self._data) < max(start, start + size):
                return
            opcode, payload = self._data[0] & 15, bytes(self._data[start : start + size])
            del self._data[: start + size]
            yield opcode, payload


class Tls:
    """OpenSSL between two buffers, so that its records can be cut."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="127.0.0.1")

    def shake(self, received: bytes) -> tuple[bytes, bool]:
        """Continue the handshake. Return the bytes to send, and whether it is finished."""
        self._incoming.write(received)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return self._outgoing.read(), False
        return self._outgoing.read(), True

    def encrypt(self, data: bytes) -> bytes:
        """Return the TLS records of ``data``."""
        view = memoryview(data)
        while view:
            view = view[self._tls.write(view) :]  # a record at a time
        return self._outgoing.read()

    def decrypt(self, received: bytes) -> bytes:
        """Return the data of complete records. A close_notify is followed by the end of the socket.

        Raises:
          ssl.SSLError: TLS broke.
        """
        self._incoming.write(received)
        pieces = []
        try:
            while piece := self._tls.read(1 << 16):
                pieces.append(piece)
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            pass
        return b"".join(pieces)

    def close_notify(self) -> bytes:
        """Return the close_notify."""
        with suppress(ssl.SSLError):  # it wants to read the broker's
            self._tls.unwrap()
        return self._outgoing.read()
