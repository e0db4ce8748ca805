"""Kill whatever writes the tables, again and again, then count lost and duplicate rows.

    python scripts/kill_spark.py                              10 kills of each, without Java
    python scripts/kill_spark.py --writer spark --kills 4     the sidecar of Spark
    python scripts/kill_spark.py --storage s3                 in S3, as moto's server plays it

A client subscribes and unsubscribes, so that the broker publishes events at a steady rate, and
sends to two topics with streams. Four writers work on one root: one reads /stream/DIAG into its
tables, two read one topic's stream into a table each, one that of the other topic. Beside them
another process merges the files without a pause. Then the writers, the compaction, the broker
(which keeps its data directory) and the way to the storage are killed with SIGKILL at random
moments, one after the other. At the end all streams are written once more, in peace, to other
tables; those of the killed must have the same rows.

The result is a table, and one line of JSON. The exit code is 0 if nothing is lost, doubled or
changed.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from _crash.ports import free_port

from trio_stomp.spark import StreamAddress, StreamAway, StreamClient, StreamError
from trio_stomp.spark._client import Connection
from trio_stomp.spark._columns import KINDS
from trio_stomp.spark._frames import FrameError
from trio_stomp.spark.lake import Drain, LakeError, Store, open_store

SIDECAR = Path(__file__).resolve().parent / "diag_to_parquet.py"
TOOL = (sys.executable, "-m", "trio_stomp")
START_LIMIT_S = 600.0
BURST_S = 0.02
BUCKET = "killed-tables"
DIAG, TOPICS = "/stream/DIAG", ("/topic/killed.a", "/topic/killed.b")
USERS = (
    (f"/stream{TOPICS[0]}", "messages"),
    (f"/stream{TOPICS[0]}", "second"),
    (f"/stream{TOPICS[1]}", "third"),
)
"""The streams of users and their tables."""
OF_SPARK = ("", "messages")
"""The tables that the sidecar of Spark can write: those of the statistics, and this one."""
POLICIES = "".join(f'["{topic}"]\nstream = true\n' for topic in TOPICS)

RELAY = """
import socket, sys, threading
def copy(a, b):
    try:
        while data := a.recv(65536):
            b.sendall(data)
    except OSError:
        pass
    for end in (a, b):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
own, other = map(int, sys.argv[1:])
server = socket.create_server(("127.0.0.1", own), backlog=64)
while True:
    near, _ = server.accept()
    far = socket.create_connection(("127.0.0.1", other))
    for pair in ((near, far), (far, near)):
        threading.Thread(target=copy, args=pair, daemon=True).start()
