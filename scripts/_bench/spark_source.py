"""Spark's source: a broker's stream is filled once, and each run drains all of it to Parquet.

The sidecar runs as in production, in its own process with ``--once``; the figures of a micro-batch
are those of its JSON lines. Processor time is read from outside, four times a second, and a batch's
share is that between the two times in its line.
"""

import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.compute as pc
from _crash.link import Gone, Link

from _bench.process import BenchError, Broker, cpu_of, family, running_broker
from trio_stomp.spark import StreamAddress, StreamClient
from trio_stomp.spark.lake import open_store

SIDECAR = ("-m", "trio_stomp", "spark", "once")
TOPIC = "/topic/readings"
STREAM = f"/stream{TOPIC}"
POLICY = f'["{TOPIC}"]\nstream = true\nstream_max_bytes = 0\nstream_max_age_ms = 0\n'
TIDY = ("--diag-interval-s", "3600")
"""The broker's own statistics would be a second stream on the same disk."""

AT_ONCE = 500
"""Messages that are sent in one piece, and for the last of which a receipt is awaited."""
FILL_LIMIT_S = 600.0
SAMPLE_S = 0.25

Show = Callable[..., None]


class Amount(NamedTuple):
    """The content of the stream, and how it is drained.

    Args:
      messages: The number of messages.
      body_bytes: The size of each message: JSON, padded to this length.
      max_rows: The maximum rows of a micro-batch.
    """

    messages: int = 600_000
    body_bytes: int = 393
    max_rows: int = 200_000


class Sample(NamedTuple):
    """Processor time since the beginning, in seconds, at a moment of the wall clock."""

    at: float
    spark: float
    broker: float


class Meter:
    """Measures the processor time of processes while a ``with`` block runs.

    Args:
      spark: The process that started Spark; its descendants count.
      broker: Counted separately.
    """

    def __init__(self, spark: int, broker: Broker) -> None:
        self.samples: list[Sample] = []
        self._spark, self._broker = spark, broker
        self._used: dict[int, float] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Meter":
        self._read()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(SAMPLE_S):
            self._read()

    def _read(self) -> None:
        for pid in family(self._spark):
            try:
                self._used[pid] = cpu_of(pid).exact
            except OSError:  # it has ended; the time that it used is remembered
                continue
        used = sum(self._used.values())
        self.samples.append(Sample(time.time(), used, self._broker.cpu().exact))


def used_between(samples: Sequence[Sample], begin: float, end: float) -> tuple[float, float]:
    """Return Spark's and the broker's processor time between two moments.

    Between two samples it counts as evenly spent; before the first and after the last, as none.
    """
    first, last = at(samples, begin), at(samples, end)
    return last.spark - first.spark, last.broker - first.broker


def at(samples: Sequence[Sample], moment: float) -> Sample:
    """Return the processor time used up to a time."""
    place = bisect_left(samples, moment, key=lambda sample: sample.at)
    if place in {0, len(samples)}:
        return samples[min(place, len(samples) - 1)]
    before, after = samples[place - 1], samples[place]
    share = (moment - before.at) / (after.at - before.at)
    mixed = (low + (high - low) * share for low, high in zip(before, after, strict=True))
    return Sample(*mixed)


def bodies(amount: Amount, start: int = 0) -> Iterator[str]:
    """Yield JSON of ``body_bytes`` each, from message ``start`` on.

    Raises:
      BenchError: ``body_bytes`` is too small for the content.
    """
    chance = random.Random(start)
    for number in range(start, amount.messages):
        reading = {
            "number": number,
            "sensor": f"hall-{number % 40:02d}/line-{number % 7}/sensor-{number % 1000:04d}",
            "celsius": round(chance.gauss(21, 3), 3),
            "volts": round(chance.gauss(230, 2), 3),
            "samples": [chance.randrange(10_000) for _ in range(24)],
            "ok": chance.random() < 0.999,
            "note": "",
        }
        text = json.dumps(reading, separators=(",", ":"))
        if len(text) > amount.body_bytes:
            raise BenchError(f"a body has {len(text)} bytes: --body-bytes {amount.body_bytes}")
        yield text[:-2] + "." * (amount.body_bytes - len(text)) + '"}'


def fill(port: int, amount: Amount, start: int) -> None:
    """Send the messages that the stream does not hold yet.

    Raises:
      BenchError: the broker went away, or said ERROR.
    """
    link, deadline = Link(port), time.monotonic() + FILL_LIMIT_S
    made = bodies(amount, start)
    while piece := [body for _, body in zip(range(AT_ONCE), made, strict=False)]:
        head = f"SEND\ndestination:{TOPIC}\npersistent:true\ncontent-type:application/json\n"
        sends = [f"{head}\n{body}\0" for body in piece]
        sends[-1] = f"{head}receipt:r\n\n{piece[-1]}\0"
        try:
            link.send("".join(sends))
            while not (replies := link.receive()) and time.monotonic() < deadline:
                pass
        except Gone:
            raise BenchError("the broker went away while its stream was filled") from None
        if not replies or replies[0].command != "RECEIPT":
            raise BenchError(f"the stream cannot be filled: {replies or 'no answer'}")
    link.close()


