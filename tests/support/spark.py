"""One Spark session for all tests that need one, or a loud reason why they are left out."""

import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    # A session of some seconds never earns back what the second compiler costs.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def is_absent(module: str) -> bool:
    """Return whether a module is not installed."""
    return find_spec(module) is None


def missing() -> list[str]:
    """Return the dependencies of Spark that are not installed."""
    names = list(filter(is_absent, ("pyspark", "pyarrow", "pandas")))
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        names.append("Java")
    return names


def require(*modules: str) -> None:
    """Skip a test module with a warning if Spark or a module is missing. In CI, fail."""
    absent = ", ".join(dict.fromkeys([*missing(), *filter(is_absent, modules)]))
    if not absent:
        return
    reason = f"SPARK TESTS LEFT OUT: not installed: {absent}; see docs/operate/analysis.md"
    if os.environ.get("CI") or os.environ.get("SPARK_REQUIRED"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason, allow_module_level=True)


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    """Run a Spark on this machine alone."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with warnings.catch_warnings():
        # Our tests turn warnings into errors; those of pyspark and its libraries are not ours to
        # fix.
        warnings.simplefilter("ignore")
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master("local[2]").appName("tests")
        for name, text in SETTINGS.items():
            builder = builder.config(name, text)
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
