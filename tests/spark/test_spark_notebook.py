"""The notebook runs on the sample from its first cell to its last, and draws its plots."""

import base64
import faulthandler
import re
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.spark import require
from tests.support.spark import spark as spark

require("pyspark", "nbclient", "matplotlib", "duckdb", "ipykernel")

import pyarrow as pa  # noqa: E402
import pyarrow.compute as pc  # noqa: E402

from tests.support.diag_bodies import KINDS  # noqa: E402
from tests.support.diag_day import diag_day as diag_day  # noqa: E402
from trio_stomp.spark.lake import Source, open_store  # noqa: E402
from trio_stomp.spark.running import NOTEBOOK_FILE  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.full]

NOTEBOOK = NOTEBOOK_FILE
PATIENCE_S = 900
BEGIN_US = int(datetime(2026, 3, 14, tzinfo=UTC).timestamp()) * 1_000_000
POINTS = """
([len(seconds), len(waiting), len(worst), len(times)],
 *(DateFormatter("%H:%M")(number) for number in axes.get_xlim()))
"""


def outputs(notebook: Any, kind: str) -> list[str]:
    return [
        output["data"][kind]
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if kind in output.get("data", {})
    ]


def test_the_notebook_is_stored_without_output() -> None:
    import nbformat  # takes seconds, and each process of the tests imports this file

    notebook = nbformat.read(NOTEBOOK, 4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


def printed(notebook: Any) -> str:
    return "".join(
        output["text"]
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if output.get("name") == "stdout"
    )


def test_the_notebook_uses_public_names_and_has_parameters() -> None:
    import nbformat

    cells = nbformat.read(NOTEBOOK, 4).cells
    assert not re.search(r"(from|import) +trio_stomp[.\w]*\._", "\n".join(c.source for c in cells))
    (parameters,) = (cell for cell in cells if "parameters" in cell.metadata.get("tags", []))
    assert re.findall(r"^(\w+) =", parameters.source, re.MULTILINE) == ["root", "day", "broker"]


@pytest.fixture
def execute(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], Any]:
    """Return a function that runs the notebook on tables, and returns the number of points of its
    plots."""

    def run(root: Path, last_cell: str = POINTS) -> Any:
        monkeypatch.setenv("DIAG_ROOT", str(root))
        monkeypatch.setenv("DIAG_DAY", "2026-03-14")
        monkeypatch.setenv("PYTHONPATH", str(NOTEBOOK.parents[2]))
        import nbformat

        notebook = nbformat.read(NOTEBOOK, 4)
        notebook.cells.append(nbformat.v4.new_code_cell(last_cell))
        # Starting a kernel and a second Spark may take longer than a test that hangs is given.
        faulthandler.cancel_dump_traceback_later()
        with warnings.catch_warnings():
            # Those of the kernel's client.
            warnings.simplefilter("ignore")
            from nbclient import NotebookClient

            NotebookClient(notebook, timeout=PATIENCE_S, kernel_name="python3").execute()
        return notebook

    return run


def fill(root: Path, name: str, rows: pa.Table) -> None:
    """Write a table with these rows."""
    open_store(root).append(name, Source("a source"), 1, lambda _: rows)


def test_the_notebook_runs_on_the_sample(
    spark: "SparkSession", diag_day: Path, execute: Callable[[Path], Any]
) -> None:
    notebook = execute(diag_day)
    pictures = [base64.b64decode(text) for text in outputs(notebook, "image/png")]
    assert len(pictures) == 5
    assert all(len(picture) > 10_000 for picture in pictures)
    *_, table, points = outputs(notebook, "text/plain")
    assert "/topic/prices.eu" in table
    assert points == "([1428, 1428, 1428, 94], '00:00', '00:00')"


def test_the_notebook_plots_a_few_minutes(
    diag_day: Path, tmp_path: Path, execute: Callable[[Path], Any]
) -> None:
    """Like those of the demo, or of a broker's first day, without deliveries."""
    for kind in KINDS:
        rows = open_store(diag_day).dataset(kind)
        if kind == "latency" or rows is None:
            continue
        rows = rows.to_table()
        # The day in 24 minutes: a second for each minute.
        ts, interval_s = rows.column("ts").cast(pa.int64()), rows.column("interval_s")
        sooner = pc.add(pc.divide(pc.subtract(ts, BEGIN_US), 60), BEGIN_US)
        sooner = sooner.cast(rows.schema.field("ts").type)
        rows = rows.set_column(rows.schema.names.index("ts"), "ts", sooner)
        place = rows.schema.names.index("interval_s")
        rows = rows.set_column(place, "interval_s", pc.divide(interval_s, 60.0))
        fill(tmp_path, kind, rows)
    notebook = execute(tmp_path)
    assert len(outputs(notebook, "image/png")) == 4
    assert outputs(notebook, "text/plain")[-1] == "([143, 143, 143, 0], '00:00', '00:24')"


@pytest.mark.parametrize("has_process", [False, True], ids=["no-tables", "no-traffic"])
def test_a_sentence_replaces_a_plot_without_data(
    diag_day: Path, tmp_path: Path, execute: Callable[[Path, str], Any], has_process: bool
) -> None:
    """There are no tables, or nobody used the broker."""
    expected = ["There was no traffic.", "Nothing waited.", "No delivery was timed."]
    expected += ["No message was lost.", "There are no tables of destinations."]
    if has_process:
        rows = open_store(diag_day).dataset("process")
        assert rows is not None
        fill(tmp_path, "process", rows.to_table().slice(0, 6))
    else:
        expected += ["has no tables of 2026-03-14", "There are no figures of the process."]
    notebook = execute(tmp_path, "results is None")
    assert [text for text in expected if text not in printed(notebook)] == []
    assert len(outputs(notebook, "image/png")) == has_process
    assert outputs(notebook, "text/plain")[-1] == str(not has_process)
