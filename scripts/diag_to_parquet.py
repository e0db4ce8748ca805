"""Write a broker's stream /stream/DIAG to tables of Delta Lake with Spark, each message once.

    python scripts/diag_to_parquet.py --once --root diag          all present messages, for a timer
    python scripts/diag_to_parquet.py --interval 60 --root diag   until stopped
    trio-stomp tables --compact --root diag                       merge small files, now and then
    spark-submit --properties-file conf/spark-defaults.conf \\
        --py-files trio_stomp.zip scripts/diag_to_parquet.py --once --root hdfs:///diag

Every batch is reported as one line of JSON. SIGTERM and SIGINT stop after the present batch. The
login and passcode come from the environment or a file: see docs/operate/spark.md.
"""

import argparse
import json
import re
import signal
import sys
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import IO, TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

    from trio_stomp.spark.lake import Place

CONF = Path(__file__).resolve().parent.parent / "conf"

POLL_S = 1
FINISH_LIMIT_S = 60.0
"""Time for the present batch after a signal. A longer one is interrupted, and written again."""

KEPT_PROGRESS = 32
"""Batches that Spark remembers the progress of: more than can end between two looks."""


class SidecarError(Exception):
    """An error that ends the sidecar. The text is one line for the operator."""


class Bar(Protocol):
    """The part of tqdm's interface that is used."""

    n: float
    total: float

    def update(self, n: float) -> object:
        """Advance by ``n``."""

    def write(self, s: str, file: IO[str]) -> None:
        """Print a line that the bar does not run into."""

    def close(self) -> None:
        """Close the bar, and leave it on the screen."""


class Reporter:
    """Reports every batch: a line of JSON, the bar on a terminal, and the heart-beat file."""

    def __init__(self, out: IO[str], place: "Place", heartbeat: str) -> None:
        self._out, self._place, self._heartbeat = out, place, heartbeat
        self._last = -1
        self._seen = ""
        self._bar = open_bar()

    def look(self, query: "StreamingQuery") -> None:
        """Report the progress since the last call."""
        last = query.lastProgress
        if last is None or last.timestamp == self._seen:
            return
        self._seen = last.timestamp
        for progress in query.recentProgress:
            # Spark reports idle triggers too; only one that ran has ``addBatch``.
            if progress.batchId > self._last and "addBatch" in progress.durationMs:
                self._last = progress.batchId
                self._tell(progress)
        self.beat()

    def beat(self) -> None:
        """Write the heart-beat file with the present time."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        text = json.dumps({"ts": now, "batch": self._last})
        self._place.write(self._heartbeat, text.encode() + b"\n")

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


def open_bar() -> Bar | None:
    """Return a progress bar on a terminal with tqdm, or None."""
    if not sys.stderr.isatty():
        return None
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    bar: Bar = tqdm(unit=" rows", unit_scale=True, dynamic_ncols=True, desc="stream to Parquet")
    return bar


def stream(spark: "SparkSession", reported: argparse.Namespace, stop: threading.Event) -> None:
    """Run the query until its work is done, or ``stop`` is set.

    Raises:
      SidecarError: it failed.
      LakeError: the root is not writable, or its tables have another format.
    """
    from pyspark.errors import StreamingQueryException

    from trio_stomp.spark import StompDataSource, TableSink
    from trio_stomp.spark.lake import has_earlier, open_store

    place = open_store(reported.root, reported.format).place
    checkpoint = reported.checkpoint or reported.root.rstrip("/") + "/checkpoint"
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", str(KEPT_PROGRESS))
    spark.dataSource.register(StompDataSource)
    rows = spark.readStream.format("stomp").options(**source_options(reported)).load()
    every = (
        {"availableNow": True}
        if reported.once
        else {"processingTime": f"{reported.interval} seconds"}
    )
    writer = rows.writeStream.queryName("diag_to_parquet").trigger(**every)
    writer = writer.option("checkpointLocation", checkpoint)
    reporter = Reporter(sys.stdout, place, "heartbeat.json")
    reporter.beat()
    sink = TableSink(reported.root, reported.stream, reported.format)
    query = writer.foreachBatch(sink).start()
    reporter.say(event="started", query=query.id, root=reported.root, stream=reported.stream)
    if has_earlier(place):
        reporter.say(event="earlier", root=place.uri, remedy="trio-stomp tables --import")
    try:
        while not query.awaitTermination(POLL_S):
            reporter.look(query)
            if stop.is_set():
                finish(query)
        reporter.look(query)
    except StreamingQueryException as error:
        raise SidecarError(cause(str(error))) from None
    finally:
        reporter.close()
    reporter.say(event="stopped" if stop.is_set() else "done", query=query.id)


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
    """Return the line of a query's long error that states the cause."""
    known = re.findall(r"(?:StreamAway|StreamError|LakeError): (.*)", text)
    return str(known[-1]) if known else text.strip().splitlines()[0]


