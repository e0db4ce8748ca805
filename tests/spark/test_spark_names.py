import subprocess
import sys

import pytest

import trio_stomp.spark
from tests.support.spark import require

require()

NAMES = [name for name in dir(trio_stomp.spark) if not name.startswith("_")]


def test_names_are_imported_when_they_are_used() -> None:
    code = (
        "import sys, trio_stomp.spark as here; here.StreamClient;"
        "print(*{'pyspark', 'pyarrow', 'trio'} & set(sys.modules))"
    )
    ended = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True)
    assert (ended.returncode, ended.stdout) == (0, b"\n")


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(trio_stomp.spark, name) is not None


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        trio_stomp.spark.nothing  # type: ignore[attr-defined]  # noqa: B018
