"""One mutant at a time: a file is changed in a copy of the tree; tests run until one fails."""

import contextlib
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from .sites import Mutant

AT_MOST_BYTES = 3 << 30
"""Limit of a mutant's address space: an endless loop may also take endless memory."""
LONGEST_TEST_S = 20
MORE_S = 60
"""Extra time for a mutant, besides the time that its tests took when they were traced."""

FAILED_TESTS = 1
"""Exit code of pytest for failed tests. Unreadable test files have another one, and an output."""
IMPORT_FAILED = re.compile(r"ImportError while loading conftest .*?\ntrio_stomp/", re.S)
"""The output if what all tests import raises an error: a mutant that no test can overlook."""
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+?\.py(?:::[^\s\[]+)?)", re.M)


class Result(NamedTuple):
    """The outcome of a mutant, killed, survived, timeout or uncovered, and the killing test."""

    name: str
    where: str
    outcome: str
    test: str = ""
    tests: int = 0


class Tree:
    """A copy of a tree, in which one file at a time is changed."""

    def __init__(self, root: Path, copy: Path) -> None:
        self.root, self.copy = root, copy
        files = subprocess.run(
            ["git", "ls-files", "-z"], cwd=root, check=True, capture_output=True, text=True
        ).stdout
        for name in files.split("\0"):
            if name and (root / name).is_file():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, copy / name)

    @contextlib.contextmanager
    def changed(self, mutant: Mutant) -> Iterator[None]:
        """Replace the file by the mutant while the block runs."""
        file = self.copy / mutant.path
        before = file.read_bytes()
        file.write_bytes(mutant.applied(before))
        try:
            yield
        finally:
            file.write_bytes(before)

    def run(self, tests: Sequence[str], seconds: float) -> tuple[str, str]:
        """Run tests until one fails. Return the outcome and the failed test."""
        names = self.copy / "tests-of-mutant.txt"
        names.write_text("\n".join(tests))
        command = (
            *(sys.executable, "-B", "-m", "pytest", "-x", "-q", "--tb=no", "--no-header"),
            *("-p", "no:cacheprovider", f"--timeout={LONGEST_TEST_S}", f"@{names}"),
        )
        environment = {**os.environ, "PYTHONPATH": str(self.copy)}
        process = subprocess.Popen(
            command, cwd=self.copy, env=environment, text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        resource.prlimit(process.pid, resource.RLIMIT_AS, (AT_MOST_BYTES, AT_MOST_BYTES))
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return "timeout", ""
        if process.returncode == 0:
            return "survived", ""
        if IMPORT_FAILED.search(output):
            return "killed", "an import"
        found = FAILED.search(output)
        if process.returncode != FAILED_TESTS and found is None:
            raise RuntimeError(f"pytest ended with {process.returncode}: {output[-2000:]}")
        outcome = "timeout" if "Timeout (>" in output else "killed"
        return outcome, found[1] if found else output[-200:].strip()


def try_mutant(
    tree: Tree, mutant: Mutant, tests: Sequence[str], seconds: float, first: str = ""
) -> Result:
    """Run the tests of a mutant, beginning with ``first``, which killed it before."""
    where = f"{mutant.path}:{mutant.line}"
    if not tests:
        return Result(mutant.name, where, "uncovered")
    outcome = test = ""
    with tree.changed(mutant):
        if first in tests:
            outcome, test = tree.run([first], MORE_S)
        if outcome in ("", "survived"):
            outcome, test = tree.run(tests, seconds + MORE_S)
    return Result(mutant.name, where, outcome, test, len(tests))
