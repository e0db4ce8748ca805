"""The objects that fill a broker while another load is measured."""

import os
import select
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Protocol

from _bench.idle import Idle, held_idle
from _bench.load import Load, Run
from _bench.process import BenchError, Broker, cpu_of
from _bench.queues import ACK_ID
from _bench.scenarios import IDLE_AT_ONCE
from _bench.wire import (
    BUFFER,
    DIGITS,
    END,
    MARK,
    RECEIPT_MARK,
    VIEW,
    Connection,
    Sends,
    receipt_line,
)

BATCH = 1000
"""Frames that a fill writes before it waits for a RECEIPT."""
BODY = b"x" * 117
PER_CONNECTION = 10_000
"""Subscriptions of one connection: the default of ``--max-subscriptions-per-connection``."""
PER_PATTERN = 10
"""Subscriptions of one pattern."""
STALE_TOPICS = 1000
LIMIT_S = 300.0
WAIT_S = 0.01

DEEP_QUEUE = "/queue/deep"
DEEP_WINDOW, DEEP_AT_ONCE = 256, 64

now = time.perf_counter
Name = Callable[[int], str]


class Probe(Protocol):
    """A load that is measured repeatedly."""

    def run(self, limit_s: float) -> Run:
        """Send, wait until all messages have arrived, and return the measurement."""

    def close(self) -> None:
        """Close its connections."""


class Fill:
    """A kind of object whose number in the broker grows. The base class adds none.

    Args:
      port: The broker's.
      name: The destination of each, by its number.
    """

    def __init__(self, port: int, name: Name = str) -> None:
        self.port = port
        self.name = name
        self.size = 0

    def to(self, size: int) -> None:
        """Add objects until there are ``size``. Blocks.

        Raises:
          BenchError: the broker refused.
        """
        while self.size < size:
            end = min(size, self.size - self.size % BATCH + BATCH)
            self.add(range(self.size, end))
            self.size = end

    def add(self, numbers: range) -> None:
        """Add these, at most BATCH, and wait for the confirmation."""

    def close(self) -> None:
        """Close its connections."""


class Messages(Fill):
    """One message for each number."""

    def __init__(self, port: int, name: Name) -> None:
        super().__init__(port, name)
        self._connection = Connection.open(port, websocket=False)

    def add(self, numbers: range) -> None:
        """Send the messages."""
        frames = [
            b"SEND\ndestination:%b\ncontent-length:%d\n%b\n%b\0"
            % (
                self.name(n).encode(),
                len(BODY),
                b"receipt:f\n" if n == numbers[-1] else b"",
                BODY,
            )
            for n in numbers
        ]
        self._connection.ask(b"".join(frames), b"RECEIPT\n")

    def close(self) -> None:
        """Close the connection. The messages stay."""
        self._connection.close()


class Subscriptions(Fill):
    """One subscription for each number, PER_CONNECTION on a connection."""

    def __init__(self, port: int, name: Name) -> None:
        super().__init__(port, name)
        self._connections: list[Connection] = []

    def add(self, numbers: range) -> None:
        """Subscribe. No batch is for two connections, since BATCH divides PER_CONNECTION."""
        if numbers[0] // PER_CONNECTION == len(self._connections):
            self._connections.append(Connection.open(self.port, websocket=False))
        frames = [
            f"SUBSCRIBE\nid:{n}\ndestination:{self.name(n)}\n"
            f"{'receipt:f' + chr(10) if n == numbers[-1] else ''}\n\0"
            for n in numbers
        ]
        self._connections[-1].ask("".join(frames).encode(), b"RECEIPT\n")

    @property
    def connections(self) -> int:
        """Return the number of connections."""
        return len(self._connections)

    def close(self) -> None:
        """Close its connections, which ends the subscriptions."""
        for connection in self._connections:
            connection.close()
        self._connections.clear()


