"""A client for the churn, which sends valid and invalid frames over TCP or WebSocket."""

import os
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
from _bench.wire import HOST, KEY, MASK

from _proof.judge import MIB

PATIENCE_S = 4.0
UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: v12.stomp\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
KEPT_BYTES = 1 * MIB
_RESET = struct.pack("ii", 1, 0)


def masked(data: bytes) -> bytes:
    """Return one masked text message of any size (RFC 6455 section 5.2)."""
    size = len(data)
    if size < 126:
        head = bytes([0x80 | size])
    elif size < 1 << 16:
        head = b"\xfe" + size.to_bytes(2, "big")
    else:
        head = b"\xff" + size.to_bytes(8, "big")
    return b"\x81" + head + bytes([KEY]) * 4 + data.translate(MASK)


class Peer:
    """One connection. All its operations time out after ``PATIENCE_S``."""

    def __init__(self, stream: trio.SocketStream, *, websocket: bool) -> None:
        self.stream = stream
        self.websocket = websocket
        self.heard = b""
        """The last received bytes."""

    async def say(self, *frames: str, body: bytes = b"") -> None:
        """Send frames. The last one has the body ``body``."""
        for place, frame in enumerate(frames):
            last = place == len(frames) - 1
            await self.raw(frame.encode() + (body if last else b"") + b"\0")

    async def raw(self, data: bytes) -> None:
        """Send bytes, over WebSocket as one message."""
        with trio.move_on_after(PATIENCE_S):
            await self.stream.send_all(masked(data) if self.websocket else data)

    async def bare(self, data: bytes) -> None:
        """Send bytes without framing."""
        with trio.move_on_after(PATIENCE_S):
            await self.stream.send_all(data)

    async def hear(self, word: bytes, limit_s: float = PATIENCE_S) -> bool:
        """Wait until ``word`` has arrived. Return False if it does not."""
        with trio.move_on_after(limit_s):
            while word not in self.heard:
                data = await self.stream.receive_some(65536)
                if not data:
                    return False
                self.heard = (self.heard + data)[-KEPT_BYTES:]
        return word in self.heard

    async def hear_end(self, limit_s: float = PATIENCE_S) -> bool:
        """Read until the broker closes. Return whether it did."""
        with trio.move_on_after(limit_s):
            while data := await self.stream.receive_some(65536):
                self.heard = (self.heard + data)[-KEPT_BYTES:]
            return True
        return False

    async def connect(self, headers: str = "", version: str = "1.2") -> bool:
        """Open a session. Return whether the broker accepted it."""
        await self.say(f"CONNECT\naccept-version:{version}\nhost:soak\n{headers}\n")
        return await self.hear(b"CONNECTED\n")

    def acks(self) -> list[str]:
        """Return the ids for acknowledging the received MESSAGEs."""
        lines = self.heard.split(b"\nack:")[1:]
        return [line.partition(b"\n")[0].decode() for line in lines]

    async def leave(self) -> None:
        """DISCONNECT in order."""
        await self.say("DISCONNECT\nreceipt:bye\n\n")
        await self.hear(b"receipt-id:bye")

    def reset(self) -> None:
        """Have the kernel end the connection by a RST."""
        self.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.stream.socket.close()


@asynccontextmanager
async def dialled(port: int, *, websocket: bool, small: bool = False) -> AsyncIterator[Peer]:
    """Connect, and close at the end if still open.

    Args:
      websocket: Whether to do the upgrade.
      small: Whether the kernel's receive buffer is small.
    """
    raw = trio.socket.socket()
    if small:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1400)
    try:
        await raw.connect((HOST, port))
    except BaseException:
        raw.close()
        raise
    stream = trio.SocketStream(raw)
    peer = Peer(stream, websocket=websocket)
    try:
        if websocket:
            await peer.bare(UPGRADE)
            await peer.hear(b"\r\n\r\n")
            peer.heard = b""
        yield peer
    finally:
        stream.socket.close()


def noise(count: int) -> bytes:
    """Return random bytes."""
    return os.urandom(count)
