"""Search, move and purge a queue of a million messages while a neighbour's ping-pong is timed.

    python scripts/manage_million.py
    python scripts/manage_million.py --messages 100000 --data-dir /tmp/store --json result.json

A client sends itself a message through a topic, over and over. Its round trips are timed beside the
idle broker and during each operation of the management interface: a search in all bodies that finds
nothing, a move of all messages to another queue, a purge of that queue. The promise to check: the
p99 beside an operation is at most --limit-ms, by default 20. The exit code is 1 if it is not.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import trio
from _bench.process import running_broker
from _bench.tables import percentile
from _proof.tables import markdown
from attrs import define, field, frozen

from trio_stomp.cli._connect_options import parse_url
from trio_stomp.cli._http_get import Site
from trio_stomp.client import Client, Subscription, open_client

FROM, TO, PING = "/queue/big", "/queue/other", "/topic/neighbour"
BODY_BYTES = 100
IDLE_S = 5.0
PAUSE_S = 0.002
AT_ONCE = 1_000
MEMORY_BYTES = 8 * 1024**3
OPERATIONS = (
    ("search", "GET", "messages", {"queue": FROM, "body": "nowhere"}),
    ("move", "POST", "move", {"queue": FROM, "to": TO}),
    ("purge", "POST", "purge", {"queue": TO}),
)


@frozen
class Phase:
    """The neighbour's round trips beside an operation.

    Args:
      seconds: How long the operation took.
      messages: The number of messages that it went through.
    """

    name: str
    seconds: float
    messages: int
    times_ms: Sequence[float]

    def record(self) -> dict[str, Any]:
        """Return the figures."""
        times = self.times_ms
        shares = {"p50_ms": 0.5, "p99_ms": 0.99}
        return {
            "name": self.name,
            "seconds": round(self.seconds, 2),
            "messages": self.messages,
            "pings": len(times),
            **{name: round(percentile(times, share), 2) for name, share in shares.items()},
            "max_ms": round(max(times), 2),
        }


@define
class Neighbour:
    """A client that sends messages to itself."""

    client: Client
    mine: Subscription
    times_ms: list[float] = field(factory=list)

    async def play(self) -> None:
        """Time round trips until cancelled."""
        while True:
            began = time.perf_counter()
            await self.client.send(PING, b"ping")
            await self.mine.receive()
            self.times_ms.append((time.perf_counter() - began) * 1000)
            await trio.sleep(PAUSE_S)

    def take(self) -> list[float]:
        """Return the times since the last call."""
        taken, self.times_ms = self.times_ms, []
        return taken


async def fill(port: int, count: int, *, persistent: bool) -> None:
    """Send messages to the queue, and wait until the broker has taken all."""
    stored = b"persistent:true\n" if persistent else b""
    frame = b"SEND\ndestination:%s\n%s\n%s\0" % (FROM.encode(), stored, b"x" * BODY_BYTES)
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with stream:
        await stream.send_all(b"CONNECT\naccept-version:1.2\nhost:localhost\n\n\0")
        for first in range(0, count, AT_ONCE):
            await stream.send_all(frame * min(AT_ONCE, count - first))
        await stream.send_all(b"BEGIN\ntransaction:t\nreceipt:end\n\n\0")
        answer = b""
        while b"receipt-id:end" not in answer:
            data = await stream.receive_some()
            assert data, f"the broker refused a message: {answer!r}"
            answer += data


async def measure(port: int, count: int, *, persistent: bool) -> list[Phase]:
    """Return the phases: beside the idle broker, and beside each operation."""
    site = Site(parse_url(f"stomp://127.0.0.1:{port}"), None)
    phases: list[Phase] = []
    async with open_client(f"stomp://127.0.0.1:{port}") as client, client.subscribe(PING) as mine:
        await fill(port, count, persistent=persistent)
        neighbour = Neighbour(client, mine)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(neighbour.play)
            await trio.sleep(IDLE_S)
            phases.append(Phase("idle", IDLE_S, 0, neighbour.take()))
            for name, method, address, query in OPERATIONS:
                began = time.perf_counter()
                ask = partial(site.operate, method, address, query)
                found = await trio.to_thread.run_sync(ask)
                took_s = time.perf_counter() - began
                seen = next(found[key] for key in ("seen", "moved", "purged") if key in found)
                phases.append(Phase(name, took_s, seen, neighbour.take()))
            nursery.cancel_scope.cancel()
    return phases


def main(argv: Sequence[str]) -> int:
    """Run all phases, print a table, and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--data-dir", default="", help="store the messages in this directory")
    parser.add_argument("--limit-ms", type=float, default=20.0)
    parser.add_argument("--json", default="", metavar="FILE", help="write the figures to FILE")
    given = parser.parse_args(argv)
    options = ["--max-memory-bytes", str(MEMORY_BYTES)]
    options += ["--data-dir", given.data_dir] if given.data_dir else []
    with running_broker(options) as broker:
        measuring = partial(measure, broker.port, given.messages, persistent=bool(given.data_dir))
        records = [each.record() for each in trio.run(measuring)]
    head = ("operation", "s", "messages", "pings", "p50 ms", "p99 ms", "max ms")
    print(markdown(head, [list(each.values()) for each in records], ["operation"]))
    if given.json:
        with open(given.json, "w") as file:
            json.dump(records, file, indent=1)
    slow = [each["name"] for each in records if each["p99_ms"] > given.limit_ms]
    for name in slow:
        print(f"{name}: the p99 of the neighbour is above {given.limit_ms:g} ms")
    return 1 if slow else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
