"""The analysis of tables, and the report of one page."""

import sys
import time
from datetime import UTC, date, datetime
from pathlib import Path

from trio_stomp.spark._analysis import Thresholds
from trio_stomp.spark._results import SOURCES, analyse, days_with_tables, directory, read_results
from trio_stomp.spark._session import is_launched, open_session
from trio_stomp.spark.lake import LakeError, open_store
from trio_stomp.spark.reporting import report

NOTEBOOK_FILE = Path(__file__).with_name("stats.ipynb")
SMALL = 64 << 20
FOR_SMALL = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""For tables this small, Java's second compiler takes half of the time, and does not pay off."""


def make_report(
    root: str,
    thresholds: Thresholds,
    *,
    first: date | None = None,
    last: date | None = None,
    broker: str = "",
    html: Path | None = None,
) -> str:
    """Analyse tables, and return the path of the report.

    Args:
      root: The directory or URI of the tables.
      thresholds: The limits beyond which figures are findings.
      first: The first day, in UTC; None = the last.
      last: The last day; None = the first, or the last that has tables.
      broker: Only this one; "" = all.
      html: The file to write the page to; None = one beside the results.

    Raises:
      LakeError: there are no tables.
      SparkMissing: Spark cannot run here.
    """
    there = days_with_tables(root)
    if not there:
        raise LakeError(f"{root} has no tables: first trio-stomp spark once --root {root}")
    last = last or first or there[-1]
    first = first or last
    small = not is_launched() and sum(map(open_store(root).size, SOURCES)) < SMALL
    spark = open_session("trio-stomp report", conf=FOR_SMALL if small else {})
    try:
        clock = time.monotonic()
        for name in analyse(spark, root, first, last, broker=broker, thresholds=thresholds):
            now = time.monotonic()
            print(f"{name:24} {now - clock:6.1f} s", file=sys.stderr)
            clock = now
    finally:
        spark.stop()
    results = read_results(root, first, last, thresholds)
    page = report(results, datetime.now(UTC)).encode()
    if html:
        html.write_bytes(page)
        return str(html)
    place = directory(root, first, last)
    place.write("report.html", page)
    return f"{place.uri}/report.html"
