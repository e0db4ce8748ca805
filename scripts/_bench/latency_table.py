"""The tables of latency: percentiles of each side, and its ratio to another within each round."""

import statistics
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from _bench.latency import BROKER, FLOOR, IDLE, LOADS, MEASURES, SHARES, SIDES, SLOW, Latencies
from _bench.spread import Row, Spread, spread_row

BESIDE = {BROKER: FLOOR, IDLE: BROKER, SLOW: BROKER}
"""The reference of each side."""


class Promise(NamedTuple):
    """A limit of a percentile, in multiples of the other side's. The median round counts."""

    side: str
    share: str
    most: float


PROMISES = (
    Promise(BROKER, "p50", 3.0),
    Promise(BROKER, "p99", 5.0),
    Promise(IDLE, "p50", 1.5),
    Promise(IDLE, "p99", 1.5),
    Promise(SLOW, "p50", 1.5),
    Promise(SLOW, "p99", 1.5),
)


def ratios(
    runs: Sequence[Latencies], load: str, side: str, measure: str, share: str
) -> list[float]:
    """Return the ratio of two sides' percentiles in each round."""
    other = {
        run.pair: run.of(measure, share)
        for run in runs
        if (run.load, run.side) == (load, BESIDE[side])
    }
    return [
        run.of(measure, share) / other[run.pair]
        for run in runs
        if (run.load, run.side) == (load, side)
    ]


def what_is(side: str, connections: int) -> str:
    """Return a description of a side."""
    return {
        FLOOR: "a bare loop in C",
        BROKER: "the broker",
        IDLE: f"the broker, {connections} idle connections",
        SLOW: "the broker, 10 slow consumers being dropped",
    }[side]


def latency_rows(runs: Sequence[Latencies]) -> list[Row]:
    """Return a row for each load, measure and side, with all its spreads."""
    return [
        _row(runs, load, measure, side) for load in LOADS for measure in MEASURES for side in SIDES
    ]


def _row(runs: Sequence[Latencies], load: str, measure: str, side: str) -> Row:
    mine = [run for run in runs if (run.load, run.side) == (load, side)]
    row: Row = {"load": load, "measure": measure, "side": side, "pairs": len(mine)}
    row["samples"] = sum(run.samples for run in mine)
    if side == SLOW:
        row["slow_consumers_ended"] = sum(run.ended for run in mine)
    for share in SHARES:
        row |= spread_row(f"{share}_ms", [run.of(measure, share) for run in mine])
        if side in BESIDE:
            row |= spread_row(f"{share}_ratio", ratios(runs, load, side, measure, share))
    return row


def latency_table(runs: Sequence[Latencies], connections: int) -> str:
    """Return the latencies as tables in Markdown, and the verdicts on the promises."""
    lines: list[str] = []
    for measure, what in MEASURES.items():
        lines += [f"{what}:", "", *_lines(runs, measure, connections), ""]
    return "\n".join([*lines, *_words(runs)])


def _lines(runs: Sequence[Latencies], measure: str, connections: int) -> Iterator[str]:
    ratio = [f"{share}, times" for share in SHARES]
    yield "| " + " | ".join(["load", "", *(f"{share} ms" for share in SHARES), *ratio]) + " |"
    yield "|---|---|" + "--:|" * (2 * len(SHARES))
    for load, shape in LOADS.items():
        for side in SIDES:
            mine = [run for run in runs if (run.load, run.side) == (load, side)]
            cells = [f"{load}, {shape.rate:g}/s", what_is(side, connections)]
            cells += [_median(run.of(measure, share) for run in mine) for share in SHARES]
            cells += [
                str(Spread.of(ratios(runs, load, side, measure, share))) if side in BESIDE else ""
                for share in SHARES
            ]
            yield "| " + " | ".join(cells) + " |"


def _median(values: Iterator[float]) -> str:
    return f"{statistics.median(values):.3f}"


def promise_rows(runs: Sequence[Latencies]) -> list[Row]:
    """Return a row with the median round of each promise, load and measure."""
    rows: list[Row] = []
    for load in LOADS:
        for side, share, most in PROMISES:
            for measure in MEASURES:
                median = statistics.median(ratios(runs, load, side, measure, share))
                row: Row = {"load": load, "side": side, "beside": BESIDE[side], "share": share}
                row |= {"measure": measure, "promised": most, "measured": median}
                rows.append(row | {"kept": median <= most})
    return rows


def _words(runs: Sequence[Latencies]) -> Iterator[str]:
    """Yield the number of slow consumers that were disconnected, and the verdicts."""
    for load in LOADS:
        ended = sum(run.ended for run in runs if (run.load, run.side) == (load, SLOW))
        yield f"{load}: {ended} slow consumers were dropped in all rounds"
    for row in promise_rows(runs):
        yield (
            f"{row['load']}, {row['side']}, {row['share']}, {row['measure']}: promised"
            f" {row['promised']:.1f} times {row['beside']} at most,"
            f" measured {row['measured']:.2f}: {'kept' if row['kept'] else 'BROKEN'}"
        )
