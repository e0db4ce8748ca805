"""Copies the stream of a topic to a queue with Spark: a program for every kind of cluster.

    spark_copy.py URL STREAM QUEUE CHECKPOINT

It prints the number of messages of the stream, and the processes that read it.
"""

import os
import sys
from typing import TYPE_CHECKING

from trio_stomp.spark import open_session

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd


def main(url: str, stream: str, queue: str, checkpoint: str) -> None:
    """Count the stream in a batch, then copy it by a query."""
    spark = open_session("copy")
    options = {"url": url, "retry_s": "30"}
    source = {**options, "stream": stream, "partitions": "2"}

    def whose(batches: "Iterator[pd.DataFrame]") -> "Iterator[pd.DataFrame]":
        for batch in batches:
            yield batch.assign(pid=os.getpid())

    table = spark.read.format("stomp").options(**source).load().select("offset")
    found = table.mapInPandas(whose, "offset BIGINT, pid BIGINT").collect()
    print(len(found), len({row["pid"] for row in found}), flush=True)
    rows = spark.readStream.format("stomp").options(**source).load().select("body", "headers")
    sink = rows.writeStream.format("stomp").options(**options, destination=queue)
    query = sink.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
