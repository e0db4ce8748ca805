"""Tables of the statistics from a few messages, without files. Needs Spark."""

from typing import TYPE_CHECKING

from tests.support.diag_bodies import KINDS, message
from tests.support.lake import split_of
from trio_stomp.spark._results import COMPARED, RESULTS, Results
from trio_stomp.spark._tables import table_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


__all__ = ["COMPARED", "RESULTS", "Results", "no_rows", "process", "sent", "tables"]


def no_rows() -> dict[str, list[dict[str, object]]]:
    """Return each result without a row."""
    return {name: [] for name in RESULTS}


def tables(spark: "SparkSession", rows: list[dict[str, object]]) -> dict[str, "DataFrame"]:
    parts = split_of(rows)
    return {
        kind: spark.createDataFrame(parts.tables.get(kind, []), table_type(table))
        for kind, table in KINDS.items()
    }


def sent(
    offset: int, minute: float, count: int, name: str = "/topic/a", boot: str = "b1"
) -> dict[str, object]:
    item = {"destination": name, "enqueued_total": count}
    return message("destination", offset, item, at_s=60 * minute, boot=boot)


def process(offset: int, at_s: float, uptime_s: float, boot: str = "b1") -> dict[str, object]:
    return message("process", offset, at_s=at_s, boot=boot, uptime_s=uptime_s)
