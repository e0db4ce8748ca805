"""Write a broker's stream to tables with Spark: a file for `spark-submit`.

    python scripts/diag_to_parquet.py --once --root diag          trio-stomp spark once
    python scripts/diag_to_parquet.py --interval 60 --root diag   trio-stomp spark watch
    spark-submit --properties-file conf/spark-defaults.conf \\
        --py-files trio_stomp.zip scripts/diag_to_parquet.py --once --root hdfs:///diag
"""

import sys
from collections.abc import Sequence

from trio_stomp.cli import main as run_tool


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line, and return the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if "--once" in words:
        words.remove("--once")
        return run_tool(["spark", "once", *words])
    return run_tool(["spark", "watch", *words])


if __name__ == "__main__":
    sys.exit(main())
