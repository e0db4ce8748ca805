"""A wire over a real TCP connection, and its peer."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from trio_stomp.transport import Wire, wire_over


@asynccontextmanager
async def socket_pair(buffer_bytes: int = 0) -> AsyncIterator[tuple[Wire, trio.SocketStream]]:
    """Yield a wire over a real TCP connection, and the peer's stream."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        port = listener.socket.getsockname()[1]
        peer = await trio.open_tcp_stream("127.0.0.1", port)
        served = await listener.accept()
    if buffer_bytes:
        served.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_bytes)
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
    wire = wire_over(served)
    try:
        yield wire, peer
    finally:
        await wire.aclose()
        await peer.aclose()


async def note_sent(wire: Wire, data: bytes, results: list[int]) -> None:
    """Send as ``Wire.wait_sent`` does, and note how much it was."""
    results.append(await wire.wait_sent(data))


def reset(peer: trio.SocketStream) -> None:
    peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    peer.socket.close()
