"""Store a broker's stream /stream/DIAG as Parquet, exactly once.

    python scripts/diag_to_parquet.py --once --root diag          all present messages, for a timer
    python scripts/diag_to_parquet.py --interval 60 --root diag   until stopped
    python scripts/diag_to_parquet.py --compact-closed --root diag
    spark-submit --properties-file conf/spark-defaults.conf \\
        --py-files trio_stomp.zip scripts/diag_to_parquet.py --once --root hdfs:///diag

Every batch is reported as one line of JSON. SIGTERM and SIGINT stop after the present batch. The
login and passcode come from the environment or a file: see docs/operate/spark.md.
"""

import argparse
import contextlib
import fcntl
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import IO, TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

CONF = Path(__file__).resolve().parent.parent / "conf"

POLL_S = 1
FINISH_LIMIT_S = 60.0
"""Time for the present batch after a signal. A longer one is interrupted, and written again."""

KEPT_PROGRESS = 32
"""Batches that Spark remembers the progress of: more than can end between two looks."""


class SidecarError(Exception):
    """An error that ends the sidecar. The text is one line for the operator."""


def is_local(place: str) -> bool:
    """Return whether a directory is on this machine, judging by its name."""
    return "://" not in place


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

    def __init__(self, out: IO[str], heartbeat: Path | None) -> None:
        self._out, self._heartbeat = out, heartbeat
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
        if self._heartbeat is not None:
            now = datetime.now(UTC).isoformat(timespec="seconds")
            part = self._heartbeat.with_suffix(".part")
            part.write_text(json.dumps({"ts": now, "batch": self._last}) + "\n", encoding="utf-8")
            os.replace(part, self._heartbeat)

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


@contextlib.contextmanager
def alone(root: str) -> Iterator[None]:
    """Keep a second sidecar off the same files of this machine.

    Raises:
      SidecarError: there is one.
    """
    if not is_local(root):
        # Spark itself notices two writers of a checkpoint, but only at their first batch.
        yield
        return
    Path(root).mkdir(parents=True, exist_ok=True)
    with Path(root, "sidecar.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SidecarError(f"another sidecar works in {root}") from None
        yield


def stream(spark: "SparkSession", reported: argparse.Namespace, stop: threading.Event) -> None:
    """Run the query until its work is done, or ``stop`` is set.

    Raises:
      SidecarError: it failed.
    """
    from pyspark.errors import StreamingQueryException

    from trio_stomp.spark import RawSink, StompDataSource

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
    reporter = Reporter(sys.stdout, heartbeat_file(reported))
    query = writer.foreachBatch(RawSink(reported.root, checkpoint)).start()
    reporter.say(event="started", query=query.id, root=reported.root, stream=reported.stream)
    reporter.beat()
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
    known = re.findall(r"(?:StreamAway|StreamError): (.*)", text)
    return str(known[-1]) if known else text.strip().splitlines()[0]


def tables(spark: "SparkSession", options: argparse.Namespace) -> None:
    """Build the tables of the requested days, then remove raw files as the options say."""
    from trio_stomp.spark import compact, compact_closed, drop_raw, expire_raw

    made = compact(spark, options.root, options.compact) if options.compact else []
    if options.compact_closed:
        made += compact_closed(spark, options.root)
    for day in made:
        record = {"day": day.day, "messages": day.messages, "tables": day.tables}
        print(json.dumps({"event": "compacted", **record, "s": day.seconds}), flush=True)
    checkpoint = options.checkpoint or options.root.rstrip("/") + "/checkpoint"
    if options.raw_retention is not None:
        removed = expire_raw(spark, options.root, checkpoint, options.raw_retention)
        print(json.dumps({"event": "expired", "batches": removed}), flush=True)
    if options.raw_max_age is not None:
        removed = drop_raw(options.root, checkpoint, options.raw_max_age)
        print(json.dumps({"event": "dropped", "batches": removed}), flush=True)


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


def heartbeat_file(options: argparse.Namespace) -> Path | None:
    """Return the path of the heart-beat file, or None."""
    if options.heartbeat_file:
        return Path(options.heartbeat_file)
    return Path(options.root, "heartbeat.json") if is_local(options.root) else None


def retention(text: str) -> timedelta:
    """Parse a time span, such as ``3d`` or ``12h``."""
    number, unit = text[:-1], {"d": "days", "h": "hours"}.get(text[-1:])
    if unit is None or not number.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not like 3d or 12h")
    return timedelta(**{unit: int(number)})


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    first, _, rest = (__doc__ or "").partition("\n")
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=first, epilog=rest, formatter_class=form)
    add = parser.add_argument
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--once", action="store_true", help="store the present messages, and end")
    mode.add_argument("--interval", type=float, metavar="S", help="a batch every S seconds")
    add(
        "--root",
        default="diag",
        help="directory of all files; a URI is possible for raw data only (default: diag)",
    )
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
    add("--heartbeat-file", help="path (default: ROOT/heartbeat.json)")
    days = {"type": date.fromisoformat, "metavar": "DATE", "action": "append"}
    add("--compact", help="rebuild the tables of this day; repeatable", **days)  # type: ignore[arg-type]
    add("--compact-closed", action="store_true", help="build the tables of all past days")
    add(
        "--raw-retention",
        type=retention,
        metavar="3d",
        help="remove raw batches older than this whose rows are all in the tables",
    )
    add(
        "--raw-max-age",
        type=retention,
        metavar="30d",
        help="remove raw batches older than this, even if their rows are nowhere else",
    )
    add("--conf", action="append", default=[], metavar="KEY=VALUE", help="a setting of Spark")
    options = parser.parse_args(argv)
    options.tables = (
        options.compact or options.compact_closed or options.raw_retention or options.raw_max_age
    )
    if options.interval is not None and options.tables:
        parser.error("--interval never ends: build the tables in a separate call")
    if not (options.once or options.interval is not None or options.tables):
        parser.error("one of --once, --interval, --compact, --compact-closed, --raw-… is needed")
    if options.tables and not is_local(options.root.removeprefix("file://")):
        parser.error("the tables need a --root that is a directory, not a URI")
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
    except ModuleNotFoundError as error:
        # Print only one line, which names the missing package.
        print(f"{error.name} is not installed: pip install 'trio-stomp[spark]'", file=sys.stderr)
        return 2
    try:
        conf = dict(pair.split("=", 1) for pair in options.conf)
        with alone(options.root):
            spark = open_session("diag_to_parquet", conf=conf, conf_dir=CONF)
            try:
                if (options.once or options.interval is not None) and not stop.is_set():
                    stream(spark, options, stop)
                if options.tables and not stop.is_set():
                    tables(spark, options)
            finally:
                spark.stop()
    except SparkMissing as error:
        print(error, file=sys.stderr)
        return 2
    except SidecarError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
