"""Two revisions of the broker with the same loads, in turn, and their ratio.

A pair is one run of each revision, in alternating order, each with a fresh broker and the same
generator. Both runs of a pair see a similar load of the machine, so their ratio is more reliable
than the absolute figures.
"""

import io
import subprocess
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

from _bench.process import ROOT, BenchError, Broker
from _bench.scenarios import Scenario, open_load
from _bench.spread import Row, Spread, spread_row

Start = Callable[[Path, Scenario], AbstractContextManager[Broker]]
"""Starts a broker of a checkout for a scenario."""

COMPARED = (
    *("headline-ws", "fanout-tcp", "one-tcp", "pairs-tcp", "paced-tcp"),
    *("queue-auto", "queue-ack", "transactions"),
)
"""The default scenarios."""
LIMIT_S = 120.0
RUNS = 2
"""Runs of each. The first is a warm-up that does not count."""


class Compared(NamedTuple):
    """Processor times of both revisions for a million deliveries of one scenario, in pairs."""

    scenario: Scenario
    old: list[float]
    new: list[float]

    @property
    def ratios(self) -> list[float]:
        """Return the cost of the new revision as a share of the old one's, in each pair."""
        return [new / old for old, new in zip(self.old, self.new, strict=True)]


def checkout(revision: str, directory: Path) -> Path:
    """Return a tree of ``revision``: an existing directory, or a checkout of a git revision.

    Raises:
      BenchError: there is no such revision, or no broker in it.
    """
    given = Path(revision)
    tree = given.resolve() if given.is_dir() else _extract(revision, directory)
    if not (tree / "trio_stomp" / "__main__.py").is_file():
        raise BenchError(f"{revision} has no trio_stomp; name a commit, a tag or a checkout")
    return tree


def _extract(revision: str, directory: Path) -> Path:
    command = ("git", "-C", str(ROOT), "archive", "--format=tar", revision)
    try:
        archive = subprocess.run(command, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        raise BenchError(f"{revision} is neither a directory nor a git revision") from None
    directory.mkdir()
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(directory, filter="data")
    return directory


def compare(
    trees: tuple[Path, Path],
    scenarios: Sequence[Scenario],
    pairs: int,
    start: Start,
    say: Callable[[str], None],
    *,
    quick: bool,
) -> Iterator[Compared]:
    """Yield each scenario, measured ``pairs`` times with both.

    Raises:
      BenchError: a run failed.
    """
    for scenario in scenarios:
        say(f"{scenario.name}: {scenario.what}")
        found = Compared(scenario, [], [])
        for number in range(pairs):
            sides = [(trees[0], found.old), (trees[1], found.new)]
            for tree, figures in reversed(sides) if number % 2 else sides:
                with start(tree, scenario) as broker:
                    figures.append(_million_s(broker, scenario, quick=quick))
            say(f"  {found.old[-1]:.3f} {found.new[-1]:.3f} CPU s/M: x {found.ratios[-1]:.2f}")
        yield found


def _million_s(broker: Broker, scenario: Scenario, *, quick: bool) -> float:
    """Return a broker's processor time for a million deliveries."""
    load = open_load(broker, scenario, quick=quick)
    try:
        run = [load.run(LIMIT_S) for _ in range(RUNS)][-1]
    finally:
        load.close()
    return run.broker.exact * 1e6 / run.deliveries


def compare_rows(results: Sequence[Compared]) -> list[Row]:
    """Return a row for each scenario, with all its spreads."""
    return [_row(each) for each in results]


def _row(each: Compared) -> Row:
    row: Row = {
        "scenario": each.scenario.name,
        "what": each.scenario.what,
        "pairs": len(each.old),
    }
    return (
        row
        | spread_row("old", each.old)
        | spread_row("new", each.new)
        | spread_row("ratio", each.ratios)
    )


def compare_table(results: Sequence[Compared]) -> str:
    """Return the comparison as a table in Markdown."""
    lines = [
        "| scenario | old, CPU s per million: median (quartiles; min-max) | new "
        "| new / old, in each pair |",
        "|---|--:|--:|--:|",
    ]
    lines += [
        f"| {each.scenario.name} | {Spread.of(each.old)} | {Spread.of(each.new)} "
        f"| {Spread.of(each.ratios)} |"
        for each in results
    ]
    return "\n".join(lines)
