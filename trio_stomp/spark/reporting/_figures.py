"""The figures at the top of a report, and their changes since the days before."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, time, timedelta

from attrs import frozen

from trio_stomp.base import percentile, rounded_size
from trio_stomp.spark._results import Results
from trio_stomp.spark._units import lasting, ms, share, short
from trio_stomp.spark.reporting._findings import BAD, WARN

SAME = 0.005
"""A smaller change is none."""
MANY_TIMES = 10.0
"""From this factor on, it is told as a factor."""
MOST_OF_IT = 0.9
"""The share of the present time that the time before has to cover, to be mentioned no further."""


@frozen
class Figure:
    """A figure of one broker.

    Args:
      name: Identifies it among the days.
      label: What it is.
      value: None = it was not measured.
      show: Formats it.
      grade: ``bad``, ``warn`` or "".
    """

    name: str
    label: str
    value: float | None
    show: Callable[[float], str]
    grade: str = ""

    @property
    def text(self) -> str:
        """The value for people."""
        return "-" if self.value is None else self.show(self.value)


def figures(results: Results) -> Iterator[Figure]:
    """Yield the figures of one broker."""
    top = results["top_destinations"]
    drops = results["drops"]
    lost = sum(row["dropped"] for row in drops if row["reason"] != "no-subscriber")
    for column, label in (("enqueued", "messages came in"), ("delivered", "messages delivered")):
        yield Figure(column, label, sum(row[column] for row in top), short)
    p50, p99 = (_delivery(results, part) for part in (0.5, 0.99))
    label = "p99 of delivery" + ("" if p50 is None else f"; p50 {ms(p50)}")
    yield Figure("p99", label, p99, ms)
    yield Figure("lost", "messages lost", lost, short, BAD if lost else "")
    for row in results["headroom"]:
        fill = row["peak"] / row["capacity"] if row["capacity"] else 0.0
        high = fill >= results.thresholds.saturated
        if row["resource"] == "input queue":
            grade = BAD if fill >= 1 else WARN if high else ""
            yield Figure("input", "fullest input queue", fill, share, grade)
        elif row["resource"] == "memory":
            grade = WARN if high else ""
            yield Figure("memory", "most memory", row["peak"], rounded_size, grade)


def _delivery(results: Results, part: float) -> float | None:
    """Return a percentile of the time from socket to socket, over everything."""
    sums: dict[tuple[float, ...], list[int]] = {}
    for row in results["latency_by_destination"]:
        if row["stage"] == "delivery":
            total = sums.setdefault(tuple(row["le_ms"]), [0] * len(row["counts"]))
            for place, number in enumerate(row["counts"]):
                total[place] += number
    le_ms, counts = max(sums.items(), key=lambda item: sum(item[1]), default=((), []))
    return percentile(le_ms, counts, part) if any(counts) else None


def change(now: float | None, before: float | None) -> str:
    """Return the change of a figure in per cent, or "" if there is nothing to compare."""
    if now is None or before is None:
        return ""
    if not before:
        return "none before" if now else "as before"
    grown = now / before - 1
    if abs(grown) < SAME:
        return "as before"
    if grown + 1 >= MANY_TIMES:
        return f"{grown + 1:.3g} times as before"
    return f"{'+' if grown > 0 else '−'}{max(1, round(abs(100 * grown)))} %"  # noqa: RUF001


def compared(results: Results) -> str:
    """Return a sentence on the days that the changes are relative to."""
    since = timedelta(days=(results.last - results.first).days + 1)
    days = f"{results.first - since:%-d %B}"
    if results.first != results.last:
        days += f" to {results.last - since:%-d %B}"
    before = results.before
    heard = 0.0 if before is None else _heard_s(before)
    if before is None or not heard:
        return f"No statistics of {days} to compare with."
    end = max(row["last"] for row in results["starts"])
    midnight = datetime.combine(results.last + timedelta(days=1), time(), UTC)
    is_whole = midnight - end <= timedelta(seconds=results.thresholds.coarse_s)
    until = "" if is_whole else f" until {end:%H:%M}"
    little = heard < MOST_OF_IT * _heard_s(results)
    part = f"; statistics of {lasting(heard)} only" if little else ""
    return f"Compared with {days}{until}{part}."


def _heard_s(results: Results) -> float:
    spans = ((row["last"] - row["first"]).total_seconds() for row in results["starts"])
    return float(sum(spans))
