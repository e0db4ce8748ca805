"""Real sockets of clients that send DISCONNECT and read the remaining output slowly.

Streams in memory cannot show this: the kernel buffers megabytes before the client has read one, and
drops all of them if the socket is closed with unread bytes in it, such as a heart-beat.
"""

import socket
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.support.fakes import frame_bytes
from tests.support.hostile import request, ws
from tests.support.tls import authority
from trio_stomp.testing import threaded_broker

LINGER_S, STALL_S = 0.2, 1.5
"""Short, so that a client that needs longer than both takes seconds, not a minute."""
BODY_BYTES, MESSAGES = 1_000_000, 8
"""More than a kernel buffers (4 MiB by default)."""
READ_BYTES, READ_GAP_S = 16 * 1024, 0.008
"""2 MB/s."""
BEAT_EVERY_S = 0.05
PATIENCE_S = 30.0
TEXT = 1


class SlowClient:
    """A blocking client with small buffers, which subscribes, waits and disconnects.

    Args:
      transport: ``tcp``, ``tls``, ``ws`` or ``wss``.
    """

    def __init__(self, port: int, transport: str, topic: str) -> None:
        self._is_websocket = transport in ("ws", "wss")
        link = socket.socket()
        link.settimeout(PATIENCE_S)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, READ_BYTES)
        link.connect(("127.0.0.1", port))
        self._link: socket.socket = link
        if transport in ("tls", "wss"):
            context = authority().client_context()
            self._link = context.wrap_socket(link, server_hostname="127.0.0.1")
        if self._is_websocket:
            self._link.sendall(request())
            self._read_until(b"\r\n\r\n")
        self.send("CONNECT", {"accept-version": "1.2", "host": "x", "heart-beat": "1000,0"})
        self._read_until(b"\0")
        self.send("SUBSCRIBE", {"id": "0", "destination": topic, "receipt": "on"})
        self._read_until(b"\0")

    def send(self, command: str, headers: dict[str, str]) -> None:
        self._send(frame_bytes(command, headers))

    def _send(self, data: bytes) -> None:
        self._link.sendall(ws(TEXT, data) if self._is_websocket else data)

    def _read_until(self, end: bytes) -> None:
        received = b""
        while end not in received:
            received += self._link.recv(1)

    def read_slowly(self, *, beats: bool) -> tuple[int, bytes]:
        """Read to the end; return the number of bytes, and the last ones."""
        count, last, beat_at = 0, b"", time.monotonic()
        with self._link as link:
            while data := link.recv(READ_BYTES):
                count += len(data)
                last = (last + data)[-4096:]
                if beats and time.monotonic() >= beat_at:
                    beat_at += BEAT_EVERY_S
                    self._send(b"\n")
                time.sleep(READ_GAP_S)
        return count, last


def part_slowly(port: int, transport: str, receipt: str, *, beats: bool) -> tuple[int, bytes]:
    """Let much output wait for a client, send DISCONNECT, and return what the client reads."""
    topic = f"/topic/{transport}-{receipt}-{beats}"
    client = SlowClient(port, transport, topic)
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as publisher:
        publisher.sendall(frame_bytes("CONNECT", {"accept-version": "1.2", "host": "x"}))
        for number in range(MESSAGES):
            headers = {"destination": topic, "receipt": f"{number}"}
            publisher.sendall(frame_bytes("SEND", headers, b"x" * BODY_BYTES))
        received = b""
        while received.count(b"\0") < 1 + MESSAGES:
            received += publisher.recv(65536)
    client.send("DISCONNECT", {"receipt": receipt} if receipt else {})
    return client.read_slowly(beats=beats)


PARTINGS = {
    "tcp": ("tcp", "bye", False),
    "tcp with heart-beats": ("tcp", "bye", True),
    "tcp without receipt": ("tcp", "", True),
    "tls": ("tls", "bye", False),
    "tls with heart-beats": ("tls", "bye", True),
    "ws": ("ws", "bye", False),
    "ws with heart-beats": ("ws", "bye", True),
    "wss with heart-beats": ("wss", "bye", True),
}
"""Transport, the receipt that DISCONNECT requests, and whether heart-beats follow it."""
Farewell = dict[str, Future[tuple[int, bytes]]]


@pytest.fixture(scope="module")
def outcomes() -> Iterator[Farewell]:
    """The results of all kinds of farewell, which run at the same time."""
    options = {"linger_s": LINGER_S, "write_stall_s": STALL_S}
    with (
        threaded_broker(tls_cert=authority().certificate, **options) as broker,
        ThreadPoolExecutor(len(PARTINGS)) as executor,
    ):
        yield {
            name: executor.submit(part_slowly, broker.port, transport, receipt, beats=beats)
            for name, (transport, receipt, beats) in PARTINGS.items()
        }


@pytest.mark.parametrize("name", PARTINGS)
def test_slow_reader_gets_all_frames_after_disconnect(outcomes: Farewell, name: str) -> None:
    count, last = outcomes[name].result()
    assert count >= MESSAGES * BODY_BYTES
    if PARTINGS[name][1]:
        assert b"receipt-id:bye" in last
