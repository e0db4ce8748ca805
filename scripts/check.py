"""Run every check of the project, in order, and stop at the first that fails.

The README's one command for all checks ends here, and so does ``.ci/run``:
``python3 -m venv .venv && .venv/bin/pip install --require-hashes -r conf/requirements-dev.txt &&
.venv/bin/pip install --no-deps -e . && .venv/bin/python scripts/check.py``
"""

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
NODE_TESTS = ROOT / "tests" / "js"
PYTHON_CODE = ("trio_stomp", "scripts", "tests")

# Floors without a single await: every branch of theirs can be reached by a plain test.
SYNCHRONOUS_FLOORS = ("frames", "protocol", "broker")
FLOOR_COVERAGE = 100
"""In percent, branches too; nothing rounds up to it."""

FUZZ_S = 15
"""For each target; docs/security.md tells of longer runs."""

TORTURE = ("--minutes", "0.35", "--clients", "60")
"""And some seconds for what is left; ten minutes with 100 clients belong before a release."""

COMPILED = ROOT / "build" / "compiled"
COMPILED_TESTS = (
    *("acknowledger", "broker", "broker_model", "browse", "connection", "consumer", "decoder"),
    *("encoder", "fanout", "hand_out", "histogram_memory", "inbox", "last_values", "message"),
    *("message_ids", "no_cycles", "outbox", "publisher", "queue", "queue_model", "quiet_sockets"),
    *("returned", "route", "server", "session", "shares_hand_out", "subscriber", "tracer"),
    *("transaction", "transaction_window", "turns", "websocket"),
)
"""Tests of what the compiled modules have a part in. By name, and not "everything but": the copy
has neither ``.ci`` nor a reason to run tests of documents, options or packages once more."""

SHOWN = ("trio", "wsproto", "attrs", "pytest", "hypothesis", "mypy", "ruff")


class Step(NamedTuple):
    """One check: what it is called, what it runs, and where."""

    name: str
    command: Sequence[str]
    cwd: Path = ROOT


def python_steps() -> Iterator[Step]:
    """Yield the checks that need nothing but the ``dev`` extra."""
    run = (sys.executable, "-m")
    floors = ",".join(f"trio_stomp/{floor}/*" for floor in SYNCHRONOUS_FLOORS)
    yield Step("lint", (*run, "ruff", "check", *PYTHON_CODE))
    yield Step("format", (*run, "ruff", "format", "--check", *PYTHON_CODE))
    yield Step("types", (*run, "mypy", "--strict", *PYTHON_CODE))
    yield Step("known holes of packages", (sys.executable, "scripts/audit.py"))
    yield Step("tests", (*run, "pytest", "--cov", "--cov-report="))
    yield Step(
        "branch coverage of the synchronous floors",
        (*run, "coverage", "report", f"--include={floors}", f"--fail-under={FLOOR_COVERAGE}"),
    )
    yield from compiled_steps()
    fuzz = (sys.executable, "scripts/fuzz.py", "--seconds", f"{FUZZ_S}", "--jobs", "2")
    yield Step("fuzz", fuzz)
    yield Step("torture", (sys.executable, "scripts/torture.py", *TORTURE))


def compiled_steps() -> Iterator[Step]:
    """Yield the checks of the variant that mypyc compiles, or say loudly that they stay out."""
    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        shout("no C compiler is there: the compiled variant is NOT tested")
        return
    yield Step("compile", (sys.executable, "scripts/compile.py", str(COMPILED)))
    files = (f"tests/test_{name}.py" for name in COMPILED_TESTS)
    command = ("env", f"PYTHONPATH={COMPILED}", sys.executable, "-m", "pytest", *files)
    yield Step("tests of the compiled variant", command, COMPILED)


def node_steps() -> Iterator[Step]:
    """Yield what brings the browser's client in, or say loudly that it stays out."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        shout("node or npm is not there: the tests with stompjs are SKIPPED")
        return
    lock = NODE_TESTS / "package-lock.json"
    installed = NODE_TESTS / "node_modules" / ".package-lock.json"
    if installed.exists() and installed.stat().st_mtime >= lock.stat().st_mtime:
        return
    yield Step("npm packages of tests/js", (npm, "ci"), NODE_TESTS)


def say(text: str) -> None:
    """Print at once: the steps write to the same terminal."""
    print(text, flush=True)


def shout(text: str) -> None:
    """Say what is left out, so that nobody overlooks it."""
    line = "!" * 78
    say(f"{line}\n{text}\n{line}")


def passes(step: Step) -> bool:
    """Run one step, its output going straight to the terminal; say how long it took."""
    say(f"\n=== {step.name}: {' '.join(step.command)}")
    start = time.monotonic()
    code = subprocess.run(step.command, cwd=step.cwd, check=False).returncode
    result = "passed" if code == 0 else f"FAILED with exit code {code}"
    say(f"=== {step.name}: {result} in {time.monotonic() - start:.1f} s")
    return code == 0


def main() -> int:
    """Run all steps; return 0 if every one passed, else 1."""
    # The tests start brokers and clients by name; they must find this very Python's.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    versions = (f"{name} {importlib.metadata.version(name)}" for name in SHOWN)
    say(f"Python {platform.python_version()}; {', '.join(versions)}")
    start = time.monotonic()
    for step in (*node_steps(), *python_steps()):
        if not passes(step):
            say(f"\nchecks stopped at: {step.name}")
            return 1
    say(f"\nall checks passed in {time.monotonic() - start:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
