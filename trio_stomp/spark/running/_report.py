"""The analysis of tables, and the report of one page."""

import sys
import time
from datetime import UTC, date, datetime
from pathlib import Path

from attrs import frozen

from trio_stomp.spark._analysis import Thresholds
from trio_stomp.spark._results import analyse, days_with_tables, directory, read_results
from trio_stomp.spark._session import is_launched, open_session
from trio_stomp.spark.lake import LakeError, open_store, size_of
from trio_stomp.spark.reporting import report

NOTEBOOK_FILE = Path(__file__).with_name("stats.ipynb")
SMALL = 64 << 20
FOR_SMALL = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""For tables this small, Java's second compiler takes half of the time, and does not pay off."""


@frozen
class Days:
    """The days to be analysed.

    Args:
      first: The first day, in UTC; None = the last.
      last: The last day; None = the first, or the last that has tables.
      broker: Only this one; "" = all.
    """

    first: date | None = None
    last: date | None = None
    broker: str = ""


def make_report(root: str, days: Days, thresholds: Thresholds, html: Path | None = None) -> str:
    """Analyse tables, and return the path of the report.

    Args:
      root: The directory or URI of the tables.
      days: The days to analyse.
      thresholds: The limits beyond which figures are findings.
      html: The file to write the page to; None = one beside the results.

    Raises:
      LakeError: there are no tables.
      SparkMissing: Spark cannot run here.
    """
    there = days_with_tables(root)
    if not there:
        raise LakeError(f"{root} has no tables: first trio-stomp spark once --root {root}")
    last = days.last or days.first or there[-1]
    first = days.first or last
    small = not is_launched() and size_of(open_store(root)) < SMALL
    spark = open_session("trio-stomp report", conf=FOR_SMALL if small else {})
    try:
        clock = time.monotonic()
        for name in analyse(spark, root, first, last, broker=days.broker, thresholds=thresholds):
            now = time.monotonic()
            print(f"{name:24} {now - clock:6.1f} s", file=sys.stderr)
            clock = now
        results = read_results(spark, root, first, last, thresholds)
    finally:
        spark.stop()
    page = report(results, datetime.now(UTC)).encode()
    if html:
        html.write_bytes(page)
        return str(html)
    place = directory(root, first, last)
    place.write("report.html", page)
    return f"{place.uri}/report.html"
