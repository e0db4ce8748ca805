"""Write a broker's stream to tables with Spark: a file for `spark-submit`.

    python scripts/diag_to_parquet.py --once --root diag          trio-stomp spark once
    python scripts/diag_to_parquet.py --interval 60 --root diag   trio-stomp spark watch
    spark-submit --properties-file conf/spark-defaults.conf \\
        --py-files trio_stomp.zip scripts/diag_to_parquet.py --once --root hdfs:///diag
"""

import argparse
import sys
from collections.abc import Sequence

from trio_stomp.cli import main as run_tool


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line, and return the exit code."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--once", action="store_true", help="what is there now, and end")
    given, rest = parser.parse_known_args(argv)
    if "--help" in rest:
        parser.print_help()
    return run_tool(["spark", "once" if given.once else "watch", *rest])


if __name__ == "__main__":
    sys.exit(main())
