"""Differences as a table, explained failures, and the figures for the documents."""

import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from _suites.outcomes import FAILED, SKIPPED, Outcomes, count

HERE = Path(__file__).parent
EXPLAINED = HERE / "explained.toml"
FIGURES = HERE / "figures.json"

Explanations = Mapping[str, str]
"""The reason of a test's failure here, by its name or a prefix with ``*``."""


def explanations(suite: str) -> Explanations:
    """Return the explained failures of a suite."""
    text = tomllib.loads(EXPLAINED.read_text(encoding="utf-8"))
    found: Mapping[str, str] = text.get(suite, {})
    return found


def why(test: str, explained: Explanations) -> str:
    """Return the explanation of a test's failure here, or ""."""
    for name, reason in explained.items():
        if test == name or (name.endswith("*") and test.startswith(name[:-1])):
            return reason
    return ""


def unexplained(ours: Outcomes, explained: Explanations) -> list[str]:
    """Return the tests that failed here without an explanation."""
    failed = [test for test, outcome in ours.items() if outcome == FAILED]
    return [test for test in failed if not why(test, explained)]


def differences(
    title: str, ours: Outcomes, theirs: Outcomes | None, explained: Explanations
) -> Iterator[str]:
    """Yield a table of the tests that failed with one of the two brokers."""
    yield f"## {title}: ours {figure(ours)}, theirs {figure(theirs)}\n"
    yield "| test | ours | theirs | why |"
    yield "|---|---|---|---|"
    beside = theirs or {}
    for test in sorted({*ours, *beside}):
        pair = ours.get(test, "-"), beside.get(test, "-")
        if FAILED in pair:
            reason = why(test, explained) if pair[0] == FAILED else ""
            missing = "NOT EXPLAINED" if pair[0] == FAILED else ""
            yield f"| {test} | {pair[0]} | {pair[1]} | {reason or missing} |"


def record(suite: str, title: str, ours: Outcomes, theirs: Outcomes | None) -> None:
    """Write the figures, and the names of tests that failed here, to the file of all suites.

    Skipped tests are written if we gave a reason; the others were skipped by their suite. If their
    broker was not run this time, its previous results stay.
    """
    explained = explanations(suite)
    left_out = [test for test, outcome in ours.items() if outcome == SKIPPED]
    figures = json.loads(FIGURES.read_text(encoding="utf-8")) if FIGURES.exists() else {}
    before = figures.get(suite, {}).get("theirs", figure(None))
    figures[suite] = {
        "title": title,
        "ours": figure(ours),
        "theirs": before if theirs is None else figure(theirs),
        "failed": sorted(test for test, outcome in ours.items() if outcome == FAILED),
        "left_out": sorted(test for test in left_out if why(test, explained)),
    }
    text = json.dumps(figures, indent=2, sort_keys=True, ensure_ascii=False)
    FIGURES.write_text(text + "\n", encoding="utf-8")


def section() -> Iterator[str]:
    """Yield the part of docs/reference/interoperability.md."""
    figures = json.loads(FIGURES.read_text(encoding="utf-8"))
    yield "| suite | here | the broker that it was written for |"
    yield "|---|---|---|"
    for each in figures.values():
        yield f"| {each['title']} | {each['ours']} | {each['theirs']} |"
    yield from _reasons(figures, "failed", "fails here")
    yield from _reasons(figures, "left_out", "is left out here")


def _reasons(figures: Mapping[str, Any], key: str, title: str) -> Iterator[str]:
    """Yield a table of the tests below that key of each suite, those with one reason together."""
    yield ""
    yield f"| suite | {title} | why |"
    yield "|---|---|---|"
    for suite, each in figures.items():
        by_reason: dict[str, list[str]] = {}
        explained = explanations(suite)
        for test in each.get(key, ()):
            by_reason.setdefault(why(test, explained) or "not explained yet", []).append(test)
        for reason, tests in by_reason.items():
            yield f"| {each['title']} | {', '.join(f'`{test}`' for test in tests)} | {reason} |"


def figure(found: Outcomes | None) -> str:
    """Return the numbers of passed and run tests as a text."""
    return "not run" if found is None else "{} of {}".format(*count(found))
