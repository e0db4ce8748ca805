"""Measure a broker over the loopback interface, and print a table.

    python scripts/bench.py                          all scenarios, each in a fresh broker
    python scripts/bench.py --scenario headline-ws --json result.json
    python scripts/bench.py --port 61613 --pid 1234  a broker that runs already
    python scripts/bench.py --beside                 a fan-out alone, and beside a durable load
    python scripts/bench.py --secure                 a fan-out bare, with logins and rules, and TLS
    python scripts/bench.py --compare v1.0 HEAD      two revisions, or checkouts, in turn

The generator is another process than the broker and far cheaper: it sends many frames in one
write, and counts messages in what a read brought without parsing frames. What it receives is
checked all the same: every message must come once and in order. Durable loads have a broker with
a fresh data directory, below the directory for temporary files (``TMPDIR``: is that a disk?).

What counts is processor time of the broker for a million deliveries: it depends little on what
else the machine does. Deliveries per second and latency do depend on it. Needs Linux.
"""

import argparse
import json
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from _bench.beside import Pair, run_pairs
from _bench.compare import (
    COMPARED,
    Compared,
    checkout,
    compare,
    compare_rows,
    compare_table,
)
from _bench.idle import Idle, open_idle
from _bench.load import Run
from _bench.process import ROOT, BenchError, Broker, running_broker
from _bench.replay import write_policy
from _bench.scenarios import BESIDE, IDLE_AT_ONCE, QUICK_BESIDE, Scenario, open_load, scenarios
from _bench.secure import Costs, measure_costs
from _bench.secure_table import login_row, secure_rows, secure_table

RUN_LIMIT_S = 120.0

# Everything that costs is switched on; the other options stay as they are by default.
BROKER_OPTIONS = ("--ttl", "60000")

Row = dict[str, float | int | str | None]


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that ``share`` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def load_row(scenario: Scenario, runs: Sequence[Run]) -> Row:
    """Return the median of each figure over the runs of one scenario."""

    def median(figure: Callable[[Run], float]) -> float:
        return statistics.median(figure(run) for run in runs)

    row: Row = {
        "scenario": scenario.name,
        "what": scenario.what,
        "runs": len(runs),
        "deliveries": runs[0].deliveries,
        "broker_cpu_s_per_million": median(lambda run: run.broker.exact * 1e6 / run.deliveries),
        "broker_cpu_s_per_million_min": min(
            run.broker.exact * 1e6 / run.deliveries for run in runs
        ),
        "broker_cpu_s_per_million_max": max(
            run.broker.exact * 1e6 / run.deliveries for run in runs
        ),
        "broker_user_s": median(lambda run: run.broker.user),
        "broker_system_s": median(lambda run: run.broker.system),
        "generator_cpu_s_per_million": median(lambda run: run.generator_s * 1e6 / run.deliveries),
        "wall_s": median(lambda run: run.wall_s),
        "deliveries_per_s": median(lambda run: run.deliveries / run.wall_s),
    }
    if runs[0].latencies:
        for name, share in (("p50", 0.5), ("p99", 0.99)):
            of_runs = [percentile(run.latencies, share) * 1000 for run in runs]
            row[f"latency_{name}_ms"] = statistics.median(of_runs)
    return row


def idle_row(scenario: Scenario, runs: Sequence[Idle]) -> Row:
    """Return the median of each figure over the runs of one scenario."""
    count = runs[0].connections
    cpu = statistics.median(run.broker.exact for run in runs)
    return {
        "scenario": scenario.name,
        "what": scenario.what,
        "runs": len(runs),
        "connections": count,
        "rss_kib_per_connection": statistics.median(run.rss_bytes / 1024 / count for run in runs),
        "broker_cpu_us_per_connect": cpu * 1e6 / count,
        "connects_per_s": statistics.median(count / run.wall_s for run in runs),
    }


def measure(scenario: Scenario, arguments: argparse.Namespace) -> Row:
    """Run one scenario ``--repeat`` times."""
    repeat = 1 if arguments.quick else arguments.repeat
    if scenario.shape is None:
        count = scenario.quick_idle if arguments.quick else scenario.idle
        idle = []
        for _ in range(repeat):
            # Memory that one run left behind would make the next look cheaper.
            with broker_of(arguments, scenario) as broker:
                run = open_idle(
                    broker, count, IDLE_AT_ONCE, RUN_LIMIT_S, websocket=scenario.websocket
                )
                say(
                    f"  {run.rss_bytes / 1024 / count:.1f} KiB, {count / run.wall_s:.0f} connects/s"
                )
                idle.append(run)
        return idle_row(scenario, idle)
    runs = []
    with broker_of(arguments, scenario) as broker:
        load = open_load(broker, scenario, quick=arguments.quick)
        try:
            for _ in range(repeat):
                each = load.run(RUN_LIMIT_S)
                million = each.broker.exact * 1e6 / each.deliveries
                say(f"  {million:.3f} CPU s/M, {each.deliveries / each.wall_s:,.0f} deliveries/s")
                runs.append(each)
        finally:
            load.close()
    return load_row(scenario, runs)


