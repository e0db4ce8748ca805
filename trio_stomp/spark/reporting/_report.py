"""The report: one self-contained HTML page, which loads no files and runs no scripts.

It has the findings in words, the day in one picture, and the details, in this order.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from html import escape
from typing import Any

import attrs
from attrs import define, field

from trio_stomp.base import rounded_size
from trio_stomp.spark._results import Results
from trio_stomp.spark._units import count, each, lasting, ms, share, short
from trio_stomp.spark.reporting._chart import WIDE, Bar, Frame, Series, heat, lanes, lines, stack
from trio_stomp.spark.reporting._figures import change, compared, figures
from trio_stomp.spark.reporting._findings import (
    BAD,
    NOTE,
    WARN,
    Finding,
    during,
    findings,
    holes,
    starts,
)
from trio_stomp.spark.reporting._style import STYLE
from trio_stomp.spark.reporting._tables import card, detail_tables

SIGNS = {"bad": "!", "warn": "!", "note": "i", "good": "✓"}
GRADES = {"bad": "serious", "warn": "warning", "note": "to know", "good": "good"}

Row = dict[str, Any]
Lane = tuple[str, Sequence[Bar]]


def report(results: Results, made_at: datetime) -> str:
    """Return the page."""
    days = f"{results.first:%d %B %Y}"
    if results.first != results.last:
        days += f" to {results.last:%d %B %Y}"
    brokers = ", ".join(results.brokers) or "none"
    parts = [
        f"<header><h1>Broker report: {escape(brokers)}</h1>",
        f'<p class="soft">{days}, {_hours(results)}times in UTC</p></header>',
    ]
    for broker in results.brokers:
        if len(results.brokers) > 1:
            parts.append(f"<h2>Broker {escape(broker)}</h2>")
        parts += Section(results.of(broker), results.span).html()
    if not results.brokers:
        parts.append("<p>No statistics were stored for that time.</p>")
    parts.append(
        f"<footer>Made {made_at:%Y-%m-%d %H:%M} UTC from the tables of the broker's statistics."
        " Percentiles are computed from summed histograms; rates account for restarts."
        " Grey: no statistics. Dashed: start of the broker.</footer>"
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>Broker report: {escape(brokers)}, {days}</title>"
        f"<style>{STYLE}</style></head><body><main>{''.join(parts)}</main></body></html>\n"
    )


@define(eq=False)
class Section:
    """The report's section on one broker."""

    results: Results
    span: tuple[datetime, datetime]
    frame: Frame = field(init=False)

    def __attrs_post_init__(self) -> None:
        begun = [start for start, _ in starts(self.results)]
        self.frame = Frame(*self.span, begun, holes(self.results), 5 * self.fine)

    @property
    def fine(self) -> timedelta:
        """The time covered by one point of a line."""
        return timedelta(seconds=self.results.thresholds.bucket_s)

    @property
    def coarse(self) -> timedelta:
        """The time covered by one column of latencies and drops."""
        return timedelta(seconds=self.results.thresholds.coarse_s)

    def html(self) -> Iterator[str]:
        """Yield the parts."""
        yield f'<div class="tiles">{"".join(self._tiles())}</div>'
        yield f'<p class="soft">{compared(self.results)}</p>'
        items = "".join(_finding(finding) for finding in findings(self.results))
        yield f'<section class="card"><h3>Findings</h3><ul class="findings">{items}</ul></section>'
        yield self._glance()
        yield '<h2>Traffic and latency</h2><div class="pair">'
        yield from self._traffic()
        yield "</div>"
        yield self._heat()
        yield '<h2>Queues and losses</h2><div class="pair">'
        yield from self._queues()
        yield '</div><h2>The process</h2><div class="pair">'
        yield from self._process()
        yield "</div><h2>Details</h2>"
        yield from detail_tables(self.results)

    def _tiles(self) -> Iterator[str]:
        before = self.results.before
        old = {} if before is None else {each.name: each for each in figures(before)}
        for now in figures(self.results):
            changed = change(now.value, old[now.name].value) if now.name in old else ""
            yield (
                f'<div class="tile {now.grade}"><b>{escape(now.text)}</b>'
                f"<span>{escape(now.label)}</span><i>{changed}</i></div>"
            )

    def _glance(self) -> str:
        rows = troubles(self.results, self.frame.holes)
        height = 34 + 30 * len(rows)
        frame = attrs.evolve(self.frame, holes=(), width=WIDE, height=height, left=170)
        picture = lanes(frame, rows, "trouble over time")
        return card("At a glance", "what went wrong, and when", picture)

    def _line(self, name: str, column: str, label: str, colour: int) -> Series:
        rows = sorted(self.results[name], key=lambda row: row["bucket"])
        points = [(row["bucket"], row[column]) for row in rows if row[column] is not None]
        return Series(label, points, colour)

    def _rate(self, column: str, label: str, colour: int) -> Series:
        """Return a line that is 0 if the broker reported nothing, with gaps where it was away."""
        reported = {row["bucket"]: 0.0 for row in self.results["load"]}
        received = {row["bucket"]: row[column] for row in self.results["traffic"]}
        return Series(label, sorted({**reported, **received}.items()), colour)

    def _delivery_rows(self) -> list[Row]:
        rows = (row for row in self.results["latency_by_time"] if row["stage"] == "delivery")
        return sorted((row for row in rows if row["messages"]), key=lambda row: row["bucket"])

    def _traffic(self) -> Iterator[str]:
        series = [
            self._rate("delivered_per_s", "delivered", 1),
            self._rate("enqueued_per_s", "came in", 2),
        ]
        yield _plot(
            "Messages a second", f"means of {each(self.fine.total_seconds())}", self.frame, series
        )
        rows = self._delivery_rows()
        series = [
            Series(label, [(row["bucket"], row[name]) for row in rows], colour)
            for colour, name, label in ((1, "p50", "p50"), (2, "p99", "p99"), (6, "p999", "p99.9"))
        ]
        sub = "percentiles of all destinations together; by powers of ten"
        title = "Delivery, socket to socket"
        frame = attrs.evolve(self.frame, longest=3 * self.coarse)
        nothing = "No delivery was timed."
        yield _plot(title, sub, frame, series, show=ms, powers=True, nothing=nothing)

    def _heat(self) -> str:
        rows = self._delivery_rows()
        used = [place for row in rows for place, number in enumerate(row["counts"]) if number]
        if not used:
            return ""
        low, high = min(used), max(used)
        names = [*(f"< {ms(bound)}" for bound in rows[0]["le_ms"]), "more"][low : high + 1]
        cells = [
            (row["bucket"], place - low, number / row["messages"])
            for row in rows
            for place, number in enumerate(row["counts"])
            if number
        ]
        frame = attrs.evolve(self.frame, width=WIDE, height=240, left=78)
        span = each(self.coarse.total_seconds())
        return card(
            "How long delivery took",
            f"darker = more of the messages of {span}; a row covers twice the time of that below",
            heat(frame, cells, names, self.coarse, "latency over time"),
        )

    def _queues(self) -> Iterator[str]:
        series = [
            self._line("depths", "input", "input", 1),
            self._line("depths", "queues", "on queues", 3),
            self._line("depths", "stale", "parked", 4),
            self._line("depths", "unacked", "without ACK", 2),
        ]
        sub = f"most messages in {each(self.fine.total_seconds())}; by powers of ten, without 0"
        yield _plot("What waits", sub, self.frame, series, powers=True, nothing="Nothing waited.")
        by_reason: dict[str, dict[datetime, float]] = {}
        for row in self.results["drops"]:
            if row["reason"] == "no-subscriber":
                continue  # nobody wanted them
            buckets = by_reason.setdefault(row["reason"], {})
            buckets[row["bucket"]] = buckets.get(row["bucket"], 0.0) + row["dropped"]
        series = [
            Series(reason, sorted(buckets.items()), 1 + number % 6)
            for number, (reason, buckets) in enumerate(sorted(by_reason.items()))
        ]
        picture = '<p class="soft">None.</p>'
        if series:
            picture = stack(self.frame, series, self.coarse, "messages lost by reason")
        yield card(
            "Messages lost",
            f"by reason, in {each(self.coarse.total_seconds())}; not those without a subscriber",
            _key(series) + picture,
        )

    def _process(self) -> Iterator[str]:
        lag = [
            self._line("load", f"loop_lag_ms_{name}", name, colour)
            for name, colour in (("p50", 1), ("p99", 2), ("max", 6))
        ]
        title = "How long turns held the event loop"
        sub = f"worst in {each(self.fine.total_seconds())}; by powers of ten"
        yield _plot(title, sub, self.frame, lag, show=ms, powers=True)
        memory = [self._line("load", "rss_bytes", "resident memory", 1)]
        yield _plot(
            "Memory",
            f"most in {each(self.fine.total_seconds())}",
            self.frame,
            memory,
            show=rounded_size,
        )
        cores = [self._line("processor", "cores", "processor", 1)]
        yield _plot("Processor", "share of one core", self.frame, cores, show=share)
        clients = [
            self._line("clients", "clients", "clients", 1),
            self._line("clients", "websockets", "by WebSocket", 2),
            self._line("load", "fds", "file descriptors", 3),
        ]
        yield _plot("Clients", f"most in {each(self.fine.total_seconds())}", self.frame, clients)


