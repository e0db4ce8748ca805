"""Runs inputs of any engine, and watches time, memory and exceptions."""

import gc
import hashlib
import mmap
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import FrameType, TracebackType

from _fuzz.lines import Lines
from _fuzz.target import Target

SLOW_S = 1.0
"""An input that takes longer is a finding, if it does so each time."""
HANG_S = 10.0
MOST_FINDINGS = 10
MINIMIZING_S = 3.0
WARM_UP = 0.4
"""Share of the run after which caches must be full and memory must no longer grow."""
LEAK_BYTES = 48 * 1024 * 1024
LEAK_BLOCKS = 150_000
"""Objects of Python. The memory of an engine in C++ does not count."""
CHECK_EVERY = 64
CURRENT_BYTES = 1 << 17


class Hang(BaseException):
    """The input took so long that it was aborted."""


class Harness:
    """One target's run, until its time is up.

    Args:
      seconds: Its duration.
      found: Directory for findings.
      lines: The lines to count for the report.
    """

    def __init__(self, target: Target, seconds: float, found: Path, lines: Lines) -> None:
        self.target = target
        self.seconds = seconds
        self.found = found
        self.lines = lines
        self.executions = 0
        self.slowest_s = 0.0
        self.slowest = b""
        self.findings: dict[str, str] = {}
        self.is_over = False
        self._began = time.monotonic()
        self._warm: tuple[int, int] | None = None
        self._current = _shared(found / f"current-{target.name}")
        signal.signal(signal.SIGVTALRM, _hang)

    def run(self, data: bytes) -> None:
        """Run one input. A finding is recorded, not raised."""
        size = min(len(data), CURRENT_BYTES - 8)
        # The parent process kills us, and must know the input.
        self._current[: 8 + size] = size.to_bytes(8, "little") + data[:size]
        fault = self._fault_of(data)
        self.executions += 1
        if fault is not None:
            self._note(data, *fault)
        if self.executions % CHECK_EVERY == 0 or self.slowest_s > SLOW_S:
            self._look_at_the_clock()

    def _fault_of(self, data: bytes) -> tuple[str, str] | None:
        """Return the fault of an input: a short name, the same for the same fault, and a text."""
        spent: list[float] = []
        # A busy machine is not the input's fault: processor time, and the best of three.
        while len(spent) < 3 and (not spent or min(spent) > SLOW_S):
            began = time.thread_time()
            signal.setitimer(signal.ITIMER_VIRTUAL, HANG_S)
            try:
                self.target.run(data)
            except (Exception, Hang) as error:
                return _name(error), "".join(traceback.format_exception(error))
            finally:
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            spent.append(time.thread_time() - began)
        if min(spent) > self.slowest_s:
            self.slowest_s, self.slowest = min(spent), data
        if min(spent) > SLOW_S:
            return "slow", f"{min(spent):.2f} s for {len(data)} bytes"
        return None

    def _note(self, data: bytes, name: str, text: str) -> None:
        if name in self.findings:
            return
        data = self._minimized(data, name)
        again = self._fault_of(data)
        text = again[1] if again else f"not found a second time:\n{text}"
        mark = hashlib.sha256(name.encode()).hexdigest()[:8]
        path = self.found / f"{self.target.name}-{mark}.bin"
        path.write_bytes(data)
        path.with_suffix(".txt").write_text(f"{data!r}\n\n{text}", encoding="utf-8")
        self.findings[name] = str(path)
        print(f"FINDING {path}\n{text}", file=sys.stderr, flush=True)
        self.is_over = len(self.findings) >= MOST_FINDINGS

    def _minimized(self, data: bytes, name: str) -> bytes:
        """Return a shorter input with the same fault, if there is time."""
        until = time.monotonic() + MINIMIZING_S
        size = max(1, len(data) // 2)
        while size and time.monotonic() < until:
            at, is_better = 0, False
            while at < len(data) and time.monotonic() < until:
                shorter = data[:at] + data[at + size :]
                fault = self._fault_of(shorter)
                if fault is not None and fault[0] == name:
                    data, is_better = shorter, True
                else:
                    at += size
            if not is_better or size > 1:
                size //= 2
        return data

    def _look_at_the_clock(self) -> None:
        elapsed = time.monotonic() - self._began
        if self._warm is None and elapsed > WARM_UP * self.seconds:
            self._warm = _memory()
        self.is_over = self.is_over or elapsed > self.seconds

    def report(self, corpus: Sequence[bytes]) -> dict[str, object]:
        """Return the figures. ``corpus`` is run once more to find the lines it covers."""
        elapsed = time.monotonic() - self._began
        rss, blocks = _memory()
        warm_rss, warm_blocks = self._warm or (rss, blocks)
        growth, more_blocks = rss - warm_rss, blocks - warm_blocks - len(corpus)
        if growth > LEAK_BYTES or more_blocks > LEAK_BLOCKS:
            self.findings["memory grows"] = f"{growth} bytes, {more_blocks} objects"
        with self.lines:
            for data in corpus:
                self._fault_of(data)
        return {
            "target": self.target.name,
            "executions": self.executions,
            "executions_per_s": round(self.executions / elapsed, 1),
            "seconds": round(elapsed, 1),
            "corpus": len(corpus),
            "lines_covered": len(self.lines.seen),
            "lines": self.lines.total,
            "lines_missing": self.lines.missing(),
            "slowest_ms": round(self.slowest_s * 1000, 1),
            "slowest_bytes": len(self.slowest),
            "growth_bytes": growth,
            "growth_objects": more_blocks,
            "findings": self.findings,
        }


def _hang(_number: int, _frame: FrameType | None) -> None:
    raise Hang(f"more than {HANG_S:g} s")


def _name(error: BaseException) -> str:
    """Return the kind of an error and the innermost line of ours, which identify a finding."""
    if isinstance(error, AssertionError):
        # The failed check tells more than the function that all checks call.
        return f"{type(error).__name__} {str(error).partition(':')[0][:60]} {_places(error)[-2:]}"
    return f"{type(error).__name__} {_places(error)[-1:]}"


def _places(error: BaseException) -> list[str]:
    trace: TracebackType | None = error.__traceback__
    frames = traceback.extract_tb(trace)
    ours = [frame for frame in frames if "site-packages" not in frame.filename]
    return [f"{Path(frame.filename).name}:{frame.lineno}" for frame in ours]


def _memory() -> tuple[int, int]:
    """Return resident bytes and the number of objects. Bytes are 0 without /proc."""
    gc.collect()
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        pages = 0
    return pages * mmap.PAGESIZE, sys.getallocatedblocks()


def _shared(path: Path) -> mmap.mmap:
    with path.open("wb+") as file:
        file.truncate(CURRENT_BYTES)
        return mmap.mmap(file.fileno(), CURRENT_BYTES)


def read_current(path: Path) -> bytes:
    """Return the input that a process was running when it ended."""
    data = path.read_bytes()
    return data[8 : 8 + int.from_bytes(data[:8], "little")]