@contextmanager
def broker_of(
    arguments: argparse.Namespace, scenario: Scenario | None = None, tree: Path = ROOT
) -> Iterator[Broker]:
    """Start a broker, or take the one that runs.

    Args:
      scenario: That it is for; None = it has a data directory.
      tree: The checkout that it is started from.
    """
    if arguments.port is not None:
        yield Broker(arguments.port, arguments.pid)
    elif scenario is not None and not scenario.durable:
        with running_broker((*BROKER_OPTIONS, *arguments.broker), tree=tree) as broker:
            yield broker
    else:
        with tempfile.TemporaryDirectory(prefix="bench-") as directory:
            durable = ("--data-dir", f"{directory}/data", "--policies", write_policy(directory))
            options = (*BROKER_OPTIONS, *durable, *arguments.broker)
            with running_broker(options, tree=tree) as broker:
                yield broker


def measure_beside(arguments: argparse.Namespace) -> list[Pair]:
    """Run the fan-out alone and beside a durable load, ``--repeat`` times."""
    fanout, durable = QUICK_BESIDE if arguments.quick else BESIDE
    say("a fan-out alone, a durable load alone, and both")
    with broker_of(arguments) as broker:
        pairs = run_pairs(
            broker, fanout, durable, 1 if arguments.quick else arguments.repeat, RUN_LIMIT_S
        )
    for pair in pairs:
        say(f"  {pair.fanout:.2f}, {pair.durable:.2f}, {pair.both:.2f} CPU s: {pair.more:+.1%}")
    return pairs


def measure_secure(arguments: argparse.Namespace) -> Costs:
    """Run the fan-out bare and guarded, ``--pairs`` times in turn."""
    say("a fan-out bare, with logins and rules, and over TLS")
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        return measure_costs(
            Path(directory),
            (*BROKER_OPTIONS, *arguments.broker),
            1 if arguments.quick else arguments.pairs,
            0.0 if arguments.quick else arguments.seconds,
            say,
            quick=arguments.quick,
        )


def measure_compared(arguments: argparse.Namespace) -> list[Compared]:
    """Run two revisions in turn, ``--pairs`` times."""
    wanted = arguments.scenario or COMPARED
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        old, new = (
            checkout(revision, Path(directory) / side)
            for revision, side in zip(arguments.compare, ("old", "new"), strict=True)
        )
        return list(
            compare(
                (old, new),
                [each for each in scenarios() if each.name in wanted],
                1 if arguments.quick else arguments.pairs,
                lambda tree, scenario: broker_of(arguments, scenario, tree),
                say,
                quick=arguments.quick,
            )
        )


def beside_table(pairs: Sequence[Pair]) -> str:
    """Return the pairs as a table in Markdown, with the median."""
    lines = [
        "| fan-out alone, CPU s | durable alone, CPU s | both, CPU s | more for the fan-out |",
        "|--:|--:|--:|--:|",
    ]
    lines += [
        f"| {pair.fanout:.2f} | {pair.durable:.2f} | {pair.both:.2f} | {pair.more:+.1%} |"
        for pair in pairs
    ]
    median = statistics.median(pair.more for pair in pairs)
    return "\n".join([*lines, f"| | | median | {median:+.1%} |"])


def table(rows: Sequence[Row]) -> str:
    """Return the results as tables in Markdown."""
    lines: list[str] = []
    if loads := [row for row in rows if "deliveries" in row]:
        lines += [
            "| scenario | what | broker CPU s per million (min-max) | deliveries/s "
            "| p50 ms | p99 ms | generator CPU s per million |",
            "|---|---|--:|--:|--:|--:|--:|",
        ]
        lines += [load_line(row) for row in loads]
    if idles := [row for row in rows if "connections" in row]:
        lines += [
            "",
            "| scenario | what | connections | KiB per connection | connects/s "
            "| CPU µs per connect |",
            "|---|---|--:|--:|--:|--:|",
        ]
        lines += [
            f"| {row['scenario']} | {row['what']} | {row['connections']} "
            f"| {row['rss_kib_per_connection']:.1f} | {row['connects_per_s']:,.0f} "
            f"| {row['broker_cpu_us_per_connect']:.0f} |"
            for row in idles
        ]
    return "\n".join(lines).strip()


