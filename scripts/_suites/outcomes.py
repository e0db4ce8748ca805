"""The outcomes of a suite's tests, read from its output."""

import json
import re
from collections.abc import Mapping
from xml.etree import ElementTree

PASSED = "passed"
FAILED = "failed"
SKIPPED = "skipped"

Outcomes = Mapping[str, str]
"""Test -> PASSED, FAILED or SKIPPED."""

# "  test_name:<tabs>.: (0.005819)" below "TestClass: ", as test-unit prints it with --verbose; what
# has failed says why in between, from the line of the mark on.
_RUBY_CLASS = re.compile(r"^(\w+): $")
# A test that prints has its mark on a line below.
_RUBY_TEST = re.compile(r"^  ([^\s:]+):\s*([.FEPON])?(?:: \([\d.]+\))?$")
_RUBY_MARK = re.compile(r"^([.FEPON])(?:: \([\d.]+\))?$")


def of_junit_xml(text: str) -> Outcomes:
    """Read the XML that pytest writes with ``--junitxml``."""
    found: dict[str, str] = {}
    for case in ElementTree.fromstring(text).iter("testcase"):
        name = f"{_last_word(case.get('classname', ''))}.{case.get('name', '')}"
        lines = {child.tag for child in case}
        if lines & {"failure", "error"}:
            found[name] = FAILED
        else:
            found.setdefault(name, SKIPPED if "skipped" in lines else PASSED)
    return found


def of_test_unit(text: str) -> Outcomes:
    """Read what Ruby's test-unit prints with ``--verbose``."""
    found: dict[str, str] = {}
    group = name = ""
    for line in text.splitlines():
        mark = _RUBY_MARK.match(line)
        if title := _RUBY_CLASS.match(line):
            group = title[1]
        elif test := _RUBY_TEST.match(line):
            name, mark = f"{group}.{test[1]}", test if test[2] else None
        if name and mark:
            written = mark[mark.re.groups]
            found[name] = {".": PASSED, "F": FAILED, "E": FAILED}.get(written, SKIPPED)
            name = ""
    return found


def of_spec_lines(text: str) -> Outcomes:
    """Read the lines ``SPEC {"name": ..., "status": ...}`` that our runners print."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if not line.startswith("SPEC "):
            continue
        spec = json.loads(line.removeprefix("SPEC "))
        outcome = {"passed": PASSED, "failed": FAILED}.get(spec["status"], SKIPPED)
        found[spec["name"]] = outcome
    return found


def count(outcomes: Outcomes) -> tuple[int, int]:
    """Return how many passed, and how many were run."""
    ran = [each for each in outcomes.values() if each != SKIPPED]
    return ran.count(PASSED), len(ran)


def _last_word(dotted: str) -> str:
    return dotted.rpartition(".")[2]
