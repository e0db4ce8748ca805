"""Progress on standard error: a bar if ``rich`` is installed, else a line."""

import importlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

Tell = Callable[[int, int], None]

STEP_S = 0.2


@contextmanager
def progress(title: str, *, wanted: bool | None = None, to: TextIO | None = None) -> Iterator[Tell]:
    """Provide a function that reports progress: called with the amount done and the total.

    Args:
      title: The name of the task.
      wanted: Whether to show progress; None = if ``to`` is a terminal.
      to: The output; None = standard error.
    """
    to = to or sys.stderr
    if not (to.isatty() if wanted is None else wanted):
        yield lambda _done, _total: None
        return
    if not to.isatty():
        yield from _plain(title, to)
        return
    try:
        # Optional: mypy does not find it where it is not installed.
        console = importlib.import_module("rich.console").Console(file=to)
        progress_of = importlib.import_module("rich.progress").Progress
    except ModuleNotFoundError:
        yield from _plain(title, to)
        return
    with progress_of(console=console, transient=True) as bars:
        bar = bars.add_task(title, total=None)

        def tell(done: int, total: int) -> None:
            bars.update(bar, completed=done, total=total)

        yield tell


def _plain(title: str, to: TextIO) -> Iterator[Tell]:
    """Write progress as one line that is overwritten, or without a terminal as a line each."""
    last, told_at = -1, 0.0

    def tell(done: int, total: int) -> None:
        nonlocal last, told_at
        percent, now = 100 * done // total if total else 100, time.monotonic()
        if percent != last and (now - told_at >= STEP_S or percent == 100):
            last, told_at = percent, now
            to.write(f"\r{title}: {percent:3} %" + ("" if to.isatty() else "\n"))
            to.flush()

    yield tell
    if to.isatty() and last >= 0:
        to.write("\n")
