"""``trio-stomp bench``: one sender and many subscribers, deliveries per second and latency.

The scenario is stompica's: messages of 117 bytes to 75 subscribers of one topic.
"""

import argparse
import math
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial

import trio
from attrs import define, field

from trio_stomp.base import OptionError
from trio_stomp.cli._command import JSON, PROGRESS, Argument, Command, count, seconds
from trio_stomp.cli._connect_options import ACCESS
from trio_stomp.cli._progress import Tell, progress
from trio_stomp.cli._session import opener, run_session
from trio_stomp.cli._tool import WELL, CannotDo, report
from trio_stomp.client import Client

SUBSCRIBERS, SIZE, SECONDS = 75, 117, 5.0
MAX_SUBSCRIBERS, MAX_SIZE = 10_000, 16 * 1024 * 1024
BATCH = 50
"""Messages between two RECEIPTs."""
AHEAD = 500
"""Limit of messages that the slowest subscriber lags. More would measure only how long a queue
the broker can hold."""
PATIENCE_S = 30.0
STAMP = struct.Struct("!d")
BOUNDS_PER_DECADE = 40

EPILOG = """\
The sender and the subscribers run in this process, each subscriber on its own connection, and
every subscriber receives every message. So this measures broker and client together; on one
machine they share its processors. scripts/bench.py measures the broker alone. Latency is the time
from the call of send to the arrival at the subscriber, at full speed or at a steady --rate.
"""


@define(eq=False)
class Latencies:
    """A histogram of delivery latencies with buckets 6 % wide."""

    counts: dict[int, int] = field(factory=dict)
    total: int = 0
    most_s: float = 0.0

    def add(self, taken_s: float, times: int = 1) -> None:
        """Count deliveries of about the same latency."""
        index = _index_of(taken_s)
        self.counts[index] = self.counts.get(index, 0) + times
        self.total += times
        self.most_s = max(self.most_s, taken_s)

    def percentile_ms(self, share: float) -> float:
        """Return the upper bound of the bucket that reaches the share, at most the maximum."""
        left = share * self.total
        for index in sorted(self.counts):
            left -= self.counts[index]
            if left <= 0:
                return min(_bound_s(index), self.most_s) * 1000
        return self.most_s * 1000


def _index_of(taken_s: float) -> int:
    return math.ceil(math.log10(max(taken_s, 1e-6)) * BOUNDS_PER_DECADE)


def _bound_s(index: int) -> float:
    return float(10 ** (index / BOUNDS_PER_DECADE))


@define(eq=False)
class Run:
    """One measurement.

    Args:
      seconds: The duration of sending.
      rate: Messages per second; None = as fast as possible.
    """

    subscribers: int
    size: int
    seconds: float
    rate: float | None
    persistent: bool
    destination: str
    sent: int = 0
    took_s: float = 0.0
    latencies: Latencies = field(factory=Latencies)
    received: list[int] = field(factory=list)
    is_over: bool = False
    _moved: trio.Event = field(factory=trio.Event)

    @property
    def delivered(self) -> int:
        """The number of messages that subscribers received."""
        return sum(self.received)

    def note(self, number: int, times: int) -> None:
        """Count messages that a subscriber received."""
        self.received[number] += times
        self._moved.set()

    async def wait_moved(self) -> None:
        """Wait until a subscriber receives more messages."""
        self._moved = trio.Event()
        await self._moved.wait()

    def figures(self) -> dict[str, float | int | None]:
        """Return the figures of the result."""
        rate = self.sent / self.took_s if self.took_s else 0.0
        return {
            "subscribers": self.subscribers,
            "size_bytes": self.size,
            "seconds": round(self.took_s, 3),
            "sent": self.sent,
            "delivered": self.delivered,
            "lost": self.sent * self.subscribers - self.delivered,
            "sent_per_s": round(rate, 1),
            "delivered_per_s": round(self.delivered / self.took_s if self.took_s else 0.0, 1),
            "latency_ms_p50": round(self.latencies.percentile_ms(0.5), 3),
            "latency_ms_p90": round(self.latencies.percentile_ms(0.9), 3),
            "latency_ms_p99": round(self.latencies.percentile_ms(0.99), 3),
            "latency_ms_p999": round(self.latencies.percentile_ms(0.999), 3),
            "latency_ms_max": round(self.latencies.most_s * 1000, 3),
        }


