"""A store in memory that hangs and fails on request, and records what it was given.

The store's threads are real, so a clock that jumps by itself would jump while they work. Tests use
a clock that does not advance (``mock_clock``), and move it themselves.
"""

import os
import threading
import time
from collections.abc import Callable, Sequence

import trio
from attrs import define, field

from trio_stomp.store import MemoryStore, Page, Streamed, StreamState, Turn

PATIENCE_S = 30.0
"""Seconds of the real clock. A thread that takes longer hangs."""


async def eventually(condition: Callable[[], object]) -> None:
    """Wait for threads, independently of the test's clock. Fail if the condition never holds."""
    limit = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < limit, "it never came"
        os.sched_yield()  # let the other threads have the processor
        await trio.lowlevel.checkpoint()


@define(eq=False)
class GatedStore(MemoryStore):
    """Appends when the gate is open."""

    gate: threading.Event = field(factory=threading.Event)
    faults: list[Exception] = field(factory=list)
    """Errors of the next appends, each raised once."""
    read_faults: list[Exception] = field(factory=list)
    """Errors of the next reads, each raised once."""
    asked: list[tuple[list[Turn], int]] = field(factory=list)
    """Turns and expected number of each append, as soon as it begins."""
    capacities: list[int | Exception] = field(factory=lambda: [0])
    """The capacities that it reports, each once except the last."""
    reads: int = 0
    closed: int = 0
    threads: set[threading.Thread] = field(factory=set)
    """Which ones appended."""

    def __attrs_post_init__(self) -> None:
        self.gate.set()

    def hang(self) -> None:
        """Let appends hang from now on."""
        self.gate.clear()

    def go_on(self) -> None:
        """Let appends be done again."""
        self.gate.set()

    @property
    def sizes(self) -> list[int]:
        """Return the number of turns in each append."""
        return [len(turns) for turns, _ in self.asked]

    @property
    def expected(self) -> list[int]:
        """Which number each append expected."""
        return [number for _, number in self.asked]

    def append(self, turns: Sequence[Turn], expected: int) -> int:
        self.threads.add(threading.current_thread())
        self.asked.append((list(turns), expected))
        assert self.gate.wait(PATIENCE_S), "nobody let the store go on"
        if self.faults:
            raise self.faults.pop(0)
        return super().append(turns, expected)

    def read(self, place: str, level: int, after: int, limit_bytes: int) -> Page:
        self._reading()
        return super().read(place, level, after, limit_bytes)

    def read_stream(self, stream: str, first: int, limit_bytes: int) -> list[Streamed]:
        self._reading()
        return super().read_stream(stream, first, limit_bytes)

    def find_offset(self, stream: str, written_ms: int) -> int:
        self._reading()
        return super().find_offset(stream, written_ms)

    def stream_state(self, stream: str) -> StreamState | None:
        self._reading()
        return super().stream_state(stream)

    def capacity(self) -> int:
        result = self.capacities.pop(0) if len(self.capacities) > 1 else self.capacities[0]
        if isinstance(result, Exception):
            raise result
        return result

    def _reading(self) -> None:
        self.reads += 1
        if self.read_faults:
            raise self.read_faults.pop(0)

    def close(self) -> None:
        self.closed += 1
