"""The sidecar: writes a stream to tables with Spark, each message once, and reports each batch."""

import json
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import IO, TYPE_CHECKING

from attrs import evolve, frozen
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from trio_stomp.spark._address import STREAMS
from trio_stomp.spark._client import StreamClient
from trio_stomp.spark._session import check_installed, open_session
from trio_stomp.spark._table_sink import TableSink
from trio_stomp.spark.format import InsightSink, SourceOptions, StompDataSource
from trio_stomp.spark.lake import Drain, file_name, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery
    from tqdm import tqdm

POLL_S = 1
FINISH_LIMIT_S = 60.0
"""Time for the present batch after a signal. A longer one is interrupted, and written again."""

CHECKPOINTS = "checkpoints"
"""The directory below the root of a checkpoint for each broker and stream."""

KEPT_PROGRESS = 32
"""Batches that Spark remembers the progress of: more than can end between two looks."""


class SidecarError(Exception):
    """An error that ends the sidecar. The text is one line for the operator."""


@frozen
class Sidecar:
    """The settings of a sidecar.

    Args:
      source: The options of the source.
      root: The directory or URI of all files.
      interval_s: The time between two batches; None = store what is there now, and end.
      format: The format of new tables; "" = what is there.
      checkpoint: The directory of the query's progress; "" = that of the broker and the stream
        below the root.
      has_insight: Whether results are published, too.
    """

    source: dict[str, str]
    root: str = "diag"
    interval_s: float | None = None
    format: str = ""
    checkpoint: str = ""
    has_insight: bool = False


class Reporter:
    """Reports every batch: a line of JSON, and the bar on a terminal."""

    def __init__(self, out: IO[str]) -> None:
        self._out = out
        self._last = -1
        self._bar = open_bar()

    def look(self, query: "StreamingQuery") -> None:
        """Report the progress since the last call."""
        for progress in query.recentProgress:
            # Spark reports idle triggers too; only one that ran has ``addBatch``.
            if progress.batchId > self._last and "addBatch" in progress.durationMs:
                self._last = progress.batchId
                self._tell(progress)

    def say(self, **record: object) -> None:
        """Write one line of JSON."""
        line = json.dumps(record, separators=(",", ":"))
        if self._bar is None:
            print(line, file=self._out, flush=True)
        else:
            self._bar.write(line, file=self._out)

    def close(self) -> None:
        """Restore the terminal."""
        if self._bar is not None:
            self._bar.close()

    def _tell(self, progress: "StreamingQueryProgress") -> None:
        source = progress.sources[0]
        end, latest = json.loads(source.endOffset), json.loads(source.latestOffset or "null")
        # Nothing of the new epoch has been read yet. Its gap row reports the loss.
        same = latest is not None and latest["epoch"] == end["epoch"]
        lag = max(0, latest["next"] - (end["offset"] if same else 0)) if latest else None
        rows = progress.numInputRows
        self.say(
            event="batch",
            batch=progress.batchId,
            ts=progress.timestamp,
            rows=rows,
            lag=lag,
            epoch=end["epoch"],
            offset=end["offset"],
            ms=dict(progress.durationMs),
        )
        if self._bar is not None:
            self._bar.total = self._bar.n + rows + (lag or 0)
            self._bar.update(rows)


def open_bar() -> "tqdm | None":
    """Return a progress bar on a terminal with tqdm, or None."""
    if not sys.stderr.isatty():
        return None
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    return tqdm(unit=" rows", unit_scale=True, dynamic_ncols=True, desc="stream to tables")


def run_sidecar(sidecar: Sidecar, conf: dict[str, str]) -> None:
    """Check what can be checked, start Spark, and run the query until it ends or is stopped.

    Args:
      sidecar: What to do.
      conf: Settings of Spark.

    Raises:
      SparkMissing: Spark cannot run here.
      SidecarError: the query failed.
      LakeError: the root is not writable, or its tables have another format.
      StreamError: an option is wrong, or the broker refuses.
      StreamAway: the broker does not answer.
    """
    with stopping() as stop:
        place = open_store(sidecar.root, sidecar.format).place
        place.check()
        place.check_room()
        check_installed()
        address = SourceOptions.of(sidecar.source).stream_address
        StreamClient(address).bounds(lambda text: print(text, file=sys.stderr, flush=True))
        spark = open_session("trio-stomp", conf=conf)
        try:
            if not stop.is_set():
                follow(spark, sidecar, stop)
        finally:
            spark.stop()


