"""Runs lanes side by side, and prints the output of a step when the step has ended."""

import os
import subprocess
import tempfile
import threading
import time
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from _check.steps import Lane, Step


def say(text: str) -> None:
    """Print and flush."""
    print(text, flush=True)


def shout(text: str) -> None:
    """Print a warning between two lines of exclamation marks."""
    line = "!" * 78
    say(f"{line}\n{text}\n{line}")


class Took(NamedTuple):
    """The result of a step, and its time."""

    name: str
    took_s: float
    processor_s: float
    """Processor time of the step and its children, which hardly depends on the machine's load."""
    code: int


class Runner:
    """Runs lanes, and records the result of each step."""

    def __init__(self) -> None:
        self.took: list[Took] = []
        self._printing = threading.Lock()

    def run(self, lanes: Sequence[Lane]) -> bool:
        """Run all lanes in parallel. Return whether every step passed.

        A lane ends at its first failing step; the other lanes continue, so one run reports all
        failures.
        """
        with ThreadPoolExecutor(max(1, len(lanes))) as pool:
            return all(list(pool.map(self._run_lane, lanes)))

    def _run_lane(self, lane: Lane) -> bool:
        return all(self._passes(step) for step in lane)

    def _passes(self, step: Step) -> bool:
        """Run one step, and print its output and time. Return whether it passed."""
        with self._printing:
            say(f"=== {step.name}: begins")
        start = time.monotonic()
        with tempfile.TemporaryFile() as written:
            run = subprocess.Popen(
                step.command, cwd=step.cwd, stdout=written, stderr=subprocess.STDOUT
            )
            _, status, used = os.wait4(run.pid, 0)
            run.returncode = code = os.waitstatus_to_exitcode(status)
            took = time.monotonic() - start
            written.seek(0)
            text = written.read().decode(errors="replace")
        worked = used.ru_utime + used.ru_stime
        result = "passed" if code == 0 else f"FAILED with exit code {code}"
        with self._printing:
            self.took.append(Took(step.name, took, worked, code))
            say(f"\n=== {step.name}: {' '.join(step.command)}\n{shortened(text)}")
            say(f"=== {step.name}: {result} in {took:.1f} s, CPU {worked:.1f} s\n")
        return code == 0


def shortened(text: str) -> str:
    """Return output without pytest's lines of dots."""
    lines = text.splitlines()
    return "\n".join(line for line in lines if not (line and set(line.split(" [")[0]) <= set(".s")))


def slowest_files(results: Path, limit: int = 15) -> Iterator[str]:
    """Yield the test files that took longest, from the times that pytest reported."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for file in sorted(results.glob("*.xml")):
        for case in ET.parse(file).iter("testcase"):
            module = case.get("classname", "").split(".Test")[0]
            seconds[f"{module} ({file.stem})"] += float(case.get("time", 0))
    for name, took in sorted(seconds.items(), key=lambda each: -each[1])[:limit]:
        yield f"{took:7.1f} s  {name}"


def let_python_keep_what_it_compiles() -> None:
    """Enable the cache of bytecode: about 1,000 processes of the tests would compile everything."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
