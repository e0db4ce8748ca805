"""The SQL of the documents, which runs in DuckDB, gives the figures of the report."""

import re
from collections import Counter
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.spark import require
from tests.support.spark import spark as spark

require("pyspark", "duckdb")

import duckdb  # noqa: E402

from tests.support.diag_bodies import KINDS  # noqa: E402
from tests.support.diag_day import diag_day as diag_day  # noqa: E402
from tests.support.diag_tables import RESULTS  # noqa: E402
from trio_stomp.spark import analyse, open_tables, read_results  # noqa: E402
from trio_stomp.spark.lake import open_store  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.full]

DAY = date(2026, 3, 14)
PAGE = Path(__file__).parents[2] / "docs" / "operate" / "analysis.md"
FIGURES = ("rates", "top_destinations", "drops", "headroom", "starts", "gaps")
MIB = 1 << 20


def queries() -> list[str]:
    """Return the queries of the page in their order."""
    return re.findall(r"```sql\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def of(duck: duckdb.DuckDBPyConnection, figure: str, query: str) -> float:
    """Return a figure of the rows of a query."""
    (found,) = duck.execute(f"SELECT {figure} FROM ({query})").fetchone() or (0.0,)
    return float(found)


def test_the_documented_sql_gives_the_figures_of_the_report(
    spark: "SparkSession", diag_day: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = {name: RESULTS[name] for name in FIGURES}
    monkeypatch.setattr("trio_stomp.spark._results.RESULTS", few)
    assert list(analyse(spark, diag_day, DAY, DAY)) == list(few)
    results = read_results(diag_day, DAY, DAY)
    sent, lost, full, oldest, memory, gaps, metrics = queries()

    duck = duckdb.connect()
    duck.execute("SET TimeZone = 'UTC'")
    for kind in KINDS:
        rows = open_store(diag_day).dataset(kind)
        if rows is not None:
            duck.register(kind, rows)
    found = dict(duck.execute(sent).fetchall())
    top = {row["destination"]: row["enqueued"] for row in results["top_destinations"]}
    assert found == dict(Counter(top).most_common(10))
    by_reason: Counter[str] = Counter()
    for row in results["drops"]:
        by_reason[str(row["reason"])] += int(str(row["dropped"]))
    assert dict(duck.execute(lost).fetchall()) == by_reason
    most = {str(row["resource"]): float(str(row["peak"])) for row in results["headroom"]}
    assert of(duck, "max(mib)", memory) * MIB == pytest.approx(most["memory"])
    assert of(duck, "max(fill)", full) >= 1
    assert of(duck, "max(oldest_s)", oldest) > 0
    assert of(duck, "sum(messages)", gaps) == sum(
        int(str(row["messages"])) for row in results["gaps"]
    )

    # Spark understands the same words.
    open_tables(spark, diag_day)
    assert {row["destination"]: row["sent"] for row in spark.sql(sent).collect()} == found
    assert spark.sql(metrics).count() > 0
