"""The tables of the scenarios, and of a load together with another."""

import statistics
from collections.abc import Callable, Sequence

from _bench.beside import Pair
from _bench.idle import Idle
from _bench.load import Run
from _bench.scenarios import Scenario
from _bench.spread import Row


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
