"""The demo: from a broker of its own to a report on it."""

import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from trio_stomp.spark._analysis import Thresholds
from trio_stomp.spark._client import Connection, StreamAddress, StreamError
from trio_stomp.spark._frames import FrameError, header
from trio_stomp.spark._session import check_installed
from trio_stomp.spark.running._report import Days, make_report
from trio_stomp.spark.running._sidecar import Sidecar, SidecarError, run_sidecar

BODY = b"x" * 120
PAUSE_S = 0.01
STOP_S = 10.0
SILENCE_S = 1.0
"""Readers that get nothing for so long look whether they are to stop, and connect again."""
LISTENING = re.compile(r"listening on [^ ]*:(\d+)")
OPTIONS = ("--diag-interval-s", "1", "--slow-consumer", "drop-oldest", "--max-outbox-bytes")
OUTBOX_BYTES = 1 << 18


def run_demo(root: Path, load_s: float) -> str:
    """Run a broker and clients, write its statistics, and return the path of the report.

    Raises:
      SparkMissing: Spark cannot run here; that is checked before the load.
      SidecarError: the broker did not start.
    """
    check_installed()
    root.mkdir(parents=True, exist_ok=True)
    options = (*OPTIONS, str(OUTBOX_BYTES), "--data-dir", str(root / "broker"))
    began = time.monotonic()
    with running_broker(options) as url:
        _say(f"a broker at {url}, and clients for {load_s:g} s")
        with busy_clients(url):
            time.sleep(load_s)
            _say("they go on; the stream of its statistics -> tables")
            run_sidecar(Sidecar(source={"url": url}, root=str(root)), {})
    _say("tables -> report")
    page = make_report(str(root), Days(), Thresholds())
    _say(f"done in {time.monotonic() - began:.0f} s; the report:")
    return page


@contextmanager
def running_broker(options: Sequence[str]) -> Iterator[str]:
    """Run a broker on a free port of this machine, and return its URL.

    Raises:
      SidecarError: it did not start.
    """
    command = (sys.executable, "-m", "trio_stomp", "--port", "0", *options)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            found = LISTENING.search(line)
            if found is None:
                raise SidecarError(f"the broker did not start: {line.strip() or 'it said nothing'}")
            # A full pipe would stop the broker, so the rest of its log is read and discarded.
            threading.Thread(target=process.stderr.read, daemon=True).start()
            yield f"stomp://127.0.0.1:{found[1]}"
            process.terminate()
            process.wait(STOP_S)
        finally:
            process.kill()


@contextmanager
def busy_clients(url: str) -> Iterator[None]:
    """Run clients of several kinds within the block."""
    stop = threading.Event()

    def run(role: Callable[[Connection, threading.Event], None]) -> None:
        # The broker may end before its clients, and refuses some of their frames.
        with suppress(OSError, FrameError, StreamError, StopIteration):
            while not stop.is_set():
                address = StreamAddress(url, timeout_s=SILENCE_S)
                with suppress(StreamError), Connection(address) as connection:
                    role(connection, stop)

    roles = (publish, order, work, work, read, read, doze, come_and_go)
    threads = [threading.Thread(target=run, args=(role,), daemon=True) for role in roles]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(STOP_S)


def publish(connection: Connection, stop: threading.Event) -> None:
    """Send prices to ten topics, some without subscribers, and sometimes a picture."""
    for number in count():
        price = b"SEND\ndestination:/topic/prices.%d\n\n%b\0" % (number % 10, BODY)
        picture = b"SEND\ndestination:/topic/pictures\n\n%b\0" % (BODY * 300)
        connection.send_bytes(price * 20 + (picture if number % 4 == 0 else b""))
        if stop.wait(PAUSE_S):
            return


def order(connection: Connection, stop: threading.Event) -> None:
    """Send orders that are to survive, in bursts that the worker cannot follow."""
    for number in count():
        burst = 40 if number % 50 < 20 else 10
        connection.send_bytes(
            b"SEND\ndestination:/queue/orders\npersistent:true\n\n%b\0" % BODY * burst
        )
        if stop.wait(0.2):
            return


def work(connection: Connection, stop: threading.Event) -> None:
    """Take orders, refuse some, and be slow."""
    subscription = {"id": "1", "destination": "/queue/orders", "ack": "client-individual"}
    connection.send("SUBSCRIBE", subscription)
    number = 0
    for frames in connection.messages():
        for head, _ in frames:
            number += 1
            command = b"NACK" if number % 50 == 0 else b"ACK"
            connection.send_bytes(b"%b\nid:%b\n\n\0" % (command, header(head, b"ack") or b""))
            if stop.wait(PAUSE_S):
                return


def read(connection: Connection, stop: threading.Event) -> None:
    """Read half of the prices."""
    for number in range(5):
        destination = f"/topic/prices.{number}"
        connection.send("SUBSCRIBE", {"id": f"{number}", "destination": destination})
    for _ in connection.messages():
        if stop.is_set():
            return


def doze(connection: Connection, stop: threading.Event) -> None:
    """Look at the pictures so slowly that most are dropped."""
    connection.send("SUBSCRIBE", {"id": "1", "destination": "/topic/pictures"})
    for _ in connection.messages():
        if stop.wait(2):
            return


def come_and_go(connection: Connection, stop: threading.Event) -> None:
    """Leave soon, and now and then after a frame that is wrong."""
    if stop.wait(0.5) or time.monotonic() % 5 > 1:
        return
    connection.send_bytes(b"SEND\n\n\0")
    next(connection.messages())


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
