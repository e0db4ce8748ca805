"""The tables: their columns are the broker's, and contain the data of its messages."""

import importlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest

from tests.support.spark import require
from tests.support.spark import spark as spark

require("pyspark")

from tests.support.diag_bodies import (  # noqa: E402
    DATE,
    EMPTY,
    IDX,
    KEYS,
    KINDS,
    columns,
    message,
    record,
)
from tests.support.diag_tables import tables as named  # noqa: E402
from tests.support.lake import write  # noqa: E402
from trio_stomp.base.schema import PREFIX, TABLES, Field, Table  # noqa: E402
from trio_stomp.spark import open_tables  # noqa: E402
from trio_stomp.spark._tables import metrics_long, table_type  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]


def body_of(kind: str, *items: dict[str, object], **known: object) -> dict[str, object]:
    found: dict[str, object] = json.loads(str(message(kind, 7, *items, **known)["body"]))  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_field_of_the_broker_is_a_column(table: Table) -> None:
    names = [field.name for field in (*PREFIX, *table.fields, *table.beside)]
    assert set(names) <= set(table_type(table).names)
    assert len(table_type(table).names) == len(set(table_type(table).names))
    assert table_type(table).names[-1] == DATE.name
    assert (IDX.name in table_type(table).names) == table.is_list
    assert set(KEYS[table.name]) <= set(names)


@pytest.mark.parametrize("kind", ["queue", "process", "ws"])
def test_a_field_added_on_one_side_only_is_noticed(kind: str) -> None:
    differences = importlib.import_module("make_diag_sample").differences
    table = KINDS[kind]
    body = body_of(kind, {})
    assert differences(table, body) == []

    more = attrs.evolve(table, fields=(*table.fields, Field("novelty", "BIGINT", "is new")))
    assert differences(more, body) == ["novelty"]

    target = body["items"][0] if table.is_list else body  # type: ignore[index]
    target["novelty"] = 1
    assert differences(table, body) == ["novelty"]


def test_the_documentation_lists_the_columns() -> None:
    script = importlib.import_module("columns_table")
    text = (ROOT / "docs" / "operate" / "analysis.md").read_text(encoding="utf-8")
    assert script.updated(text) == text, "run: python scripts/columns_table.py --write"


def test_types_never_need_to_be_widened() -> None:
    allowed = {"bigint", "double", "string", "boolean", "timestamp", "date"}
    for table in TABLES:
        for column in table_type(table).fields:
            assert column.dataType.simpleString().removeprefix("array<").rstrip(">") in allowed


def test_metrics_long_has_a_row_for_each_number(spark: "SparkSession") -> None:
    tables = named(spark, [])
    item = {"destination": "/topic/a", "depth": 4}
    tables["destination"] = named(spark, [message("destination", 1, item)])["destination"]
    rows = {row["metric"]: row for row in metrics_long(tables).collect()}
    assert len(rows) == 10
    assert (rows["depth"]["value"], rows["depth"]["name"], rows["depth"]["kind"]) == (
        4.0,
        "/topic/a",
        "destination",
    )


def test_bodies_of_tests_are_whole() -> None:
    assert set(EMPTY) >= {field.type for table in TABLES for field in table.fields}
    assert record((Field("a", "BIGINT", ""),), {}) == {"a": 0}
    assert columns(KINDS["process"])[-1] is DATE


@pytest.mark.parametrize("wanted", ["delta", "parquet"])
def test_spark_reads_what_the_writer_wrote(
    spark: "SparkSession", tmp_path: Path, wanted: str
) -> None:
    write(tmp_path, [message("queue", 1, {"destination": "/queue/a"}), message("_gap", 2)], wanted)
    tables = open_tables(spark, tmp_path)
    assert {kind: table.count() for kind, table in tables.items() if not table.isEmpty()} == {
        "queue": 1,
        "_gap": 1,
    }
    sql = "SELECT destination, string(date), string(ts), idx FROM queue WHERE offset = 1"
    assert spark.sql(sql).collect() == [("/queue/a", "2026-03-14", "2026-03-14 08:00:00", 0)]
    assert tables["queue"].columns == [field.name for field in columns(KINDS["queue"])]
