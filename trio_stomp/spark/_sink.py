"""Micro-batches → Parquet files that a crash neither tears nor doubles for any reader.

Each batch is one directory, written as a whole in place of what a crash may have left of it. The
same batch holds the same rows whenever it is written, so this is idempotent; Spark's own file sink
is not, for readers that do not know its manifest. Read it with ``raw/q=*/batch=*/*.parquet``.
"""

import json
from typing import Any

from pyspark.sql import DataFrame, SparkSession

ID_LENGTH = 8
"""Of a query's id in paths: its checkpoint may be lost, and batches counted from 0 again."""


class RawSink:
    """The function for ``foreachBatch``. It holds only texts, as Spark Connect pickles it.

    Args:
      root: Directory or URI; the files go below its ``raw``.
      checkpoint: That of the query.
    """

    def __init__(self, root: str, checkpoint: str) -> None:
        self._raw = root.rstrip("/") + "/raw"
        self._checkpoint = checkpoint
        self._query = ""

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Write one batch."""
        self._query = self._query or query_id(batch.sparkSession, self._checkpoint)
        path = f"{self._raw}/q={self._query}/batch={number:010d}"
        # One file for each batch: small files are what makes reading slow.
        batch.coalesce(1).write.mode("overwrite").option("compression", "zstd").parquet(path)


def query_id(spark: SparkSession, checkpoint: str) -> str:
    """Return the start of the query id in a checkpoint, on any storage that Spark can read."""
    row: Any = spark.read.text(checkpoint.rstrip("/") + "/metadata").first()
    return str(json.loads(row[0])["id"])[:ID_LENGTH]
