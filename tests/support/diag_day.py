"""The sample of a day, as tables."""

from pathlib import Path

import pytest

SAMPLE = Path(__file__).parents[1] / "data" / "diag_day"


@pytest.fixture(scope="session")
def diag_day(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a root with the tables of the sample."""
    from trio_stomp.spark.lake import import_earlier, open_store

    root = tmp_path_factory.mktemp("diag") / "day"
    import_earlier(open_store(root), str(SAMPLE))
    return root
