"""The command line of ``scripts/suites.py``."""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from _bench.process import BenchError

from _suites import report
from _suites.outcomes import Outcomes
from _suites.sides import OURS, Start
from _suites.suites import SUITES, Suite


def main(argv: Sequence[str]) -> int:
    """Run the command line. Return 1 if a test of ours failed without an explanation."""
    options = _parse(argv)
    if options.list:
        for suite in SUITES:
            print(
                f"{suite.name:10} {suite.title}: {options.sources / suite.folder} = {suite.origin}"
            )
        return 0
    unexplained = 0
    for suite in SUITES:
        if options.suite and suite.name not in options.suite:
            continue
        if lack := suite.lacks(options.sources):
            print(f"{suite.title}: NOT RUN: {lack}", flush=True)
            continue
        ours = _ran(suite, OURS, suite.ours, options.sources)
        theirs = None if options.ours else _ran(suite, "theirs", suite.theirs, options.sources)
        assert ours is not None
        explained = report.explanations(suite.name)
        print("\n".join(report.differences(suite.title, ours, theirs, explained)), flush=True)
        unexplained += len(report.unexplained(ours, explained))
        if options.write:
            report.record(suite.name, suite.title, ours, theirs)
    return 1 if unexplained else 0


def _ran(suite: Suite, name: str, start: Start, sources: Path) -> Outcomes | None:
    """Return a suite's outcomes, or None if that broker is not installed here."""
    print(f"{suite.title}: {name} ...", file=sys.stderr, flush=True)
    try:
        with tempfile.TemporaryDirectory(prefix="suites-") as scratch, start() as side:
            found = suite.run(sources, side, Path(scratch))
    except BenchError as problem:
        if name == OURS:
            raise
        print(f"{suite.title}: not compared: {problem}", flush=True)
        return None
    print(f"{suite.title}: {side.name}: {report.figure(found)}", file=sys.stderr, flush=True)
    return found


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run the test suites of other projects.")
    parser.add_argument("--sources", type=_folder, default=Path(), help="folder of the checkouts")
    names = [suite.name for suite in SUITES]
    parser.add_argument("--suite", action="append", choices=names, help="only these; default: all")
    parser.add_argument("--ours", action="store_true", help="skip their own broker")
    parser.add_argument("--write", action="store_true", help="record the figures for the docs")
    parser.add_argument("--list", action="store_true", help="list the suites and their sources")
    return parser.parse_args(argv)


def _folder(text: str) -> Path:
    return Path(text).resolve()
