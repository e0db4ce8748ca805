"""Types of columns in SQL's words, without Spark."""

import pytest

pytest.importorskip("pyarrow", reason="the extra tables is not installed")

import pyarrow as pa

from trio_stomp.spark import Layout, StreamError
from trio_stomp.spark._types import fields_of


def test_nested_types_and_names_with_their_case() -> None:
    text = "Sku string, p DECIMAL(9, 2),at TIMESTAMP , s ARRAY<STRUCT<a: BIGINT, B:array<Double>>>"
    inner = pa.struct([("a", pa.int64()), ("B", pa.list_(pa.float64()))])
    assert fields_of(text) == [
        pa.field("Sku", pa.string()),
        pa.field("p", pa.decimal128(9, 2)),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("s", pa.list_(inner)),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no column can be without a type"),
        ("a", "no column can be without a type"),
        ("a STRING,", "no column can be without a type"),
        ("a TEXT", "no column can be TEXT: there are STRING"),
        ("a DECIMAL(2, 9)", r"no column can be DECIMAL\(2, 9\)"),
        ("a MAP<STRING, STRING>", "no column can be MAP<STRING, STRING>"),
        ("a ARRAY<DOUBLE", "no column can be ARRAY<DOUBLE"),
        ("a STRING NOT NULL", "no column can be STRING NOT NULL"),
        ("a STRING, a BIGINT", "name each column once"),
    ],
)
def test_wrong_types_are_reported(text: str, message: str) -> None:
    with pytest.raises(StreamError, match=message):
        fields_of(text)


@pytest.mark.parametrize(
    "text", ["sku STRING, SKU STRING", "a STRUCT<x: INT, X: INT>", "straße INT, STRASSE INT"]
)
def test_names_that_differ_by_case_are_one_column(text: str) -> None:
    with pytest.raises(StreamError, match="tables ignore case, so rename one"):
        fields_of(text)


@pytest.mark.parametrize("name", ["OFFSET", "Date", "_Corrupt_Record"])
def test_names_that_differ_by_case_from_our_columns(name: str) -> None:
    with pytest.raises(StreamError, match=f"there is a column {name}"):
        Layout.of("json", f"{name} STRING")
