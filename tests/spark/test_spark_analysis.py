"""The analysis: rates over restarts, percentiles, episodes, consumers; and the report's page."""

import math
import random
import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.spark import require
from tests.support.spark import spark as spark

require("pyspark")

from tests.support.diag_bodies import START, message  # noqa: E402
from tests.support.diag_day import diag_day as diag_day  # noqa: E402
from tests.support.diag_tables import RESULTS, Results, no_rows, sent, tables  # noqa: E402
from tests.support.page import check_page  # noqa: E402
from trio_stomp.base import percentile, rounded_size  # noqa: E402
from trio_stomp.spark import Thresholds, analyse, read_results  # noqa: E402
from trio_stomp.spark._analysis import bucket_counts, drops, increases, latency, rates, traffic  # noqa: E402
from trio_stomp.spark._trouble import consumers, episodes, slow_subscribers  # noqa: E402
from trio_stomp.spark._units import clock, each, lasting, nice_step, short, time_step  # noqa: E402
from trio_stomp.spark.reporting import report  # noqa: E402
from trio_stomp.spark.reporting._chart import Frame, Scale, Series, lines, pieces, thinned  # noqa: E402
from trio_stomp.spark.reporting._findings import findings, holes  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
LIMITS = Thresholds()
Row = Mapping[str, object]


# --- without Spark --------------------------------------------------------------------------------


def test_percentiles_of_a_sum_are_those_of_all_observations() -> None:
    bounds = [0.05 * 2**power for power in range(21)]
    chance = random.Random(5)
    values = [chance.lognormvariate(1, 1.2) for _ in range(20_000)]
    halves = [values[:3000], values[3000:]]
    edges = list(pairwise([0.0, *bounds, math.inf]))
    counts = [
        [sum(low < value <= high for value in half) for low, high in edges] for half in halves
    ]
    both = [a + b for a, b in zip(*counts, strict=True)]
    values.sort()
    for share in (0.5, 0.9, 0.99):
        found, exact = percentile(bounds, both, share), values[int(share * len(values))]
        assert exact / 1.35 < found < exact * 1.35


def test_figures_are_short() -> None:
    assert [short(n) for n in (0, 3, 0.1234, 1234, 10_500_000)] == [
        "0",
        "3",
        "0.123",
        "1.23 k",
        "10.5 M",
    ]
    assert [lasting(n) for n in (12, 780, 16_080, 7200, 300_000)] == [
        "12 s", "13 min", "4 h 28 min", "2 h", "3 d 11 h",
    ]  # fmt: skip
    assert nice_step(700, 4) == pytest.approx(200)
    assert time_step(timedelta(days=1)) == timedelta(hours=3)
    assert clock(START) == "08:00"
    assert clock(START, with_day=True) == "14 Mar 08:00"
    assert clock(START, with_seconds=True) == "08:00:00"
    assert [each(n) for n in (1, 5, 60, 900)] == [
        "a second",
        "5 s",
        "a minute",
        "a quarter of an hour",
    ]
    assert time_step(timedelta(seconds=52)) == timedelta(seconds=10)


def test_peaks_survive_thinning_and_lines_break() -> None:
    points = [(START + timedelta(minutes=n), float(n == 777)) for n in range(1440)]
    assert max(value for _, value in thinned(points, 100)) == 1.0
    assert len(thinned(points, 100)) <= 100
    gone = [point for n, point in enumerate(points) if not 100 < n < 200]
    assert [len(piece) for piece in pieces(gone, timedelta(minutes=5))] == [101, 1240]


def test_axes_are_round() -> None:
    frame = Frame(START, START + timedelta(hours=1))
    assert Scale.of(frame, 4612.0).top == pytest.approx(6000)
    assert Scale.of(frame, 202 * 2**20, rounded_size).top == 300 * 2**20
    assert Scale.of(frame, 0.0).top > 0
    picture = lines(frame, [Series("<a>", [(START, 1.0)])], label="a & b")
    assert "<a>" not in picture.replace("&lt;a&gt;", "")
    assert "a &amp; b" in picture


def test_a_report_without_data_is_a_valid_page() -> None:
    nothing = no_rows()
    day = date(2026, 3, 14)
    for brokers in ([], ["north"]):
        html = report(Results(day, day, brokers, LIMITS, nothing), START)
        check_page(html)
    for text in ("There was no traffic", "No delivery was timed.", "Nothing waited."):
        assert text in html


