"""``trio-stomp top``: watches a broker in the terminal."""

import argparse
import importlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import inf
from typing import Any

import trio
from attrs import define

from trio_stomp.cli._connect_options import add_access
from trio_stomp.cli._session import run_session
from trio_stomp.cli._tool import (
    WELL,
    CannotDo,
    Parser,
    add_json,
    count,
    make_tool_parser,
    seconds,
    show_json,
)
from trio_stomp.cli.commands._top._board import SHOWN, SORTS, Board
from trio_stomp.cli.commands._top._screen import open_console, screen
from trio_stomp.client import BrokerError, Client, ProtocolViolation, Subscription

NAME = "top"
STREAM, TOPICS = "/stream/DIAG", "DIAG*"
PAST_S = 70.0
"""History to read at the start: complete lists come once a minute (--diag-full-s)."""
SILENCE_S, REST_S = 0.5, 0.1
PATIENCE_S = 60.0
REDRAW_S = 0.25
QUIET_S = 1.0
"""Silence after which the screen explains what ``top`` waits for."""

EPILOG = """\
It shows the figures of the broker's DIAG topics (docs/reference/diag.md), starting with the past
minute. It needs the right to monitor, and a broker whose --diag-interval-s is not 0. Rates are of
the broker's last interval; drops are counted from that past minute on. Keys: q quits, p pauses, s
changes the sort order of destinations.
"""


@define
class View:
    """The operator's choices: sort order, number of rows, pause, end."""

    sort: str
    shown: int
    is_paused: bool = False
    is_over: bool = False

    def press(self, key: str) -> None:
        """Handle a key press."""
        if key == "q":
            self.is_over = True
        elif key == "p":
            self.is_paused = not self.is_paused
        elif key == "s":
            self.sort = SORTS[(SORTS.index(self.sort) + 1) % len(SORTS)]


def main(argv: Sequence[str]) -> int:
    """Run ``top``, and return the exit code.

    Raises:
      OptionError: an option or file is wrong; the text is one line for the operator.
      CannotDo: the broker cannot be reached or sends no figures; or rich is missing.
    """
    given = make_parser().parse_args(list(argv))
    view = View(given.sort, given.rows)
    show = _shower(given, view)
    board = Board()
    for place in (STREAM, TOPICS):
        try:
            run_session(
                given, partial(_watch, given=given, place=place, board=board, view=view, show=show)
            )
        except _NoStream:
            continue
        break
    return WELL


class _NoStream(Exception):
    """The broker keeps no stream of its diagnostics."""


Show = Callable[[Board], None]


def _shower(given: argparse.Namespace, view: View) -> Show:
    """Return the function that displays the board.

    Raises:
      CannotDo: rich is missing, or there is no terminal.
    """
    if given.json:
        return partial(_show_json, view, given.once)
    console = open_console(is_live=not given.once)
    if given.once:
        return lambda board: console.print(screen(board.frame(view.sort, view.shown), view.sort))
    return lambda _board: None


def _show_json(view: View, is_single: bool, board: Board) -> None:
    frame = board.frame(view.sort, view.shown)
    if is_single:
        show_json(frame)
    else:
        print(json.dumps(frame), flush=True)


async def _watch(
    client: Client, *, given: argparse.Namespace, place: str, board: Board, view: View, show: Show
) -> None:
    """Follow the diagnostics until the operator quits."""
    offset = f"timestamp={time.time() - PAST_S:.3f}" if place == STREAM else None
    try:
        async with client.subscribe(place, offset=offset, prefetch=1000) as messages:
            if given.once:
                await _catch_up(messages, board)
                show(board)
            elif given.json:
                await _follow(messages, board, show, given.seconds)
            else:
                await _live(messages, board, view, given.seconds)
    except (BrokerError, ProtocolViolation):
        if place == STREAM and not board.process:
            raise _NoStream from None
        raise


