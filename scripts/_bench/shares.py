"""The shares of the broker's processor time: the kernel, Trio, and each of our floors.

The kernel's share is its own account of the process. The rest is sampled by the file of the running
code. Nearly all samples of ``transport`` are time in the kernel, because it reads and writes.
"""

import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from _bench.process import ROOT, Broker, Cpu, running_broker
from _bench.sampled import START, STOP
from _bench.scenarios import Scenario, open_load
from _bench.spread import Row

PROFILED = (
    *("headline-tcp", "headline-ws", "fanout-tcp", "fanout-ws", "one-tcp", "one-ws"),
    *("thousand-tcp", "pairs-tcp", "paced-tcp"),
    *("queue-auto", "queue-ack-1000", "queue-4-4", "queue-ack-10", "queue-ack-1", "transactions"),
)
"""The default scenarios."""
LIMIT_S = 120.0
FLOORS = ("frames", "protocol", "broker", "transport", "server")
TRIO, REST = "Trio", "rest"
COLUMNS = (TRIO, "transport", "server", "protocol", "frames", "broker", REST)
LIBRARIES = ("trio", "outcome", "sortedcontainers", "attr")
"""The packages that count as Trio."""
FUNCTIONS = 3


class Shares(NamedTuple):
    """One run.

    Args:
      million_s: Processor time for a million deliveries; the samples add a few percent.
      kernel: The kernel's part of it, 0 to 1.
      parts: The shares of all samples by column, 0 to 1.
      hottest: The functions of ours outside ``transport`` that have most, and their parts.
      samples: The number of samples.
    """

    scenario: Scenario
    million_s: float
    kernel: float
    parts: dict[str, float]
    hottest: list[tuple[str, float]]
    samples: int


def measure_shares(
    chosen: Sequence[Scenario],
    options: Sequence[str],
    cpu_s: float,
    say: Callable[[str], None],
    *,
    quick: bool,
) -> Iterator[Shares]:
    """Yield the shares of each scenario.

    Args:
      options: Options of the broker.
      cpu_s: Minimum processor time of the broker for each scenario; 0 = one run.

    Raises:
      BenchError: a run failed.
    """
    for scenario in chosen:
        say(f"{scenario.name}: {scenario.what}")
        with tempfile.TemporaryDirectory(prefix="bench-") as directory:
            file = Path(directory) / "samples.json"
            environment = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "scripts")])}
            program = ("-m", "_bench.sampled", str(file))
            with running_broker(options, environment, program=program) as broker:
                million_s, kernel = _run(broker, scenario, cpu_s, quick=quick)
            rows = json.loads(file.read_text(encoding="utf-8"))
        found = shares_of(scenario, million_s, kernel, rows)
        say(f"  {found.million_s:.3f} CPU s/M, kernel {found.kernel:.0%}, {found.samples} samples")
        yield found


def _run(broker: Broker, scenario: Scenario, cpu_s: float, *, quick: bool) -> tuple[float, float]:
    deliveries = 0
    used = Cpu(0.0, 0.0, 0.0)
    load = open_load(broker, scenario, quick=quick)
    try:
        load.run(LIMIT_S)  # warm-up: one-time work is done here
        os.kill(broker.pid, START)
        while not deliveries or used.exact < cpu_s:
            run = load.run(LIMIT_S)
            deliveries += run.deliveries
            used = Cpu.total((used, run.broker))
        os.kill(broker.pid, STOP)
    finally:
        load.close()
    ticks = used.user + used.system
    return used.exact * 1e6 / deliveries, used.system / ticks if ticks else 0.0


def shares_of(
    scenario: Scenario, million_s: float, kernel: float, rows: Sequence[tuple[str, str, int]]
) -> Shares:
    """Return the shares according to the samples.

    Args:
      rows: File, function, and number of samples.
    """
    columns: Counter[str] = Counter()
    functions: Counter[str] = Counter()
    for file, function, count in rows:
        column = column_of(file)
        columns[column] += count
        if column in FLOORS and column != "transport":
            functions[f"{column}: {function}"] += count
    total = max(1, columns.total())
    return Shares(
        scenario,
        million_s,
        kernel,
        {column: columns[column] / total for column in COLUMNS},
        [(name, count / total) for name, count in functions.most_common(FUNCTIONS)],
        columns.total(),
    )


def column_of(file: str) -> str:
    """Return the column that a file's code belongs to."""
    parts = Path(file).parts
    if "trio_stomp" in parts:
        floor = parts[len(parts) - parts[::-1].index("trio_stomp")]
        return floor if floor in FLOORS else REST
    return TRIO if any(name in parts for name in LIBRARIES) else REST


def shares_rows(results: Sequence[Shares]) -> list[Row]:
    """Return a row for each scenario."""
    return [
        {
            "scenario": each.scenario.name,
            "cpu_s_per_million": each.million_s,
            "kernel": each.kernel,
            "samples": each.samples,
            **each.parts,
        }
        for each in results
    ]


def shares_table(results: Sequence[Shares]) -> str:
    """Return the shares as a table in Markdown."""
    names = " | ".join(f"{column}, %" for column in COLUMNS)
    lines = [
        f"| scenario | CPU s per million | kernel, % | {names} | most, of ours |",
        f"|---|--:|--:|{'--:|' * len(COLUMNS)}---|",
    ]
    for each in results:
        parts = " | ".join(f"{each.parts[column] * 100:.0f}" for column in COLUMNS)
        most = ", ".join(f"{name} {part:.0%}" for name, part in each.hottest)
        million = f"{each.million_s:.2f}"
        lines.append(
            f"| {each.scenario.name} | {million} | {each.kernel * 100:.0f} | {parts} | {most} |"
        )
    return "\n".join(lines)
