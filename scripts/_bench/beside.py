"""The cost of a durable load for clients without persistence: a fan-out alone, and with the
load."""

import multiprocessing
import time
from typing import TYPE_CHECKING, NamedTuple

from _bench.load import Load, Shape
from _bench.process import BenchError, Broker, cpu_of
from _bench.queues import QueueLoad, QueueShape

if TYPE_CHECKING:
    from multiprocessing.connection import Connection as Pipe

SETTLE_S = 0.2
"""Time for remaining work of the last messages, such as storing their end, which counts, too."""


class Pair(NamedTuple):
    """Processor time of the broker, in seconds."""

    fanout: float
    durable: float
    both: float

    @property
    def more(self) -> float:
        """Return the additional processor time of the fan-out with the durable load, as a share."""
        return (self.both - self.durable) / self.fanout - 1


class DurableLoad:
    """A load on queues in a process of its own."""

    def __init__(self, broker: Broker, shape: QueueShape, limit_s: float) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._limit_s = limit_s
        self._process = context.Process(target=_serve, args=(theirs, broker, shape, limit_s))
        self._process.start()
        self.wait()

    def begin(self) -> None:
        """Start a run."""
        self._pipe.send(True)

    def wait(self) -> None:
        """Wait until it is over.

        Raises:
          BenchError: as ``QueueLoad.run``.
        """
        error = self._pipe.recv() if self._pipe.poll(self._limit_s + 30) else "it says nothing"
        if error:
            raise BenchError(f"the durable load: {error}")

    def close(self) -> None:
        """End the process."""
        self._pipe.send(False)
        self._process.join(10)
        self._process.kill()


def _serve(pipe: "Pipe", broker: Broker, shape: QueueShape, limit_s: float) -> None:
    """Run the other process: one run for each word from the pipe."""
    load = QueueLoad(broker, shape)
    pipe.send("")
    while pipe.recv():
        try:
            load.run(limit_s)
        except (BenchError, OSError) as error:
            pipe.send(str(error))
        else:
            pipe.send("")
    load.close()


def run_pairs(
    broker: Broker, fanout: Shape, durable: QueueShape, count: int, limit_s: float
) -> list[Pair]:
    """Run each load alone and both together, in turn, ``count`` times.

    Raises:
      BenchError: one of them failed.
    """
    one, other = Load(broker, fanout, websocket=False), DurableLoad(broker, durable, limit_s)

    def measure(*, fans_out: bool, stores: bool) -> float:
        start = cpu_of(broker.pid)
        if stores:
            other.begin()
        if fans_out:
            one.run(limit_s)
        if stores:
            other.wait()
        time.sleep(SETTLE_S)
        return cpu_of(broker.pid).since(start).exact

    try:
        measure(fans_out=True, stores=True)  # warm-up: one-time work is done here
        return [
            Pair(
                measure(fans_out=True, stores=False),
                measure(fans_out=False, stores=True),
                measure(fans_out=True, stores=True),
            )
            for _ in range(count)
        ]
    finally:
        one.close()
        other.close()
