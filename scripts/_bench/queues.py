"""Loads on queues: competing consumers that acknowledge, and producers that use transactions.

Each message has a number that is unique over all producers. Consumers check every one: none may
arrive twice, those of one producer arrive at each consumer in order, and at the end all have
arrived.
"""

import re
import select
import time
from collections.abc import Sequence
from itertools import cycle
from typing import NamedTuple

from _bench.load import Run
from _bench.process import BenchError, Broker
from _bench.wire import (
    BUFFER,
    DIGITS,
    END,
    MARK,
    RECEIPT_MARK,
    STRANGER,
    VIEW,
    Connection,
    Visitor,
    receipt_line,
)

BODY_BYTES = 117
FILLER = b"x" * (BODY_BYTES - DIGITS - len(MARK))
ACK_ID = re.compile(rb"\nack:([^\n]+)\n")
PREFETCH = ("prefetch-count", "activemq.prefetchSize")
"""Prefixes of queue names, one for each family of brokers."""
DRAIN_S = 30.0

now = time.perf_counter


class QueueShape(NamedTuple):
    """The producers and consumers of a load on one queue.

    Args:
      messages: The messages of each producer in one run.
      ack: ``auto`` or ``client-individual``; the second answers each MESSAGE by an ACK.
      prefetch: The limit of unacknowledged messages; 0 = the broker's default.
      at_once: SENDs that a producer writes together, with a receipt for the last one.
      window: The limit of a producer's messages without a RECEIPT.
      lag: The limit of all producers' messages that have not been received yet.
      transaction: SENDs written together are a transaction, each with its own name (``own``) or all
        with the same one (``same``); "" = no transactions.
      persistent: The messages are persistent.
    """

    producers: int
    consumers: int
    messages: int
    at_once: int
    window: int
    lag: int
    ack: str = "auto"
    prefetch: int = 0
    transaction: str = ""
    persistent: bool = False

    @property
    def deliveries(self) -> int:
        """MESSAGEs that all consumers together get in one run."""
        return self.producers * self.messages

    @property
    def receipts(self) -> int:
        """RECEIPTs that each producer gets in one run."""
        return self.messages // self.at_once


class Place(NamedTuple):
    """The queue of a load.

    Args:
      more: Lines of headers of each SEND and SUBSCRIBE, in the words of one broker.
    """

    queue: str
    more: Sequence[str] = ()

    @property
    def lines(self) -> str:
        """Return its lines in a frame."""
        return "\n".join((f"destination:{self.queue}", *self.more))


QUEUE = Place("/queue/bench")