async def _catch_up(messages: Subscription, board: Board) -> None:
    """Read until the board is up to date.

    Raises:
      CannotDo: no figures arrive.
    """
    patient_until = trio.current_time() + QUIET_S
    with trio.move_on_after(PATIENCE_S):
        while not (await _is_silent(messages, board, SILENCE_S) and board.is_ready):
            interval_s = float(board.process.get("interval_s") or 0.0)
            if board.is_ready and time.time() - board.at_s < 1.5 * interval_s:
                # The rest of the interval's records follow it at once.
                while not await _is_silent(messages, board, REST_S):
                    pass
                return
            if trio.current_time() > patient_until:
                patient_until = inf
                _say_waiting(interval_s)
        return
    raise CannotDo(
        f"the broker sent nothing for {PATIENCE_S:g} s; its --diag-interval-s may be 0 or too long"
    )


def _say_waiting(interval_s: float) -> None:
    """Explain why nothing is shown yet. ``interval_s`` is 0 until it is known."""
    if sys.stderr.isatty():
        often = f"{interval_s:g} s" if interval_s else "few seconds (--diag-interval-s)"
        sys.stderr.write(f"waiting for figures, which the broker sends every {often}\n")
        sys.stderr.flush()


async def _is_silent(messages: Subscription, board: Board, silence_s: float) -> bool:
    """Process the next message, and return whether none arrived in time."""
    with trio.move_on_after(silence_s) as scope:
        message = await messages.receive()
        board.take(message.destination, message.body)
    return scope.cancelled_caught


async def _follow(messages: Subscription, board: Board, show: Show, seconds: float | None) -> None:
    """Display the board after each interval."""
    with trio.CancelScope() as scope, _ended_by_signals(scope) as end_at_signal:
        if seconds is not None:
            scope.deadline = trio.current_time() + seconds
        async with trio.open_nursery() as nursery:
            nursery.start_soon(end_at_signal)
            await _catch_up(messages, board)
            show(board)
            shown = board.process.get("ts")
            while True:
                silent = await _is_silent(messages, board, REST_S)
                if silent and board.process.get("ts") != shown:
                    show(board)
                    shown = board.process.get("ts")


@contextmanager
def _ended_by_signals(scope: trio.CancelScope) -> Iterator[Callable[[], Any]]:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:

        async def wait() -> None:
            await anext(signals)
            scope.cancel()

        yield wait


async def _live(messages: Subscription, board: Board, view: View, seconds: float | None) -> None:
    """Run the full-screen display."""
    live_of = importlib.import_module("rich.live").Live
    console = open_console(is_live=True)

    def drawn() -> Any:  # noqa: ANN401
        frame = board.frame(view.sort, view.shown)
        return screen(frame, view.sort, is_paused=view.is_paused, keys=True)

    with trio.CancelScope() as scope, _ended_by_signals(scope) as end_at_signal:
        if seconds is not None:
            scope.deadline = trio.current_time() + seconds
        with _keys() as keyboard, live_of(console=console, screen=True, auto_refresh=False) as live:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(end_at_signal)
                nursery.start_soon(_take_all, messages, board)
                if keyboard is not None:
                    nursery.start_soon(_press, keyboard, view, scope)
                while True:
                    if not view.is_paused:
                        live.update(drawn(), refresh=True)
                    await trio.sleep(REDRAW_S)


async def _take_all(messages: Subscription, board: Board) -> None:
    async for message in messages:
        board.take(message.destination, message.body)


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


async def _press(keyboard: int, view: View, scope: trio.CancelScope) -> None:
    while not view.is_over:
        await trio.lowlevel.wait_readable(keyboard)
        keys = os.read(keyboard, 64).decode(errors="replace")
        if not keys:
            return
        for key in keys:
            view.press(key)
    scope.cancel()


def make_parser() -> Parser:
    """Return the parser of the arguments after ``top``."""
    parser = make_tool_parser(NAME, "Watch a broker in the terminal.", EPILOG)
    parser.add_argument("--once", action="store_true", help="print one screen, and end")
    parser.add_argument(
        "--sort", choices=SORTS, default=SORTS[0], help="sort order of the destinations"
    )
    parser.add_argument(
        "--rows",
        type=count,
        default=SHOWN,
        metavar="N",
        help=f"rows of each table (default: {SHOWN})",
    )
    parser.add_argument(
        "--for", type=seconds, dest="seconds", metavar="SECONDS", help="end after this time"
    )
    add_json(parser, "for programs: a JSON document with --once, else one per line")
    add_access(parser)
    return parser
