"""The notebook runs on the sample from its first cell to its last, and draws what it says."""

import base64
import faulthandler
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests._spark import require
from tests._spark import spark as spark

require("pyspark", "nbclient", "matplotlib", "duckdb", "ipykernel")

import nbformat  # noqa: E402

from tests._diag_day import diag_day as diag_day  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

NOTEBOOK = Path(__file__).parent.parent / "scripts" / "notebooks" / "stats.ipynb"
PATIENCE_S = 300


def outputs(notebook: Any, kind: str) -> list[str]:
    return [
        output["data"][kind]
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if kind in output.get("data", {})
    ]


def test_it_is_kept_without_output() -> None:
    notebook = nbformat.read(NOTEBOOK, 4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


def test_it_runs_on_the_sample(
    spark: "SparkSession", diag_day: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIAG_ROOT", str(diag_day))
    monkeypatch.setenv("DIAG_DAY", "2026-03-14")
    monkeypatch.setenv("PYTHONPATH", str(NOTEBOOK.parents[2]))
    notebook = nbformat.read(NOTEBOOK, 4)
    # Starting a kernel and a second Spark may take longer than a test that hangs is given.
    faulthandler.cancel_dump_traceback_later()
    with warnings.catch_warnings():
        # Those of the kernel's client.
        warnings.simplefilter("ignore")
        from nbclient import NotebookClient

        NotebookClient(notebook, timeout=PATIENCE_S, kernel_name="python3").execute()
    pictures = [base64.b64decode(text) for text in outputs(notebook, "image/png")]
    assert len(pictures) == 5
    assert all(len(picture) > 10_000 for picture in pictures)
    assert "/topic/prices.eu" in outputs(notebook, "text/plain")[-1]
