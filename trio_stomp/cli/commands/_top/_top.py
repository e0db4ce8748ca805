"""``trio-stomp top``: watches a broker in the terminal."""

import argparse
import importlib
import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from math import inf

from attrs import define

from trio_stomp.cli._command import Argument, Command, count, seconds
from trio_stomp.cli._connect_options import ACCESS
from trio_stomp.cli._http_get import Site, open_site, understanding
from trio_stomp.cli._tool import WELL, show_json
from trio_stomp.cli.commands._top._frame import ORDERS, SHOWN, Growth, Snapshot, frame
from trio_stomp.cli.commands._top._screen import open_console, screen

SORTS = tuple(ORDERS)
INTERVAL_S = 2.0
REST = 40
"""The least pause, in multiples of the processor time that it takes to read the figures.

The broker takes about twice as much to make them, and so less than 5 % of a core.
"""

EPILOG = """\
It requests the figures of the management interface at each interval, and shows the rates between
two of them; drops are those since the start of the broker. It needs the right to monitor. Keys: q
quits, p pauses, s changes the sort order of destinations.
"""


@define
class View:
    """The operator's choices: sort order, number of rows, pause, end."""

    sort: str
    shown: int
    is_paused: bool = False
    is_over: bool = False

    def press(self, keys: str) -> None:
        """Handle pressed keys; none = the terminal is closed."""
        for key in keys or "q":
            if key == "q":
                self.is_over = True
            elif key == "p":
                self.is_paused = not self.is_paused
            elif key == "s":
                self.sort = SORTS[(SORTS.index(self.sort) + 1) % len(SORTS)]


def _run(given: argparse.Namespace) -> int:
    """Run ``top``, and return the exit code.

    Raises:
      OptionError: an option or file is wrong; the text is one line for the operator.
      CannotDo: the broker cannot be reached, or refuses; or rich is missing.
    """
    view, site = View(given.sort, given.rows), open_site(given)
    with understanding(given), suppress(KeyboardInterrupt):  # of SIGTERM, too
        if not (given.json or given.once):
            _live(site, view, given)
            return WELL
        console = None if given.json else open_console(is_live=False)
        for before, now in pairwise(_snapshots(site, view, given)):
            found = frame(Growth(before, now), view.sort, view.shown)
            if console is not None:
                console.print(screen(found, view.sort))
            elif given.once:
                show_json(found)
            else:
                show_json(found, indent=None)
            if given.once:
                break
    return WELL


def _snapshots(
    site: Site, view: View, given: argparse.Namespace, wait: Callable[[float], None] = time.sleep
) -> Iterator[Snapshot]:
    """Yield a snapshot at once and after each interval, until the operator quits.

    The interval is longer if the broker has very much to list.

    Args:
      site: The broker.
      view: The operator's choices.
      given: The command line.
      wait: Waits for a number of seconds.

    Raises:
      CannotDo: the broker cannot be reached, or refuses.
    """
    end = inf if given.seconds is None else time.monotonic() + given.seconds
    while not view.is_over:
        began = time.process_time()
        found = Snapshot.of(site, view.shown)
        took_s = time.process_time() - began
        yield found
        left_s = end - time.monotonic()
        if left_s <= 0:
            return
        wait(min(max(given.interval, REST * took_s), left_s))


def _live(site: Site, view: View, given: argparse.Namespace) -> None:
    """Run the full-screen display.

    Raises:
      CannotDo: the broker cannot be reached, or refuses; or there is no terminal.
    """
    console = open_console(is_live=True)
    live_of = importlib.import_module("rich.live").Live
    with _keys() as keyboard, live_of(console=console, screen=True, auto_refresh=False) as live:

        def wait(seconds: float) -> None:
            due = time.monotonic() + seconds
            while not view.is_over and (left_s := due - time.monotonic()) > 0:
                found = frame(shown, view.sort, view.shown)
                live.update(
                    screen(found, view.sort, is_paused=view.is_paused, keys=True), refresh=True
                )
                if keyboard is None:
                    time.sleep(left_s)
                elif select.select([keyboard], [], [], left_s)[0]:
                    view.press(os.read(keyboard, 64).decode(errors="replace"))

        before: Snapshot | None = None
        for now in _snapshots(site, view, given, wait):
            if not view.is_paused:
                shown = Growth(before or now, now)
            before = now


@contextmanager
def _keys() -> Iterator[int | None]:
    """Provide the keyboard without line buffering, or None if there is none."""
    if sys.platform == "win32" or not sys.stdin.isatty():
        yield None
        return
    import termios
    import tty

    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    tty.setcbreak(number)
    try:
        yield number
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)


COMMAND = Command(
    _run,
    (
        Argument("--once", "print one screen, and end"),
        Argument("--sort", "sort order of the destinations", default=SORTS[0], choices=SORTS),
        Argument("--rows N", f"rows of each table (default: {SHOWN})", count, SHOWN),
        Argument(
            "--interval SECONDS",
            f"time between requests, over which rates are (default: {INTERVAL_S:g})",
            seconds,
            INTERVAL_S,
        ),
        Argument("--for SECONDS", "end after this time", seconds, dest="seconds"),
        Argument("--json", "for programs: a JSON document with --once, else one per line"),
        *ACCESS,
    ),
    epilog=EPILOG,
)
