"""The load: publishers that keep to windows or to a pace, and subscribers that count."""

import select
import time
from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import NamedTuple

from _bench.process import BenchError, Broker, Cpu
from _bench.wire import RECEIPT_MARK, STRANGER, Connection, Sends, Visitor

TOPICS = "/topic/bench/"

now = time.perf_counter


class Shape(NamedTuple):
    """The publishers, subscribers and messages of a load.

    Args:
      groups: Publishers, each with a destination and subscribers of its own.
      subscribers: The subscribers of each group.
      messages: The messages of each publisher in one run.
      receipt_every: Messages in one write of a publisher, which requests a receipt for the last
        one.
      window: The limit of a publisher's messages without a RECEIPT.
      lag: The limit of a publisher's messages that its subscribers, on average, have not received.
      rate: Messages per second, sent one by one, in place of the windows; 0 = as the windows allow.
    """

    groups: int
    subscribers: int
    messages: int
    receipt_every: int = 0
    window: int = 0
    lag: int = 0
    rate: float = 0.0
    body_bytes: int = 117

    @property
    def deliveries(self) -> int:
        """MESSAGEs that all subscribers get in one run."""
        return self.groups * self.subscribers * self.messages

    @property
    def receipts(self) -> int:
        """RECEIPTs that each publisher gets in one run."""
        return self.messages // self.receipt_every if self.receipt_every else 0


class Run(NamedTuple):
    """The cost of one run. Latencies are in seconds, from the time when a message was due."""

    deliveries: int
    wall_s: float
    broker: Cpu
    generator_s: float
    latencies: Sequence[float]


class Visitors(NamedTuple):
    """The logins of publishers and subscribers."""

    publisher: Visitor = STRANGER
    subscriber: Visitor = STRANGER


STRANGERS = Visitors()


class Group:
    """One publisher and its subscribers."""

    def __init__(
        self,
        ports: Iterator[int],
        destination: str,
        shape: Shape,
        *,
        websocket: bool,
        visitors: Visitors,
    ) -> None:
        self.shape = shape
        self.sends = Sends(destination, shape.body_bytes, websocket=websocket)
        self.publisher = Connection.open(
            next(ports), websocket=websocket, visitor=visitors.publisher, mark=RECEIPT_MARK
        )
        self.subscribers = [
            Connection.open(next(ports), websocket=websocket, visitor=visitors.subscriber)
            for _ in range(shape.subscribers)
        ]
        for subscriber in self.subscribers:
            subscriber.subscribe(destination)
        self.sent = 0
        self.received = 0

    @property
    def connections(self) -> list[Connection]:
        """Return all connections, the publisher's first."""
        return [self.publisher, *self.subscribers]

    def start(self) -> None:
        """Begin a new run on the same connections."""
        self.sent = self.received = 0
        for connection in self.connections:
            connection.start()

    @property
    def is_done(self) -> bool:
        """Return whether all messages were sent, and the last RECEIPT has arrived."""
        return self.sent == self.shape.messages and self.publisher.received == self.shape.receipts

    def publish(self, due: int) -> None:
        """Send as much as the windows allow or, in a paced run, what is due."""
        publisher, shape = self.publisher, self.shape
        if publisher.unsent:
            publisher.flush()
        while not publisher.unsent:
            count = due - self.sent if shape.rate else self._allowed()
            count = min(count, shape.messages - self.sent)
            if count <= 0:
                return
            numbers = range(self.sent, self.sent + count)
            self.sent += count
            if count == shape.receipt_every:
                publisher.send(self.sends.with_receipt(numbers, self.sent // count - 1))
            else:
                publisher.send(self.sends.of(numbers))

    def _allowed(self) -> int:
        shape, count = self.shape, self.shape.receipt_every
        uncovered = self.sent - count * self.publisher.received
        missing = self.sent - self.received / shape.subscribers
        return count if uncovered + count <= shape.window and missing + count <= shape.lag else 0

    def close(self) -> None:
        """Close every connection."""
        for connection in self.connections:
            connection.close()


class Load:
    """Connections of one scenario, for any number of runs over them.

    Args:
      broker: Clients are spread over its ports.
      topics: The prefix of destinations, followed by a number.
    """

    def __init__(
        self,
        broker: Broker,
        shape: Shape,
        *,
        websocket: bool,
        visitors: Visitors = STRANGERS,
        topics: str = TOPICS,
    ) -> None:
        self.broker = broker
        self.shape = shape
        # Before the connections: select(2) takes no descriptor beyond 1,023.
        self._epoll = select.epoll()
        ports = cycle(broker.ports)
        self.groups = [
            Group(ports, f"{topics}{number}", shape, websocket=websocket, visitors=visitors)
            for number in range(shape.groups)
        ]
        self._by_file = {
            connection.socket.fileno(): (group, connection)
            for group in self.groups
            for connection in group.connections
        }
        for file in self._by_file:
            self._epoll.register(file, select.EPOLLIN)

    def resize(self, messages: int) -> None:
        """Set the number of messages of each publisher in later runs."""
        self.shape = self.shape._replace(messages=messages)
        for group in self.groups:
            group.shape = self.shape

    def run(self, limit_s: float) -> Run:
        """Publish all messages and wait for all deliveries.

        Raises:
          BenchError: something was lost or refused, or did not come within ``limit_s``.
        """
        for group in self.groups:
            group.start()
        latencies: list[float] = []
        cpu, own, start = self.broker.cpu(), time.process_time(), now()
        received, wanted = 0, self.shape.deliveries
        while received < wanted or not all(group.is_done for group in self.groups):
            wait_s = self._publish(start)
            received += self._read(start, wait_s, latencies)
            if now() - start > limit_s:
                raise BenchError(f"{received} of {wanted} messages came within {limit_s:g} s")
        wall_s = now() - start
        used = self.broker.cpu().since(cpu)
        return Run(received, wall_s, used, time.process_time() - own, latencies)

    def _publish(self, start: float) -> float:
        """Send the messages that are due. Return the time until the next one."""
        rate = self.shape.rate
        due = int((now() - start) * rate) + 1 if rate else 0
        for group in self.groups:
            if group.sent < self.shape.messages or group.publisher.unsent:
                group.publish(due)
        if any(group.publisher.unsent for group in self.groups):
            return 0.001
        if rate and due < self.shape.messages:
            return max(0.0, start + due / rate - now())
        return 1.0

    def _read(self, start: float, wait_s: float, latencies: list[float]) -> int:
        # epoll's own timeout is in whole milliseconds, which is too coarse to keep a pace.
        select.select([self._epoll], [], [], wait_s)
        received, rate = 0, self.shape.rate
        for file, _ in self._epoll.poll(0):
            group, connection = self._by_file[file]
            count = connection.read()
            if not count or connection is group.publisher:
                continue
            group.received += count
            received += count
            if rate:
                self._sample(connection, count, now() - start, latencies)
        return received

    def _sample(
        self, connection: Connection, count: int, moment: float, latencies: list[float]
    ) -> None:
        """Note latencies of the last ``count`` messages, read ``moment`` seconds into the run."""
        rate, last = self.shape.rate, connection.received
        latencies += [moment - n / rate for n in range(last - count, last)]

    @property
    def reads(self) -> int:
        """Return the number of reads by subscribers that returned data."""
        return sum(each.reads for group in self.groups for each in group.subscribers)

    def close(self) -> None:
        """Close every connection."""
        self._epoll.close()
        for group in self.groups:
            group.close()
