"""The report beside the day before: changes of its figures, the same hours, no data."""

from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest

from tests.support.spark import require
from tests.support.spark import spark as spark

require("pyspark")

from tests.support.diag_bodies import START, Row, message  # noqa: E402
from tests.support.diag_tables import COMPARED, RESULTS, Results, no_rows, process  # noqa: E402
from tests.support.lake import write  # noqa: E402
from tests.support.page import check_page  # noqa: E402
from trio_stomp.spark import Thresholds, analyse, read_results  # noqa: E402
from trio_stomp.spark.reporting import report  # noqa: E402
from trio_stomp.spark.reporting._figures import change, compared  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DAY = date(2026, 3, 14)
YESTERDAY_S = -86_400.0


@pytest.mark.parametrize(
    ("now", "before", "text"),
    [
        (112, 100, "+12 %"),
        (50, 200, "−75 %"),
        (1004, 1000, "as before"),
        (1006, 1000, "+1 %"),
        (5000, 100, "50 times as before"),
        (3, 0, "none before"),
        (0, 0, "as before"),
        (0, 7, "−100 %"),
        (None, 7, ""),
        (7, None, ""),
    ],
)
def test_a_change_in_per_cent(now: float | None, before: float | None, text: str) -> None:
    assert change(now, before) == text


def results_of(day: date, hours: float, came_in: int) -> Results:
    """Return results of a broker that was heard from 8 o'clock on."""
    rows = no_rows()
    begun = START + (day - DAY)
    ended = begun + timedelta(hours=hours)
    rows["starts"] = [{"broker_id": "north", "first": begun, "last": ended, "started": begun}]
    totals = {"enqueued": came_in, "delivered": came_in, "dropped": 0, "bytes_out": 0}
    rows["top_destinations"] = [
        {"broker_id": "north", "destination": "/topic/a", "peak_per_s": 1.0, **totals}
    ]
    return Results(day, day, ["north"], Thresholds(), rows)


def test_the_page_says_what_it_compares_with() -> None:
    now, before = results_of(DAY, 4, 300), results_of(DAY - timedelta(days=1), 4, 200)
    alone = report(now, START)
    assert "No statistics of 13 March to compare with." in alone
    assert "<i>+" not in alone
    beside = report(attrs.evolve(now, before=before), START)
    check_page(beside)
    assert "Compared with 13 March until 12:00." in beside
    assert beside.count("<i>+50 %</i>") == 2
    assert '<td class="n">+50 %</td>' in beside
    short = attrs.evolve(now, before=results_of(DAY - timedelta(days=1), 1, 200))
    assert compared(short.of("north")).endswith("until 12:00; statistics of 1 h only.")
    assert compared(attrs.evolve(now, before=before).of("south")).startswith("No statistics of 13")


def sent(offset: int, at_s: float, count: int) -> Row:
    item = {"destination": "/topic/a", "enqueued_total": count}
    return message("destination", offset, item, at_s=at_s)


@pytest.mark.full
def test_half_a_day_is_compared_with_half_a_day(spark: "SparkSession", tmp_path: Path) -> None:
    today = [process(n, 600 * n, 9000) for n in range(3)]
    write(tmp_path, today + [sent(10 + n, 600 * n, n) for n in range(3)])
    names = list(analyse(spark, tmp_path, DAY, DAY))
    assert names == list(RESULTS), "there is no day before"
    assert read_results(tmp_path, DAY, DAY).before is None
    # At 8:00, 8:10, 8:20, and much later than the present end.
    late = 8 * 3600.0
    begun = [(n, YESTERDAY_S + at_s) for n, at_s in enumerate((0.0, 600.0, 1200.0, late))]
    rows = [process(20 + n, at_s, 9000) for n, at_s in begun]
    rows += [sent(30 + n, at_s, 4 * n) for n, at_s in begun[:3]] + [sent(40, begun[3][1], 1000)]
    write(tmp_path, rows)
    names = list(analyse(spark, tmp_path, DAY, DAY))
    assert names[len(RESULTS) :] == [f"before/{name}" for name in COMPARED]
    results = read_results(tmp_path, DAY, DAY)
    assert results.before is not None
    assert (results.before.first, results.before.brokers) == (date(2026, 3, 13), ["north"])
    (now,), (then,) = results["top_destinations"], results.before["top_destinations"]
    assert (now["enqueued"], then["enqueued"]) == (2, 8)
    assert "<i>−75 %</i>" in report(results, START)
