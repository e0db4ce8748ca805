"""Data that cover seconds or hours: first rows, widths of buckets, the axis of time."""

from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.spark import require
from tests.support.spark import spark as spark

require("pyspark")

from tests.support.diag_bodies import START, message  # noqa: E402
from tests.support.diag_tables import RESULTS, Results, no_rows, process, sent, tables  # noqa: E402
from tests.support.lake import write  # noqa: E402
from tests.support.page import check_page  # noqa: E402
from trio_stomp.spark import Thresholds, analyse, read_results  # noqa: E402
from trio_stomp.spark._analysis import bucket_counts, increases  # noqa: E402
from trio_stomp.spark.reporting import report  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.full]

LIMITS = Thresholds()

# --- without Spark --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("span_s", "interval_s", "widths"),
    [
        (86_400, 10, (60, 900)),
        (6 * 3600, 300, (60, 900)),
        (6 * 3600 - 1, 10, (60, 900)),
        (3600, 10, (30, 120)),
        (600, 1, (5, 30)),
        (52, 1, (1, 2)),
        (60, 10, (10, 10)),
        (0, 0.5, (1, 1)),
        (7200, 1000, (1000, 1000)),
    ],
)
def test_widths_fit_the_span(span_s: float, interval_s: float, widths: tuple[int, int]) -> None:
    fitted = LIMITS.fitted(span_s, interval_s)
    assert (fitted.bucket_s, fitted.coarse_s) == widths


def results_of(begin_s: float, end_s: float) -> Results:
    rows = no_rows()
    first, last = (START + timedelta(seconds=at_s) for at_s in (begin_s, end_s))
    rows["starts"] = [{"broker_id": "north", "first": first, "last": last, "started": first}]
    day = date(2026, 3, 14)
    return Results(day, day, ["north"], LIMITS.fitted(end_s - begin_s, 1), rows)


def test_plots_span_the_data_where_they_are_much_shorter_than_the_days() -> None:
    """The span covers whole columns of the coarse plots."""
    seconds = results_of(3, 52)
    assert seconds.span == (START + timedelta(seconds=2), START + timedelta(seconds=54))
    html = report(seconds, START)
    check_page(html)
    assert "08:00:02 to 08:00:54 (52 s)" in html
    assert ">08:00:30</text>" in html
    hours = results_of(0, 2 * 3600)
    assert hours.span == (START, START + timedelta(hours=2, minutes=5))
    assert results_of(5, 5).span == (START + timedelta(seconds=5), START + timedelta(seconds=6))
    assert ">09:00</text>" in report(hours, START)
    day = START.replace(hour=0), START.replace(hour=0) + timedelta(days=1)
    assert results_of(0, 13 * 3600).span == day


# --- with Spark -----------------------------------------------------------------------------------


def test_counts_of_a_boot_within_the_data_begin_with_its_first_row(
    spark: "SparkSession",
) -> None:
    """The first start was there before; of the second, all is known, but not of the process."""

    def latency_row(
        offset: int, at_s: float, name: str, count: int, boot: str
    ) -> dict[str, object]:
        known = {"destination": name, "stage": "delivery", "le_ms": [1.0]}
        item = {**known, "bucket_counts": [count, 0], "count_total": count}
        return message("latency", offset, item, at_s=at_s, boot=boot)

    rows = [process(1, 0, 5000), process(2, 60, 30, "b2"), process(3, 70, 40, "b2")]
    rows += [sent(4, 0, 1000, "/old"), sent(5, 1, 30, "/both", "b2")]
    rows += [latency_row(6, 0, "/old", 1000, "b1"), latency_row(7, 60, "/both", 30, "b2")]
    named = tables(spark, rows)
    found = increases(named, "destination", ["destination"], ["enqueued_total"], 10).collect()
    assert {row["destination"]: row["enqueued"] for row in found} == {"/old": 0, "/both": 30}
    counts = bucket_counts(named, Thresholds(coarse_s=10)).collect()
    assert [(row["destination"], row["count"]) for row in counts] == [("/both", 30)]
    ticks = increases(named, "process", [], ["uptime_s"], 10).orderBy("bucket").collect()
    assert [row["uptime_s"] for row in ticks] == [0, 30, 10]


def test_an_item_without_changes_is_not_a_time_without_statistics(spark: "SparkSession") -> None:
    """Statistics come each second except 20 s, after which the rate is a mean."""
    heard_at = [*range(10), *range(30, 40)]
    rows = [process(100 + at_s, at_s, at_s) for at_s in heard_at]
    rows += [sent(1, 0, 0), sent(2, 9 / 60, 9), sent(3, 35 / 60, 50)]
    found = increases(tables(spark, rows), "destination", ["destination"], ["enqueued_total"], 1)
    spans = [row["span_s"] for row in found.orderBy("bucket").collect()]
    assert spans == [1, 1, 21]


def test_widths_are_kept_with_the_results(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = {name: RESULTS[name] for name in ("load", "starts")}
    monkeypatch.setattr("trio_stomp.spark._results.RESULTS", few)
    write(tmp_path, [process(n, 10 * n, 10 * n) for n in range(7)])
    day = date(2026, 3, 14)
    assert list(analyse(spark, tmp_path, day, day)) == list(few)
    results = read_results(tmp_path, day, day)
    assert (results.thresholds.bucket_s, results.thresholds.coarse_s) == (10, 10)
    assert len(results["load"]) == 7
    assert results.span == (START, START + timedelta(seconds=70))