def load_line(row: Row) -> str:
    """Return one line of the first table."""

    def shown(name: str) -> str:
        return f"{row[name]:.2f}" if name in row else ""

    return (
        f"| {row['scenario']} | {row['what']} | {shown('broker_cpu_s_per_million')} "
        f"({shown('broker_cpu_s_per_million_min')}-{shown('broker_cpu_s_per_million_max')}) "
        f"| {row['deliveries_per_s']:,.0f} | {shown('latency_p50_ms')} | {shown('latency_p99_ms')} "
        f"| {shown('generator_cpu_s_per_million')} |"
    )


def say(text: str) -> None:
    """Tell progress to whoever watches."""
    print(text, file=sys.stderr, flush=True)


def add_modes(parser: argparse.ArgumentParser) -> None:
    """Add what is measured instead of the scenarios one by one."""
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument(
        "--beside",
        action="store_true",
        help="instead of all this: what a durable load costs a fan-out beside it",
    )
    modes.add_argument(
        "--secure",
        action="store_true",
        help="instead of all this: what logins, rules and TLS cost a fan-out",
    )
    modes.add_argument(
        "--compare",
        nargs=2,
        metavar=("OLD", "NEW"),
        help="instead of all this: two revisions of the broker, or checkouts, in turn",
    )
    parser.add_argument(
        "--pairs", type=int, default=10, metavar="N", help="of --secure, --compare: runs of each"
    )


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    names = [scenario.name for scenario in scenarios()]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--scenario", nargs="+", choices=names, metavar="NAME", help=f"some of: {', '.join(names)}"
    )
    add_modes(parser)
    parser.add_argument(
        "--seconds", type=float, default=5.0, metavar="S", help="of --secure: how long each run is"
    )
    parser.add_argument("--quick", action="store_true", help="small and once: a check, no figures")
    parser.add_argument(
        "--repeat", type=int, default=5, metavar="N", help="runs of each; the median counts"
    )
    parser.add_argument("--json", metavar="FILE", help="write all figures there")
    parser.add_argument("--port", type=int, help="of a broker that runs already, on 127.0.0.1")
    parser.add_argument("--pid", type=int, help="its process")
    parser.add_argument(
        "--broker",
        nargs=argparse.REMAINDER,
        default=[],
        metavar="OPTION",
        help="everything behind this goes to the broker that is started",
    )
    arguments = parser.parse_args(argv)
    if (arguments.port is None) != (arguments.pid is None):
        parser.error("--port and --pid belong together")
    if arguments.repeat < 1 or arguments.pairs < 1:
        parser.error("--repeat and --pairs must be 1 or more")
    if arguments.secure and arguments.scenario:
        parser.error("--secure goes with no other choice of loads")
    if arguments.port and (arguments.secure or arguments.compare):
        parser.error("--secure and --compare start brokers of their own, and take no --port")
    idle = {each.name for each in scenarios() if each.shape is None}
    if arguments.compare and idle.intersection(arguments.scenario or ()):
        parser.error("--compare is for loads, not for idle connections")
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Run the scenarios asked for; return 0, or 1 if one of them failed."""
    arguments = parse(argv)
    result: dict[str, object] = {
        "python": platform.python_version(),
        "started": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        "quick": arguments.quick,
        "broker_options": [*BROKER_OPTIONS, *arguments.broker],
    }
    failed = False
    try:
        if arguments.beside:
            pairs = measure_beside(arguments)
            result["beside"] = [pair._asdict() | {"more": pair.more} for pair in pairs]
            print(beside_table(pairs))
        elif arguments.secure:
            costs = measure_secure(arguments)
            result["secure"] = secure_json(costs)
            print(secure_table(costs))
        elif arguments.compare:
            compared = measure_compared(arguments)
            result["compare"] = {"revisions": arguments.compare, "rows": compare_rows(compared)}
            print(compare_table(compared))
        else:
            rows, failed = run_scenarios(arguments)
            result["scenarios"] = rows
            print(table(rows))
    except (BenchError, OSError) as error:
        say(f"  FAILED: {error}")
        return 1
    if arguments.json is not None:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=2)
            file.write("\n")
    return 1 if failed else 0


def secure_json(costs: Costs) -> dict[str, object]:
    """Return what ``--secure`` measured, each run included."""
    return {
        "fanout": secure_rows(costs),
        "logins": [login_row(each) for each in costs.logins],
        "runs": [run._asdict() for run in costs.runs],
    }


def run_scenarios(arguments: argparse.Namespace) -> tuple[list[Row], bool]:
    """Run the scenarios asked for; their rows, and whether one of them failed."""
    wanted = arguments.scenario or [scenario.name for scenario in scenarios()]
    rows: list[Row] = []
    failed = False
    for scenario in scenarios():
        if scenario.name not in wanted:
            continue
        say(f"{scenario.name}: {scenario.what}")
        try:
            rows.append(measure(scenario, arguments))
        except (BenchError, OSError) as error:
            say(f"  FAILED: {error}")
            failed = True
    return rows, failed


if __name__ == "__main__":
    sys.exit(main())
