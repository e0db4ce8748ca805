"""The demo: from a broker of its own to a report on it."""

import re
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import trio

from trio_stomp.client import Client, ClientError, open_client
from trio_stomp.spark._analysis import Thresholds
from trio_stomp.spark._session import check_installed, open_session
from trio_stomp.spark.running._report import FOR_SMALL, make_report
from trio_stomp.spark.running._sidecar import Sidecar, SidecarError
from trio_stomp.spark.running._sidecar import follow as follow_stream

BODY = b"x" * 120
PAUSE_S = 0.01
STOP_S = 10.0
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
            spark = open_session("trio-stomp demo", conf=FOR_SMALL)  # meanwhile
            time.sleep(max(began + load_s - time.monotonic(), 0))
            _say("they go on; the stream of its statistics -> tables")
            follow_stream(spark, Sidecar(source={"url": url}, root=str(root)), threading.Event())
    _say("tables -> report")
    page = make_report(str(root), Thresholds())
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
    """Run clients of several kinds within the block, in a thread of their own."""
    stop = threading.Event()
    thread = threading.Thread(target=trio.run, args=(work_until, stop, url), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(STOP_S)


async def work_until(stop: threading.Event, url: str) -> None:
    """Run all clients until ``stop`` is set."""
    async with trio.open_nursery() as nursery:
        for role in (publish, order, work, work, read, read, doze):
            nursery.start_soon(play, role, url)
        nursery.start_soon(come_and_go, url)
        await trio.to_thread.run_sync(stop.wait)
        nursery.cancel_scope.cancel()


async def play(role: Callable[[Client], Awaitable[None]], url: str) -> None:
    """Run one client."""
    async with open_client(url) as client:
        await role(client)


async def publish(client: Client) -> None:
    """Send prices to ten topics, some without subscribers, and sometimes a picture."""
    for number in count():
        for _ in range(20):
            await client.send(f"/topic/prices.{number % 10}", BODY, receipt=False)
        if number % 4 == 0:
            await client.send("/topic/pictures", BODY * 300, receipt=False)
        await trio.sleep(PAUSE_S)


async def order(client: Client) -> None:
    """Send orders that are to survive, in bursts that the worker cannot follow."""
    for number in count():
        for _ in range(40 if number % 50 < 20 else 10):
            await client.send("/queue/orders", BODY, persistent=True, receipt=False)
        await trio.sleep(0.2)


async def work(client: Client) -> None:
    """Take orders, refuse some, and be slow."""
    async with client.subscribe("/queue/orders", ack="client-individual") as orders:
        for number in count():
            message = await orders.receive()
            await (message.nack() if number % 50 == 0 else message.ack())
            await trio.sleep(PAUSE_S)


async def read(client: Client) -> None:
    """Read half of the prices."""
    async with trio.open_nursery() as nursery:
        for number in range(5):
            nursery.start_soon(follow, client, f"/topic/prices.{number}", 0.0)


async def doze(client: Client) -> None:
    """Look at the pictures so slowly that most are dropped."""
    await follow(client, "/topic/pictures", 2.0)


async def follow(client: Client, destination: str, pause_s: float) -> None:
    """Read a topic, with a pause after each message."""
    async with client.subscribe(destination) as messages:
        async for _ in messages:
            await trio.sleep(pause_s)


async def come_and_go(url: str) -> None:
    """Leave soon, and now and then after a message that is refused."""
    for number in count():
        with suppress(ClientError):
            async with open_client(url, reconnect=None) as client:
                await trio.sleep(0.5)
                if number % 10 == 0:
                    await client.send("DIAG/session")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
