"""Thousands of connections that go at once and come back, and what another client notices."""

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from _bench.idle import held_idle
from _bench.pauses import Phase, Watcher
from _bench.process import BenchError, Broker, Cpu, cpu_of
from _bench.scale_fill import (
    LIMIT_S,
    IdleConnections,
    Subscriptions,
    open_files,
    wait_until_gone,
)
from _bench.wire import Connection

if TYPE_CHECKING:
    from multiprocessing.connection import Connection as Pipe

HERD_AT_ONCE = 1000
"""Connections that are on their way to CONNECTED at any time while all come back."""
PING_S = 0.002
ANSWER_S = 60.0

now = time.perf_counter


class Herd(NamedTuple):
    """Many connections come or go at once.

    Args:
      phase: What the broker told of it.
      wait_s: The longest that another client waited for a RECEIPT meanwhile.
    """

    connections: int
    phase: Phase
    broker: Cpu
    wait_s: float


class _Watch:
    """Notes what happens from one moment to the next."""

    def __init__(self, broker: Broker, watcher: Watcher, pinger: "Pinger") -> None:
        self._broker = broker
        self._watcher = watcher
        self._pinger = pinger
        watcher.phase("before", now())
        self.begin()

    def begin(self) -> None:
        """Begin with what happens now."""
        self._pinger.longest_s()
        self._began, self._cpu = now(), cpu_of(self._broker.pid)

    def end(self, what: str, connections: int) -> Herd:
        """Return what happened since the beginning."""
        used = cpu_of(self._broker.pid).since(self._cpu)
        phase = self._watcher.phase(what, self._began)
        # Behind that: the broker may close connections before it is done with them.
        return Herd(connections, phase, used, self._pinger.longest_s())


def measure_herd(broker: Broker, watcher: Watcher, fill: IdleConnections) -> Iterator[Herd]:
    """Yield what it is when all connections go at once, come back, and go again.

    Raises:
      BenchError: the broker refuses them, or keeps them.
    """
    count = fill.size
    with closing(Pinger(broker.port)) as pinger:
        most = open_files(broker.pid) - count
        watch = _Watch(broker, watcher, pinger)
        fill.close()
        wait_until_gone(broker, most)
        yield watch.end("idle: disconnect", count)
        watch.begin()
        with held_idle(broker, count, HERD_AT_ONCE, LIMIT_S, websocket=False):
            yield watch.end("idle: reconnect", count)
            watch.begin()
        wait_until_gone(broker, most)
        yield watch.end("idle: disconnect again", count)


def measure_leaving(
    broker: Broker, watcher: Watcher, fill: Subscriptions, name: str
) -> Iterator[Herd]:
    """Yield what it is when all subscribers go at once.

    Args:
      name: Of what there were so many.

    Raises:
      BenchError: the broker keeps them.
    """
    with closing(Pinger(broker.port)) as pinger:
        count = fill.connections
        most = open_files(broker.pid) - count
        watch = _Watch(broker, watcher, pinger)
        fill.close()
        wait_until_gone(broker, most)
        yield watch.end(f"with {fill.size:,} {name}: disconnect", count)


class Pinger:
    """A client, in a process of its own, that asks for one RECEIPT after the other.

    It has no part in what is measured, so how long it waits is how long the broker stood still, or
    the machine.
    """

    def __init__(self, port: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_ping, args=(theirs, port))
        self._process.start()
        theirs.close()
        self.longest_s()

    def longest_s(self) -> float:
        """Return the longest wait since the last time that this was asked, in seconds.

        Raises:
          BenchError: the other process failed.
        """
        try:
            self._pipe.send(True)
            answer = self._pipe.recv() if self._pipe.poll(ANSWER_S) else "it says nothing"
        except (EOFError, OSError):
            answer = "its process has ended"
        if isinstance(answer, float):
            return answer
        raise BenchError(f"the client that waits for receipts: {answer}")

    def close(self) -> None:
        """End the process."""
        self._pipe.close()
        self._process.join(10)
        self._process.kill()


def _ping(pipe: "Pipe", port: int) -> None:
    """Be the other process, until the pipe is closed."""
    try:
        connection = Connection.open(port, websocket=False)
        longest = 0.0
        while True:
            if pipe.poll(PING_S):
                pipe.recv()
                pipe.send(longest)
                longest = 0.0
            asked = now()
            connection.ask(b"BEGIN\ntransaction:p\n\n\0ABORT\ntransaction:p\nreceipt:p\n\n\0", b"R")
            longest = max(longest, now() - asked)
    except EOFError:
        return
    except (BenchError, OSError) as error:
        pipe.send(str(error))
