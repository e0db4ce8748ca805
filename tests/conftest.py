"""What all tests share: the hypothesis profile, and the count of conformance statements."""

import os
import re
from collections.abc import Generator
from pathlib import Path

import hypothesis
import pytest

STATEMENTS = Path(__file__).parent.parent / "docs" / "conformance.md"
ROW = re.compile(r"^\| ([A-Z]\d\d) \|", re.MULTILINE)

# The same examples in every run, and no deadline: a busy machine is no failure.
hypothesis.settings.register_profile("ci", deadline=None, derandomize=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


class ConformanceCount:
    """Counts the statements of docs/conformance.md that passed tests cover."""

    def __init__(self, statements: list[str]) -> None:
        self.statements = statements
        self.passed: set[str] = set()
        self.failed: set[str] = set()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Refuse a number that no statement has: it would silently count for nothing."""
        for item in items:
            if unknown := covered_by(item) - set(self.statements):
                names = ", ".join(sorted(unknown))
                raise pytest.UsageError(f"{item.nodeid} covers unknown statements: {names}")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.failed:
            self.failed |= covered_by(item)
        elif report.when == "call" and report.passed:
            self.passed |= covered_by(item)
        return report

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        covered = self.passed - self.failed
        missing = [name for name in self.statements if name not in covered]
        every = len(self.statements)
        write = terminalreporter.write_line
        write(f"conformance: covered {every - len(missing)} of {every} statements")
        if missing:
            write(f"conformance: not covered: {' '.join(missing)}")


def covered_by(item: pytest.Item) -> set[str]:
    """Return the statements that the test's markers name."""
    return {str(number) for marker in item.iter_markers("covers") for number in marker.args}


def pytest_configure(config: pytest.Config) -> None:
    """Register the count as a plugin object: its state belongs to this run."""
    statements = ROW.findall(STATEMENTS.read_text(encoding="utf-8"))
    config.pluginmanager.register(ConformanceCount(statements), "conformance-count")