def troubles(results: Results, holes: Sequence[tuple[datetime, datetime]]) -> list[Lane]:
    """Return the day in one picture: a lane for each kind of trouble, including empty ones."""
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


def _hours(results: Results) -> str:
    """Return a note on the hours that the plots cover, or "" if they cover the whole."""
    begin, end = results.span
    if end - begin == timedelta(days=(results.last - results.first).days + 1):
        return ""
    lasts = lasting((end - begin).total_seconds())
    return f"{results.clock(begin)} to {results.clock(end)} ({lasts}), "


def _finding(finding: Finding) -> str:
    grade, label = finding.grade, GRADES[finding.grade]
    return (
        f'<li><span class="sign {grade}" role="img" aria-label="{label}">{SIGNS[grade]}</span>'
        f"<div><b>{escape(finding.title)}</b><br>{escape(finding.text)}</div></li>"
    )


def _key(series: Sequence[Series]) -> str:
    items = (f'<span><i class="k{each.colour}"></i>{escape(each.name)}</span>' for each in series)
    return f'<div class="key">{"".join(items)}</div>'


def _plot(
    title: str,
    sub: str,
    frame: Frame,
    series: Sequence[Series],
    *,
    show: Callable[[float], str] = short,
    powers: bool = False,
    nothing: str = "No figures.",
) -> str:
    """Return a plot, or the words ``nothing`` in its place. 0 has no place on powers of ten."""
    drawn = [each for each in series if any(value > 0 or not powers for _, value in each.points)]
    if not drawn:
        return card(title, sub, f'<p class="soft">{nothing}</p>')
    key = _key(drawn) if len(series) > 1 else ""
    return card(title, sub, key + lines(frame, drawn, show, label=title, powers=powers))
