"""Update docs/reference/conformance.md with the tests that cover each statement, by their markers.

python scripts/conformance_table.py            print the document
python scripts/conformance_table.py --write    write it

pytest collects the tests that have ``@pytest.mark.covers``; none is run.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from _check.page import print_or_write

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "reference" / "conformance.md"
TITLE = "covered by"
NOBODY = "**nothing**"

_HEAD = re.compile(r"\| no \|")
_RULE = re.compile(r"\|(?:-+\|)+")
_ROW = re.compile(r"\| ([A-Z]\d\d) \|")
_MARK = "mark.covers("

Coverage = Mapping[str, set[str]]
"""The files of the tests that cover each statement."""


class Collector:
    """A plugin of pytest that records the coverage of the tests."""

    def __init__(self) -> None:
        self.found: dict[str, set[str]] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Note the markers of all tests."""
        for item in items:
            for marker in item.iter_markers("covers"):
                for number in marker.args:
                    self.found.setdefault(str(number), set()).add(item.path.stem)


def collect() -> Coverage:
    """Return the coverage of the tests.

    Raises:
      RuntimeError: pytest could not collect them.
    """
    tests = ROOT / "tests"
    files = [path for path in sorted(tests.rglob("test_*.py")) if _MARK in path.read_text("utf-8")]
    collector = Collector()
    options = ["--collect-only", "-qq", "--no-header", "-p", "no:cacheprovider", "-p", "no:cov"]
    with redirect_stdout(sys.stderr):
        code = pytest.main(
            [*options, "--rootdir", str(ROOT), *(str(path) for path in files)],
            plugins=[collector],
        )
    if code != pytest.ExitCode.OK:
        raise RuntimeError(f"the tests cannot be collected: {code!r}")
    return collector.found


def updated(document: str, coverage: Coverage) -> str:
    """Return the document with the last column of its tables as the tests have it now."""
    lines = document.split("\n")
    has_column = False
    for number, line in enumerate(lines):
        if _HEAD.match(line):
            has_column = line.endswith(f"| {TITLE} |")
            lines[number] = line if has_column else f"{line} {TITLE} |"
        elif _RULE.fullmatch(line) and number and _HEAD.match(lines[number - 1]):
            lines[number] = line if has_column else f"{line}---|"
        elif found := _ROW.match(line):
            row = line[:-1].rpartition("|")[0] + "|" if has_column else line
            lines[number] = f"{row} {cell(coverage.get(found[1], set()))} |"
    return "\n".join(lines)


def cell(files: set[str]) -> str:
    """Return a statement's cell, with the conformance suite's own file first."""
    own = sorted(files, key=lambda name: (re.match(r"test_[a-z]_", name) is None, name))
    return ", ".join(name.removeprefix("test_") for name in own) or NOBODY


def main(argv: Sequence[str]) -> None:
    """Print the document, or write it."""
    document = updated(DOCUMENT.read_text(encoding="utf-8"), collect())
    print_or_write(DOCUMENT, document, argv)


if __name__ == "__main__":
    main(sys.argv[1:])
