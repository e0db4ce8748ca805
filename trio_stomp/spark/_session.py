"""Sessions for the scripts: the same on this machine, under ``spark-submit``, and with Connect."""

import importlib.util
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ON_THIS_MACHINE = {
    # Nobody else is to reach the ports that Spark opens: they ask for no password.
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "4",
}
"""For a session that no ``spark-submit`` has configured."""

ANYWHERE = {
    "spark.sql.session.timeZone": "UTC",
    # The default is INT96, which other readers find hard.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
"""Without these the files would not mean what the documents say."""

_LAUNCHED_BY = ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")


class SparkMissing(Exception):
    """Spark cannot run here. The text says what to install."""


def is_launched() -> bool:
    """Return whether ``spark-submit`` or Spark Connect has chosen the master."""
    if "--master" in os.environ.get("PYSPARK_SUBMIT_ARGS", ""):
        return True
    return any(name in os.environ for name in _LAUNCHED_BY)


def check_installed() -> None:
    """Look for what Spark needs, without starting anything.

    Raises:
      SparkMissing: something is not here.
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


def open_session(
    name: str, *, conf: Mapping[str, str] | None = None, conf_dir: Path | None = None
) -> "SparkSession":
    """Start Spark, or join the one that was started for us.

    Args:
      name: Of the application.
      conf: Settings that win over all others.
      conf_dir: Where ``log4j2.properties`` lies, for a session on this machine.

    Raises:
      SparkMissing: it cannot run here.
    """
    check_installed()
    # Workers must be of the driver's Python; Spark would take ``python3`` of the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    if not is_launched() or os.environ.get("SPARK_REMOTE", "").startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        if conf_dir is not None and conf_dir.is_dir():
            os.environ.setdefault("SPARK_CONF_DIR", str(conf_dir))
    for key, value in chosen(conf or {}).items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        # What Java said of it stands above, on stderr.
        raise SparkMissing(
            f"Spark could not start Java: it needs 17 or newer, and takes {_java()}"
        ) from None
    for key, value in ANYWHERE.items():
        session.conf.set(key, value)
    return session


def chosen(conf: Mapping[str, str]) -> dict[str, str]:
    """Return what a session is given: ``conf``, and where nobody else chose a master, ours."""
    if is_launched():
        return dict(conf)
    return {"spark.master": "local[2]"} | ON_THIS_MACHINE | dict(conf)


def _java() -> str | None:
    """Return the Java that Spark takes, as its own start script finds it."""
    home = os.environ.get("JAVA_HOME", "")
    return shutil.which("java", path=str(Path(home, "bin")) if home else None)
