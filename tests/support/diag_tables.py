"""Tables of the statistics from a few messages, without compaction. Needs Spark."""

from typing import TYPE_CHECKING

from tests.support.diag_bodies import message
from trio_stomp.spark._tables import KINDS, RAW, records, struct, table_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def tables(spark: "SparkSession", rows: list[dict[str, object]]) -> dict[str, "DataFrame"]:
    raw = spark.createDataFrame([tuple(row.values()) for row in rows], struct(RAW))
    found = {}
    for kind, table in KINDS.items():
        if any(row["kind"] == kind for row in rows):
            found[kind] = records(raw.where(f"kind = '{kind}'"), table)
        else:
            found[kind] = spark.createDataFrame([], table_type(table))
    return found


def sent(
    offset: int, minute: float, count: int, name: str = "/topic/a", boot: str = "b1"
) -> dict[str, object]:
    item = {"destination": name, "enqueued_total": count}
    return message("destination", offset, item, at_s=60 * minute, boot=boot)


def process(offset: int, at_s: float, uptime_s: float, boot: str = "b1") -> dict[str, object]:
    return message("process", offset, at_s=at_s, boot=boot, uptime_s=uptime_s)
