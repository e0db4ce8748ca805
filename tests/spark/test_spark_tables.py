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

from pyspark.sql.types import StructType  # noqa: E402

from tests.support.diag_bodies import EMPTY, message, record  # noqa: E402
from trio_stomp.base.schema import PREFIX, TABLES, Field, Table  # noqa: E402
from trio_stomp.spark._tables import (  # noqa: E402
    DATE,
    IDX,
    KEYS,
    KINDS,
    RAW,
    body_type,
    columns,
    differences,
    metrics_long,
    records,
    struct,
    table_type,
)

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


def test_rows_are_made_of_items(spark: "SparkSession") -> None:
    rows = [
        message("queue", 1, {"destination": "/queue/a", "input_depth": 3, "capacity": 9}, {}),
        message("queue", 2),
        message("queue", 3, {"subscription_id": None, "oldest_input_age_s": None}, boot="b2"),
    ]
    raw = spark.createDataFrame([tuple(row.values()) for row in rows], struct(RAW))
    found = {(row["offset"], row["idx"]): row for row in records(raw, KINDS["queue"]).collect()}
    assert set(found) == {(1, 0), (1, 1), (3, 0)}
    first = found[1, 0]
    assert (first["destination"], first["input_depth"], first["capacity"]) == ("/queue/a", 3, 9)
    assert (first["boot"], first["part"], first["date"].isoformat()) == ("b1", 1, "2026-03-14")
    assert (found[3, 0]["epoch"], found[3, 0]["boot"]) == ("e1", "b2")
    assert found[3, 0]["oldest_input_age_s"] is None


def test_fields_beside_an_empty_list_are_kept(spark: "SparkSession") -> None:
    raw = spark.createDataFrame([tuple(message("ws", 1, hits=5).values())], struct(RAW))
    (row,) = records(raw, KINDS["ws"]).collect()
    assert (row["session_id"], row["hits"], row["idx"]) == (None, 5, 0)


def test_old_and_new_messages_fit(spark: "SparkSession") -> None:
    """A missing key is null, an unknown one stays in raw."""
    result = message("process", 1, pid=5)
    body = json.loads(str(result["body"]))
    del body["fds"]
    body["novelty"] = {"x": 1}
    result["body"] = json.dumps(body)
    raw = spark.createDataFrame([tuple(result.values())], struct(RAW))
    (row,) = records(raw, KINDS["process"]).collect()
    assert (row["pid"], row["fds"]) == (5, None)


def test_timestamps_keep_their_microseconds(spark: "SparkSession") -> None:
    item = {"connected_at": "2026-03-13T23:59:59.123456Z"}
    raw = spark.createDataFrame([tuple(message("connection", 1, item).values())], struct(RAW))
    (row,) = (
        records(raw, KINDS["connection"]).selectExpr("unix_micros(connected_at) AS n").collect()
    )
    assert row["n"] == 1_773_446_399_123_456


def test_metrics_long_has_a_row_for_each_number(spark: "SparkSession") -> None:
    tables = {kind: spark.createDataFrame([], table_type(table)) for kind, table in KINDS.items()}
    item = {"destination": "/topic/a", "depth": 4}
    raw = spark.createDataFrame([tuple(message("destination", 1, item).values())], struct(RAW))
    tables["destination"] = records(raw, KINDS["destination"])
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
    assert isinstance(body_type(KINDS["queue"]), StructType)
    assert columns(KINDS["process"])[-1] is DATE
