"""Runs another project's tests."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from _suites import outcomes
from _suites.outcomes import Outcomes

# A suite that hangs is killed; its output until then counts.
PATIENCE_S = 1500
TEST_PATIENCE_S = 90
"""Time limit of a test, if its runner can end it."""


def run(
    command: Sequence[str], folder: Path, more: Mapping[str, str], patience_s: int = PATIENCE_S
) -> str:
    """Run a command and return its output. Failed tests are no error."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **more},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            timeout=patience_s,
            check=False,
        )
        text = done.stdout
    except subprocess.TimeoutExpired as late:
        text = late.stdout or b""
    return text.decode("utf-8", "replace")


def run_pytest(
    folder: Path, arguments: Sequence[str], more: Mapping[str, str], scratch: Path
) -> Outcomes:
    """Run tests with pytest. Return their outcomes.

    With the plugin pytest-timeout a test that hangs fails; without it the suite ends there.

    Raises:
      FileNotFoundError: it ended before it wrote its report.
    """
    report = scratch / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
    if find_spec("pytest_timeout") is not None:
        command += [f"--timeout={TEST_PATIENCE_S}", "--timeout-method=signal"]
    run([*command, f"--junitxml={report}", *arguments], folder, more)
    return outcomes.of_junit_xml(report.read_text(encoding="utf-8"))
