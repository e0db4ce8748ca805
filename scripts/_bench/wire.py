"""STOMP connections of the load generator: plain sockets, with little Python per message.

Every body ends with its number and MARK, a byte that occurs nowhere else in the broker's output. So
MESSAGEs are counted by counting MARK in the bytes of each read, without parsing frames, over TCP
and WebSocket alike. The numbers before the first and the last MARK of each read show that nothing
was lost, duplicated or reordered.
"""

import os
import re
import socket
import ssl
from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from _bench.process import BenchError
from _bench.tls import TlsSocket

HOST = "127.0.0.1"
PATIENCE_S = 30.0

MARK = b"\x7f"
RECEIPT_MARK = b"\x1f"
"""The same for RECEIPTs: some brokers repeat all headers of a SEND in the MESSAGE."""
DIGITS = 10
END = re.compile(rb"(\d{%d})\x7f" % DIGITS)
ENDS = {MARK: END, RECEIPT_MARK: re.compile(rb"(\d{%d})\x1f" % DIGITS)}

BUFFER_BYTES = 256 * 1024
BUFFER = bytearray(BUFFER_BYTES)
"""Shared by all connections: the bytes of a read are counted before the next read."""
VIEW = memoryview(BUFFER)

SAMPLE_EVERY = 64
"""Number of reads of a connection between two in which every number is checked."""

# A mask of four equal bytes lets a frame be masked by one translation. The broker cannot know.
KEY = 1 + os.urandom(1)[0] % 255
MASK = bytes(each ^ KEY for each in range(256))
HELLO = "CONNECT\naccept-version:1.2\nhost:"


def receipt_line(number: int) -> bytes:
    """Return the header that asks for a RECEIPT, with an id that is counted as bodies are."""
    return b"receipt:%010d%b\n" % (number, RECEIPT_MARK)


class Visitor(NamedTuple):
    """The login and TLS context of a connection.

    Args:
      login: "" = no login.
      tls: The authorities that it trusts; None = no TLS.
      host: The virtual host that it requests.
    """

    login: str = ""
    passcode: str = ""
    tls: ssl.SSLContext | None = None
    host: str = "localhost"

    @property
    def connect(self) -> bytes:
        """Return its CONNECT."""
        proof = f"login:{self.login}\npasscode:{self.passcode}\n" if self.login else ""
        return f"{HELLO}{self.host}\n{proof}\n\0".encode()


STRANGER = Visitor()


def masked(frame: bytes) -> bytes:
    """Return a STOMP frame as one masked WebSocket text message (RFC 6455 section 5.2)."""
    size = len(frame)
    length = bytes([0x80 | size]) if size < 126 else b"\xfe" + size.to_bytes(2, "big")
    return b"\x81" + length + bytes([KEY]) * 4 + frame.translate(MASK)


