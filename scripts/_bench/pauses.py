"""Pauses of the broker while thousands of connections are opened, held and closed.

``DIAG/process`` reports the total time and number of garbage collections since the start, and the
longest in each interval.
"""

import json
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any, NamedTuple

from _bench.idle import SPARE_FILES, held_idle
from _bench.load import Load, Shape
from _bench.process import BenchError, running_broker
from _bench.scenarios import IDLE_AT_ONCE
from _bench.spread import Row
from _bench.wire import PATIENCE_S, Connection

TOPIC = "DIAG/process"
SUBSCRIBE = f"SUBSCRIBE\nid:1\ndestination:{TOPIC}\n\n\0".encode()
INTERVAL_S = 0.1
OPTIONS = ("--diag-interval-s", str(INTERVAL_S), "--no-diag-stream")
"""Short, so that an interval ends soon after a phase. Other DIAG topics have no subscribers, and
cost nothing."""
CONNECTIONS = 19_000
LOAD = Shape(1, 75, 0, rate=500.0)
LIMIT_S = 300.0
PROMISE_MS = 20.0


class Phase(NamedTuple):
    """The broker's figures for one part of the measurement. Times are in milliseconds.

    Args:
      collections: Garbage collections of each generation.
      paused: Time in all of them.
      longest: The longest of them.
      turn: The longest turn of the dispatcher.
    """

    what: str
    wall_s: float
    collections: tuple[int, ...]
    paused: float
    longest: float
    turn: float

    @property
    def verdict(self) -> str:
        """Return the verdict on the longest pause."""
        return "kept" if self.longest <= PROMISE_MS else "BROKEN"


class Watcher:
    """A subscriber of DIAG/process."""

    def __init__(self, port: int) -> None:
        self._connection = Connection.open(port, websocket=False)
        # No receipt: a message might come with it.
        self._connection.socket.sendall(SUBSCRIBE)
        self._left = b""
        self._last = self._records()[-1]

    def phase(self, what: str, began: float) -> Phase:
        """Return the events since the last phase.

        Args:
          began: When it began, by ``time.perf_counter``.

        Raises:
          BenchError: the broker reports nothing.
        """
        wall_s = time.perf_counter() - began
        # A record taken before the end may still arrive. The next one covers the rest.
        before, records = self._last, [*self._records(), *self._records()]
        self._last = records[-1]
        return phase_of(what, wall_s, [before, *records])

    def _records(self) -> list[dict[str, Any]]:
        """Wait for a record, and return it with all that have arrived after it."""
        socket = self._connection.socket
        socket.settimeout(PATIENCE_S)
        records: list[dict[str, Any]] = []
        while not records:
            more = socket.recv(1 << 20)
            *frames, self._left = (self._left + more).split(b"\0")
            if not more or any(frame.lstrip().startswith(b"ERROR\n") for frame in frames):
                raise BenchError(f"{TOPIC} told {frames or 'nothing more'!r}")
            records = [json.loads(frame.partition(b"\n\n")[2]) for frame in frames]
        return records

    def close(self) -> None:
        """Close its connection."""
        self._connection.close()


def phase_of(what: str, wall_s: float, records: Sequence[dict[str, Any]]) -> Phase:
    """Return the phase that records of DIAG/process describe. The first is from before the
    phase."""
    counts = [each["gc_collections_total"] for each in records]
    totals = [each["gc_pause_ms_total"] for each in records]
    return Phase(
        what,
        wall_s,
        tuple(after - before for before, after in zip(counts[0], counts[-1], strict=True)),
        totals[-1] - totals[0],
        max(each["gc_pause_ms_max"] for each in records[1:]),
        max(each["loop_lag_ms_max"] for each in records[1:]),
    )


def allowed(connections: int) -> int:
    """Return ``connections``, or as many as the system allows a process."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard == resource.RLIM_INFINITY:
        return connections
    # On both sides; the load and the watcher need some too.
    return max(1, min(connections, hard - 2 * SPARE_FILES - LOAD.subscribers))


def measure_pauses(
    options: Sequence[str], connections: int, seconds: float, say: Callable[[str], None]
) -> Iterator[Phase]:
    """Yield the phases of one broker.

    Args:
      options: Options of the broker, which override OPTIONS.
      seconds: The time for which connections are held during a fan-out.

    Raises:
      BenchError: a connection was refused, or a message was lost.
    """
    fitting = allowed(connections)
    if fitting < connections:
        say(f"the limit of descriptors allows {fitting} connections, not {connections}: ulimit -n")
    shape = LOAD._replace(messages=max(1, round(LOAD.rate * seconds)))
    with (
        running_broker((*OPTIONS, *options)) as broker,
        closing(Watcher(broker.port)) as watcher,
        # Before the others: select(2) takes no descriptor beyond 1,023.
        closing(Load(broker, shape, websocket=False)) as load,
    ):
        began = time.perf_counter()
        with held_idle(broker, fitting, IDLE_AT_ONCE, LIMIT_S, websocket=False):
            yield watcher.phase(f"opening {fitting} connections", began)
            began = time.perf_counter()
            load.run(LIMIT_S)
            what = f"{fitting} idle, 1 publisher, 75 subscribers, {LOAD.rate:g} messages/s"
            yield watcher.phase(what, began)
            began = time.perf_counter()
        yield watcher.phase(f"closing {fitting} connections", began)


def pauses_rows(phases: Sequence[Phase]) -> list[Row]:
    """Return a row for each phase."""
    return [
        {
            "what": each.what,
            "wall_s": each.wall_s,
            **{f"gc_generation_{n}": count for n, count in enumerate(each.collections)},
            "gc_paused_ms": each.paused,
            "gc_longest_ms": each.longest,
            "longest_turn_ms": each.turn,
            "promised_ms": PROMISE_MS,
            "verdict": each.verdict,
        }
        for each in phases
    ]


def pauses_table(phases: Sequence[Phase]) -> str:
    """Return the phases as a table in Markdown."""
    lines = [
        "| | s | collections by generation | in them, ms | longest pause, ms | longest turn, ms "
        f"| at most {PROMISE_MS:g} ms |",
        "|---|--:|--:|--:|--:|--:|---|",
    ]
    lines += [
        f"| {each.what} | {each.wall_s:.1f} | {', '.join(map(str, each.collections))} "
        f"| {each.paused:.1f} | {each.longest:.1f} | {each.turn:.1f} "
        f"| {each.verdict} |"
        for each in phases
    ]
    return "\n".join(lines)
