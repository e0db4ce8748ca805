"""Clients of the load generator: consumers and producers with a fixed rate.

Every body is ``<10 digits: number><20 digits: nanoseconds when it was due>xxx…\\x7f``. A MESSAGE is
counted by its last byte, which occurs nowhere else, so no frame has to be parsed.
"""

import contextlib
import re
import socket
import time
from collections import Counter

from _bench.wire import HOST

from _proof.judge import Times

MARK = b"\x7f"
STAMP = re.compile(rb"\n\n(\d{10})(\d{20})")
CODE = re.compile(rb"\ncode:([^\n]+)\n")
MATCHED = re.compile(rb"\nmatched:(\d+)\n")
ACK = re.compile(rb"\nack:([^\n]+)\n")
LEAD_BYTES = 31
CONNECT = "CONNECT\naccept-version:1.2\nhost:localhost\n\n\0"
RECEIVE_BUFFER_BYTES = 64 * 1024
"""The client's receive buffer: small, so that unread data waits where the broker sees it."""
SEGMENT_BYTES = 1400
"""As on a network. With the segments of 64 KiB of the loopback interface the broker's kernel would
keep megabytes for each connection, and a consumer would learn only minutes later that it was ended.
"""
NUMBERS = 10**9
"""Numbers of one producer. The first digit of a message's number identifies the producer."""
BUFFER = bytearray(256 * 1024)
VIEW = memoryview(BUFFER)


def dial(port: int, hello: str) -> socket.socket:
    """Connect and send the first frames, without waiting for an answer."""
    connected = socket.socket()
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT_BYTES)
    connected.connect((HOST, port))
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.sendall(hello.encode())
    connected.setblocking(False)
    return connected


class Reader:
    """A subscriber that reads at its own pace, and connects again when it is disconnected.

    Args:
      port: The broker's port.
      frames: The frames to send after CONNECT.
      acks: Whether to acknowledge each message.
    """

    def __init__(self, port: int, frames: str, *, acks: bool = False) -> None:
        self.received = 0
        self.acked = 0
        self.connects = 0
        self.errors: Counter[str] = Counter()
        self.disorder = 0
        self.times = Times()
        self.is_open = False
        self._port = port
        self._hello = CONNECT + frames
        self._acks = acks
        self._last: dict[int, int] = {}
        self._rest = b""
        self._unsent = b""
        self.socket: socket.socket

    def connect(self) -> None:
        """Connect, for the first time or again."""
        self.socket = dial(self._port, self._hello)
        self.connects += 1
        self.is_open = True
        self._last = {}
        self._rest = self._unsent = b""

    def read(self, limit: int) -> int:
        """Read up to ``limit`` received bytes, and return their number."""
        if not self.is_open:
            return 0
        if self._unsent:
            self._send(b"")
        try:
            size = self.socket.recv_into(VIEW[: min(limit, len(BUFFER))])
        except BlockingIOError:
            return 0
        except ConnectionError:
            size = 0
            self.errors["reset"] += 1
        if not size:
            self.close()
            return 0
        data = bytes(VIEW[:size])
        count = data.count(MARK)
        if count:
            self.received += count
            self._look(data)
        if b"ERROR\n" in data:
            found = CODE.search(data)
            self.errors[found[1].decode() if found else "?"] += 1
        if self._acks:
            self._acknowledge(data)
        return size

    def _look(self, data: bytes) -> None:
        """Check one message of each read: its age and its order."""
        found = STAMP.search(data)
        if found is None:
            return
        number, due = int(found[1]), int(found[2])
        producer = number // NUMBERS
        if number <= self._last.get(producer, -1):
            self.disorder += 1
        self._last[producer] = number
        self.times.add((time.monotonic_ns() - due) / 1e9)

    def _acknowledge(self, data: bytes) -> None:
        *whole, self._rest = (self._rest + data).split(MARK)
        frames = []
        for frame in whole:
            found = ACK.search(frame)
            if found is not None:
                frames.append(b"ACK\nid:%b\n\n\0" % found[1])
        self.acked += len(frames)
        if frames:
            self._send(b"".join(frames))

    def _send(self, data: bytes) -> None:
        self._unsent += data
        with contextlib.suppress(BlockingIOError, ConnectionError):
            self._unsent = self._unsent[self.socket.send(self._unsent) :]

    @property
    def is_settled(self) -> bool:
        """Return whether everything has been sent."""
        return not self._unsent

    def close(self) -> None:
        """Leave without a word."""
        if self.is_open:
            self.is_open = False
            self.socket.close()


