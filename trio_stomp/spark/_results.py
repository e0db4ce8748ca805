"""The whole analysis: from the tables to small ones under ``analysis/<days>/<name>``.

Each result is written before the next one is computed, and read back by those that depend on it.
So none is computed twice, and reports show what is on disk.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import attrs
import pyarrow.parquet as pq
from attrs import field, frozen
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from trio_stomp.spark import _analysis, _trouble
from trio_stomp.spark._analysis import Tables, Thresholds
from trio_stomp.spark._session import settings
from trio_stomp.spark._tables import Root, read_table
from trio_stomp.spark._units import clock
from trio_stomp.spark.lake import Place, days_of, in_spark, open_store

SOURCES = ("destination", "latency", "event", "process", "session", "queue", "_gap")
"""The tables that the analysis reads."""

RESULTS: Mapping[str, Callable[[Tables, Thresholds], DataFrame]] = {
    "rates": _analysis.rates,
    "traffic": _analysis.traffic,
    "top_destinations": _analysis.top_destinations,
    "bucket_counts": _analysis.bucket_counts,
    "latency_by_time": _analysis.latency_by_time,
    "latency_by_destination": _analysis.latency_by_destination,
    "depths": _analysis.depths,
    "episodes": _trouble.episodes,
    "consumers": _trouble.consumers,
    "slow_subscribers": _trouble.slow_subscribers,
    "drops": _analysis.drops,
    "load": _analysis.load,
    "processor": _analysis.processor,
    "clients": _analysis.clients,
    "headroom": _trouble.headroom,
    "starts": _analysis.starts,
    "gaps": _analysis.gaps,
}
"""The results in the order of their dependencies."""

LARGE = frozenset({"rates", "bucket_counts"})
"""Results as large as the tables: for other results and for Spark, not for reports."""

COMPARED = (
    "rates",
    "top_destinations",
    "bucket_counts",
    "latency_by_destination",
    "drops",
    "headroom",
    "starts",
)
"""The results that are also computed of the days before, to compare with."""
BEFORE = "before"
"""The directory of these."""

WIDTHS_FILE = "widths.json"
"""The file beside the results with the widths of their buckets, and whether there is ``before``."""
WIDTHS = ("bucket_s", "coarse_s")

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Row = dict[str, Any]


@frozen
class Results:
    """The contents of a report.

    Args:
      tables: The rows of each result that is not large, with times in UTC.
      before: Those of ``COMPARED`` of as many days before, each day until the time at which the
        data of the last one end; None = there are no data.
    """

    first: date
    last: date
    brokers: Sequence[str]
    thresholds: Thresholds
    tables: Mapping[str, Sequence[Row]] = field(repr=False)
    before: "Results | None" = field(default=None, repr=False)

    def __getitem__(self, name: str) -> Sequence[Row]:
        return self.tables[name]

    def of(self, broker: str) -> "Results":
        """Return the results of one broker. A gap may lack its broker."""
        own = {
            name: [row for row in rows if row["broker_id"] in (broker, "")]
            for name, rows in self.tables.items()
        }
        before = None if self.before is None else self.before.of(broker)
        return attrs.evolve(self, brokers=[broker], tables=own, before=before)

    @property
    def span(self) -> tuple[datetime, datetime]:
        """Return the span of the data if it covers less than half of the days, else the days."""
        begin = datetime.combine(self.first, time(), UTC)
        end = datetime.combine(self.last, time(), UTC) + timedelta(days=1)
        starts = self["starts"]
        if not starts:
            return begin, end
        begun, ended = min(row["first"] for row in starts), max(row["last"] for row in starts)
        if 2 * (ended - begun) >= end - begin:
            return begin, end
        # Whole columns, also of the coarse plots.
        width = timedelta(seconds=self.thresholds.coarse_s)
        after = begin + ((ended - begin) // width + 1) * width
        return begin + (begun - begin) // width * width, min(after, end)

    def clock(self, moment: datetime) -> str:
        """Format a time with the precision that the span of the data needs."""
        return clock(moment, self.first != self.last, self.thresholds.bucket_s < 60)


def analyse(
    spark: SparkSession,
    root: Root,
    first: date,
    last: date,
    *,
    broker: str = "",
    thresholds: Thresholds | None = None,
) -> Iterator[str]:
    """Compute all results of some days, and yield the name of each when it is done.

    Args:
      spark: The Spark session.
      root: The directory or URI of the tables.
      first: The first day, in UTC.
      last: The last day, inclusive.
      broker: Analyse only this broker; "" = all.
      thresholds: The thresholds of trouble.
    """
    thresholds = thresholds or Thresholds()
    out = directory(root, first, last)
    with settings(spark):
        tables = _of_days(spark, root, first, last, broker)
        limits, end = _fitted(tables["process"], thresholds)
        earlier = _earlier(spark, root, (first, last), broker, end) if end else None
        _keep_widths(out, limits, earlier is not None)
        yield from _written(spark, tables, limits, out, RESULTS)
        if earlier is not None:
            names = [name for name in COMPARED if name in RESULTS]
            for name in _written(spark, earlier, limits, out.below(BEFORE), names):
                yield f"{BEFORE}/{name}"


def _of_days(
    spark: SparkSession, root: Root, first: date, last: date, broker: str
) -> dict[str, DataFrame]:
    """Return the tables that the analysis reads, of some days."""
    store, tables = open_store(root), {}
    for kind in SOURCES:
        frame = read_table(spark, store, kind).where(F.col("date").between(first, last))
        tables[kind] = frame.where(F.col("broker_id") == broker) if broker else frame
    return tables


def _earlier(
    spark: SparkSession, root: Root, days: tuple[date, date], broker: str, end: datetime
) -> dict[str, DataFrame] | None:
    """Return the tables of as many days before, until the same time of day, or None.

    Half a day is so compared with half a day.
    """
    first, last = days
    since = timedelta(days=(last - first).days + 1)
    begun, ended = first - since, last - since
    if not any(begun <= day <= ended for day in days_with_tables(root)):
        return None
    tables = _of_days(spark, root, begun, ended, broker)
    until = F.timestamp_micros(F.lit((end - since - EPOCH) // timedelta(microseconds=1)))
    tables = {kind: table.where(F.col("ts") <= until) for kind, table in tables.items()}
    return tables if tables["process"].head(1) else None


def _written(
    spark: SparkSession,
    tables: dict[str, DataFrame],
    limits: Thresholds,
    out: Place,
    names: Iterable[str],
) -> Iterator[str]:
    """Compute and write results, and yield the name of each when it is done."""
    for name in names:
        path = in_spark(out.below(name).uri)
        made = RESULTS[name](tables, limits)
        made.write.mode("overwrite").option("compression", "zstd").parquet(path)
        tables[name] = spark.read.schema(made.schema).parquet(path)
        yield name


def directory(root: Root, first: date, last: date) -> Place:
    """Return the directory of the results of some days."""
    days = first.isoformat() if first == last else f"{first}_{last}"
    return Place.of(root).below("analysis", days)


def read_results(
    root: Root, first: date, last: date, thresholds: Thresholds | None = None
) -> Results:
    """Return the results that ``analyse`` wrote, except the large ones. It needs no Spark."""
    out = directory(root, first, last)
    kept = json.loads(out.read(WIDTHS_FILE) or b"{}")  # none of an older version
    widths = {name: int(kept[name]) for name in WIDTHS if name in kept}
    limits = attrs.evolve(thresholds or Thresholds(), **widths)
    before = None
    if kept.get(BEFORE):
        since = timedelta(days=(last - first).days + 1)
        earlier = _read(out.below(BEFORE), COMPARED)
        before = Results(first - since, last - since, _brokers(earlier), limits, earlier)
    tables = _read(out, RESULTS)
    return Results(first, last, _brokers(tables), limits, tables, before=before)


def _read(out: Place, names: Iterable[str]) -> dict[str, list[Row]]:
    """Return the rows of results that are not large."""
    return {
        name: pq.read_table(out.below(name).path, filesystem=out.files).to_pylist()
        for name in names
        if name not in LARGE
    }


def _brokers(tables: Mapping[str, Sequence[Row]]) -> list[str]:
    return sorted({str(row["broker_id"]) for row in tables["starts"]})


def days_with_tables(root: Root) -> list[date]:
    """Return the days that have rows in a table, in order."""
    return days_of(open_store(root))


def _fitted(process: DataFrame, limits: Thresholds) -> tuple[Thresholds, datetime | None]:
    """Return thresholds whose buckets suit the span of the data, and the time of its end."""
    times = (F.unix_micros(F.min("ts")), F.unix_micros(F.max("ts")), F.max("interval_s"))
    ((begin, end, interval_s),) = process.agg(*times).collect()
    if end is None:
        return limits, None
    span_s = (end - begin) / 1_000_000
    return limits.fitted(span_s, interval_s or 0.0), EPOCH + timedelta(microseconds=end)


def _keep_widths(out: Place, limits: Thresholds, has_before: bool) -> None:
    kept = {name: getattr(limits, name) for name in WIDTHS} | {BEFORE: has_before}
    out.write(WIDTHS_FILE, json.dumps(kept).encode() + b"\n")
