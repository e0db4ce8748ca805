"""Latency of the broker and of the floor: the same paced loads through both, in turn.

A round is one run of each side, in rotating order, each with a fresh process to measure and the
same generator. All runs of a round see a similar load of the machine, so their ratio is more
reliable than the absolute figures.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from _bench.floor import running_floor
from _bench.idle import held_idle
from _bench.load import Shape
from _bench.process import BenchError, Broker, running_broker
from _bench.scenarios import IDLE_AT_ONCE
from _bench.slow import SlowConsumers
from _bench.stamped import StampedLoad, steady
from _bench.tables import percentile

Show = Callable[[str], None]

SKIPPED_S = 1.0
"""Time at the beginning of each run that does not count, in seconds."""
LIMIT_S = 120.0
LOADS = {
    "1x1": Shape(1, 1, 0, rate=2000.0),
    "1x75": Shape(1, 75, 0, rate=500.0),
}
"""Without their length."""
QUICK_S = 0.2
QUICK_CONNECTIONS = 50
QUICK_OUTBOX = ("--max-outbox-bytes", "65536")

FLOOR, BROKER, IDLE, SLOW = "floor", "broker", "idle", "slow"
SIDES = (FLOOR, BROKER, IDLE, SLOW)
SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}

READ, BETWEEN = "read", "between"
MEASURES = {
    READ: "from when a message was due until the generator had read it",
    BETWEEN: "from the generator's socket to the subscriber's, by the kernel's clock",
}


class Latencies(NamedTuple):
    """One run of one side. Latencies are in milliseconds.

    Args:
      order: Its position within its round.
      samples: Deliveries that counted.
      ended: Slow consumers that the broker disconnected during the run.
    """

    load: str
    side: str
    pair: int
    order: int
    samples: int
    ended: int
    read: dict[str, float]
    between: dict[str, float]

    def of(self, measure: str, share: str) -> float:
        """Return one of the figures: a name of MEASURES, a name of SHARES."""
        figures = self.read if measure == READ else self.between
        return figures[share]


class Plan(NamedTuple):
    """The parameters of a measurement of latency.

    Args:
      program: The floor.
      options: The options of every broker.
      pairs: Rounds.
      seconds: The duration of each run that counts.
      connections: The number of idle connections beside the load.
    """

    program: Path
    options: Sequence[str]
    pairs: int
    seconds: float
    connections: int
    quick: bool

    @property
    def skipped_s(self) -> float:
        """Return the time at the beginning of a run that does not count."""
        return 0.0 if self.quick else SKIPPED_S


def measure_latency(plan: Plan, say: Show) -> Iterator[Latencies]:
    """Yield each run: of each load, of each round, of each side.

    Raises:
      BenchError: a run was wrong, or no slow consumer was ended while it should have been.
    """
    steady()
    for name in LOADS:
        for pair in range(plan.pairs):
            turn = pair % len(SIDES)
            for order, side in enumerate((*SIDES[turn:], *SIDES[:turn])):
                run = _run(plan, name, side)._replace(pair=pair, order=order)
                say(
                    f"  {name} {pair + 1}/{plan.pairs} {side}: p50 {run.read['p50']:.3f} ms,"
                    f" p99 {run.read['p99']:.3f} ms;"
                    f" between the sockets {run.between['p50']:.3f}, {run.between['p99']:.3f}"
                )
                yield run


def _run(plan: Plan, name: str, side: str) -> Latencies:
    skipped = round(plan.skipped_s * LOADS[name].rate)
    messages = skipped + max(1, round(plan.seconds * LOADS[name].rate))
    shape = LOADS[name]._replace(messages=messages)
    with _measured(plan, side) as broker:
        # Before all company: select(2) takes no descriptor beyond 1,023.
        load = StampedLoad(broker, shape, skipped)
        try:
            with _company(plan, side, broker) as slow:
                before = slow.ended() if slow else 0
                run = load.run(LIMIT_S + messages / shape.rate)
                ended = slow.ended() - before if slow else 0
        finally:
            load.close()
    if side == SLOW and not ended and not plan.quick:
        raise BenchError(
            f"no slow consumer was ended within {plan.seconds:g} s; increase --seconds, "
            "or reduce the broker's outboxes"
        )
    read, between = _shares(run.latencies), _shares(load.between)
    return Latencies(name, side, 0, 0, len(run.latencies), ended, read, between)


def _measured(plan: Plan, side: str) -> AbstractContextManager[Broker]:
    """Start the process that is measured."""
    if side == FLOOR:
        return running_floor(plan.program)
    options = (*plan.options, *QUICK_OUTBOX) if plan.quick and side == SLOW else plan.options
    return running_broker(options)


@contextmanager
def _company(plan: Plan, side: str, broker: Broker) -> Iterator[SlowConsumers | None]:
    """Add the other load of a side, and yield its slow consumers, if any."""
    if side == IDLE:
        with held_idle(broker, plan.connections, IDLE_AT_ONCE, LIMIT_S, websocket=False):
            yield None
    elif side == SLOW:
        with closing(SlowConsumers(broker.port)) as slow:
            yield slow
    else:
        yield None


def _shares(seconds: Sequence[float]) -> dict[str, float]:
    return {name: percentile(seconds, share) * 1000 for name, share in SHARES.items()}
