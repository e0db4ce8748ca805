"""Produce a report on a broker's load, in under two minutes.

    python scripts/diag_demo.py --root diag-demo

Starts a broker, runs clients for a while, reads the stream of its statistics with Spark, makes the
tables, analyses them, and prints the path of the report. Needs the extra
`spark` and Java.
"""

import argparse
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from _bench.process import BenchError, running_broker
from _crash.link import Gone, Link

from trio_stomp.spark import SparkMissing, check_installed

SCRIPTS = Path(__file__).resolve().parent
BODY = "x" * 120
PAUSE_S = 0.01
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Java's second compiler does not pay off within a minute."""


def publish(port: int, stop: threading.Event) -> None:
    """Send prices to ten topics, some without subscribers, and sometimes a picture."""
    link = Link(port)
    for number in count():
        if stop.is_set():
            return
        link.send(f"SEND\ndestination:/topic/prices.{number % 10}\n\n{BODY}\0" * 20)
        if number % 4 == 0:
            link.send(f"SEND\ndestination:/topic/pictures\n\n{BODY * 300}\0")
        time.sleep(PAUSE_S)


def order(port: int, stop: threading.Event) -> None:
    """Send persistent orders, in bursts that are faster than the worker."""
    link = Link(port)
    for number in count():
        burst = 40 if number % 50 < 20 else 10
        link.send(f"SEND\ndestination:/queue/orders\npersistent:true\n\n{BODY}\0" * burst)
        if stop.wait(0.2):
            return


def work(port: int, stop: threading.Event) -> None:
    """Consume orders slowly, and reject some."""
    link = Link(port)
    link.send("SUBSCRIBE\nid:1\ndestination:/queue/orders\nack:client-individual\n\n\0")
    number = 0
    while not stop.is_set():
        for reply in link.receive():
            number += 1
            command = "NACK" if number % 50 == 0 else "ACK"
            link.send(f"{command}\nid:{reply.headers['ack']}\n\n\0")
            if stop.wait(PAUSE_S):
                return


def read(port: int, stop: threading.Event) -> None:
    """Read half of the prices."""
    link = Link(port)
    for number in range(5):
        link.send(f"SUBSCRIBE\nid:{number}\ndestination:/topic/prices.{number}\n\n\0")
    while not stop.is_set():
        link.receive()


def doze(port: int, stop: threading.Event) -> None:
    """Read the pictures so slowly that most are dropped."""
    link = Link(port)
    link.send("SUBSCRIBE\nid:1\ndestination:/topic/pictures\n\n\0")
    while not stop.wait(2):
        link.receive()


def come_and_go(port: int, stop: threading.Event) -> None:
    """Connect, and sometimes send something other than STOMP."""
    for number in count():
        link = Link(port)
        link.send("SEND\n\n\0" if number % 5 == 0 else "DISCONNECT\n\n\0")
        if stop.wait(0.5):
            return


@contextmanager
def busy_clients(port: int) -> Iterator[None]:
    """Run clients of all these kinds while the block runs."""
    stop = threading.Event()

    def run(role: Callable[[int, threading.Event], None]) -> None:
        with suppress(Gone):  # the broker may end before its clients
            role(port, stop)

    roles = (publish, order, work, work, read, read, doze, come_and_go)
    threads = [threading.Thread(target=run, args=(role,), daemon=True) for role in roles]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(5)


def call(name: str, *arguments: str) -> str:
    """Run another of these scripts, and return the last line of its output.

    Raises:
      BenchError: it failed, and has printed the reason.
    """
    command = [sys.executable, str(SCRIPTS / name), *arguments]
    spark = f"--driver-java-options '{JAVA}' pyspark-shell"
    known = {"PYSPARK_SUBMIT_ARGS": spark} | os.environ
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True, env=known)
    if done.returncode:
        raise BenchError(f"{name} failed with exit code {done.returncode}")
    return done.stdout.strip().rpartition("\n")[2]


def say(text: str) -> None:
    """Print progress."""
    print(text, file=sys.stderr, flush=True)


def run(root: Path, seconds: float) -> str:
    """Run all steps, and return the path of the report.

    Raises:
      BenchError: a step failed.
    """
    root.mkdir(parents=True, exist_ok=True)
    options = ["--data-dir", str(root / "broker"), "--diag-interval-s", "1"]
    options += ["--slow-consumer", "drop-oldest", "--max-outbox-bytes", str(1 << 18)]
    with running_broker(options) as broker:
        say(f"a broker on port {broker.port}, and clients for {seconds:g} s")
        with busy_clients(broker.port):
            time.sleep(seconds)
            say("clients continue; stream of statistics -> tables")
            url = f"stomp://127.0.0.1:{broker.port}"
            say(call("diag_to_parquet.py", "--once", "--root", str(root), "--url", url))
    say("tables -> report")
    return call("diag_analysis.py", "--root", str(root))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line, and return the exit code."""
    first, _, rest = (__doc__ or "").partition("\n")
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=first, epilog=rest, formatter_class=form)
    parser.add_argument("--root", type=Path, default=Path("diag-demo"), help="of all files")
    parser.add_argument("--seconds", type=float, default=20.0, help="of load (default: 20)")
    options = parser.parse_args(argv)
    began = time.monotonic()
    try:
        # Check for Java before the load, so that a missing one is reported immediately.
        check_installed()
        report = run(options.root, options.seconds)
    except SparkMissing as error:
        print(error, file=sys.stderr)
        return 2
    except BenchError as error:
        print(error, file=sys.stderr)
        return 1
    say(f"done in {time.monotonic() - began:.0f} s; the report:")
    print(report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
