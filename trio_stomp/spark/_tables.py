"""The tables of the statistics, derived from the schema of the broker's records.

``raw`` holds unchanged messages. ``stats/<kind>/date=DATE`` holds one row for each record, with a
column for each field. Both are always read with the types below, because Parquet's schema merging
reads all footers and fails if a type was widened. New columns are appended to those of a record;
older files have null there.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from trio_stomp.base import PAGE, PREFIX, TABLES, Field, Table

TYPES: dict[str, DataType] = {
    "BIGINT": LongType(),
    "DOUBLE": DoubleType(),
    "STRING": StringType(),
    "BOOLEAN": BooleanType(),
    "TIMESTAMP": TimestampType(),
    "DATE": DateType(),
    "ARRAY<DOUBLE>": ArrayType(DoubleType()),
    "ARRAY<BIGINT>": ArrayType(LongType()),
}
"""The types of columns, chosen so that they never need widening."""

STORED_AT = Field("stored_at", "TIMESTAMP", "when the broker stored the message, by its clock")

RAW = (
    Field("broker_id", "STRING", "which broker"),
    Field("epoch", "STRING", "the epoch of the stream"),
    Field("offset", "BIGINT", "number of the message in its epoch"),
    Field("topic", "STRING", "where the broker published it"),
    Field("kind", "STRING", "the table that its records belong to"),
    STORED_AT,
    Field(
        "ts", "TIMESTAMP", "when the figures were taken; of a user's stream, what the sender says"
    ),
    Field("v", "BIGINT", "version of the schema"),
    Field("body", "STRING", "the message's JSON"),
)

IDX = Field("idx", "BIGINT", "place of the item in its message, from 0")
DATE = Field("date", "DATE", "day of stored_at in UTC; a directory, not stored in the files")
MESSAGE = ("broker_id", "epoch", "offset")
"""The columns that identify a message permanently."""

KEYS: dict[str, tuple[str, ...]] = {
    "connection": ("session_id",),
    "ws": ("session_id",),
    "queue": ("destination", "subscription_id"),
    "destination": ("destination",),
    "latency": ("destination", "stage"),
    "process": (),
    "session": (),
    "stale": (),
    "event": ("name", "session_id"),
    "_gap": (),
}
"""The columns that identify an item within a broker; files are sorted by them, then by ts."""

KINDS: dict[str, Table] = {table.name: table for table in TABLES}


def columns(table: Table) -> tuple[Field, ...]:
    """Return the columns of a table as stored, that of the partition last."""
    listed = (*PAGE, IDX) if table.is_list else ()
    return (*PREFIX, *listed, *table.fields, *table.beside, STORED_AT, DATE)


def struct(fields: Sequence[Field]) -> StructType:
    """Return the type of a row. All columns are nullable, as old files lack newer ones."""
    return StructType([StructField(field.name, TYPES[field.type]) for field in fields])


def table_type(table: Table) -> StructType:
    """Return the type of ``stats/<kind>``."""
    return struct(columns(table))


def body_type(table: Table) -> StructType:
    """Return the type of a message's JSON."""
    if not table.is_list:
        return struct((*PREFIX, *table.fields))
    items = StructField("items", ArrayType(struct(table.fields)))
    return StructType([*struct((*PREFIX, *PAGE, *table.beside)).fields, items])


def differences(table: Table, body: Mapping[str, object]) -> list[str]:
    """Return the fields of messages that the table lacks, and its columns that messages lack."""
    expected = {field.name for field in (*PREFIX, *table.beside)}
    if not table.is_list:
        return sorted(set(body) ^ (expected | {field.name for field in table.fields}))
    found = set(body) ^ (expected | {field.name for field in PAGE} | {"items"})
    items = body.get("items")
    for item in items if isinstance(items, list) else ():
        found |= set(item) ^ {field.name for field in table.fields}
    return sorted(found)


def is_whole(table: Table) -> Column:
    """Return whether a message is JSON, and the table has a column for each of its fields."""
    known = {field.name for field in (*PREFIX, *table.beside)}
    own = {field.name for field in table.fields}
    if not table.is_list:
        return _has_only("body", known | own)
    items = F.from_json(F.get_json_object("body", "$.items"), ArrayType(StringType()))
    known |= {"items"} | {field.name for field in PAGE}
    return _has_only("body", known) & F.forall(items, lambda item: _has_only(item, own))


def _has_only(text: Column | str, known: Iterable[str]) -> Column:
    names = F.array(*(F.lit(name) for name in sorted(known)))
    return F.size(F.array_except(F.json_object_keys(text), names)) == 0


def records(raw: DataFrame, table: Table, *kept: str) -> DataFrame:
    """Return the rows of one table from messages of its kind, and the columns ``kept`` of raw.

    The row of an item repeats the common fields of its message. A message without items yields no
    row, unless it has common fields, which would be lost: then one row with nulls.
    """
    parsed = raw.select("*", F.from_json("body", body_type(table)).alias("m"))
    item = "m"
    if table.is_list:
        # Not ``explode``: to leave out empty lists first, Spark would parse each body three times.
        parsed = parsed.select("*", F.posexplode_outer("m.items").alias("pos", "item"))
        parsed = parsed if table.beside else parsed.where("pos IS NOT NULL")
        item = "item"
    own = {field.name for field in table.fields}
    from_raw = {field.name for field in RAW}

    def value(field: Field) -> Column:
        name = field.name
        if field is DATE:
            return F.to_date("stored_at")
        if field is IDX:
            return F.coalesce(F.col("pos"), F.lit(0)).cast("bigint")
        if name in ("ts", "stored_at", *MESSAGE):
            # The source's value from the broker, not that in the body.
            return F.col(name)
        if name in own:
            return F.col(f"{item}.{name}")
        # A message that is not JSON keeps its position.
        return (
            F.coalesce(F.col(f"m.{name}"), F.col(name)) if name in from_raw else F.col(f"m.{name}")
        )

    return parsed.select(*(value(field).alias(field.name) for field in columns(table)), *kept)


def read_table(spark: SparkSession, root: Path | str, kind: str) -> DataFrame:
    """Return a table, which is empty if nothing of its kind was written."""
    schema = table_type(KINDS[kind])
    path = Path(root) / "stats" / kind
    days = [str(day) for day in sorted(path.glob("date=*"))]
    if not days:
        return spark.createDataFrame([], schema)
    # Read the directories of its days, because Spark hides those whose names begin with _.
    return spark.read.schema(schema).option("basePath", str(path)).parquet(*days)


def open_tables(spark: SparkSession, root: Path | str) -> dict[str, DataFrame]:
    """Return all tables by kind, also registered as temporary views, and ``metrics_long``."""
    tables = {kind: read_table(spark, root, kind) for kind in KINDS}
    for kind, table in tables.items():
        table.createOrReplaceTempView(kind)
    metrics_long(tables).createOrReplaceTempView("metrics_long")
    return tables


def metrics(table: Table) -> Iterator[str]:
    """Yield the columns of a table that are metrics."""
    for field in (*table.fields, *table.beside):
        if field.type in ("BIGINT", "DOUBLE"):
            yield field.name


def metrics_long(tables: dict[str, DataFrame]) -> DataFrame:
    """Return each metric of each interval as a row, for dashboards that need this form.

    ``name`` joins the columns that identify an item; ``metric`` is the name of the column.
    """
    long: DataFrame | None = None
    for kind, frame in tables.items():
        table = KINDS[kind]
        names = list(metrics(table))
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