@contextmanager
def filled_broker(root: Path, amount: Amount, say: Show) -> Iterator[Broker]:
    """Run a broker whose stream holds the messages. Those of an earlier run are reused.

    Raises:
      BenchError: it did not start, or the stream holds something else.
    """
    root.mkdir(parents=True, exist_ok=True)
    policies = root / "policies.toml"
    policies.write_text(POLICY, encoding="utf-8")
    options = ("--data-dir", str(root / "broker"), "--policies", str(policies), *TIDY)
    with running_broker(options) as broker:
        client = StreamClient(StreamAddress(f"stomp://127.0.0.1:{broker.port}", STREAM))
        held, clock = client.bounds().next, time.monotonic()
        fill(broker.port, amount, held)
        _, first, following = client.bounds()
        if (first, following) != (0, amount.messages):
            raise BenchError(
                f"{root} has messages {first} to {following - 1}, not {amount.messages}: remove it"
            )
        s = round(time.monotonic() - clock, 1)
        own = {"messages": amount.messages, "body_bytes": amount.body_bytes}
        say("stream", **own, added=amount.messages - held, s=s)
        yield broker


def check(root: Path, messages: int) -> None:
    """Raise ``BenchError`` unless the files hold each offset once."""
    store = open_store(root)
    rows = store.dataset("raw") or store.dataset("messages")
    if rows is None:
        raise BenchError("no file was written")
    table = rows.to_table(columns=["offset"])
    offsets = table.column("offset")
    found = (
        len(offsets),
        pc.count_distinct(offsets).as_py(),
        *pc.min_max(offsets).as_py().values(),
    )
    if found != (messages, messages, 0, messages - 1):
        raise BenchError(f"rows, offsets, least, greatest: {found} of {messages} messages")


def drain(broker: Broker, root: Path, amount: Amount, say: Show) -> None:
    """Run the sidecar once, and report the cost of each micro-batch.

    Raises:
      BenchError: it failed, or its output differs from the stream.
    """
    options = ("--url", f"stomp://127.0.0.1:{broker.port}", "--stream", STREAM)
    own = ("--root", str(root), "--max-rows", str(amount.max_rows))
    command = [sys.executable, *SIDECAR, *options, *own]
    began, mine = time.time(), time.process_time()
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running,
        Meter(running.pid, broker) as meter,
    ):
        assert running.stdout is not None
        lines = [json.loads(line) for line in running.stdout]
        code = running.wait()
    mine = time.process_time() - mine
    if code:
        raise BenchError(f"the sidecar ended with exit code {code}")
    check(root, amount.messages)
    batches = [line for line in lines if line["event"] == "batch"]
    start = moment(batches[0])
    spark, _ = used_between(meter.samples, began, start)
    say("start of Spark", s=round(start - began, 1), spark_cpu_s=round(spark, 1))
    for batch in batches:
        tell(batch, meter.samples, say)
    spark, of_broker = used_between(meter.samples, began, time.time())
    say(
        "all",
        rows=amount.messages,
        s=round(meter.samples[-1].at - began, 1),
        spark_cpu_s=round(spark, 1),
        broker_cpu_s=round(of_broker, 1),
        meter_cpu_s=round(mine, 1),
    )


def moment(batch: dict[str, Any]) -> float:
    """Return the beginning of a batch, in seconds since 1970."""
    return datetime.fromisoformat(batch["ts"]).timestamp()


def tell(batch: dict[str, Any], samples: Sequence[Sample], say: Show) -> None:
    """Report one micro-batch."""
    begin, s = moment(batch), batch["ms"]["triggerExecution"] / 1000
    spark, of_broker = used_between(samples, begin, begin + s)
    say(
        "micro-batch",
        batch=batch["batch"],
        rows=batch["rows"],
        s=round(s, 2),
        rows_per_s=round(batch["rows"] / s),
        spark_cpu_s=round(spark, 2),
        broker_cpu_s=round(of_broker, 2),
    )


def measure_source(root: Path, amount: Amount, runs: int, say: Show) -> None:
    """Fill a stream if necessary, and drain it ``runs`` times, each time into new files.

    Raises:
      BenchError: the broker or the sidecar failed, or rows are lost or duplicated.
    """
    with filled_broker(root, amount, say) as broker:
        for _ in range(runs):
            with tempfile.TemporaryDirectory(dir=root, prefix="run-") as out:
                drain(broker, Path(out), amount, say)
