"""The figures of a run, for people."""

import re
from collections.abc import Sequence
from typing import Any

Result = dict[str, Any]

HEAD = (
    f"{'target':<16} {'executions':>11} {'/s':>8} {'edges':>6} {'lines':>11} {'':>4}"
    f" {'slowest':>9} {'growth':>9} findings"
)


def row(result: Result) -> str:
    """Return a target's line, and one for each finding."""
    name = result["target"]
    if "skipped" in result:
        return f"{name:<16} skipped: {result['skipped']}"
    findings = result["findings"]
    text = "".join(f"\n    {what}\n    {where}" for what, where in findings.items())
    if "executions" not in result:
        return f"{name:<16} {len(findings)} findings{text}"
    covered, total = result["lines_covered"], result["lines"]
    lines = f"{covered}/{total}"
    share = f"{100 * covered // total if total else 100}%"
    return (
        f"{name:<16} {result['executions']:>11,} {result['executions_per_s']:>8,.0f}"
        f" {result['edges'] or '-':>6} {lines:>11} {share:>4} {result['slowest_ms']:>6.0f} ms"
        f" {result['growth_bytes'] / 1e6:>6.1f} MB {len(findings)}{text}"
    )


def summary(results: Sequence[Result]) -> str:
    """Return one line about all targets."""
    ran = [result for result in results if "executions" in result]
    covered = sum(result["lines_covered"] for result in ran)
    total = sum(result["lines"] for result in ran) or 1
    skipped = sum("skipped" in result for result in results)
    return (
        f"{sum(result['executions'] for result in ran):,} executions in"
        f" {sum(result['seconds'] for result in ran):,.0f} s,"
        f" {covered} of {total} lines ({100 * covered / total:.1f} %),"
        f" {sum(len(result['findings']) for result in results)} findings,"
        f" {skipped} targets skipped"
    )


def edges(reported: str) -> int:
    """Return the edges that libFuzzer counted, from its last line with a count, or 0."""
    found = re.findall(r"\bcov: (\d+)", reported)
    return int(found[-1]) if found else 0
