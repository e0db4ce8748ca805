"""Analyse the stored statistics of a broker: tables of results, and a report of one page.

    python scripts/diag_analysis.py --root diag                   the last day
    python scripts/diag_analysis.py --root diag --from 2026-03-09 --to 2026-03-15
    spark-submit --properties-file conf/spark-defaults.conf \\
        --py-files trio_stomp.zip scripts/diag_analysis.py --root /shared/diag

Reads the tables that `trio-stomp tables` or scripts/diag_to_parquet.py writes. Writes Parquet and
report.html to ROOT/analysis/DAYS. The master is that of spark-submit; without it, this machine.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path

CONF = Path(__file__).resolve().parent.parent / "conf"
MIB = 1 << 20
SMALL = 64 * MIB
FOR_SMALL = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""For small tables, Java's second compiler would take half of the time."""


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    first, _, rest = (__doc__ or "").partition("\n")
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=first, epilog=rest, formatter_class=form)
    add = parser.add_argument
    add("--root", default="diag", help="directory or URI of the tables (default: diag)")
    add("--from", dest="first", type=date.fromisoformat, metavar="DATE", help="in UTC")
    add("--to", dest="last", type=date.fromisoformat, metavar="DATE", help="included")
    add("--broker", default="", help="only this broker (default: all)")
    add("--html", type=Path, help="path of the page (default: beside the tables)")
    add("--saturated", type=float, default=0.8, help="saturated share (default: 0.8)")
    add("--memory-limit-mib", type=float, default=0.0, help="the broker's memory limit")
    add("--max-fds", type=int, default=0, help="the broker's limit of file descriptors")
    return parser.parse_args(argv)


def settings(root: str) -> dict[str, str]:
    """Return Spark settings for the size of the tables, unless ``spark-submit`` set them."""
    from trio_stomp.spark._session import is_launched
    from trio_stomp.spark.lake import open_store, size_of

    return FOR_SMALL if not is_launched() and size_of(open_store(root)) < SMALL else {}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line, and return the exit code."""
    options = parse(argv)
    try:
        from trio_stomp.spark import (
            SparkMissing,
            Thresholds,
            analyse,
            days_with_tables,
            open_session,
            read_results,
            report,
        )
        from trio_stomp.spark._results import directory
        from trio_stomp.spark.lake import LakeError
    except ModuleNotFoundError as error:
        print(f"{error.name} is not installed: pip install 'trio-stomp[spark]'", file=sys.stderr)
        return 2
    try:
        days = days_with_tables(options.root)
    except LakeError as error:
        print(error, file=sys.stderr)
        return 1
    if not days:
        text = f"{options.root} has no tables: first trio-stomp tables --once --root {options.root}"
        print(text, file=sys.stderr)
        return 1
    last = options.last or options.first or days[-1]
    first = options.first or last
    thresholds = Thresholds(
        saturated=options.saturated,
        memory_bytes=options.memory_limit_mib * MIB,
        fds=options.max_fds,
    )
    try:
        spark = open_session("diag_analysis", conf=settings(options.root), conf_dir=CONF)
    except SparkMissing as error:
        print(error, file=sys.stderr)
        return 2
    try:
        clock = time.monotonic()
        for name in analyse(
            spark, options.root, first, last, broker=options.broker, thresholds=thresholds
        ):
            now = time.monotonic()
            print(f"{name:24} {now - clock:6.1f} s", file=sys.stderr)
            clock = now
        results = read_results(spark, options.root, first, last, thresholds)
    finally:
        spark.stop()
    page = report(results, datetime.now(UTC)).encode()
    if options.html:
        options.html.write_bytes(page)
        print(options.html)
    else:
        place = directory(options.root, first, last)
        place.write("report.html", page)
        print(f"{place.uri}/report.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
