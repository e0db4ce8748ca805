"""The lines that each test runs, from one traced run."""

import re
import sqlite3
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

from .sites import FOLDERS, Mutant

DATA, TIMES = "coverage.sqlite", "times.xml"
TEST = re.compile(r"^\s*(?:async )?def (test_\w+)\(", re.MULTILINE)


def trace(tree: Path, folder: Path, tests: Sequence[str]) -> None:
    """Run tests of a tree once, and add the lines and the time of each to a folder."""
    folder /= str(len([*folder.glob("*/" + TIMES)]))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / DATA).unlink(missing_ok=True)
    sources = "".join(f"\n    trio_stomp/{name}" for name in FOLDERS)
    configuration = folder / "coveragerc"
    configuration.write_text(
        f"[run]\nbranch = false\ndata_file = {folder / DATA}\nsource ={sources}"
    )
    command = (
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests),
        *("--cov", f"--cov-config={configuration}", "--cov-context=test", "--cov-report="),
        f"--junitxml={folder / TIMES}",
    )
    subprocess.run(command, cwd=tree, check=False)


class Trace:
    """The lines and the time of each test function of a tree.

    Tests that failed, or have been removed since, are left out.
    """

    def __init__(self, folder: Path, tree: Path) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.lines: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        self.size: Counter[str] = Counter()
        self.size_in: dict[str, Counter[str]] = defaultdict(Counter)
        for times in sorted(folder.glob("*/" + TIMES)):
            failed = self._read_times(times)
            self._read_lines(times.with_name(DATA), _there(tree) - failed)

    def _read_lines(self, file: Path, known: set[str]) -> None:
        for path, test, lines in self._rows(file):
            if test not in known:
                continue
            self.size[test] += len(lines)
            self.size_in[path][test] += len(lines)
            for line in lines:
                self.lines[path][line].add(test)

    def _read_times(self, file: Path) -> set[str]:
        failed = set()
        for case in ET.parse(file).getroot().iter("testcase"):
            if not case.get("classname"):  # A file that could not even be read.
                continue
            name = _function(_node_id(case.get("classname", ""), case.get("name", "")))
            self.seconds[name] += float(case.get("time", 0))
            if case.find("failure") is not None or case.find("error") is not None:
                failed.add(name)
        return failed

    @staticmethod
    def _rows(file: Path) -> list[tuple[str, str, list[int]]]:
        from coverage.numbits import numbits_to_nums

        query = (
            "select file.path, context.context, line_bits.numbits from line_bits"
            " join file on file.id = line_bits.file_id"
            " join context on context.id = line_bits.context_id where context.context != ''"
        )
        found: dict[tuple[str, str], set[int]] = defaultdict(set)
        with sqlite3.connect(file) as database:
            for path, context, bits in database.execute(query):
                key = (_in_package(path), _function(context.rpartition("|")[0]))
                found[key].update(numbits_to_nums(bits))
        return [(path, test, sorted(lines)) for (path, test), lines in found.items()]

    def of_line(self, mutant: Mutant) -> set[str]:
        """Return the tests that run a mutant's line; for a module-level line the file's tests."""
        lines = self.lines.get(mutant.path, {})
        return (
            lines.get(mutant.line)
            or lines.get(mutant.first_line)
            or set(self.size_in.get(mutant.path, ()))
        )

    def tests_of(self, mutant: Mutant, seconds: float) -> list[str]:
        """Return tests of a mutant's line within the time, those that run few other lines first."""
        inside = self.size_in.get(mutant.path, Counter())
        tests = sorted(
            self.of_line(mutant), key=lambda test: (-inside[test] / self.size[test], test)
        )
        chosen: list[str] = []
        for test in tests:
            seconds -= self.seconds[test]
            if seconds < 0 and chosen:
                break
            chosen.append(test)
        return chosen


def _in_package(path: str) -> str:
    return "trio_stomp/" + path.replace("\\", "/").rpartition("/trio_stomp/")[2]


def _node_id(classname: str, name: str) -> str:
    """Return the node id of a test in a report."""
    parts = classname.split(".")
    last = max(place for place, part in enumerate(parts) if part.startswith("test_"))
    return "::".join(["/".join(parts[: last + 1]) + ".py", *parts[last + 1 :], name])


def _there(tree: Path) -> set[str]:
    """Return the node ids of all tests of a tree."""
    found = set()
    for file in (tree / "tests").rglob("test_*.py"):
        path, text = file.relative_to(tree).as_posix(), file.read_text(encoding="utf-8")
        classes = ["", *(f"{name}::" for name in re.findall(r"^class (Test\w+)", text, re.M))]
        found |= {f"{path}::{each}{name}" for name in TEST.findall(text) for each in classes}
    return found


def _function(node_id: str) -> str:
    return node_id.partition("[")[0]
