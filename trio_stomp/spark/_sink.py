"""A sink that writes micro-batches to Parquet files idempotently.

Each batch is one file in a directory of its own, which replaces the remains of a crash. A complete
file is never written again: after a long stop the stream may have lost some of its messages. So a
crash neither tears, loses nor duplicates data for any reader. Spark's own file sink guarantees this
only to readers of its manifest. Read the files with ``raw/q=*/batch=*/*.parquet``.
"""

import json
from typing import Any

from pyspark.sql import DataFrame, SparkSession

ID_LENGTH = 8
"""Length of the query id in paths, which is needed because batch numbers restart at 0 if the
checkpoint is lost."""


class RawSink:
    """The function for ``foreachBatch``. It holds only strings, as Spark Connect pickles it.

    Args:
      root: A directory or URI; the files go below its ``raw``.
      checkpoint: The checkpoint of the query.
    """

    def __init__(self, root: str, checkpoint: str) -> None:
        self._raw = root.rstrip("/") + "/raw"
        self._checkpoint = checkpoint
        self._query = ""

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Write one batch."""
        self._query = self._query or query_id(batch.sparkSession, self._checkpoint)
        path = f"{self._raw}/q={self._query}/batch={number:010d}"
        if is_written(batch.sparkSession, path):
            return
        # One file for each batch, because small files slow down reading.
        batch.coalesce(1).write.mode("overwrite").option("compression", "zstd").parquet(path)


def is_written(spark: SparkSession, path: str) -> bool:
    """Return whether there is a batch. Its file is renamed into place when it is complete."""
    try:
        return bool(spark.read.parquet(path).columns)
    except Exception:  # of several classes: there is none, or a power cut tore it
        return False


def query_id(spark: SparkSession, checkpoint: str) -> str:
    """Return the start of the query id in a checkpoint, on any storage that Spark can read."""
    row: Any = spark.read.text(checkpoint.rstrip("/") + "/metadata").first()
    return str(json.loads(row[0])["id"])[:ID_LENGTH]
