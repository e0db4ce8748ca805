"""The sample of a day, as tables."""

import importlib
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def diag_day(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a root with the tables of the sample."""
    root = tmp_path_factory.mktemp("diag") / "day"
    script = importlib.import_module("make_diag_sample")
    assert script.write(root, script.day()).rest == 0
    return root