def _run(given: argparse.Namespace) -> int:
    """Run ``bench``, and return the exit code.

    Raises:
      OptionError: an option or file is wrong; the text is one line for the operator.
      CannotDo: the broker cannot be reached, refuses, or loses messages.
    """
    if given.subs > MAX_SUBSCRIBERS or not STAMP.size <= given.size <= MAX_SIZE:
        raise OptionError(
            f"bench: --subs may be {MAX_SUBSCRIBERS} at most, --size {STAMP.size} to {MAX_SIZE}"
        )
    run = Run(
        given.subs,
        size=given.size,
        seconds=given.seconds,
        rate=given.rate,
        persistent=given.persistent,
        destination=given.destination,
    )
    with progress("bench", wanted=given.progress) as tell:
        run_session(given, partial(_measure, given, run, tell))
    figures = run.figures()
    report(given, figures, *_lines(run))
    if figures["lost"]:
        raise CannotDo(
            f"{figures['lost']} deliveries did not come within {PATIENCE_S:g} s; is "
            f"{run.destination} used elsewhere, or are messages dropped (trio-stomp top)?"
        )
    return WELL


def _lines(run: Run) -> Iterator[str]:
    figures = run.figures()
    yield (
        f"{figures['sent']:,} messages of {run.size} bytes to {run.subscribers} subscribers in "
        f"{figures['seconds']} s"
    )
    yield f"{figures['sent_per_s']:>14,} messages/s sent"
    yield f"{figures['delivered_per_s']:>14,} messages/s delivered"
    for name, label in (("p50", "p50"), ("p90", "p90"), ("p99", "p99"), ("p999", "p99.9")):
        yield f"{figures[f'latency_ms_{name}']:>14,} ms latency, {label}"
    yield f"{figures['latency_ms_max']:>14,} ms latency, longest"


async def _measure(given: argparse.Namespace, run: Run, tell: Tell, sender: Client) -> None:
    opened = opener(given)
    run.received = [0] * run.subscribers
    async with trio.open_nursery() as nursery:
        for number in range(run.subscribers):
            await nursery.start(_receive, run, number, opened)
        began = time.perf_counter()
        await _send(run, sender, tell)
        with trio.move_on_after(PATIENCE_S):
            while min(run.received) < run.sent:
                await run.wait_moved()
        run.took_s = time.perf_counter() - began
        nursery.cancel_scope.cancel()


async def _send(run: Run, sender: Client, tell: Tell) -> None:
    padding = b"x" * (run.size - STAMP.size)
    began = trio.current_time()
    while (passed := trio.current_time() - began) < run.seconds:
        tell(round(passed * 1000), round(run.seconds * 1000))
        if run.rate is not None and run.sent >= passed * run.rate:
            await trio.sleep((run.sent + 1) / run.rate - passed)
        many = BATCH if run.rate is None else 1
        for _ in range(many - 1):
            stamp = STAMP.pack(time.perf_counter())
            await sender.send(
                run.destination, stamp + padding, receipt=False, persistent=run.persistent
            )
        body = STAMP.pack(time.perf_counter()) + padding
        if run.rate is None or run.persistent:
            await sender.send(run.destination, body, persistent=run.persistent)
        else:
            await sender.send(run.destination, body, receipt=False)
        run.sent += many
        while run.sent - min(run.received) > AHEAD:
            await run.wait_moved()
    tell(1, 1)


async def _receive(
    run: Run,
    number: int,
    opened: Callable[[], AbstractAsyncContextManager[Client]],
    task_status: trio.TaskStatus[None],
) -> None:
    """Receive messages over a separate connection."""
    async with (
        opened() as client,
        client.subscribe(run.destination, prefetch=2 * AHEAD) as messages,
    ):
        task_status.started()
        while True:
            batch = await messages.receive_batch()
            now = time.perf_counter()
            for message in batch:
                run.latencies.add(now - STAMP.unpack_from(message.body)[0])
            run.note(number, len(batch))


COMMAND = Command(
    _run,
    (
        Argument("--subs N", f"subscribers (default: {SUBSCRIBERS})", count, SUBSCRIBERS),
        Argument("--size BYTES", f"bytes of a body (default: {SIZE})", count, SIZE),
        Argument("--seconds S", f"how long to send (default: {SECONDS:g})", seconds, SECONDS),
        Argument("--rate N", "messages per second (default: unlimited)", seconds),
        Argument("--persistent", "send persistent messages"),
        Argument(
            "--destination D",
            "an otherwise unused topic (default: /topic/trio-stomp-bench)",
            default="/topic/trio-stomp-bench",
        ),
        JSON,
        PROGRESS,
        *ACCESS,
    ),
    "Measure deliveries per second and their latency: one sender, many subscribers.",
    EPILOG,
)
