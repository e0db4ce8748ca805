"""The tables at the end of a report."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from typing import Any

from trio_stomp.base import rounded_size
from trio_stomp.spark._results import Results
from trio_stomp.spark._units import count, lasting, ms, share, short
from trio_stomp.spark.reporting._figures import change
from trio_stomp.spark.reporting._findings import REASONS, during

MOST_ROWS = 15

Row = dict[str, Any]
Column = tuple[str, Callable[[Row], str], bool]
"""Heading, cell as HTML, and whether it is a number."""


def detail_tables(results: Results) -> Iterator[str]:
    """Yield the tables of one broker that are not empty."""
    yield _destinations(results)
    yield _table(
        "Saturation",
        f"queues filled to {share(results.thresholds.saturated)} or more",
        sorted(results["episodes"], key=lambda row: row["begin"]),
        [
            ("queue", lambda row: escape(row["queue"]), False),
            ("destination", lambda row: escape(row["destination"]), False),
            ("when", lambda row: during(row, results), False),
            ("fullest", lambda row: _meter(row["peak_fill"]), False),
            ("messages", lambda row: count(row["peak_depth"]), True),
            ("room for", lambda row: count(row["capacity"]), True),
        ],
    )
    yield _table(
        "Consumers that fell behind",
        f"the oldest message waits {lasting(results.thresholds.slow_s)} or more for its ACK",
        sorted(results["consumers"], key=lambda row: -row["seconds"]),
        [
            ("destination", lambda row: escape(row["destination"]), False),
            ("verdict", lambda row: escape(row["verdict"]), False),
            ("when", lambda row: during(row, results), False),
            ("without ACK", lambda row: count(row["unacked_peak"]), True),
            ("oldest", lambda row: lasting(row["oldest_s"]), True),
            ("growth an hour", lambda row: count(row["growth_per_h"] or 0), True),
        ],
    )
    yield _losses(results)
    yield _headroom(results)


def _destinations(results: Results) -> str:
    times: dict[str, Row] = {
        row["destination"]: row
        for row in results["latency_by_destination"]
        if row["stage"] == "delivery"
    }
    rows = sorted(results["top_destinations"], key=lambda row: -row["enqueued"])
    before = results.before and results.before["top_destinations"]
    old: dict[str, float] = {row["destination"]: row["enqueued"] for row in before or ()}
    most = max((row["enqueued"] for row in rows), default=0) or 1

    def time(name: str) -> Callable[[Row], str]:
        return lambda row: (
            ms(times[row["destination"]][name]) if row["destination"] in times else ""
        )

    def changed(row: Row) -> str:
        name = row["destination"]
        return change(row["enqueued"], old[name]) if name in old else "new"

    return _table(
        "Busiest destinations",
        "by messages sent to them",
        rows,
        [
            ("destination", lambda row: escape(row["destination"]), False),
            ("", lambda row: _meter(row["enqueued"] / most, with_text=False), False),
            ("came in", lambda row: short(row["enqueued"]), True),
            *([("change", changed, True)] if old else []),
            ("delivered", lambda row: short(row["delivered"]), True),
            ("lost", lambda row: count(row["dropped"]), True),
            ("bytes out", lambda row: rounded_size(row["bytes_out"]), True),
            ("busiest /s", lambda row: short(row["peak_per_s"]), True),
            ("p50", time("p50"), True),
            ("p99", time("p99"), True),
        ],
    )


def _losses(results: Results) -> str:
    sums: dict[tuple[str, str, str], int] = {}
    for row in results["drops"]:
        if row["reason"] == "no-subscriber":
            continue  # nobody wanted them: a finding says how many
        place = row["reason"], row["destination"], row["user"]
        sums[place] = sums.get(place, 0) + row["dropped"]
    rows = [
        {"reason": reason, "destination": destination, "user": user, "dropped": dropped}
        for (reason, destination, user), dropped in sums.items()
    ]
    return _table(
        "Messages lost",
        "as the broker reported them",
        sorted(rows, key=lambda row: -int(row["dropped"])),
        [
            ("reason", lambda row: escape(row["reason"]), False),
            ("", lambda row: escape(REASONS.get(row["reason"], "")), False),
            ("destination", lambda row: escape(row["destination"]), False),
            ("user", lambda row: escape(row["user"]), False),
            ("messages", lambda row: count(row["dropped"]), True),
        ],
    )


def _headroom(results: Results) -> str:
    shows: dict[str, Callable[[float], str]] = {"memory": rounded_size, "loop lag p99": ms}

    def show(row: Row, value: float | None) -> str:
        return "" if value is None else shows.get(row["resource"], count)(value)

    def used(row: Row) -> str:
        return _meter(row["peak"] / row["capacity"]) if row["capacity"] else "limit not told"

    return _table(
        "Room left",
        "peak use of each resource, and its growth since the last start",
        results["headroom"],
        [
            ("resource", lambda row: escape(row["resource"]), False),
            ("used", used, False),
            ("most", lambda row: show(row, row["peak"]), True),
            ("of", lambda row: show(row, row["capacity"]), True),
            ("at", lambda row: results.clock(row["at"]), True),
            ("growth an hour", lambda row: show(row, row["growth_per_h"]), True),
        ],
    )


def _meter(part: float, with_text: bool = True) -> str:
    grade = "" if not with_text or part < 0.8 else "bad" if part >= 1 else "warn"
    width = min(100.0, 100 * part)
    text = f" {share(part)}" if with_text else ""
    return f'<span class="meter {grade}"><i style="width:{width:.1f}%"></i></span>{text}'


def _table(title: str, sub: str, rows: Iterable[Row], columns: Sequence[Column]) -> str:
    rows = list(rows)
    if not rows:
        return ""
    head = "".join(f"<th{_side(number)}>{name}</th>" for name, _, number in columns)
    body = "".join(
        "<tr>"
        + "".join(f"<td{_side(number)}>{cell(row)}</td>" for _, cell, number in columns)
        + "</tr>"
        for row in rows[:MOST_ROWS]
    )
    more = f"; the first {MOST_ROWS} of {len(rows)}" if len(rows) > MOST_ROWS else ""
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return card(title, sub + more, f'<div class="scroll">{table}</div>')


def card(title: str, sub: str, inner: str) -> str:
    """Return a part of the page with a title."""
    return (
        f'<section class="card"><h3>{escape(title)}</h3><p class="sub">{escape(sub)}</p>'
        f"{inner}</section>"
    )


def _side(number: bool) -> str:
    return ' class="n"' if number else ""