@pytest.mark.parametrize(
    ("lasted_s", "times", "text"),
    [
        (0.0006, 1, "At 08:00: its outbox was full once; it was disconnected for that."),
        (90, 12, "08:00-08:01 (2 min): its outbox was full 12 times, 7 messages lost."),
    ],
)
def test_slow_subscriber_is_described_in_words(lasted_s: float, times: int, text: str) -> None:
    rows = no_rows()
    rows["slow_subscribers"] = [
        {"broker_id": "north", "user": "", "destination": "/topic/a", "times": times,
         "dropped": 0 if times == 1 else 7, "put_out": times == 1, "begin": START,
         "end": START + timedelta(seconds=lasted_s)}
    ]  # fmt: skip
    day = date(2026, 3, 14)
    results = Results(day, day, ["north"], LIMITS, rows)
    output = {finding.title: finding.text for finding in findings(results.of("north"))}
    assert output["A subscriber reads /topic/a too slowly"] == text


def test_a_plot_has_no_colours_that_are_alike() -> None:
    """The second and the fifth are both of the colour of earth: lines of one plot have one."""
    rows = no_rows()
    waits = {"input": 1, "queues": 2, "stale": 3, "unacked": 4}
    rows["depths"] = [{"broker_id": "north", "bucket": START, **waits}]
    day = date(2026, 3, 14)
    html = report(Results(day, day, ["north"], LIMITS, rows), START)
    key = html[html.index("What waits") :].partition("</div>")[0]
    colours = re.findall(r'class="k(\d)"', key)
    assert len(colours) == len(set(colours)) == 4
    assert not {"2", "5"} <= set(colours)


def test_names_from_clients_are_escaped() -> None:
    rows = no_rows()
    rows["drops"] = [
        {"broker_id": "north", "reason": "slow-consumer", "destination": "/<b>", "user": "<script>",
         "bucket": START, "dropped": 3}
    ]  # fmt: skip
    day = date(2026, 3, 14)
    html = report(Results(day, day, ["north"], LIMITS, rows), START)
    check_page(html)
    assert "/&lt;b&gt;" in html


# --- with Spark -----------------------------------------------------------------------------------


@pytest.mark.full
def test_rates_account_for_restarts_and_lists_of_changes(
    spark: "SparkSession",
) -> None:
    """1: the count before is unknown; 2: +50; 3: not listed, so unchanged; 4: +30."""
    rows = [
        *(sent(10 + n, n, 0, "/topic/quiet") for n in range(9)),
        sent(1, 0, 1000),
        sent(2, 1, 1050),
        sent(4, 3, 1080),
        sent(5, 5, 7, boot="b2"),
        sent(6, 6, 9, boot="b2"),
        sent(7, 7, 4, boot="b2"),
        sent(8, 6, 12, "/topic/new"),
    ]
    found = increases(tables(spark, rows), "destination", ["destination"], ["enqueued_total"], 60)
    by_minute = {
        (row["destination"], (row["bucket"].minute)): row["enqueued"] for row in found.collect()
    }
    old = [by_minute.get(("/topic/a", minute)) for minute in range(8)]
    assert old == [0, 50, None, 30, None, 7, 2, 4]
    assert by_minute["/topic/new", 6] == 12, "new things begin at 0"


@pytest.mark.full
def test_a_time_without_statistics_makes_no_peak(spark: "SparkSession") -> None:
    named = tables(spark, [sent(1, 0, 0), sent(2, 1, 60), sent(3, 21, 1260)])
    named["rates"] = rates(named, LIMITS)
    found = traffic(named, LIMITS).orderBy("bucket").collect()
    assert [row["enqueued_per_s"] for row in found] == [0.0, 1.0, 1.0]


@pytest.mark.full
def test_histograms_are_added_before_percentiles_are_taken(spark: "SparkSession") -> None:
    def latency_row(
        offset: int, minute: int, name: str, counts: list[int], boot: str
    ) -> dict[str, object]:
        item: dict[str, object] = {"destination": name, "stage": "delivery", "le_ms": [1.0, 2.0]}
        item |= {"bucket_counts": counts, "count_total": sum(counts)}
        return message("latency", offset, item, at_s=60 * minute, boot=boot)

    rows = [
        latency_row(1, 0, "/a", [5, 5, 5], "b1"),
        latency_row(2, 5, "/a", [9, 9, 9], "b1"),
        latency_row(3, 20, "/a", [19, 9, 9], "b1"),
        latency_row(4, 40, "/a", [1, 0, 3], "b2"),
        latency_row(5, 20, "/b", [0, 30, 0], "b1"),
    ]
    named = tables(spark, rows)
    named["bucket_counts"] = bucket_counts(named, LIMITS)
    by_time = {
        row["bucket"].minute: row for row in latency(named["bucket_counts"], ["bucket"]).collect()
    }
    assert {minute: row["counts"] for minute, row in by_time.items()} == {
        15: [10, 30, 0],
        30: [1, 0, 3],
    }
    assert by_time[15]["p50"] == pytest.approx(1 + 10 / 30)
    by_name = {
        row["destination"]: row["messages"]
        for row in latency(named["bucket_counts"], ["destination"]).collect()
    }
    assert by_name == {"/a": 14, "/b": 30}


