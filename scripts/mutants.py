"""Change a condition or a constant, one at a time, and check that a test fails.

    python scripts/mutants.py trace                  once, some minutes: which test runs which line
    python scripts/mutants.py run                    200 mutants
    python scripts/mutants.py run --before build/mutants/result.json --result after.json

The mutants are of floors 0 to 2 and of the store. Which ones is decided by the seed and by the text
of the lines, so that the same ones are tried after other lines have changed. For each, a copy of
the tree is changed, and the tests that run the line follow one another until one fails: those that
run little else first, and as many as took ``--seconds`` when they were traced. ``--before`` begins
with the tests that killed a mutant then, and counts the mutants of both runs.

It ends with the counts and the survivors. A survivor needs a look: a test may be missing, the
change may have no visible effect, or a later test would have killed it. The exit code is
1 if a mutant survived that had been killed before.
"""

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from _mutants.run import Result, Tree, try_mutant
from _mutants.sites import all_mutants, sample
from _mutants.trace import Trace, trace

ROOT = Path(__file__).resolve().parent.parent
NOTICED = ("killed", "timeout")


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description="Mutate the code, and check that tests fail.")
    parser.add_argument("--tree", type=Path, default=ROOT, help="the tree to mutate and test")
    parser.add_argument("--data", type=Path, default=ROOT / "build" / "mutants")
    commands = parser.add_subparsers(dest="command", required=True)
    traced = commands.add_parser("trace", help="run the tests once, and record the lines of each")
    traced.add_argument("tests", nargs="*", default=["tests/unit"])
    run = commands.add_parser("run", help="try the mutants of the sample")
    run.add_argument("--seed", type=int, default=1)
    run.add_argument("--count", type=int, default=200)
    run.add_argument("--seconds", type=float, default=20, help="tests of a mutant, in seconds")
    run.add_argument("--result", type=Path, help="file (default: result.json in --data)")
    run.add_argument("--before", type=Path, help="an earlier result to compare with")
    return parser.parse_args(argv)


def read(file: Path | None) -> dict[str, Result]:
    """Return the results of an earlier run, by the mutants' names."""
    if file is None:
        return {}
    return {row["name"]: Result(**row) for row in json.loads(file.read_text(encoding="utf-8"))}


def try_all(options: argparse.Namespace, before: dict[str, Result]) -> dict[str, Result]:
    """Try the sample, and print each result as it comes."""
    known = Trace(options.data, options.tree)
    every = {mutant.name: mutant for mutant in all_mutants(options.tree)}
    chosen = sample(every.values(), options.seed, options.count)
    # Mutants that were killed before go first: survivors among them are what matters.
    got_away = {name for name, result in before.items() if result.outcome not in NOTICED}
    chosen.sort(key=lambda mutant: mutant.name in got_away)
    results: dict[str, Result] = {}
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        tree = Tree(options.tree, Path(folder))
        for number, mutant in enumerate(chosen, 1):
            tests = known.tests_of(mutant, options.seconds)
            first = before[mutant.name].test if mutant.name in before else ""
            result = try_mutant(tree, mutant, tests, options.seconds, first)
            results[mutant.name] = result
            print(number, result.outcome, result.where, mutant.what, result.test, flush=True)
    return results


def summary(results: Iterable[Result]) -> str:
    """Return the counts of outcomes."""
    counts = Counter(result.outcome for result in results)
    noticed = sum(counts[outcome] for outcome in NOTICED)
    return f"{noticed} of {counts.total()} noticed; " + ", ".join(
        f"{outcome} {count}" for outcome, count in sorted(counts.items())
    )


def compare(before: dict[str, Result], after: dict[str, Result]) -> list[str]:
    """Print both figures for the common sample. Return the mutants that survive only now."""
    both = before.keys() & after.keys()
    print(f"tried by both: {len(both)} of {len(before)} and {len(after)}")
    print(f"before: {summary(before[name] for name in both)}")
    print(f"after:  {summary(after[name] for name in both)}")
    return sorted(
        name
        for name in both
        if before[name].outcome in NOTICED and after[name].outcome not in NOTICED
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line. Return 1 if a mutant survived that was killed before."""
    options = parse(argv)
    if options.command == "trace":
        trace(options.tree, options.data, options.tests)
        return 0
    before = read(options.before)
    results = try_all(options, before)
    file = options.result or options.data / "result.json"
    rows = [result._asdict() for result in results.values()]
    file.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    for result in results.values():
        if result.outcome not in NOTICED:
            print(f"{result.outcome}: {result.where}: {result.name}")
    print(summary(results.values()))
    lost = compare(before, results) if before else []
    for name in lost:
        print(f"killed before, survived now: {name}")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
