"""Configuration of all tests: the hypothesis profile, and the count of conformance statements."""

import gc
import logging
import os
import re
import signal
import zlib
from collections.abc import Generator
from pathlib import Path

import hypothesis
import pytest

STATEMENTS = Path(__file__).parent.parent / "docs" / "reference" / "conformance.md"
ROW = re.compile(r"^\| ([A-Z]\d\d) \|", re.MULTILINE)

SERVER_OF_OTHERS = "postgresql"
"""As a parameter: of tests that need a server, which are for the full tier."""
WHOLE = {"dial": "memory", "timed_dial": "memory", "raw_dial": "memory", "ws_dial": "ws-memory"}
"""By fixture of tests/conformance: the transport over which every test belongs to each push."""
ONE_OF = 8
"""Over the others, one in this number does. Its name determines which one, so it is always the
same."""
SAMPLED = {
    "test_valid_text_gets_through_in_every_way",
    "test_invalid_text_is_closed_with_1007_in_every_way",
    "test_bytes_have_one_meaning_and_all_after_an_invalid_frame_are_ignored",
}
"""Tests of hundreds of cells that differ little: one of SAMPLE belongs to each push."""
SAMPLE = 4

# The same examples in every run, and no deadline: a busy machine is no failure.
# A machine that is busy with other suites is slow to make inputs, which is no fault of a test.
hypothesis.settings.register_profile(
    "ci",
    deadline=None,
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


MOST_MISSING = 20
"""Statements not covered that are listed: more are missing if only a part of the tests was run."""


class ConformanceCount:
    """Counts the statements of docs/reference/conformance.md that passed tests cover."""

    def __init__(self, statements: list[str]) -> None:
        self.statements = statements
        self.passed: set[str] = set()
        self.failed: set[str] = set()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Refuse an unknown number of a statement, which would silently count for nothing."""
        for item in items:
            covered = covered_by(item)
            if unknown := covered - set(self.statements):
                names = ", ".join(sorted(unknown))
                raise pytest.UsageError(f"{item.nodeid} covers unknown statements: {names}")
            # A report takes them along from the process that ran the test.
            item.user_properties += [("covers", name) for name in sorted(covered)]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        covered = {str(name) for what, name in report.user_properties if what == "covers"}
        if report.failed:
            self.failed |= covered
        elif report.when == "call" and report.passed:
            self.passed |= covered

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.passed and not self.failed:
            return  # other tests were run
        covered = self.passed - self.failed
        missing = [name for name in self.statements if name not in covered]
        every = len(self.statements)
        write = terminalreporter.write_line
        write(f"conformance: covered {every - len(missing)} of {every} statements")
        if 0 < len(missing) <= MOST_MISSING:
            write(f"conformance: not covered: {' '.join(missing)}")


class BugWatch(logging.Handler):
    """Fails each test in which the broker notes a bug of its own, unless it is marked ``bugs``."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if hasattr(record, "bug"):
            self.found.append(record.getMessage())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None]:
        self.found.clear()
        yield
        if self.found and item.get_closest_marker("bugs") is None:
            pytest.fail(f"the broker noted bugs of its own: {self.found[:5]}")


def covered_by(item: pytest.Item) -> set[str]:
    """Return the statements that the test's markers name."""
    return {str(number) for marker in item.iter_markers("covers") for number in marker.args}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the cells of matrices for the full tier, before pytest's -m reads the marks."""
    for item in items:
        if takes_long(item):
            item.add_marker("full")


def pytest_collection_finish() -> None:
    """Spare the collector of garbage the heap of 16,000 tests: each full collection walked it."""
    gc.collect()
    gc.freeze()


def takes_long(item: pytest.Item) -> bool:
    """Return whether a test is a cell of a matrix of which a push runs only samples."""
    callspec = getattr(item, "callspec", None)
    if callspec is None:
        return False
    cell: dict[str, object] = callspec.params
    if SERVER_OF_OTHERS in (value for value in cell.values() if isinstance(value, str)):
        return True
    for fixture, whole in WHOLE.items():
        if cell.get(fixture, whole) != whole:
            return is_left_out(item, ONE_OF)
    if getattr(item, "originalname", "") in SAMPLED:
        return is_left_out(item, SAMPLE)
    return item.path.name == "test_client_chaos.py" and cell.get("seed", 1) != 1


def is_left_out(item: pytest.Item, one_of: int) -> bool:
    """Return whether a test is outside the sample, which its name determines in every run."""
    return zlib.crc32(item.nodeid.encode()) % one_of != 0


def pytest_configure(config: pytest.Config) -> None:
    """Register the count as a plugin object: its state belongs to this run."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell starts jobs in the background so, and the programs of tests would inherit it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    statements = ROW.findall(STATEMENTS.read_text(encoding="utf-8"))
    config.pluginmanager.register(ConformanceCount(statements), "conformance-count")
    watch = BugWatch()
    logging.getLogger("trio_stomp").addHandler(watch)
    config.pluginmanager.register(watch, "bug-watch")