class IdleConnections(Fill):
    """Connections that do nothing."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker.port)
        self._broker = broker
        self._held = ExitStack()
        self.opened: list[Idle] = []

    def to(self, size: int) -> None:
        """Open those that are missing."""
        if size > self.size:
            idle = held_idle(self._broker, size - self.size, IDLE_AT_ONCE, LIMIT_S, websocket=False)
            self.opened.append(self._held.enter_context(idle))
            self.size = size

    def close(self) -> None:
        """Close all connections."""
        self._held.close()
        self.size = 0


def open_files(pid: int) -> int:
    """Return how many files a process has open, as the kernel reports."""
    files = f"/proc/{pid}/fd"
    # Newer kernels report the number. Listing 19,000 files takes 16 ms of processor time.
    return os.stat(files).st_size or len(os.listdir(files))


def wait_until_gone(broker: Broker, files: int) -> None:
    """Wait until the broker has no more than ``files`` files open.

    Raises:
      BenchError: that takes too long.
    """
    start = now()
    while open_files(broker.pid) > files:
        time.sleep(WAIT_S)
        if now() - start > LIMIT_S:
            raise BenchError(f"the broker keeps connections that were closed {LIMIT_S:g} s ago")


def pattern_of(base: str) -> Name:
    """Return names of patterns, PER_PATTERN times each: every form, and none matches BASE/NUMBER.

    All begin as the names do, so that a name is looked for among them.

    Args:
      base: A topic.
    """
    above = base.rpartition("/")[0]

    def name(number: int) -> str:
        n = number // PER_PATTERN
        forms = (f"{base}/{n}/*", f"{above}/*/x{n}/y", f"{base}/q{n}*", f"{base}/*/z{n}.>")
        return forms[n % len(forms)]

    return name


class RoundSends(Sends):
    """SENDs, each to another destination than the one before.

    Args:
      names: The names of the destinations, in turn.
    """

    def __init__(self, names: Sequence[str], body_bytes: int) -> None:
        super().__init__(names[0], body_bytes, websocket=False)
        filler = b"x" * (body_bytes - DIGITS - len(MARK))
        self._heads = [
            f"destination:{name}\ncontent-length:{body_bytes}\n\n".encode() + filler
            for name in names
        ]

    def _frame(self, number: int, extra: bytes = b"") -> bytes:
        head = self._heads[number % len(self._heads)]
        return b"SEND\n%b%b%010d\x7f\0" % (extra, head, number)

    def of(self, numbers: Iterable[int]) -> bytes:
        """Return one SEND for each number, all in one piece."""
        return b"".join([self._frame(n) for n in numbers])

    def with_receipt(self, numbers: Sequence[int], receipt: int) -> bytes:
        """Return the same frames with a receipt header in the last one."""
        sends = [self._frame(n) for n in numbers[:-1]]
        return b"".join([*sends, self._frame(numbers[-1], receipt_line(receipt))])


def subscribe_to(load: Load, name: str) -> None:
    """Have the only subscriber of a load receive from ``name`` instead."""
    subscriber = load.groups[0].subscribers[0]
    subscriber.ask(b"UNSUBSCRIBE\nid:1\nreceipt:u\n\n\0", b"RECEIPT\n")
    subscriber.subscribe(name)


class Matched(Subscriptions):
    """Subscriptions to patterns. If there are any, the probe's is one, too."""

    def __init__(self, port: int, name: Name, load: Load, pattern: str) -> None:
        super().__init__(port, name)
        self._load = load
        self._pattern = pattern

    def to(self, size: int) -> None:
        """Subscribe, the probe first."""
        if size and not self.size:
            subscribe_to(self._load, self._pattern)
        super().to(size)


class Walk:
    """A load that sends each message to another destination, which is matched against all patterns.

    Before each run a client subscribes to a pattern and leaves, to invalidate the broker's cache of
    destinations.
    """

    def __init__(self, load: Load) -> None:
        self._load = load
        self._passer_by = Connection.open(load.broker.port, websocket=False)

    def run(self, limit_s: float) -> Run:
        """Run the load, as ``Load.run``."""
        self._passer_by.subscribe("/topic/passing/*")
        self._passer_by.ask(b"UNSUBSCRIBE\nid:1\nreceipt:u\n\n\0", b"RECEIPT\n")
        return self._load.run(limit_s)

    def close(self) -> None:
        """Close all connections."""
        self._load.close()
        self._passer_by.close()


