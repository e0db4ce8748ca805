"""A sink that writes micro-batches to Parquet files idempotently.

Each batch is one directory, which replaces the remains of a crash. A batch always holds the same
rows, so a crash neither tears nor duplicates data for any reader. Spark's own file sink guarantees
this only to readers of its manifest. Read the files with ``raw/q=*/batch=*/*.parquet``.
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
        # One file for each batch, because small files slow down reading.
        batch.coalesce(1).write.mode("overwrite").option("compression", "zstd").parquet(path)


def query_id(spark: SparkSession, checkpoint: str) -> str:
    """Return the start of the query id in a checkpoint, on any storage that Spark can read."""
    row: Any = spark.read.text(checkpoint.rstrip("/") + "/metadata").first()
    return str(json.loads(row[0])["id"])[:ID_LENGTH]
