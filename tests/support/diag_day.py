"""The sample of a day, with its tables made."""

import shutil
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SAMPLE = Path(__file__).parents[1] / "data" / "diag_day"


@pytest.fixture(scope="session")
def diag_day(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the sample whose day has been compacted."""
    from trio_stomp.spark._compact import compact

    root = tmp_path_factory.mktemp("diag") / "day"
    shutil.copytree(SAMPLE, root)
    (made,) = compact(spark, root, [date(2026, 3, 14)])
    assert made.tables["destination"] == 9996
    return root
