"""The day in one picture: all episodes of trouble, with a lane for each kind."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from trio_stomp.spark._results import Results
from trio_stomp.spark._units import count
from trio_stomp.spark.reporting._chart import Bar
from trio_stomp.spark.reporting._findings import BAD, NOTE, WARN, during, starts

Lane = tuple[str, Sequence[Bar]]


def troubles(results: Results, holes: Sequence[tuple[datetime, datetime]]) -> list[Lane]:
    """Return the lanes, including empty ones."""
    restarts = [
        Bar(at - timedelta(seconds=silent_s), at, f"started {results.clock(at)}", NOTE)
        for at, silent_s in starts(results)
    ]
    silent = [Bar(begin, end, "no statistics", NOTE) for begin, end in holes]
    return [
        ("queues nearly full", list(_full(results))),
        ("consumers behind", list(_behind(results))),
        ("slow subscribers", list(_readers(results))),
        ("messages lost", list(_lost(results))),
        ("restarts, no statistics", [*restarts, *silent]),
    ]


def _full(results: Results) -> Iterator[Bar]:
    for row in results["episodes"]:
        # A full prefetch loses nothing: messages wait in the queue.
        kind = BAD if row["peak_fill"] >= 1 and row["queue"] != "ack" else WARN
        text = f"{row['queue']} {row['destination']}: {during(row, results)}"
        yield Bar(row["begin"], row["end"], text, kind)


def _behind(results: Results) -> Iterator[Bar]:
    for row in results["consumers"]:
        text = f"{row['destination']} {row['verdict']}: "
        text += during(row, results)
        yield Bar(row["begin"], row["end"], text, WARN if row["verdict"] == "slow" else BAD)


def _readers(results: Results) -> Iterator[Bar]:
    for row in results["slow_subscribers"]:
        text = f"{row['user']} {row['destination']}: {count(row['dropped'])} lost"
        yield Bar(row["begin"], row["end"], text, WARN)


def _lost(results: Results) -> Iterator[Bar]:
    width = timedelta(seconds=results.thresholds.coarse_s)
    for row in results["drops"]:
        if row["reason"] != "no-subscriber":
            text = f"{results.clock(row['bucket'])} {row['reason']}: {count(row['dropped'])}"
            yield Bar(row["bucket"], row["bucket"] + width, text, BAD)
