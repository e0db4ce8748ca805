"""Thousands of connections that close together and return, and the delay for another client."""

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
"""Number of connections being opened at any time while all return."""
PING_S = 0.002
ANSWER_S = 60.0

now = time.perf_counter


class Herd(NamedTuple):
    """A phase in which many connections open or close.

    Args:
      phase: The broker's figures for it.
      wait_s: The longest time that another client waited for a RECEIPT.
    """

    connections: int
    phase: Phase
    broker: Cpu
    wait_s: float


class _Watch:
    """Measures a phase, from ``begin`` to ``end``."""

    def __init__(self, broker: Broker, watcher: Watcher, pinger: "Pinger") -> None:
        self._broker = broker
        self._watcher = watcher
        self._pinger = pinger
        watcher.phase("before", now())
        self.begin()

    def begin(self) -> None:
        """Begin a phase."""
        self._pinger.longest_s()
        self._began, self._cpu = now(), cpu_of(self._broker.pid)

    def end(self, what: str, connections: int) -> Herd:
        """Return the figures since the beginning of the phase."""
        used = cpu_of(self._broker.pid).since(self._cpu)
        phase = self._watcher.phase(what, self._began)
        # Afterwards, as the broker may close connections before it has cleaned up.
        return Herd(connections, phase, used, self._pinger.longest_s())


def measure_herd(broker: Broker, watcher: Watcher, fill: IdleConnections) -> Iterator[Herd]:
    """Yield the phases in which all connections close, return, and close again.

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
    """Yield the phase in which all subscribers leave.

    Args:
      name: The name of the dimension.

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
    """A client, in its own process, that requests one RECEIPT after another.

    It takes no part in the load, so its waiting time shows how long the broker or the machine was
    blocked.
    """

    def __init__(self, port: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_ping, args=(theirs, port))
        self._process.start()
        theirs.close()
        self.longest_s()

    def longest_s(self) -> float:
        """Return the longest wait since the last call, in seconds.

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
    """Run the other process, until the pipe is closed."""
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
