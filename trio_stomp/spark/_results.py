"""Runs the whole analysis: from ``stats`` to small tables under ``analysis/<days>/<name>``.

Each result is written before the next is made, and read back where another is built upon it: so
none is computed twice, and what a person looks at is what lies on disk.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path

from attrs import field, frozen
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from trio_stomp.spark import _analysis, _trouble
from trio_stomp.spark._analysis import Tables, Thresholds
from trio_stomp.spark._compact import settings
from trio_stomp.spark._tables import read_table

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
"""In an order in which each finds what it is built upon."""

LARGE = frozenset({"rates", "bucket_counts"})
"""As large as the tables themselves: for the other results, and for Spark, not for a report."""

Row = dict[str, object]


@frozen
class Results:
    """What a report is made of.

    Args:
      tables: Rows of each result that is not large, moments in UTC.
    """

    first: date
    last: date
    brokers: Sequence[str]
    thresholds: Thresholds
    tables: Mapping[str, Sequence[Row]] = field(repr=False)

    def __getitem__(self, name: str) -> Sequence[Row]:
        return self.tables[name]


def analyse(
    spark: SparkSession,
    root: Path | str,
    first: date,
    last: date,
    broker: str = "",
    thresholds: Thresholds | None = None,
) -> Iterator[str]:
    """Make all results of some days, yielding the name of each when it is done.

    Args:
      first: In UTC, as ``last``, which is included.
      broker: Only this one; "" = all.
    """
    thresholds = thresholds or Thresholds()
    out = directory(root, first, last)
    with settings(spark):
        tables: dict[str, DataFrame] = {}
        for kind in SOURCES:
            frame = read_table(spark, root, kind).where(F.col("date").between(first, last))
            tables[kind] = frame.where(F.col("broker_id") == broker) if broker else frame
        for name, make in RESULTS.items():
            path = str(out / name)
            made = make(tables, thresholds)
            made.write.mode("overwrite").option("compression", "zstd").parquet(path)
            tables[name] = spark.read.schema(made.schema).parquet(path)
            yield name


def directory(root: Path | str, first: date, last: date) -> Path:
    """Return where the results of some days lie."""
    days = first.isoformat() if first == last else f"{first}_{last}"
    return Path(root) / "analysis" / days


def read_results(
    spark: SparkSession,
    root: Path | str,
    first: date,
    last: date,
    thresholds: Thresholds | None = None,
) -> Results:
    """Return the results that ``analyse`` wrote, but the large ones."""
    out = directory(root, first, last)
    tables = {
        name: [_plain(row.asDict()) for row in spark.read.parquet(str(out / name)).collect()]
        for name in RESULTS
        if name not in LARGE
    }
    brokers = sorted({str(row["broker_id"]) for row in tables["starts"]})
    return Results(first, last, brokers, thresholds or Thresholds(), tables)


def days_with_tables(root: Path | str) -> list[date]:
    """Return the days of which there is anything to analyse."""
    found = {path.name for path in (Path(root) / "stats").glob("[a-z_]*/date=*")}
    return sorted(date.fromisoformat(name.removeprefix("date=")) for name in found)


def _plain(row: Row) -> Row:
    # A driver's rows have local time, without saying so.
    return {
        name: value.astimezone(UTC) if isinstance(value, datetime) else value
        for name, value in row.items()
    }