class Connection:
    """One client: its socket, the number of MESSAGEs of this run, and unsent frames.

    Args:
      mark: The byte that it counts: MARK or RECEIPT_MARK.
    """

    def __init__(
        self, connected: socket.socket | TlsSocket, *, websocket: bool, mark: bytes = MARK
    ) -> None:
        self.socket = connected
        self._mark = mark
        self.in_order = True
        """Whether the counted frames must arrive in order."""
        self.websocket = websocket
        self.received = 0
        self.unsent = memoryview(b"")
        self.reads = 0
        """The number of reads with MESSAGEs, in all runs."""
        self._stride = 0

    @classmethod
    def open(
        cls, port: int, *, websocket: bool, visitor: Visitor = STRANGER, mark: bytes = MARK
    ) -> "Connection":
        """Connect, and open a STOMP session. Blocks.

        Raises:
          BenchError: the broker refused.
          ssl.SSLError, OSError: there is no TLS to be had.
        """
        plain = socket.create_connection((HOST, port), timeout=PATIENCE_S)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected = plain if visitor.tls is None else TlsSocket(plain, visitor.tls, HOST)
        connection = cls(connected, websocket=websocket, mark=mark)
        if websocket:
            connection.shake_hands()
        connection.ask(visitor.connect, b"CONNECTED\n")
        return connection

    def shake_hands(self) -> None:
        """Become a WebSocket."""
        key = b64encode(os.urandom(16))
        self.socket.sendall(
            b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: v12.stomp\r\n"
            b"Sec-WebSocket-Key: %b\r\n\r\n" % key
        )
        self._wait_for(b"HTTP/1.1 101 ", b"\r\n\r\n")

    def ask(self, frame: bytes, answer: bytes) -> None:
        """Send a frame and wait for the answer that begins with ``answer``. Blocks.

        Raises:
          BenchError: another answer arrived, or none.
        """
        self.socket.settimeout(PATIENCE_S)
        self.socket.sendall(masked(frame) if self.websocket else frame)
        self._wait_for(answer, b"\n\n\0")

    def _wait_for(self, answer: bytes, end: bytes) -> None:
        data = b""
        while not data.endswith((end, end + b"\n")):  # some end each frame by an empty line
            more = self.socket.recv(4096)
            data += more
            if not more:
                break
        # A WebSocket header of two or four bytes may precede it.
        if answer not in data[: len(answer) + 4]:
            raise BenchError(f"expected {answer!r}, got {data[:200]!r}")

    def subscribe(self, destination: str) -> None:
        """Subscribe, and wait for the RECEIPT."""
        frame = f"SUBSCRIBE\nid:1\ndestination:{destination}\nreceipt:s\n\n\0"
        self.ask(frame.encode(), b"RECEIPT\n")

    def start(self) -> None:
        """Prepare for a run: switch the socket to non-blocking."""
        self.socket.setblocking(False)
        self.received = 0

    def read(self) -> int:
        """Receive. Return the number of MESSAGEs.

        Raises:
          BenchError: the broker closed, or a message is missing, doubled or out of order.
        """
        try:
            size = self.socket.recv_into(BUFFER)
        except BlockingIOError:
            return 0
        if not size:
            raise BenchError("the broker closed a connection in the middle of a run")
        mark = self._mark
        first = BUFFER.find(mark, 0, size)
        if first < 0:
            return self._read_no_message(size)
        last = BUFFER.rfind(mark, 0, size)
        count = self._count(first, last)
        expected = self.received
        self.received = expected + count
        self.reads += 1
        if not self.in_order:
            return count
        # A number cut by the border of two reads is covered by the next one's.
        if first >= DIGITS:
            self._check(first, expected)
        self._check(last, self.received - 1)
        if self.reads % SAMPLE_EVERY == 0:
            numbers = [int(each) for each in ENDS[mark].findall(VIEW[:size])]
            if numbers != list(range(self.received - len(numbers), self.received)):
                raise BenchError("messages came out of order within one read")
        return count

    def _read_no_message(self, size: int) -> int:
        if b"ERROR\n" in VIEW[:size].tobytes():
            raise BenchError(f"the broker answered {VIEW[:size].tobytes()[:300]!r}")
        return 0

    def _count(self, first: int, last: int) -> int:
        """Return the number of marks. It costs almost nothing if all messages have one length."""
        stride, mark = self._stride, self._mark
        if stride and (last - first) % stride == 0:
            marks = BUFFER[first : last + 1 : stride]
            count = len(marks)
            if marks.count(mark) == count:
                return count
        count = BUFFER.count(mark, first, last + 1)
        if count > 1:
            self._stride = last - BUFFER.rfind(mark, first, last)
        return count

    def _check(self, mark: int, expected: int) -> None:
        if mark >= DIGITS and int(BUFFER[mark - DIGITS : mark]) != expected:
            found = BUFFER[mark - DIGITS : mark].decode(errors="replace")
            raise BenchError(f"message {expected} was due, message {found} came")

    def send(self, data: bytes) -> None:
        """Send as much as can be sent now, and keep the rest in ``unsent``."""
        self.unsent = memoryview(data)
        self.flush()

    def flush(self) -> None:
        """Send as much of ``unsent`` as possible."""
        while self.unsent:
            try:
                sent = self.socket.send(self.unsent)
            except BlockingIOError:
                return
            self.unsent = self.unsent[sent:]

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()


class Sends:
    """Makes the SENDs of one publisher. Their common parts are made once.

    Args:
      destination: The destination of the messages.
      body_bytes: The length of each body.
    """

    def __init__(self, destination: str, body_bytes: int, *, websocket: bool) -> None:
        filler = body_bytes - DIGITS - len(MARK)
        if filler < 0:
            raise BenchError(f"a body needs {DIGITS + len(MARK)} bytes or more")
        head = f"destination:{destination}\ncontent-length:{body_bytes}\n\n"
        self._plain = head.encode() + b"x" * filler
        start = b"SEND\n" + self._plain
        if websocket:
            end = DIGITS + len(MARK) + 1
            self._start = masked(start + bytes(end))[:-end]
        else:
            self._start = start
        self._websocket = websocket

    def of(self, numbers: Iterable[int]) -> bytes:
        """Return one SEND for each number, all in one piece, each in a WebSocket message."""
        start = self._start
        if self._websocket:
            return b"".join(
                [b"%b%b" % (start, (b"%010d\x7f\0" % n).translate(MASK)) for n in numbers]
            )
        return b"".join([b"%b%010d\x7f\0" % (start, n) for n in numbers])

    def with_receipt(self, numbers: Sequence[int], receipt: int) -> bytes:
        """Return the same frames with a receipt header in the last one.

        Its id ends with RECEIPT_MARK as a body does with MARK, so that RECEIPTs are counted and
        checked as MESSAGEs are.
        """
        line = receipt_line(receipt)
        last = b"SEND\n%b%b%010d\x7f\0" % (line, self._plain, numbers[-1])
        return self.of(numbers[:-1]) + (masked(last) if self._websocket else last)
