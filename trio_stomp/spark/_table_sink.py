"""A sink that writes the micro-batches of a stream to tables, each message once.

One task writes a micro-batch, in pieces, while it reads it: neither the driver nor the task holds
it as a whole. The tables know how far they are, so a task that runs again, or a micro-batch after a
lost checkpoint, appends what is missing.
"""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame

from trio_stomp.spark.lake import Place, Writer, open_store

COUNTS = "messages BIGINT, rows BIGINT, rest BIGINT"


class TableSink:
    """The function for ``foreachBatch``. It holds only strings, as Spark pickles it.

    Args:
      root: A directory or URI, which all executors can write to.
      stream: The stream of the query.
      wanted: The format of new tables: ``delta`` or ``parquet``; "" = what is there, or delta.
      broker_id: The broker, if its messages do not tell it.
    """

    def __init__(self, root: str, stream: str, wanted: str = "", broker_id: str = "") -> None:
        # Executors have another working directory.
        self._root = Place.of(root).uri
        self._stream, self._format, self._broker_id = stream, wanted, broker_id

    def __call__(self, batch: DataFrame, _number: int) -> None:
        """Write one micro-batch.

        Raises:
          PythonException: the storage refuses.
        """
        # One task, because a table has its messages in the order of the stream.
        batch.coalesce(1).mapInArrow(self.write, COUNTS).collect()

    def write(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows of a task, and yield a row of totals."""
        writer = Writer(open_store(self._root, self._format), self._stream, self._broker_id)
        for batch in batches:
            writer.add(batch)
        writer.flush()
        yield pa.RecordBatch.from_pylist([writer.totals._asdict()])
