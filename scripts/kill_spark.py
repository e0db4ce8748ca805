"""Kill the sidecar and the broker repeatedly, then count lost and duplicate messages.

    python scripts/kill_spark.py                       10 kills of the job, 3 of the broker
    python scripts/kill_spark.py --kills 2 --broker-kills 1 --rate 200

A client subscribes and unsubscribes, so that the broker publishes events at a steady rate. A live
subscriber follows /stream/DIAG. The sidecar runs batch after batch, and is killed with SIGKILL at
random moments. So is the broker, which keeps its data directory. At the end the Parquet files are
read with a plain glob and compared with the stream and with what the subscriber received.

The result is one line of JSON. The exit code is 0 if nothing is lost, duplicated or changed.
"""

import argparse
import contextlib
import json
import os
import random
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow.parquet as pq

from trio_stomp.spark import StreamAddress, StreamAway, StreamClient, StreamError, open_session
from trio_stomp.spark._client import Connection, is_end, numbered
from trio_stomp.spark._frames import FrameError, header

SIDECAR = Path(__file__).resolve().parent / "diag_to_parquet.py"
GLOB = "raw/q=*/batch=*/*.parquet"
START_LIMIT_S = 120.0
BURST_S = 0.02

Truth = dict[tuple[str, int], int]
"""The checksum of every message's body by epoch and offset."""


class HarnessError(Exception):
    """The experiment itself failed, without a result about the sidecar."""


class Process:
    """A program with its children, in a group of its own, that can be killed and started again."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._command, self._log = command, log
        self._running: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it."""
        with self._log.open("ab") as log:
            self._running = subprocess.Popen(
                self._command, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self, *, alone: bool = False) -> None:
        """Kill it with -9: the whole group, or the first process ``alone``."""
        assert self._running is not None
        with contextlib.suppress(ProcessLookupError):
            (os.kill if alone else os.killpg)(self._running.pid, signal.SIGKILL)
        self._running.wait()
        # A driver's JVM ends after its driver. Wait for that: two at a time would invalidate the
        # result.
        deadline = time.monotonic() + START_LIMIT_S
        while alone and time.monotonic() < deadline:
            try:
                os.killpg(self._running.pid, 0)
            except ProcessLookupError:
                return
            time.sleep(0.1)

    def check(self) -> None:
        """Raise ``HarnessError`` if the process has ended on its own."""
        if self._running is not None and self._running.poll() is not None:
            tail = self._log.read_text(errors="replace").splitlines()[-5:]
            raise HarnessError("\n".join([f"{self._command} ended", *tail]))

    def wait(self) -> None:
        """Wait for its end."""
        assert self._running is not None
        self._running.wait()


class Background:
    """A thread that repeats its work whenever the connection is lost."""

    def __init__(self, place: StreamAddress) -> None:
        self.stream_address = place
        self.ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def end(self) -> None:
        """Stop, and wait for it."""
        self.ended.set()
        self._thread.join(START_LIMIT_S)

    def _run(self) -> None:
        while not self.ended.is_set():
            with (
                contextlib.suppress(OSError, FrameError),
                Connection(self.stream_address) as connection,
            ):
                self.work(connection)
            self.ended.wait(0.1)

    def work(self, connection: Connection) -> None:
        """Work until ``ended`` is set or the connection is lost."""
        raise NotImplementedError


class Load(Background):
    """Subscribes and unsubscribes: two events each time.

    Args:
      rate: Events in a second.
    """

    def __init__(self, place: StreamAddress, rate: float) -> None:
        super().__init__(place)
        self._pairs = max(1, round(rate * BURST_S / 2))
        self._pause_s = 2 * self._pairs / rate
        self.sent = 0

    def work(self, connection: Connection) -> None:
        """Send at an even pace."""
        due = time.monotonic()
        while not self.ended.wait(max(0.0, due - time.monotonic())):
            for _ in range(self._pairs):
                self.sent += 2
                name = {"id": str(self.sent)}
                connection.send(
                    "SUBSCRIBE", name | {"destination": f"/topic/kill.{self.sent % 10}"}
                )
                connection.send("UNSUBSCRIBE", name)
            due += self._pause_s