class DeepQueue(Fill):
    """A queue that is filled, and a load on it: as much is sent to its end as taken from its head.

    Every message must come, in order, over all runs.

    Args:
      messages: The messages of one run. The consumer acknowledges each, and has the default limit
        of 100 unacknowledged messages.
    """

    def __init__(self, broker: Broker, messages: int) -> None:
        super().__init__(broker.port)
        self.broker = broker
        self.messages = messages
        self._sends = Sends(DEEP_QUEUE, len(BODY), websocket=False)
        self._producer = Connection.open(broker.port, websocket=False, mark=RECEIPT_MARK)
        self._consumer = Connection.open(broker.port, websocket=False)
        self._consumer.ask(
            f"SUBSCRIBE\nid:1\ndestination:{DEEP_QUEUE}\nack:client-individual\n"
            "receipt:s\n\n\0".encode(),
            b"RECEIPT\n",
        )
        self._epoll = select.epoll()
        for connection in (self._producer, self._consumer):
            self._epoll.register(connection.socket.fileno(), select.EPOLLIN)
        self._sent = 0
        self._taken = 0
        self._left = b""
        self._acks = b""

    def add(self, numbers: range) -> None:
        """Send more messages, one for each number."""
        more = range(self._sent, self._sent + len(numbers))
        self._producer.ask(self._sends.with_receipt(more, 0), b"RECEIPT\n")
        self._sent = more.stop

    def run(self, limit_s: float) -> Run:
        """Send and receive ``messages``, and a few more that the broker had ready.

        Raises:
          BenchError: one is missing, or comes twice, out of order or too late.
        """
        self._producer.start()
        self._consumer.start()
        cpu, own, start = cpu_of(self.broker.pid), time.process_time(), now()
        first_sent, first_taken = self._sent, self._taken
        while True:
            sent, taken = self._sent - first_sent, self._taken - first_taken
            covered = self._producer.received * DEEP_AT_ONCE
            if taken >= self.messages and covered >= self.messages and not self._is_behind:
                break
            self._producer.flush()
            is_next = sent < self.messages and sent - covered + DEEP_AT_ONCE <= DEEP_WINDOW
            if is_next and not self._producer.unsent:
                numbers = range(self._sent, self._sent + DEEP_AT_ONCE)
                self._producer.send(self._sends.with_receipt(numbers, sent // DEEP_AT_ONCE))
                self._sent = numbers.stop
                continue
            self._acknowledge()
            self._read(0.001 if self._is_behind else 1.0)
            if now() - start > limit_s:
                raise BenchError(f"{taken} of {self.messages} came within {limit_s:g} s")
        used = cpu_of(self.broker.pid).since(cpu)
        generator_s = time.process_time() - own
        return Run(self._taken - first_taken, now() - start, used, generator_s, ())

    @property
    def _is_behind(self) -> bool:
        return bool(self._producer.unsent or self._consumer.unsent)

    def _acknowledge(self) -> None:
        self._consumer.flush()
        if self._acks and not self._consumer.unsent:
            acks, self._acks = self._acks, b""
            self._consumer.send(acks)

    def _read(self, wait_s: float) -> None:
        for file, _ in self._epoll.poll(wait_s):
            if file == self._producer.socket.fileno():
                self._producer.read()
            else:
                self._take(self._consumer.socket.recv_into(BUFFER))

    def _take(self, size: int) -> None:
        """Receive the next messages, check their order, and send an ACK for each."""
        if not size:
            raise BenchError("the broker closed a connection in the middle of a run")
        data = self._left + VIEW[:size].tobytes()
        end = data.rfind(b"\0") + 1
        self._left = data[end:]
        numbers = [int(each) for each in END.findall(data, 0, end)]
        ids = ACK_ID.findall(data, 0, end)
        if numbers != list(range(self._taken, self._taken + len(numbers))):
            raise BenchError(f"message {self._taken} was due, messages {numbers[:5]} … came")
        if len(ids) != len(numbers):
            raise BenchError(f"{len(numbers)} messages came with {len(ids)} ack headers")
        self._taken += len(numbers)
        self._acks += b"".join([b"ACK\nid:%b\n\n\0" % each for each in ids])

    def close(self) -> None:
        """Close its connections."""
        self._epoll.close()
        self._producer.close()
        self._consumer.close()
