"""The distance to the floor: the cost of the same loads in the broker and in a bare loop in C.

Windows penalize fast servers: one that answers immediately has little to write at a time, so each
delivery costs more. A bare loop answers sooner than a broker, and may even need more processor time
for a delivery. So there is a second floor, which rests before it works: by then, everything that
the windows allow has arrived, and its cost is the minimum.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

from _bench.floor import running_floor
from _bench.load import Shape
from _bench.process import Broker
from _bench.queues import QueueShape
from _bench.replay import ReplayLoad
from _bench.scenarios import Scenario, open_load, scenarios
from _bench.spread import Row, Spread, spread_row

LIMIT_S = 120.0
FLOOR, PATIENT, BROKER = SIDES = ("floor", "patient", "broker")
RESTS_US = {FLOOR: 0, PATIENT: 300}
"""The time that the loop in C waits before it works, in microseconds."""


class Cost(NamedTuple):
    """One run.

    Args:
      million_s: Processor time for a million deliveries.
      per_read: Messages per read of the generator, which shows how well writes were batched.
    """

    million_s: float
    per_read: float


class Distance(NamedTuple):
    """One scenario through each side, in pairs: the floor, the same with rests, the broker."""

    scenario: Scenario
    floor: list[Cost]
    patient: list[Cost]
    broker: list[Cost]

    def ratios(self, side: str) -> list[float]:
        """Return the ratio of the broker's processor time to a side's, in each pair."""
        costs: list[Cost] = getattr(self, side)
        return [
            broker.million_s / other.million_s
            for other, broker in zip(costs, self.broker, strict=True)
        ]


def floor_scenarios() -> list[Scenario]:
    """Return the scenarios of the floor: topics and queues over TCP, without transactions."""
    return [each for each in scenarios() if not each.websocket and _is_simple(each)]


def _is_simple(scenario: Scenario) -> bool:
    shape = scenario.shape
    if isinstance(shape, QueueShape):
        return not shape.transaction and not shape.persistent
    return isinstance(shape, Shape)


def measure_distance(
    program: Path,
    chosen: Sequence[Scenario],
    pairs: int,
    start: Callable[[Scenario], AbstractContextManager[Broker]],
    say: Callable[[str], None],
    *,
    quick: bool,
) -> Iterator[Distance]:
    """Yield each scenario, measured ``pairs`` times with each side, in rotating order.

    Args:
      program: The floor.
      start: Starts a broker.

    Raises:
      BenchError: a run failed.
    """
    for scenario in chosen:
        say(f"{scenario.name}: {scenario.what}")
        found = Distance(scenario, [], [], [])
        for number in range(pairs):
            turn = number % len(SIDES)
            for side in (*SIDES[turn:], *SIDES[:turn]):
                with (
                    start(scenario) if side == BROKER else running_floor(program, RESTS_US[side])
                ) as broker:
                    getattr(found, side).append(_cost(broker, scenario, quick=quick))
            say(
                f"  {found.floor[-1].million_s:.3f} {found.patient[-1].million_s:.3f}"
                f" {found.broker[-1].million_s:.3f} CPU s/M: x {found.ratios(FLOOR)[-1]:.2f}"
                f" {found.ratios(PATIENT)[-1]:.2f}"
            )
        yield found


def _cost(broker: Broker, scenario: Scenario, *, quick: bool) -> Cost:
    load = open_load(broker, scenario, quick=quick)
    assert not isinstance(load, ReplayLoad)
    try:
        load.run(LIMIT_S)  # warm-up: one-time work is done here
        before = load.reads
        run = load.run(LIMIT_S)
        reads = load.reads - before
    finally:
        load.close()
    return Cost(run.broker.exact * 1e6 / run.deliveries, run.deliveries / reads)


def distance_rows(results: Sequence[Distance]) -> list[Row]:
    """Return a row for each scenario, with all its spreads."""
    return [_row(each) for each in results]


def _row(each: Distance) -> Row:
    row: Row = {
        "scenario": each.scenario.name,
        "what": each.scenario.what,
        "pairs": len(each.floor),
    }
    for side in SIDES:
        costs: list[Cost] = getattr(each, side)
        row |= spread_row(f"{side}_cpu_s_per_million", [cost.million_s for cost in costs])
        row |= spread_row(f"{side}_messages_per_read", [cost.per_read for cost in costs])
    row |= spread_row("floor_ratio", each.ratios(FLOOR))
    return row | spread_row("patient_ratio", each.ratios(PATIENT))


def distance_table(results: Sequence[Distance]) -> str:
    """Return the distances as a table in Markdown."""
    lines = [
        "| scenario | floor, CPU s per million: median (quartiles; min-max) | patient floor "
        "| broker | broker / floor, in each pair | broker / patient floor "
        "| messages a read: floor, patient floor, broker |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for each in results:
        sides = (each.floor, each.patient, each.broker)
        figures = [Spread.of([cost.million_s for cost in costs]).shown(3) for costs in sides]
        figures += [str(Spread.of(each.ratios(side))) for side in (FLOOR, PATIENT)]
        together = (Spread.of([cost.per_read for cost in costs]).median for costs in sides)
        figures.append(", ".join(f"{messages:.1f}" for messages in together))
        lines.append(f"| {each.scenario.name} | {' | '.join(figures)} |")
    return "\n".join(lines)