def source_options(options: argparse.Namespace) -> dict[str, str]:
    """Return the options of the source that were given."""
    names = ("url", "stream", "broker_id", "ca_file", "credentials_file", "retry_s")
    values = {name: getattr(options, name) for name in names} | {
        "startingOffsets": options.starting,
        "startingTimestamp": options.since,
        "maxOffsetsPerTrigger": options.max_rows,
        # A loss is a row, here as in the statistics.
        "failOnDataLoss": "false",
    }
    return {name: str(value) for name, value in values.items() if value is not None}


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    first, _, rest = (__doc__ or "").partition("\n")
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=first, epilog=rest, formatter_class=form)
    add = parser.add_argument
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--once", action="store_true", help="store the present messages, and end")
    mode.add_argument("--interval", type=float, metavar="S", help="a batch every S seconds")
    add("--root", default="diag", help="directory or URI of all files (default: diag)")
    add("--format", choices=("delta", "parquet"), default="", help="of new tables (default: delta)")
    add("--checkpoint", help="directory, one for each stream (default: ROOT/checkpoint)")
    add("--url", help="stomp://host:port, or stomps:// for TLS (default: this machine)")
    add("--stream", default="/stream/DIAG")
    add("--starting", help="for a new checkpoint: earliest (default), latest, or an offset")
    add("--since", help="instead: a time in ms since 1970, or like 2026-03-09T12:00:00Z")
    add("--max-rows", type=int, help="rows of a batch (default 200000)")
    add("--retry-s", type=float, help="time limit for reconnecting (default 60)")
    add("--broker-id", help="the broker's id for rows of messages without one")
    add("--ca-file", help="certificates to trust instead of the system's")
    add("--credentials-file", help="file with a line each for login and passcode")
    add("--conf", action="append", default=[], metavar="KEY=VALUE", help="a setting of Spark")
    options = parser.parse_args(argv)
    if not options.once and options.interval is None:
        parser.error("one of --once, --interval is needed")
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line, and return the exit code."""
    options = parse(argv)
    stop = threading.Event()

    def on_signal(number: int, _: FrameType | None) -> None:
        stop.set()
        # A second signal ends the process immediately.
        signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    try:
        # The source is for ``stream``; but it imports all that may be missing.
        from trio_stomp.spark import SparkMissing, StompDataSource, open_session  # noqa: F401
        from trio_stomp.spark.lake import LakeError, open_store
    except ModuleNotFoundError as error:
        # Print only one line, which names the missing package.
        print(f"{error.name} is not installed: pip install 'trio-stomp[spark]'", file=sys.stderr)
        return 2
    try:
        conf = dict(pair.split("=", 1) for pair in options.conf)
        open_store(options.root, options.format).place.check()
        spark = open_session("diag_to_parquet", conf=conf, conf_dir=CONF)
        try:
            if not stop.is_set():
                stream(spark, options, stop)
        finally:
            spark.stop()
    except SparkMissing as error:
        print(error, file=sys.stderr)
        return 2
    except (SidecarError, LakeError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
