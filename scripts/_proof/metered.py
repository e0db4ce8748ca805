"""A broker that measures the longest step of its event loop: ``python metered.py FILE OPTION...``.

The figure is processor time of the event loop's thread between two checkpoints. It excludes other
programs on a busy machine, and needs no support by the measured broker, so older checkouts can be
measured as well.
"""

import mmap
import runpy
import sys
import time
from functools import partial
from pathlib import Path

import trio

BYTES = 8
"""The size of one number: the longest time in seconds since 0 was written there."""


class Meter(trio.abc.Instrument):
    """Records the longest step of a task, or of work done while the loop would wait."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._longest = memoryview(mmap.mmap(file.fileno(), BYTES)).cast("d")
        self._began = 0.0

    def before_task_step(self, _task: trio.lowlevel.Task) -> None:
        """Note the start of a task's step."""
        self._began = time.thread_time()

    def after_task_step(self, _task: trio.lowlevel.Task) -> None:
        """Note the end of a task's step."""
        self._note()

    def before_io_wait(self, _timeout: float) -> None:
        """Note that all tasks wait. Work done before the wait for I/O counts as a step, too."""
        self._began = time.thread_time()

    def after_io_wait(self, _timeout: float) -> None:
        """Something has happened."""
        self._note()

    def _note(self) -> None:
        used = time.thread_time() - self._began
        if used > self._longest[0]:
            self._longest[0] = used


class LongestTurn:
    """The reader of the broker's file."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(BYTES))
        with path.open("r+b") as file:
            self._longest = memoryview(mmap.mmap(file.fileno(), BYTES)).cast("d")

    def reset(self) -> None:
        """Reset the measurement."""
        self._longest[0] = 0.0

    def seconds(self) -> float:
        """Return the longest turn since then."""
        return self._longest[0]


def main() -> None:
    """Run the broker with the options that follow the file's name."""
    path = Path(sys.argv.pop(1))
    trio.run = partial(trio.run, instruments=[Meter(path)])  # type: ignore[assignment]
    runpy.run_module("trio_stomp", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
