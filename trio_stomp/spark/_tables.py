"""The tables in Spark: types, views, and each metric as a row.

Files are always read with the types below: Parquet's schema merging reads all footers, and fails if
a type was widened.
"""

from os import PathLike

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from trio_stomp.base import Table
from trio_stomp.spark._columns import KEYS, KINDS, columns, schema_of
from trio_stomp.spark.lake import FOLDER, Store, in_spark, open_store

Root = PathLike[str] | str


def table_type(table: Table) -> StructType:
    """Return the type of ``stats/<kind>``."""
    return from_arrow_schema(schema_of(columns(table)))


def read_table(spark: SparkSession, store: Store, kind: str) -> DataFrame:
    """Return the present content of a table, which is empty if nothing of its kind was written."""
    schema = table_type(KINDS[kind])
    files = store.files(kind)
    if not files:
        return spark.createDataFrame([], schema)
    # Spark has no Delta of its own; and it hides directories whose names begin with _.
    base = in_spark(store.place.below(FOLDER, kind).uri)
    reader = spark.read.schema(schema).option("basePath", base)
    return reader.parquet(*(in_spark(file) for file in files))


def open_tables(spark: SparkSession, root: Root) -> dict[str, DataFrame]:
    """Return all tables by kind, also registered as temporary views, and ``metrics_long``.

    Raises:
      LakeError: the root cannot be opened.
    """
    store = open_store(root)
    tables = {kind: read_table(spark, store, kind) for kind in KINDS}
    for kind, table in tables.items():
        table.createOrReplaceTempView(kind)
    metrics_long(tables).createOrReplaceTempView("metrics_long")
    return tables


def metrics_long(tables: dict[str, DataFrame]) -> DataFrame:
    """Return each metric of each interval as a row, for dashboards that need this form.

    ``name`` joins the columns that identify an item; ``metric`` is the name of the column.
    """
    long: DataFrame | None = None
    for kind, frame in tables.items():
        table = KINDS[kind]
        fields = (*table.fields, *table.beside)
        names = [field.name for field in fields if field.type in ("BIGINT", "DOUBLE")]
        if not names or kind in ("event", "_gap"):
            continue
        pairs = ", ".join(f"'{name}', CAST({name} AS DOUBLE)" for name in names)
        part = frame.select(
            "date",
            "ts",
            "broker_id",
            "epoch",
            F.lit(kind).alias("kind"),
            F.concat_ws(" ", *KEYS[kind]).alias("name") if KEYS[kind] else F.lit("").alias("name"),
            F.expr(f"stack({len(names)}, {pairs}) AS (metric, value)"),
        )
        long = part if long is None else long.unionByName(part)
    assert long is not None
    return long.where("value IS NOT NULL")
