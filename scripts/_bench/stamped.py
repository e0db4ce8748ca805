"""A paced load that records when the kernel received each message, not only when Python read it.

The generator reads 75 sockets one after the other, which takes longer than a fast broker needs to
write to them. The latency until it has read a message therefore contains much of its own time,
which is the same for every broker and pulls their ratio towards one. A second figure is the time
between the sockets: from the write that begins to send a message until the kernel has put it into a
subscriber's socket (socket(7), SO_TIMESTAMP). None of the generator's Python runs in that time.
"""

import gc
import socket
import struct
import time
from pathlib import Path

from _bench.load import STRANGERS, TOPICS, Load, Run, Shape, Visitors, now
from _bench.process import BenchError, Broker
from _bench.wire import Connection

SO_TIMESTAMPNS = 35
"""asm-generic/socket.h; Python does not have it. The messages it makes have the same number."""
TIMESPEC = struct.Struct("@ll")
CONTROL_BYTES = socket.CMSG_SPACE(TIMESPEC.size)
SLACK = Path("/proc/self/timerslack_ns")


class StampedSocket(socket.socket):
    """A socket that records when the kernel got the last byte that it returned."""

    __slots__ = ("arrived",)

    def __init__(self, connected: socket.socket) -> None:
        super().__init__(fileno=connected.detach())
        self.arrived = 0.0
        """In seconds of Unix time; 0 = not known."""
        self.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)

    def recv_into(self, buffer: bytearray, _nbytes: int = 0, flags: int = 0) -> int:  # type: ignore[override]
        """Receive like a socket, and note the kernel's time."""
        size, control, _, _ = self.recvmsg_into([buffer], CONTROL_BYTES, flags)
        self.arrived = 0.0
        for level, kind, data in control:
            if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
                seconds, nanoseconds = TIMESPEC.unpack(data[: TIMESPEC.size])
                self.arrived = seconds + nanoseconds * 1e-9
        return size


class StampedLoad(Load):
    """A paced load of one publisher over TCP.

    Args:
      skipped: Messages at the beginning of each run whose latencies do not count: caches fill.
    """

    def __init__(
        self,
        broker: Broker,
        shape: Shape,
        skipped: int,
        *,
        visitors: Visitors = STRANGERS,
        topics: str = TOPICS,
    ) -> None:
        super().__init__(broker, shape, websocket=False, visitors=visitors, topics=topics)
        self.between: list[float] = []
        """Seconds from socket to socket in the last run."""
        self._skipped = skipped
        self._sent_at: list[float] = []
        self._unix_s = 0.0
        (self._group,) = self.groups
        for subscriber in self._group.subscribers:
            assert isinstance(subscriber.socket, socket.socket)
            subscriber.socket = StampedSocket(subscriber.socket)

    def run(self, limit_s: float) -> Run:
        """Run the load, as ``Load.run`` does without time stamps.

        Raises:
          BenchError: as ``Load.run``, or the kernel provides no time stamps.
        """
        self.between, self._sent_at = [], []
        self._unix_s = time.time() - now()
        run = super().run(limit_s)
        # All but the first moments of a machine that never stamped: the kernel begins late.
        if len(self.between) < len(run.latencies) / 2:
            raise BenchError("this kernel does not time-stamp received data (SO_TIMESTAMPNS)")
        return run

    def _publish(self, start: float) -> float:
        began, before = now(), self._group.sent
        wait_s = super()._publish(start)
        self._sent_at += [began] * (self._group.sent - before)
        return wait_s

    def _sample(
        self, connection: Connection, count: int, moment: float, latencies: list[float]
    ) -> None:
        last = connection.received
        first = max(last - count, self._skipped)
        rate = self.shape.rate
        latencies += [moment - n / rate for n in range(first, last)]
        stamped = connection.socket
        assert isinstance(stamped, StampedSocket)
        if stamped.arrived:
            arrived = stamped.arrived - self._unix_s
            self.between += [arrived - sent_at for sent_at in self._sent_at[first:last]]


def steady() -> None:
    """Reduce pauses of this process that would distort the measurement.

    It collects no garbage from now on, and is woken when it asks to be, not up to 50 µs later
    (proc_pid_timerslack_ns(5)). Where the system does not allow that, latencies until Python has
    read are that much longer, of every broker.
    """
    gc.disable()
    try:
        SLACK.write_text("1")
    except OSError:
        return
