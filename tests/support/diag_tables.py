"""Tables of the statistics from a few messages, without files. Needs Spark."""

from typing import TYPE_CHECKING

import pyarrow as pa

from tests.support.diag_bodies import message
from trio_stomp.spark._columns import KINDS, RAW, schema_of
from trio_stomp.spark._tables import table_type
from trio_stomp.spark.lake._records import split

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def tables(spark: "SparkSession", rows: list[dict[str, object]]) -> dict[str, "DataFrame"]:
    parts = split(pa.Table.from_pylist(rows, schema_of(RAW)))
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
