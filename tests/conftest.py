"""What all tests share: the hypothesis profile, and the count of conformance statements."""

import os
import re
from collections.abc import Generator
from pathlib import Path

import hypothesis
import pytest

STATEMENTS = Path(__file__).parent.parent / "docs" / "conformance.md"
ROW = re.compile(r"^\| ([A-Z]\d\d) \|", re.MULTILINE)

# Sections 2.5 and 2.6 (ACK, NACK, transactions) come with a later release.
NOT_YET_PROMISED = "AT"

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
        promised = [name for name in self.statements if name[0] not in NOT_YET_PROMISED]
        later = [name for name in self.statements if name[0] in NOT_YET_PROMISED]
        covered = self.passed - self.failed
        write = terminalreporter.write_line
        write(f"conformance: covered {count(promised, covered)} of {len(promised)} statements")
        if missing := [name for name in promised if name not in covered]:
            write(f"conformance: not covered: {' '.join(missing)}")
        write(
            f"conformance: covered {count(later, covered)} of {len(later)} statements "
            "that are not yet promised (ACK, NACK, transactions)"
        )


def covered_by(item: pytest.Item) -> set[str]:
    """Return the statements that the test's markers name."""
    return {str(number) for marker in item.iter_markers("covers") for number in marker.args}


def count(statements: list[str], covered: set[str]) -> int:
    """Return how many of the statements are covered."""
    return sum(name in covered for name in statements)


def pytest_configure(config: pytest.Config) -> None:
    """Register the count as a plugin object: its state belongs to this run."""
    statements = ROW.findall(STATEMENTS.read_text(encoding="utf-8"))
    config.pluginmanager.register(ConformanceCount(statements), "conformance-count")
