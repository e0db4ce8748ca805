"""Spark sessions for the scripts: local, under ``spark-submit``, and with Spark Connect."""

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ON_THIS_MACHINE = {
    # Spark's ports require no password, so they must not be reachable from elsewhere.
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "4",
}
"""Settings of a local session, which ``spark-submit`` has not configured."""

ANYWHERE = {
    "spark.sql.session.timeZone": "UTC",
    # The default is INT96, which few readers support.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Few large files, as they are read far more often than written.
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
}
"""Settings of every session, on which the meaning of the files depends."""

CONF = Path(__file__).with_name("conf")
"""The directory of ``log4j2.properties`` for a local session."""

_LAUNCHED_BY = ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")


class SparkMissing(Exception):
    """Spark cannot run here. The text says what to install."""


def is_launched() -> bool:
    """Return whether ``spark-submit`` or Spark Connect has chosen the master."""
    if "--master" in os.environ.get("PYSPARK_SUBMIT_ARGS", ""):
        return True
    return any(name in os.environ for name in _LAUNCHED_BY)


def check_installed() -> None:
    """Check that Spark's requirements are installed, without starting anything.

    Raises:
      SparkMissing: a requirement is missing.
    """
    absent = [name for name in ("pyspark", "pyarrow") if importlib.util.find_spec(name) is None]
    if absent:
        raise SparkMissing(
            f"{' and '.join(absent)} is not installed: pip install 'trio-stomp[spark]'"
        )
    if _java() is None and not is_launched():
        home = os.environ.get("JAVA_HOME", "")
        place = f"in JAVA_HOME={home}" if home else "on the PATH"
        raise SparkMissing(f"Spark needs Java 17 or newer, and there is none {place}")


def open_session(name: str, *, conf: Mapping[str, str] | None = None) -> "SparkSession":
    """Start Spark, or join the session that was started for this process.

    Args:
      name: The name of the application.
      conf: Settings that override all others.

    Raises:
      SparkMissing: Spark cannot run here.
    """
    check_installed()
    # Workers must use the driver's Python; by default Spark runs ``python3`` from the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    if not is_launched() or os.environ.get("SPARK_REMOTE", "").startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        if CONF.is_dir():  # it is none within an archive of ``--py-files``
            os.environ.setdefault("SPARK_CONF_DIR", str(CONF))
    for key, value in chosen(conf or {}).items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        # Java has printed its error to stderr.
        raise SparkMissing(
            f"Spark could not start Java: it needs 17 or newer, and takes {_java()}"
        ) from None
    for key, value in ANYWHERE.items():
        session.conf.set(key, value)
    return session


@contextmanager
def settings(spark: "SparkSession") -> Iterator[None]:
    """Make a session write portable files within the block."""
    before = {name: spark.conf.get(name) for name in ANYWHERE}
    for name, text in ANYWHERE.items():
        spark.conf.set(name, text)
    try:
        yield
    finally:
        for name, old in before.items():
            spark.conf.set(name, str(old))


def chosen(conf: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a session: ``conf``, and the local ones if no master was chosen."""
    if is_launched():
        return dict(conf)
    return {"spark.master": "local[2]"} | ON_THIS_MACHINE | dict(conf)


def _java() -> str | None:
    """Return the Java that Spark's start script would use."""
    home = os.environ.get("JAVA_HOME", "")
    return shutil.which("java", path=str(Path(home, "bin")) if home else None)