class Producer:
    """Offers messages at a fixed rate, each with a RECEIPT. Unsent ones are kept.

    Args:
      port: The broker's port.
      destination: The destination of the messages.
      number: The producer's number, 0-9.
      rate: Messages per second.
      body_bytes: The length of each body.
      is_steady: Whether a message's age counts from when it was due, and so includes the wait to
        send it; else from when it was sent.
    """

    AT_ONCE = 32

    def __init__(
        self,
        port: int,
        destination: str,
        number: int,
        rate: float,
        body_bytes: int,
        *,
        is_steady: bool = False,
    ) -> None:
        self.offered = 0
        self.sent = 0
        self.receipts = 0
        self.matched = 0
        self.refusals: Counter[str] = Counter()
        self.is_open = False
        self.rate = rate
        self.is_steady = is_steady
        self._port = port
        self._first = number * NUMBERS
        self._head = (
            f"SEND\ndestination:{destination}\ncontent-length:{body_bytes}\nreceipt:".encode()
        )
        self._filler = b"x" * (body_bytes - LEAD_BYTES) + MARK + b"\0"
        self._unsent: bytes | memoryview = b""
        self._rest = b""
        self.socket: socket.socket

    def connect(self) -> None:
        """Connect, for the first time or again."""
        self.socket = dial(self._port, CONNECT)
        self.is_open = True
        self._unsent = self._rest = b""

    def work(self, since_s: float, *, stop: bool = False) -> None:
        """Send the messages due after ``since_s`` seconds, as far as possible, and read the
        answers.

        Args:
          stop: Whether to offer no more messages, and only finish the one begun.
        """
        if not self.is_open:
            self.connect()
        try:
            self._flush()
            if not stop:
                self.offered = max(self.offered, int(since_s * self.rate))
                count = 1 if self.is_steady else min(self.AT_ONCE, self.offered - self.sent)
                if not self._unsent and self.sent < self.offered:
                    self._unsent = self._batch(count, since_s)
                    self._flush()
            self._hear()
        except ConnectionError:
            self.refusals["reset"] += 1
            self._close()

    def _batch(self, count: int, since_s: float) -> memoryview:
        due = time.monotonic_ns()
        if self.is_steady:
            due -= int((since_s - (self.sent + 1) / self.rate) * 1e9)
        start = self._first + self.sent
        self.sent += count
        frames = [
            b"%b%d\n\n%010d%020d%b" % (self._head, n, n, due, self._filler)
            for n in range(start, start + count)
        ]
        return memoryview(b"".join(frames))

    def _flush(self) -> None:
        while self._unsent:
            try:
                sent = self.socket.send(self._unsent)
            except BlockingIOError:
                return
            self._unsent = self._unsent[sent:]

    def _hear(self) -> None:
        try:
            data = self.socket.recv(65536)
        except BlockingIOError:
            return
        if not data:
            self._close()
            return
        whole, _, self._rest = (self._rest + data).rpartition(b"\0")
        self.receipts += whole.count(b"RECEIPT\n")
        self.matched += sum(map(int, MATCHED.findall(whole)))
        if b"ERROR\n" in whole:
            found = CODE.search(whole)
            self.refusals[found[1].decode() if found else "?"] += 1
            self._close()

    def _close(self) -> None:
        self.is_open = False
        self.socket.close()

    @property
    def is_answered(self) -> bool:
        """Return whether everything sent on this connection has been answered."""
        return not self._unsent

    def close(self) -> None:
        """Leave."""
        if self.is_open:
            self._close()
