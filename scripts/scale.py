"""Fill a broker with growing numbers of objects, and check that the cost of a message is constant.

    python scripts/scale.py --json result.json
    python scripts/scale.py --only connections queue-head
    python scripts/scale.py --quick                  one small run of each, as a check

A fixed load, the probe, runs in one broker before and after it is filled: with idle connections,
subscriptions, wildcard patterns, destinations, messages in queues, and messages without
subscribers. The probe is one publisher and one subscriber of a topic, TCP, window 256; for queues
one producer and one consumer that acknowledges each message. The main figure is processor time of
the broker for a million deliveries, in the cheapest of seven runs. Periodic work of the broker,
which does not depend on messages, has its own columns: the cost of an idle broker, and of
statistics (by default every five seconds) if all DIAG topics have a subscriber, or their stream is
on. Otherwise that stream is off, and the other options are the defaults, except for those in the
table.

The promises: a message costs at most 1.5 times as much at any size as at the smallest, one pattern
among 10,000 costs at most twice as much as an exact name, and no turn of the broker takes more than
100 ms or delays another client for that long, while the probe runs, while statistics are published,
and while all connections close together and return.

The exit code is 1 if something failed. A broken promise is reported, but is no failure, as figures
depend on the machine. Needs Linux.
"""

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from _bench.process import BenchError
from _bench.scale import (
    CONNECTIONS,
    STALL_MS,
    Point,
    allowed,
    dimensions,
    measure,
    measure_idle,
    options_of,
)
from _bench.scale_herd import Herd
from _bench.spread import Row

IDLE_NAME = "idle"
MIB = 1 << 20


class Promise(NamedTuple):
    """A promised limit, and the measured value. ``kept`` if the value is not above the limit."""

    promise: str
    limit: float
    measured: float
    unit: str = ""

    @property
    def is_kept(self) -> bool:
        """Return whether the promise holds."""
        return self.measured <= self.limit

    def line(self) -> str:
        """Return a line for people."""
        limit, measured = (f"{each:.3g}{self.unit}" for each in (self.limit, self.measured))
        verdict = "kept" if self.is_kept else "BROKEN"
        return f"{self.promise}: promised {limit} at most, measured {measured}: {verdict}"


def by_dimension(points: Sequence[Point]) -> dict[str, list[Point]]:
    """Return the points of each dimension, the smallest first."""
    found: dict[str, list[Point]] = {}
    for point in points:
        found.setdefault(point.dimension.name, []).append(point)
    return found


def point_rows(points: Sequence[Point]) -> list[Row]:
    """Return a row for each point."""
    return [
        _point_row(point, series[0]) for series in by_dimension(points).values() for point in series
    ]


def _point_row(point: Point, first: Point) -> Row:
    return {
        "dimension": point.dimension.name,
        "what": point.dimension.what,
        "options": " ".join(point.dimension.options),
        "size": point.size,
        "runs": len(point.runs),
        "deliveries": sum(run.deliveries for run in point.runs),
        "broker_cpu_s_per_million": point.million_s,
        "broker_cpu_s_per_million_median": statistics.median(point.costs),
        "broker_cpu_s_per_million_max": max(point.costs),
        "ratio": point.million_s / first.million_s,
        "rss_bytes": point.rss_bytes,
        "added": point.added,
        "broker_cpu_us_per_added": point.filled.exact * 1e6 / max(1, point.added),
        "rest_cpu_ms_per_s": point.rest_share * 1000,
        "diag_cpu_ms_per_interval": point.told_s * 1000,
        "longest_turn_ms_filling": point.filling.turn,
        "longest_turn_ms_probing": point.probing.turn,
        "longest_turn_ms_telling": point.telling.turn,
        "gc_paused_ms_filling": point.filling.paused,
        "gc_paused_ms_probing": point.probing.paused,
    }


def herd_rows(herds: Sequence[Herd]) -> list[Row]:
    """Return a row for each time that all connections opened or closed."""
    return [
        {
            "what": each.phase.what,
            "connections": each.connections,
            "wall_s": each.phase.wall_s,
            "broker_cpu_us_per_connection": each.broker.exact * 1e6 / each.connections,
            "longest_turn_ms": each.phase.turn,
            "gc_paused_ms": each.phase.paused,
            "longest_wait_ms": each.wait_s * 1000,
        }
        for each in herds
    ]


def promises(points: Sequence[Point], herds: Sequence[Herd]) -> list[Promise]:
    """Return the promises about all measurements."""
    found = []
    for name, series in by_dimension(points).items():
        first, *others = series
        if not others:
            continue
        most = max(others, key=lambda each: each.million_s)
        found.append(
            Promise(
                f"{name}, cost of a message at {most.size:,} by that at {first.size:,}",
                first.dimension.promised,
                most.million_s / first.million_s,
            )
        )
    for name, series in by_dimension(points).items():
        turn = max(max(point.probing.turn, point.telling.turn) for point in series)
        found.append(Promise(f"{name}, longest turn: probe, DIAG", STALL_MS, turn, " ms"))
    for each in herds:
        what = f"{each.connections:,} connections {each.phase.what}"
        found.append(Promise(f"{what}, longest turn", STALL_MS, each.phase.turn, " ms"))
        found.append(Promise(f"{what}, what another waits", STALL_MS, each.wait_s * 1000, " ms"))
    return found