def placed(sidecar: Sidecar) -> Sidecar:
    """Return the settings with a checkpoint. A new one begins where the tables are.

    Raises:
      LakeError: the root cannot be read.
      StreamError: an option is wrong, or the broker refuses.
      StreamAway: the broker does not answer.
    """
    source = SourceOptions.of(sidecar.source)
    address = source.stream_address
    client, store = StreamClient(address), open_store(sidecar.root, sidecar.format)
    bounds = client.bounds()
    host, port, _ = address.address()
    # Spark's offsets name neither broker nor table, so a checkpoint is for one of each.
    name = file_name(f"{address.stream.removeprefix(STREAMS)}@{host}:{port}").replace("%", "=")
    checkpoint = sidecar.checkpoint or f"{sidecar.root.rstrip('/')}/{CHECKPOINTS}/{name}"
    start: dict[str, str] = {}
    if not sidecar.checkpoint and not store.place.names(CHECKPOINTS, name):
        drain = Drain(client, store, broker_id=source.broker_id)
        at = drain.begin(bounds) if bounds.first < bounds.next else None
        drain.writer.flush()
        if at is not None:
            start = {"startingOffsets": str(at), "startingTimestamp": ""}
    return evolve(sidecar, checkpoint=checkpoint, source=sidecar.source | start)


@contextmanager
def stopping() -> Iterator[threading.Event]:
    """Return an event that SIGTERM and SIGINT set. A second signal ends the process at once."""
    stop = threading.Event()

    def on_signal(number: int, _: FrameType | None) -> None:
        stop.set()
        signal.signal(number, signal.SIG_DFL)

    before = {each: signal.signal(each, on_signal) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def follow(spark: "SparkSession", sidecar: Sidecar, stop: threading.Event) -> None:
    """Run the query until its work is done, or ``stop`` is set.

    Raises:
      SidecarError: it failed.
      LakeError, StreamError, StreamAway: as ``placed``, before it began.
    """
    sidecar = placed(sidecar)
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", str(KEPT_PROGRESS))
    spark.dataSource.register(StompDataSource)
    rows = spark.readStream.format("stomp").options(**sidecar.source).load()
    writer = rows.writeStream.queryName("sidecar").option("checkpointLocation", sidecar.checkpoint)
    if sidecar.interval_s is None:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{sidecar.interval_s} seconds")
    reporter = Reporter(sys.stdout)
    query = writer.foreachBatch(batch_function(sidecar)).start()
    stream = SourceOptions.of(sidecar.source).stream_address.stream
    reporter.say(event="started", query=query.id, root=sidecar.root, stream=stream)
    try:
        while not query.awaitTermination(POLL_S):
            reporter.look(query)
            if stop.is_set():
                finish(query)
        reporter.look(query)
    except StreamingQueryException as error:
        raise SidecarError(cause(str(error))) from error
    finally:
        reporter.close()
    reporter.say(event="stopped" if stop.is_set() else "done", query=query.id)


def batch_function(sidecar: Sidecar) -> Callable[[DataFrame, int], None]:
    """Return the function for each micro-batch."""
    source = SourceOptions.of(sidecar.source)
    address = source.stream_address
    tables = TableSink(sidecar.root, address.stream, sidecar.format, source.broker_id)
    if not sidecar.has_insight:
        return tables
    insight = InsightSink(address)

    def write_both(batch: DataFrame, number: int) -> None:
        batch.persist()  # so that the broker sends it once
        try:
            tables(batch, number)
            insight(batch, number)
        finally:
            batch.unpersist()

    return write_both


def finish(query: "StreamingQuery") -> None:
    """Stop a query between two batches, or within one if that takes too long: nothing is lost."""
    last = query.lastProgress
    batch, deadline = last and last.batchId, time.monotonic() + FINISH_LIMIT_S
    while query.status["isTriggerActive"] and time.monotonic() < deadline:
        now = query.lastProgress
        if (now and now.batchId) != batch:
            break
        time.sleep(0.02)
    query.stop()


def cause(text: str) -> str:
    """Return the line of Spark's long error that states the cause."""
    known = re.findall(r"(?:StreamAway|StreamError|LakeError): (.*)", text)
    return str(known[-1]) if known else text.strip().partition("\n")[0]
