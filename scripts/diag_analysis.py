"""Analyse the stored statistics of a broker with Spark: a file for `spark-submit`.

    python scripts/diag_analysis.py --root diag                   trio-stomp spark report
    spark-submit --properties-file conf/spark-defaults.conf \\
        --py-files trio_stomp.zip scripts/diag_analysis.py --root /shared/diag
"""

import sys
from collections.abc import Sequence

from trio_stomp.cli import main as run_tool


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line, and return the exit code."""
    return run_tool(["spark", "report", *(sys.argv[1:] if argv is None else argv)])


if __name__ == "__main__":
    sys.exit(main())
