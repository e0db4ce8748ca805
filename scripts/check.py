"""Run a tier of the project's checks, in parallel lanes.

python scripts/check.py          the push tier, <= 12 minutes on two cores: the README's command
python scripts/check.py --fast   lint, types, tests of floors 0 to 2 and of the store: <= 3 minutes
python scripts/check.py --core   tests of the core alone, on another Python or Trio
python scripts/check.py --full   everything, before an issue is closed and each night

The README's one command for all checks ends here, and so does ``.ci/run``:
``python3 -m venv .venv && .venv/bin/pip install --require-hashes -r conf/requirements-dev.txt &&
.venv/bin/pip install --no-deps -e . && .venv/bin/python scripts/check.py``
"""

import argparse
import importlib.metadata
import os
import platform
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from _check.run import Runner, let_python_keep_what_it_compiles, say, shout, slowest_files
from _check.steps import RESULTS, absent, lanes, node_steps

SHOWN = ("trio", "wsproto", "attrs", "pytest", "hypothesis", "mypy", "ruff")


def tier_of(argv: Sequence[str] | None = None) -> str:
    """Return the tier that the command line asks for: "core", "fast", "push" or "full"."""
    parser = argparse.ArgumentParser(description="Run the checks of a tier (CONTRIBUTING.md).")
    chosen = parser.add_mutually_exclusive_group()
    texts = {
        "core": "the core's tests, for another Python or Trio",
        "fast": "the fast checks, for each edit",
        "full": "all checks",
    }
    for name, text in texts.items():
        chosen.add_argument(f"--{name}", action="store_const", dest="tier", const=name, help=text)
    tier: str = parser.parse_args(argv).tier or "push"
    return tier


def main(argv: Sequence[str] | None = None) -> int:
    """Run a tier. Return 0 if all steps passed, else 1."""
    tier = tier_of(argv)
    # The tests start brokers and clients by name, and must find those of this Python.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    let_python_keep_what_it_compiles()
    there = {each.name: each.version for each in importlib.metadata.distributions()}
    versions = (f"{name} {there[name]}" for name in SHOWN if name in there)
    say(f"checks of the tier {tier}; Python {platform.python_version()}; {', '.join(versions)}")
    start = time.monotonic()
    shutil.rmtree(RESULTS, ignore_errors=True)
    for text in absent():
        shout(text)
    runner = Runner()
    passed = (tier in ("core", "fast") or runner.run([tuple(node_steps())])) and runner.run(
        [*lanes(tier)]
    )
    say("\nslowest test files:")
    for line in slowest_files(RESULTS):
        say(line)
    say("\nsteps:")
    for step in runner.took:
        failed = "" if step.code == 0 else "  FAILED"
        say(f"{step.took_s:7.1f} s, CPU {step.processor_s:6.1f} s  {step.name}{failed}")
    result = "all checks passed" if passed else "checks FAILED"
    say(f"\n{result} in {time.monotonic() - start:.1f} s")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
