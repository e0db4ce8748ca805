"""Look for a few messages behind a deep backlog while a neighbour's ping-pong is timed.

    python scripts/deep_queues.py
    python scripts/deep_queues.py --messages 10000000 --store journal --memory-mib 64

A queue gets ``--messages`` messages, and three others behind them. A consumer with a selector that
only the three match takes them, and then, in front of another queue, a consumer whose group is not
the one that all messages of the backlog belong to, and whose consumer is busy. With a store, the
broker is restarted before each. The promises to check:

- both get the three messages, in order;
- the ping-pong of another client each 50 ms waits at most 200 ms, and 100 ms in 99 of 100;
- with a store, RSS stays within (``--memory-mib`` + RSS of the idle broker) x 1.2.

The broker's processor time is printed, too. The exit code is 1 if a promise does not hold.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import trio
from _bench.tables import percentile
from _proof.watched import Watched, watched_broker

from trio_stomp.client import Client, open_client

MIB = 1024 * 1024
PING, PING_S = "/topic/neighbour", 0.05
AT_ONCE = 1_000
KINDS = ("selector", "group")
BODY = b"x" * 100
MOST_MS, MOST_99_MS = 200.0, 100.0


def headers(kind: str, *, is_behind: bool) -> dict[str, str]:
    """Return the headers of a message of the backlog, or of one behind it."""
    value = "b" if is_behind else "a"
    return {"JMSXGroupID": value} if kind == "group" else {"type": value}


async def fill(port: int, kind: str, count: int, *, stored: bool) -> None:
    """Send the backlog and three messages, and wait until the broker has taken all."""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with stream:
        await stream.send_all(b"CONNECT\naccept-version:1.2\nhost:localhost\n\n\0")
        await stream.receive_some()
        for first in range(0, count + 3, AT_ONCE):
            batch = b""
            for number in range(first, min(first + AT_ONCE, count + 3)):
                lines = headers(kind, is_behind=number >= count)
                lines |= {"persistent": "true"} if stored else {}
                if number in (first + AT_ONCE - 1, count + 2):
                    lines["receipt"] = "r"
                text = "".join(f"{name}:{value}\n" for name, value in lines.items())
                body = b"%d" % number if number >= count else BODY
                batch += b"SEND\ndestination:/queue/%s\n%s\n%s\0" % (
                    kind.encode(),
                    text.encode(),
                    body,
                )
            await stream.send_all(batch)
            answer = b""
            while b"\0" not in answer:
                answer += await stream.receive_some()
            assert answer.startswith(b"RECEIPT"), answer


async def ping(client: Client, times_ms: list[float]) -> None:
    """Time a ping-pong each 50 ms until cancelled."""
    async with client.subscribe(PING) as mine:
        while True:
            began = time.perf_counter()
            await client.send(PING, b"ping")
            await mine.receive()
            times_ms.append((time.perf_counter() - began) * 1000)
            await trio.sleep(PING_S)


def processor_s(broker: Watched) -> float:
    """Return the processor time of a broker."""
    fields = Path(f"/proc/{broker.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def look(broker: Watched, kind: str, count: int) -> tuple[float, list[float]]:
    """Take the three messages, and return the seconds it took and the neighbour's times."""
    url, queue = f"stomp://127.0.0.1:{broker.port}", f"/queue/{kind}"
    times_ms: list[float] = []
    selector = None if kind == "group" else "type = 'b'"
    async with AsyncExitStack() as stack:
        neighbour, busy, me = [await stack.enter_async_context(open_client(url)) for _ in range(3)]
        nursery = await stack.enter_async_context(trio.open_nursery())
        nursery.start_soon(ping, neighbour, times_ms)
        if kind == "group":
            first = busy.subscribe(queue, ack="client-individual", prefetch=1)
            await (await stack.enter_async_context(first)).receive()
        began = time.perf_counter()
        wanted = me.subscribe(queue, ack="client-individual", prefetch=1, selector=selector)
        mine = await stack.enter_async_context(wanted)
        for number in range(3):
            message = await mine.receive()
            assert message.body == b"%d" % (count + number), message
            await message.ack()
        took_s = time.perf_counter() - began
        nursery.cancel_scope.cancel()
    return took_s, times_ms


def judge(kind: str, spent: tuple[float, float], rss: tuple[int, int], times: list[float]) -> bool:
    """Print the figures of a phase, and return whether the promises hold.

    Args:
      kind: One of KINDS.
      spent: Seconds by the clock and of the processor.
      rss: The peak of the resident memory, and its bound.
      times: The neighbour's times in ms.
    """
    (seconds, busy_s), (size, most) = spent, rss
    longest, share = max(times), percentile(times, 0.99)
    print(
        f"{kind}: {seconds:.1f} s, {busy_s:.1f} s of the processor, RSS {size // MIB} MiB;"
        f" {len(times)} pings, p99 {share:.0f} ms, longest {longest:.0f} ms",
        flush=True,
    )
    return longest <= MOST_MS and share <= MOST_99_MS and size <= most


@contextmanager
def brokers(given: argparse.Namespace, work: Path) -> Iterator[list[str]]:
    """Yield the options of a broker."""
    options = ["--max-memory-bytes", str(given.memory_mib * MIB)]
    if given.store == "journal":
        options += ["--data-dir", str(work / "data")]
    elif given.store == "sqlite":
        options += ["--store-url", f"sqlite:///{work / 'store.db'}"]
    yield options


def main(argv: Sequence[str]) -> int:
    """Run both kinds, and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--store", choices=("memory", "journal", "sqlite"), default="memory")
    parser.add_argument("--memory-mib", type=int, default=0, help="0: 64, or 4096 without a store")
    parser.add_argument("--kind", choices=KINDS, action="append", default=[])
    given = parser.parse_args(argv)
    stored = given.store != "memory"
    given.memory_mib = given.memory_mib or (64 if stored else 4096)
    good = True
    for kind in given.kind or KINDS:
        with tempfile.TemporaryDirectory() as name, brokers(given, Path(name)) as options:
            log = Path(name) / "log"
            with watched_broker(options, log) as broker:
                idle = broker.high_water_bytes()
                trio.run(lambda: fill(broker.port, kind, given.messages, stored=stored))  # noqa: B023
                if not stored:
                    good &= measured(broker, kind, given, sys.maxsize)
            if stored:
                with watched_broker(options, log) as broker:
                    most = int((given.memory_mib * MIB + idle) * 1.2)
                    good &= measured(broker, kind, given, most)
    return 0 if good else 1


def measured(broker: Watched, kind: str, given: argparse.Namespace, most: int) -> bool:
    """Run one phase, and return whether the promises hold."""
    before = processor_s(broker)
    seconds, times = trio.run(look, broker, kind, given.messages)
    busy_s = processor_s(broker) - before
    return judge(kind, (seconds, busy_s), (broker.high_water_bytes(), most), times)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