class Follower(Background):
    """A live subscriber of the stream, which continues after the last message it got."""

    def __init__(self, place: StreamAddress) -> None:
        super().__init__(place)
        self.seen: Truth = {}
        self.reused = 0
        """Offsets that arrived again with another message, which the broker must never send."""
        self._epoch, self._next = "", 0

    def work(self, connection: Connection) -> None:
        """Record all received messages."""
        asked = {"id": "0", "destination": self.stream_address.stream, "x-stream-offset": "first"}
        if self._epoch:
            asked |= {"x-stream-offset": f"offset={self._next}", "x-stream-epoch": self._epoch}
        connection.send("SUBSCRIBE", asked)
        for frames in connection.messages():
            if is_end(*frames[-1]):
                # A new epoch: its offsets start from the beginning.
                self._epoch = ""
                return
            for offset, _, head, body in numbered(frames):
                self._epoch = epoch = (header(head, b"x-stream-epoch") or b"").decode()
                crc = zlib.crc32(body)
                self.reused += self.seen.setdefault((epoch, offset), crc) != crc
                self._next = offset + 1
            if self.ended.is_set():
                return


class Job:
    """The sidecar, batch after batch without a pause."""

    def __init__(self, url: str, root: Path) -> None:
        self._commits = root / "out" / "checkpoint" / "commits"
        base = (sys.executable, str(SIDECAR), "--url", url, "--root", str(root / "out"))
        log = root / "sidecar.log"
        self.process = Process([*base, "--interval", "0"], log)
        self.last = Process([*base, "--once"], log)

    def commits(self) -> int:
        """Return the number of committed batches."""
        return sum(file.name.isdigit() for file in self._commits.glob("*"))

    def run_and_kill(self, chance: random.Random) -> None:
        """Start it, let it commit, and kill it at a random moment."""
        before = self.commits()
        self.process.start()
        wait_for("a committed batch", lambda: self.commits() > before, self.process)
        time.sleep(chance.uniform(0.2, 3.5))
        self.process.check()
        self.process.kill(alone=chance.random() < 0.5)


def wait_for(what: str, condition: Callable[[], bool], process: Process | None = None) -> None:
    """Wait until ``condition()`` is true.

    Raises:
      HarnessError: it does not become so, or ``process`` ended.
    """
    deadline = time.monotonic() + START_LIMIT_S
    while not condition():
        if process is not None:
            process.check()
        if time.monotonic() > deadline:
            raise HarnessError(f"waited more than {START_LIMIT_S:g} s: {what}")
        time.sleep(0.05)