def point_table(rows: Sequence[Row]) -> str:
    """Return the points as a table in Markdown."""
    lines = [
        "| dimension | size | CPU s/M (median-max) | ratio | RSS MiB | CPU µs to add one "
        "| at rest, CPU ms/s | DIAG, CPU ms each time | longest turn ms: probe, fill, DIAG |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        cost = "broker_cpu_s_per_million"
        added = f"{row['broker_cpu_us_per_added']:.1f}" if row["added"] else ""
        lines.append(
            f"| {row['dimension']} | {row['size']:,} "
            f"| {row[cost]:.2f} ({row[cost + '_median']:.2f}-{row[cost + '_max']:.2f}) "
            f"| {row['ratio']:.2f} | {int(row['rss_bytes'] or 0) / MIB:.0f} | {added} "
            f"| {row['rest_cpu_ms_per_s']:.1f} | {row['diag_cpu_ms_per_interval']:.1f} "
            f"| {row['longest_turn_ms_probing']:.1f}, {row['longest_turn_ms_filling']:.1f}, "
            f"{row['longest_turn_ms_telling']:.1f} |"
        )
    lines.append("")
    for name, what, options in dict.fromkeys(
        (row["dimension"], row["what"], row["options"]) for row in rows
    ):
        lines.append(f"- {name}: {what}" + (f"; `{options}`" if options else ""))
    return "\n".join(lines)


def idle_table(rows: Sequence[Row]) -> str:
    """Return the cost of idle connections as a table in Markdown."""
    lines = [
        "| idle connections | | KiB each | connects/s | CPU µs per connect |",
        "|---|--:|--:|--:|--:|",
    ]
    lines += [
        f"| {row['what']} | {row['connections']:,} | {row['rss_kib_per_connection']:.1f} "
        f"| {row['connects_per_s']:,.0f} | {row['broker_cpu_us_per_connect']:.0f} |"
        for row in rows
    ]
    return "\n".join(lines)


def herd_table(rows: Sequence[Row]) -> str:
    """Return the effects of a herd of connections as a table in Markdown."""
    lines = [
        "| all at once | connections | s | CPU µs each | longest turn ms | collections, ms "
        "| another client waited, ms |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    lines += [
        f"| {row['what']} | {row['connections']:,} | {row['wall_s']:.1f} "
        f"| {row['broker_cpu_us_per_connection']:.0f} | {row['longest_turn_ms']:.1f} "
        f"| {row['gc_paused_ms']:.1f} | {row['longest_wait_ms']:.1f} |"
        for row in rows
    ]
    return "\n".join(lines)


def say(text: str) -> None:
    """Print progress to standard error."""
    print(text, file=sys.stderr, flush=True)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    names = [*(each.name for each in dimensions(CONNECTIONS)), IDLE_NAME]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one small run of each, as a check")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument(
        "--only", nargs="+", choices=names, metavar="NAME", help=f"some of: {', '.join(names)}"
    )
    return parser.parse_args(argv)


class Found(NamedTuple):
    """The measurements, and a line with the reason for each that failed."""

    points: list[Point]
    herds: list[Herd]
    idle: list[Row]
    failures: list[str]


def run(arguments: argparse.Namespace) -> Found:
    """Run the requested measurements."""
    wanted = arguments.only
    connections = allowed(CONNECTIONS)
    if connections < CONNECTIONS:
        say(f"descriptors allow {connections} connections, not {CONNECTIONS}: ulimit -n")
    found = Found([], [], [], [])
    for dimension in dimensions(connections):
        if wanted and dimension.name not in wanted:
            continue
        say(f"{dimension.name}: {dimension.what}")
        try:
            for each in measure(dimension, say, quick=arguments.quick):
                if isinstance(each, Point):
                    found.points.append(each)
                else:
                    found.herds.append(each)
        except (BenchError, OSError) as error:
            found.failures.append(f"{dimension.name}: {error}")
    if not wanted or IDLE_NAME in wanted:
        say("idle connections, TCP and WebSocket")
        try:
            found.idle.extend(measure_idle(connections, quick=arguments.quick))
        except (BenchError, OSError) as error:
            found.failures.append(f"{IDLE_NAME}: {error}")
    return found


def tables(found: Found) -> str:
    """Return all tables in Markdown."""
    parts = [
        point_table(point_rows(found.points)) if found.points else "",
        herd_table(herd_rows(found.herds)) if found.herds else "",
        idle_table(found.idle) if found.idle else "",
        "\n".join(f"- {each.line()}" for each in promises(found.points, found.herds)),
        "\n".join(f"- FAILED: {each}" for each in found.failures),
    ]
    return "\n\n".join(part for part in parts if part)


def report(found: Found) -> dict[str, Any]:
    """Return all results for JSON."""
    judged = promises(found.points, found.herds)
    return {
        "connections_possible": allowed(CONNECTIONS),
        "points": point_rows(found.points),
        "herd": herd_rows(found.herds),
        "idle": found.idle,
        "promises": [{**each._asdict(), "is_kept": each.is_kept} for each in judged],
        "failures": found.failures,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print. Return 0, or 1 if something failed."""
    arguments = parse(argv)
    head = {
        "python": platform.python_version(),
        "started": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        "quick": arguments.quick,
        "broker_options": [*options_of(arguments.quick)],
    }
    found = run(arguments)
    print(tables(found))
    if arguments.json:
        text = json.dumps({**head, **report(found)}, indent=2)
        arguments.json.write_text(text + "\n", encoding="utf-8")
    return 1 if found.failures else 0


if __name__ == "__main__":
    sys.exit(main())