"""
"""The way to the storage: kill it, and each request is cut where it is."""


USAGE = 2
"""The exit code of a program whose arguments are wrong."""


class HarnessError(Exception):
    """The experiment itself failed: it says nothing about the tables."""


class Process:
    """A program with its children, in a group of its own, that can be killed and started again."""

    def __init__(self, command: Sequence[str], log: Path, name: str = "") -> None:
        self._command, self._log, self.name = command, log, name
        self._running: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it."""
        with self._log.open("ab") as log:
            self._running = subprocess.Popen(
                self._command, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self, *, alone: bool = False) -> None:
        """Kill it with -9: the whole group, or the first process ``alone``."""
        if self._running is None:
            return
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

    def revive(self) -> bool:
        """Start it if it has ended, as a service manager does, and return whether it had.

        Raises:
          HarnessError: It does not know its arguments, so it would end again.
        """
        code = 0 if self._running is None else self._running.poll()
        if code == USAGE:
            self.check()
        if code is not None:
            self.start()
        return code is not None

    def finish(self) -> None:
        """Run it to its end.

        Raises:
          HarnessError: it failed.
        """
        self.start()
        assert self._running is not None
        if self._running.wait(START_LIMIT_S):
            tail = self._log.read_text(errors="replace").splitlines()[-5:]
            raise HarnessError("\n".join([f"{self.name} failed", *tail]))


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
    """Subscribes and unsubscribes: two events each time. And sends a message to each topic.

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
            for topic in TOPICS:
                frame = f"SEND\ndestination:{topic}\npersistent:true\n\n{self.sent}\0"
                connection.send_bytes(frame.encode())
            due += self._pause_s


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


def kill_broker(broker: Process, delay_s: float) -> None:
    """Kill it after a while, and start it again a little later."""
    time.sleep(delay_s)
    broker.kill()
    time.sleep(min(2.0, delay_s / 4))
    broker.start()


@contextlib.contextmanager
def storage(kind: str, root: Path) -> Iterator[tuple[str, list[Process]]]:
    """Yield the root of the tables, and what can be killed of their storage."""
    if kind == "dir":
        yield str(root / "out"), []
        return
    import boto3

    own, other = free_port(), free_port()
    os.environ.update(
        AWS_ACCESS_KEY_ID="test",
        AWS_SECRET_ACCESS_KEY="test",
        AWS_REGION="us-east-1",
        AWS_ALLOW_HTTP="true",
        AWS_ENDPOINT_URL=f"http://127.0.0.1:{own}",
    )
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(other)]
    moto = Process(command, root / "moto.log")
    command = [sys.executable, "-c", RELAY, str(own), str(other)]
    relay = Process(command, root / "relay.log", "storage")
    try:
        moto.start()
        wait_for("the server of S3", lambda: listens(other), moto)
        relay.start()
        wait_for("the way to it", lambda: listens(own), relay)
        boto3.client("s3").create_bucket(Bucket=BUCKET)
        yield f"s3://{BUCKET}/out", [relay]
    finally:
        relay.kill()
        moto.kill()


def listens(port: int) -> bool:
    """Return whether a process listens on a port."""
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def commands(
    options: argparse.Namespace, out: str, url: str, stream: str, table: str
) -> tuple[list[str], list[str]]:
    """Return the command of the writer of a table, and that of its last run."""
    is_spark = options.writer == "spark" and table in OF_SPARK
    words = [sys.executable, str(SIDECAR)] if is_spark else [*TOOL, "tables"]
    words += ["--root", out, "--format", options.format, "--url", url, "--stream", stream]
    if table and not is_spark:
        words += ["--table", table]
    return [*words, "--interval", "0.2"], [*words, "--once"]


def experiment(options: argparse.Namespace, root: Path) -> dict[str, object]:
    """Run the experiment, and return its figures.

    Raises:
      HarnessError: it failed.
    """
    chance = random.Random(options.seed)
    port = free_port()
    place = StreamAddress(f"stomp://127.0.0.1:{port}", retry_s=START_LIMIT_S)
    policies = root / "policies.toml"
    policies.write_text(POLICIES, encoding="utf-8")
    command = [*TOOL, "--port", str(port), "--data-dir", str(root / "broker")]
    command += ["--policies", str(policies)]
    broker = Process(command, root / "broker.log", "broker")
    load = Load(place, options.rate)
    with storage(options.storage, root) as (out, stores), contextlib.ExitStack() as stack:
        jobs = [commands(options, out, place.url, *of) for of in ((DIAG, ""), *USERS)]
        works = [Process(words, root / "job.log", "job") for words, _ in jobs]
        if options.format == "delta":
            merge = f"while true; do {' '.join(TOOL)} tables --compact --root {out}; done"
            works += [Process(["sh", "-c", merge], root / "compaction.log", "compaction")]
        stack.callback(broker.kill)
        broker.start()
        StreamClient(place).bounds()
        load.start()
        wait_for("messages", lambda: load.sent > 0, broker)
        for each in works:
            stack.callback(each.kill)
            each.start()
        kills, ended = kill_all(options, chance, [*works, broker, *stores], out)
        load.end()
        for each in works:
            each.kill()
        for _, last in jobs:
            Process(last, root / "job.log", "the last run").finish()
        return compare(open_store(out), place, root, USERS) | {
            "kills": kills,
            "ended_on_their_own": ended,
            "events_sent": load.sent,
            "seed": options.seed,
        }


def kill_all(
    options: argparse.Namespace, chance: random.Random, victims: Sequence[Process], out: str
) -> tuple[dict[str, int], dict[str, int]]:
    """Kill each of the victims the given number of times, in random order, at random moments.

    Returns:
      The kills, and how often each had ended before, because something else was away.
    """
    order = [victim for victim in victims for _ in range(options.kills)]
    chance.shuffle(order)
    kills: Counter[str] = Counter()
    ended: Counter[str] = Counter()
    for victim in order:
        wait_for_progress(out, victims, ended)
        time.sleep(chance.uniform(0.0, options.pause))
        victim.kill()
        kills[victim.name] += 1
        time.sleep(chance.uniform(0.0, 1.0))
        for each in victims:
            if each.revive() and each is not victim:
                ended[each.name] += 1
        print(f"{kills.total()} of {len(order)}: {victim.name}", file=sys.stderr, flush=True)
    return dict(kills), dict(ended)


def wait_for_progress(out: str, victims: Sequence[Process], ended: Counter[str]) -> None:
    """Wait until something is committed, and start again what has ended.

    Raises:
      HarnessError: nothing is.
    """
    before = commits(out)
    deadline = time.monotonic() + START_LIMIT_S
    while commits(out) <= before:
        for each in victims:
            if each.revive():
                ended[each.name] += 1
        if time.monotonic() > deadline:
            raise HarnessError("nothing was committed for ten minutes")
        time.sleep(0.2)


def commits(out: str) -> int:
    """Return the number of messages that the tables have."""
    with contextlib.suppress(LakeError, OSError):
        found = open_store(out).dataset("progress")
        return 0 if found is None else sum(found.to_table().column("messages").to_pylist())
    return 0


def position(store: Store) -> int:
    """Return how far the tables of the statistics are."""
    found = store.dataset("progress")
    assert found is not None
    rows = found.to_table(columns=["stream", "next"]).to_pylist()
    return max(int(row["next"]) for row in rows if row["stream"] == DIAG)


def rows_of(store: Store, name: str, end: float) -> Counter[str]:
    """Return the rows of a table before an offset, as texts."""
    table = store.dataset(name)
    rows = [] if table is None else table.to_table().to_pylist()
    texts = (json.dumps(row, default=str, sort_keys=True) for row in rows if row["offset"] < end)
    return Counter(texts)


def compare(
    store: Store, place: StreamAddress, root: Path, users: Sequence[tuple[str, str]] = ()
) -> dict[str, object]:
    """Compare the tables with those of a writer that is never killed."""
    peaceful, end = open_store(root / "peaceful"), position(store)
    Drain(StreamClient(place), peaceful).run()
    ends: dict[str, float] = dict.fromkeys((*KINDS, "raw"), end)
    for stream, table in users:
        Drain(StreamClient(place._replace(stream=stream)), peaceful, table=table).run()
        ends[table] = float("inf")
    figures: Counter[str] = Counter()
    tables: dict[str, int] = {}
    for name, limit in ends.items():
        expected, found = (rows_of(each, name, limit) for each in (peaceful, store))
        tables[name] = found.total()
        doubled = sum(count - 1 for count in found.values())
        lacking = (expected - found).total()
        changed = min(lacking, sum(text not in expected for text in found))
        figures.update(rows=found.total(), lost=lacking - changed, doubled=doubled, changed=changed)
    files = sum(len(store.files(name)) for name in store.place.names("tables"))
    users_rows = {table: tables[table] for _, table in users}
    return {"messages": end, **figures, "files": files, "users": users_rows}


def show(options: argparse.Namespace, result: dict[str, object]) -> None:
    """Print the figures as a table of Markdown, and as a line of JSON."""
    kills = result["kills"]
    assert isinstance(kills, dict)
    figures = {
        "writer": f"{options.writer}, {options.format}, {options.storage}",
        **{f"{name} killed": count for name, count in kills.items()},
        **{name: result[name] for name in ("messages", "rows", "lost", "doubled", "changed")},
    }
    print(f"| {' | '.join(figures)} |\n|{'---|' * len(figures)}")
    print(f"| {' | '.join(map(str, figures.values()))} |")
    print(json.dumps(result))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the experiment, and return the exit code."""
    first, _, rest = (__doc__ or "").partition("\n")
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=first, epilog=rest, formatter_class=form)
    add = parser.add_argument
    add("--kills", type=int, default=10, help="of each victim")
    add("--writer", choices=("tables", "spark"), default="tables")
    add("--format", choices=("delta", "parquet"), default="delta")
    add("--storage", choices=("dir", "s3"), default="dir")
    add("--pause", type=float, default=2.0, help="most seconds between progress and a kill")
    add("--rate", type=float, default=500, help="events in a second")
    add("--seed", type=int, default=random.randrange(10**6))
    add("--root", type=Path, help="keep the files there (default: a temporary directory)")
    options = parser.parse_args(argv)
    try:
        with contextlib.ExitStack() as stack:
            root = options.root or Path(stack.enter_context(tempfile.TemporaryDirectory()))
            root.mkdir(parents=True, exist_ok=True)
            result = experiment(options, root)
    except (HarnessError, LakeError, StreamError, StreamAway) as error:
        print(f"the experiment failed: {error}", file=sys.stderr)
        return 2
    show(options, result)
    return 1 if any(result[name] for name in ("lost", "doubled", "changed")) else 0


if __name__ == "__main__":
    sys.exit(main())