def free_port() -> int:
    """Return a free port."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def held(place: StreamAddress) -> Truth:
    """Return all messages that the stream holds now."""
    client = StreamClient(place)
    epoch, first, following = client.bounds()
    replay = client.read(epoch, first, following)
    return {(epoch, at): zlib.crc32(body) for messages in replay for at, _, _, body in messages}


def written(root: Path) -> tuple[Counter[tuple[str, int]], Truth, int]:
    """Return the data that a plain glob finds: the count of each message, checksums, and the gap
    rows."""
    counts: Counter[tuple[str, int]] = Counter()
    found: Truth = {}
    gaps = 0
    columns = ["epoch", "offset", "kind", "body"]
    for file in sorted((root / "out").glob(GLOB)):
        for row in pq.read_table(file, columns=columns).to_pylist():
            if row["kind"] == "_gap":
                gaps += 1
                continue
            key = (row["epoch"], row["offset"])
            counts[key] += 1
            found[key] = zlib.crc32(row["body"].encode())
    return counts, found, gaps


def counted_by_others(root: Path) -> dict[str, int | None]:
    """Return the rows that Spark and DuckDB find by the same glob, or None if not installed."""
    pattern = f"{root / 'out'}/{GLOB}"
    with contextlib.redirect_stdout(sys.stderr):
        spark = open_session("kill_spark", conf_dir=SIDECAR.parent.parent / "conf")
        rows: dict[str, int | None] = {"spark": spark.read.parquet(pattern).count()}
        spark.stop()
    rows["duckdb"] = None
    with contextlib.suppress(ImportError):
        import duckdb

        rows["duckdb"] = duckdb.read_parquet(pattern).shape[0]
    return rows


def experiment(options: argparse.Namespace, root: Path) -> dict[str, object]:
    """Run the experiment, and return its figures."""
    chance = random.Random(options.seed)
    port = free_port()
    place = StreamAddress(f"stomp://127.0.0.1:{port}", retry_s=START_LIMIT_S)
    command = [
        *shlex.split(options.broker),
        "--port",
        str(port),
        "--data-dir",
        str(root / "broker"),
    ]
    broker = Process(command, root / "broker.log")
    job, load, follower = Job(place.url, root), Load(place, options.rate), Follower(place)
    broker.start()
    started = time.monotonic()
    try:
        StreamClient(place).bounds()
        follower.start()
        load.start()
        broker_rounds = chance.sample(range(options.kills), options.broker_kills)
        for number in range(options.kills):
            killer = threading.Thread(target=kill_broker, args=(broker, chance.uniform(0, 20)))
            if number in broker_rounds:
                killer.start()
            job.run_and_kill(chance)
            if number in broker_rounds:
                killer.join()
            print(
                f"kill {number + 1}: {job.commits()} batches, {len(follower.seen)} messages",
                file=sys.stderr,
            )
        load.end()
        end = StreamClient(place).bounds().next
        wait_for("the live subscriber", lambda: end_of(follower) >= end, broker)
        loaded_s = time.monotonic() - started
        truth = held(place)
        job.last.start()
        job.last.wait()
        follower.end()
        return compare(root, truth, follower) | {
            "kills": options.kills,
            "broker_kills": options.broker_kills,
            "batches": job.commits(),
            "events_sent": load.sent,
            "seconds": round(loaded_s, 1),
            "seed": options.seed,
        }
    finally:
        broker.kill()
        with contextlib.suppress(AssertionError):
            job.process.kill()


def end_of(follower: Follower) -> int:
    """Return the offset that the live subscriber expects next."""
    return max((offset for _, offset in follower.seen), default=-1) + 1


def kill_broker(broker: Process, delay_s: float) -> None:
    """Kill it after a while, and start it again a little later."""
    time.sleep(delay_s)
    broker.kill()
    time.sleep(min(2.0, delay_s / 4))
    broker.start()


def compare(root: Path, truth: Truth, follower: Follower) -> dict[str, object]:
    """Compare the files with the stream after the load and with what the subscriber received."""
    counts, found, gaps = written(root)
    live = {key: crc for key, crc in follower.seen.items() if key in truth}
    # Ignore messages after the end of the load. Those before, or of an earlier epoch, must be in
    # the files if the subscriber received them.
    epoch, last = max(truth, default=("", -1))
    old = [key for key in follower.seen if key[0] != epoch or key[1] <= last]
    return {
        "messages": len(truth),
        "epochs": len({epoch for epoch, _ in truth | follower.seen}),
        "lost": len(truth.keys() - found.keys()),
        "doubled": sum(counts.values()) - len(counts),
        "changed": sum(found.get(key, crc) != crc for key, crc in truth.items()),
        "seen_live": len(live),
        "seen_live_but_lost": len(live.keys() - found.keys()),
        "broker_lost": sum(key not in truth and key not in found for key in old),
        "offsets_used_twice": follower.reused,
        "gap_rows": gaps,
        "files": len(list((root / "out").glob(GLOB))),
        "rows": sum(counts.values()) + gaps,
        "rows_by": counted_by_others(root),
    }


def is_clean(result: dict[str, object]) -> bool:
    """Return whether nothing is lost, duplicated or changed, and all readers agree."""
    faults = ("lost", "doubled", "changed", "seen_live_but_lost", "broker_lost", "gap_rows")
    rows_by = result["rows_by"]
    assert isinstance(rows_by, dict)
    return not any(result[name] for name in (*faults, "offsets_used_twice")) and all(
        rows in (None, result["rows"]) for rows in rows_by.values()
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the experiment, and return the exit code."""
    first, _, rest = (__doc__ or "").partition("\n")
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=first, epilog=rest, formatter_class=form)
    add = parser.add_argument
    add("--kills", type=int, default=10, help="kills of the job")
    add("--broker-kills", type=int, default=3)
    add("--rate", type=float, default=500, help="events in a second")
    add("--seed", type=int, default=random.randrange(10**6))
    add("--root", type=Path, help="keep the files there (default: a temporary directory)")
    add("--broker", default=f"{shlex.quote(sys.executable)} -m trio_stomp", help="its command")
    options = parser.parse_args(argv)
    try:
        with contextlib.ExitStack() as stack:
            root = options.root or Path(stack.enter_context(tempfile.TemporaryDirectory()))
            root.mkdir(parents=True, exist_ok=True)
            result = experiment(options, root)
    except (HarnessError, StreamError, StreamAway) as error:
        print(f"the experiment failed: {error}", file=sys.stderr)
        return 2
    print(json.dumps(result))
    return 0 if is_clean(result) else 1


if __name__ == "__main__":
    sys.exit(main())