class Producer:
    """A producer, limited by the windows.

    Args:
      number: Its index among the producers.
    """

    def __init__(
        self, port: int, number: int, shape: QueueShape, place: Place, visitor: Visitor
    ) -> None:
        self.connection = Connection.open(port, websocket=False, visitor=visitor, mark=RECEIPT_MARK)
        self._place = place
        self.shape = shape
        self.number = number
        self.sent = 0

    def start(self) -> None:
        """Begin a new run."""
        self.sent = 0
        self.connection.start()

    @property
    def is_done(self) -> bool:
        """Return whether all messages were sent, and the last RECEIPT has arrived."""
        shape = self.shape
        return self.sent == shape.messages and self.connection.received == shape.receipts

    def publish(self, missing: int) -> int:
        """Send as much as the windows allow. ``missing`` messages have not been received so far."""
        connection, shape = self.connection, self.shape
        if connection.unsent:
            connection.flush()
        before = self.sent
        while not connection.unsent and self.sent < shape.messages:
            uncovered = self.sent - shape.at_once * connection.received
            if uncovered + shape.at_once > shape.window:
                break
            if missing + self.sent - before + shape.at_once > shape.lag:
                break
            connection.send(self._batch())
            self.sent += shape.at_once
        return self.sent - before

    def _batch(self) -> bytes:
        shape = self.shape
        first = self.number * shape.messages + self.sent
        numbers = range(first, first + shape.at_once)
        receipt = receipt_line(self.sent // shape.at_once)
        extra = b""
        if shape.transaction:
            extra = b"transaction:%d\n" % (self.sent if shape.transaction == "own" else 1)
        start = b"SEND\n%b%b%b\ncontent-length:%d\n" % (
            extra,
            b"persistent:true\n" if shape.persistent else b"",
            self._place.lines.encode(),
            BODY_BYTES,
        )
        plain = start + b"\n" + FILLER
        if shape.transaction:
            sends = b"".join([b"%b%010d\x7f\0" % (plain, n) for n in numbers])
            return b"BEGIN\n%b\n\0%bCOMMIT\n%b%b\n\0" % (extra, sends, extra, receipt)
        sends = b"".join([b"%b%010d\x7f\0" % (plain, n) for n in numbers[:-1]])
        return b"%b%b%b\n%b%010d\x7f\0" % (sends, start, receipt, FILLER, numbers[-1])


class Consumer:
    """A consumer that checks each message and acknowledges it."""

    def __init__(self, port: int, shape: QueueShape, place: Place, visitor: Visitor) -> None:
        self.connection = Connection.open(port, websocket=False, visitor=visitor)
        self.shape = shape
        self.acks = shape.ack != "auto"
        self._left = b""
        self._pending = b""
        self._last = [-1] * shape.producers
        prefetch = "".join(f"{name}:{shape.prefetch}\n" for name in PREFETCH if shape.prefetch)
        self.connection.ask(
            f"SUBSCRIBE\nid:1\n{place.lines}\nack:{shape.ack}\n{prefetch}receipt:s\n\n\0".encode(),
            b"RECEIPT\n",
        )

    def start(self) -> None:
        """Begin a new run."""
        self._last = [-1] * self.shape.producers
        self.connection.start()

    def flush(self) -> None:
        """Send ACKs that are still to be sent."""
        self.connection.flush()
        if self._pending and not self.connection.unsent:
            pending, self._pending = self._pending, b""
            self.connection.send(pending)

    @property
    def is_behind(self) -> bool:
        """Return whether some ACKs have not been sent."""
        return bool(self.connection.unsent)

    def read(self, seen: bytearray) -> int:
        """Receive and acknowledge messages. Return their number.

        Args:
          seen: One byte for each message of the run, set when it has arrived.

        Raises:
          BenchError: the broker closed, or a message came twice or out of order.
        """
        try:
            size = self.connection.socket.recv_into(BUFFER)
        except BlockingIOError:
            return 0
        if not size:
            raise BenchError("the broker closed a connection in the middle of a run")
        self.connection.reads += 1
        data = self._left + VIEW[:size].tobytes()
        end = data.rfind(b"\0") + 1
        self._left = data[end:]
        numbers = [int(each) for each in END.findall(data, 0, end)]
        if not numbers and b"ERROR\n" in data:
            raise BenchError(f"the broker answered {data[:300]!r}")
        self._check(numbers, seen)
        if self.acks and numbers:
            ids = ACK_ID.findall(data, 0, end)
            if len(ids) != len(numbers):
                raise BenchError(f"{len(numbers)} messages came with {len(ids)} ack headers")
            self._pending += b"".join([b"ACK\nid:%b\n\n\0" % each for each in ids])
            self.flush()
        return len(numbers)

    def _check(self, numbers: Sequence[int], seen: bytearray) -> None:
        messages, last = self.shape.messages, self._last
        for number in numbers:
            if seen[number]:
                raise BenchError(f"message {number} came twice")
            seen[number] = 1
            producer = number // messages
            if number <= last[producer]:
                raise BenchError(f"message {number} came after message {last[producer]}")
            last[producer] = number


class QueueLoad:
    """Connections of one scenario, for any number of runs over them.

    Args:
      broker: Clients are spread over its ports.
      in_order: Whether RECEIPTs must arrive in the order of the frames that they answer, as ours
        do.
    """

    def __init__(
        self,
        broker: Broker,
        shape: QueueShape,
        *,
        place: Place = QUEUE,
        visitor: Visitor = STRANGER,
        in_order: bool = True,
    ) -> None:
        self.broker = broker
        self.shape = shape
        self.producers = [
            Producer(port, number, shape, place, visitor)
            for number, port in zip(range(shape.producers), cycle(broker.ports), strict=False)
        ]
        for producer in self.producers:
            producer.connection.in_order = in_order
        self.consumers = [
            Consumer(port, shape, place, visitor)
            for _, port in zip(range(shape.consumers), cycle(broker.ports), strict=False)
        ]
        self._epoll = select.epoll()
        every: list[Producer | Consumer] = [*self.producers, *self.consumers]
        self._by_file = {each.connection.socket.fileno(): each for each in every}
        for file in self._by_file:
            self._epoll.register(file, select.EPOLLIN)

    def resize(self, messages: int) -> None:
        """Set the number of messages of each producer in later runs."""
        self.shape = self.shape._replace(messages=messages)
        for each in self._by_file.values():
            each.shape = self.shape

    def run(self, limit_s: float) -> Run:
        """Send all messages and wait until all have come, and been acknowledged.

        Raises:
          BenchError: something was lost or refused, or did not come within ``limit_s``.
        """
        for each in self._by_file.values():
            each.start()
        seen = bytearray(self.shape.deliveries)
        cpu, own, start = self.broker.cpu(), time.process_time(), now()
        sent = received = 0
        while received < self.shape.deliveries or not self._is_done:
            waits = False
            for producer in self.producers:
                sent += producer.publish(sent - received)
                waits = waits or bool(producer.connection.unsent)
            for consumer in self.consumers:
                if consumer.is_behind:
                    consumer.flush()
                    waits = waits or consumer.is_behind
            for file, _ in self._epoll.poll(0.001 if waits else 1.0):
                each = self._by_file[file]
                if isinstance(each, Producer):
                    each.connection.read()
                else:
                    received += each.read(seen)
            if now() - start > limit_s:
                wanted = self.shape.deliveries
                raise BenchError(f"{received} of {wanted} messages came within {limit_s:g} s")
        if self.shape.ack != "auto":
            self._settle()
        wall_s = now() - start
        used = self.broker.cpu().since(cpu)
        return Run(received, wall_s, used, time.process_time() - own, ())

    @property
    def reads(self) -> int:
        """Return the number of reads by consumers that returned data."""
        return sum(each.connection.reads for each in self.consumers)

    @property
    def _is_done(self) -> bool:
        return all(each.is_done for each in self.producers) and not any(
            each.is_behind for each in self.consumers
        )

    def _settle(self) -> None:
        """Wait until the broker has done the last ACK of each consumer."""
        for consumer in self.consumers:
            # A frame without effect. Its RECEIPT arrives after the effects of all earlier frames.
            frames = b"BEGIN\ntransaction:end\n\n\0ABORT\ntransaction:end\nreceipt:end\n\n\0"
            connection = consumer.connection
            connection.socket.settimeout(DRAIN_S)
            connection.socket.sendall(frames)
            answer = b"\n"
            while answer == b"\n":  # which some end each frame by, and which may come late
                answer = connection.socket.recv(4096)
            answer = answer.lstrip(b"\n")
            if not answer.startswith(b"RECEIPT\nreceipt-id:end\n"):
                raise BenchError(f"expected a RECEIPT, got {answer[:300]!r}")
            connection.socket.setblocking(False)

    def close(self) -> None:
        """Close every connection."""
        self._epoll.close()
        for each in self._by_file.values():
            each.connection.close()