def filled(offset: int, minute: float, **known: object) -> dict[str, object]:
    item = {"destination": "input", "capacity": 100, **known}
    return message("queue", offset, item, at_s=60 * minute)


def test_episodes_are_islands(spark: "SparkSession") -> None:
    """Ten-second ticks: 3 minutes full, a short dip within, long rest, then one tick only."""
    depths = [90] * 9 + [10] * 3 + [95] * 6 + [0] * 30 + [99] + [0] * 5
    rows = [filled(n, n / 6, input_depth=depth) for n, depth in enumerate(depths)]
    (found,) = episodes(tables(spark, rows), LIMITS).collect()
    assert (found["queue"], found["peak_depth"], found["peak_fill"]) == ("input", 95, 0.95)
    assert found["seconds"] == 180.0
    assert found["begin"].astimezone(UTC).replace(tzinfo=UTC).minute == 0


@pytest.mark.full
@pytest.mark.parametrize(
    ("verdict", "unacked", "age"),
    [
        ("leaking", lambda n: 10 + n, lambda n: 40.0 + 60 * n),
        ("stuck", lambda n: 7, lambda n: 40.0 + 60 * n),
        ("slow", lambda n: 100, lambda n: 45.0),
        ("leaking", lambda n: 10 + n, lambda n: 0.0),
        (None, lambda n: 40 + 40 * (n % 2), lambda n: 0.0),
    ],
)
def test_consumers_are_distinguished(
    spark: "SparkSession",
    verdict: str | None,
    unacked: Callable[[int], int],
    age: Callable[[int], float],
) -> None:
    rows = [
        filled(
            n, n, destination="/a", prefetch=100, ack_depth=unacked(n), oldest_unacked_age_s=age(n)
        )
        for n in range(40)
    ]
    found = consumers(tables(spark, rows), Thresholds(pause_s=90)).collect()
    assert [row["verdict"] for row in found] == ([verdict] if verdict else [])


@pytest.mark.full
def test_losses_are_reported_by_reason_and_user(spark: "SparkSession") -> None:
    def event(
        offset: int, name: str, reason: str, detail: str, user: str = ""
    ) -> dict[str, object]:
        known = {"name": name, "reason": reason, "detail": detail, "user": user}
        return message("event", offset, **known)  # type: ignore[arg-type]

    named = tables(
        spark,
        [
            event(1, "drop", "slow-consumer", "40", "dave"),
            event(2, "drop", "slow-consumer", "2", "dave"),
            event(3, "drop", "slow-consumer", "5"),
            event(4, "drop", "input-queue-full", "not a number"),
            event(5, "slow", "outbox-full", "", "dave"),
            event(6, "disconnect", "slow-consumer", "", "dave"),
            event(7, "disconnect", "client-closed", "", "anna"),
        ],
    )
    lost = {(row["reason"], row["user"]): row["dropped"] for row in drops(named, LIMITS).collect()}
    assert lost == {
        ("slow-consumer", "dave"): 42,
        ("slow-consumer", ""): 5,
        ("input-queue-full", ""): 1,
    }
    (dave,) = slow_subscribers(named, LIMITS).collect()
    assert (dave["user"], dave["times"], dave["dropped"], dave["put_out"]) == ("dave", 1, 42, 1)


@pytest.mark.full
def test_the_findings_report_every_incident_of_the_sample(
    spark: "SparkSession", diag_day: Path
) -> None:
    """The findings say what the docstring of the sample's script says."""
    day = date(2026, 3, 14)
    limits = Thresholds(memory_bytes=512 << 20, fds=1024)
    assert list(analyse(spark, diag_day, day, day, thresholds=limits)) == list(RESULTS)
    results = read_results(diag_day, day, day, limits)
    output = {finding.title: finding.text for finding in findings(results.of("north"))}
    assert list(output) == [
        "70,372 messages were lost",
        "The input queue was full",
        "The stale queue of /topic/reports was full",
        "A consumer of /queue/audit leaks",
        "Prefetch of /queue/audit was 94.5 % full",
        "Prefetch of /queue/emails was full",
        "Consumers of /queue/emails are slow",
        "dave reads /topic/prices.us too slowly",
        "The event loop was held for more than 50 ms",
        "The use of memory grows",
        "The broker was restarted once",
        "63 messages of the statistics are missing",
        "10.5 M messages came in, 42.2 M went out",
    ]
    assert "40,628 because the input queue was full" in output["70,372 messages were lost"]
    assert "11:20" in output["The broker was restarted once"]
    begin = datetime(2026, 3, 14, 4, 0, tzinfo=UTC)
    assert holes(results) == [(begin, begin + timedelta(minutes=12))]
    html = report(results, datetime(2026, 3, 15, tzinfo=UTC))
    check_page(html)
    assert html.count("<svg") == 10
