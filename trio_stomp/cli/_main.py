"""The entry point: runs the command named by the first word, and reports its errors.

It imports almost nothing, so that ``health`` starts fast.
"""

import io
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from trio_stomp._version import __version__
from trio_stomp.base import OptionError
from trio_stomp.cli._tool import (
    BAD_OPTION,
    CANNOT,
    PROGRAM,
    UNWRITTEN,
    CannotDo,
    OutputFailed,
    near,
    put,
    say,
    writing,
)
from trio_stomp.web.declared import VERBS

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from trio_stomp.cli._command import Command

OF_POSIX = ("fcntl", "resource", "termios")
"""Modules of Python that Windows does not have."""
INTERRUPTED, PIPE_CLOSED, TERMINATED = 130, 141, 143
"""128 plus the number of the signal, as in a shell."""


def _line(summary: str) -> str:
    """Return a sentence as a line of the list of commands."""
    return f"{summary[:1].lower()}{summary[1:].rstrip('.')}"


GROUPS = (
    (
        "run a broker",
        (
            ("serve", "run a broker; the word may be left out: trio-stomp --port 61613"),
            ("config", "check, show, compare and import settings"),
            ("passwd", "manage users and their passcodes"),
            ("acl", "test which rules apply to a client"),
            ("store", "inspect, check, move and compact a store"),
            ("doctor", "check whether this machine meets a broker's needs"),
        ),
    ),
    (
        "use a broker",
        (
            ("send", "send a message, a file, or a message for each line"),
            ("subscribe", "print messages as they arrive, or from a stream's past"),
            ("request", "send a request and print its answer"),
            ("reply", "answer requests, with a text or by a command"),
            ("bench", "measure deliveries a second and their latency"),
        ),
    ),
    (
        "operate a broker",
        (
            ("spark", "write the statistics or a stream to tables with Spark, and report"),
            ("tables", "write the broker's statistics to tables of Delta Lake or Parquet"),
            ("top", "watch rates, queues, drops and latencies in the terminal"),
            ("health", "report the health of a broker: exit code 0 or 1"),
            ("ls", "list queues, connections, subscriptions and other things"),
            ("show", "show one queue with its consumers, one connection, or another thing"),
            ("history", "show how the figures of a queue were before"),
            ("peek", "show the waiting messages of a queue, without consuming them"),
            *((each.name, _line(each.summary)) for each in VERBS.values()),
            ("cancel", "cancel scheduled messages"),
            ("export", "print the created queues, policies and durable subscriptions"),
            ("import", "create the queues of an export, and show what else differs"),
            ("explain", "explain what happened to a message, or why a client receives none"),
            ("dlq", "list, resend or drop dead letters"),
            ("subs", "list and end durable subscriptions"),
            ("schedules", "list and cancel scheduled messages"),
            ("cluster", "show the nodes of a cluster, and move it to another node"),
        ),
    ),
    ("the shell", (("completion", "print a completion script for a shell"),)),
)

ALIASES = {"pub": "send", "sub": "subscribe", "req": "request"}
COMMON = {
    "--url": True,
    "--ca-file": True,
    "--insecure-tls": False,
    "--login": True,
    "--passcode-file": True,
    "--token-file": True,
    "--json": False,
}
"""Options that may stand before the command of a tool, and whether a value follows."""
MODULES = {
    "send": "_messages._send",
    "request": "_messages._send",
    "subscribe": "_messages._subscribe",
    "reply": "_messages._reply",
    **dict.fromkeys(
        (
            *("ls", "show", "history", "peek", *VERBS, "cancel", "export", "import", "explain"),
            *("dlq", "subs", "schedules"),
        ),
        "_manage._commands",
    ),
}
"""The modules of commands that are not named after their command."""
COPIES = ("store", "tables", "spark")
"""Commands that write what the broker holds to files."""
VERSION = ("--version", "-V", "version")

USAGE = f"""\
usage: {PROGRAM} COMMAND ...
       {PROGRAM} [serve] [options] [name=value ...]

A STOMP 1.0, 1.1 and 1.2 message broker, over TCP and WebSocket on one port, and its tools.
"""

EPILOG = f"""\
{PROGRAM} COMMAND --help describes a command, {PROGRAM} serve --help every option of a broker.
Tools reach the broker at stomp://127.0.0.1:61613, or where --url or TRIO_STOMP_URL says.
docs/use/cli.md has examples.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line, and return the exit code.

    Args:
      argv: The arguments without the program's name; None = those of this process.

    Returns:
      0 on success, 1 if the command failed, 2 for a bad option, 74 if its output cannot be written,
      130 after Ctrl-C, 143 after SIGTERM; others as in the help of the command.

    Raises:
      SystemExit: help or the version was requested, and is printed.
    """
    _open_closed_streams()
    argv = sys.argv[1:] if argv is None else list(argv)
    name = PROGRAM
    _accept_all_characters()
    try:
        with ending_at_sigterm(), _flushing(), ExitStack() as stack:
            command, rest = _command(argv)
            name = f"{PROGRAM} {command}"
            if command in COPIES:
                # The original is its owner's alone.
                stack.callback(os.umask, os.umask(0o077))
            code = run_command(command, rest)
    except OptionError as error:
        return _failed(PROGRAM, error, BAD_OPTION)
    except OutputFailed as error:
        _discard_output()
        return _failed(name, error, UNWRITTEN)
    except CannotDo as error:
        return _failed(name, error, CANNOT)
    except Terminated:
        return TERMINATED
    except ModuleNotFoundError as error:
        if error.name not in OF_POSIX:
            raise
        reason = f"this system has no {error.name}, which Linux and macOS have; on Windows, use WSL"
        return _failed(name, CannotDo(reason), CANNOT)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader, such as `head`, closed the pipe.
        _discard_output()
        return PIPE_CLOSED
    return code


def _open_closed_streams() -> None:
    """Open /dev/null in place of closed standard streams, or a file would get their descriptors."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


def _failed(who: str, error: Exception, code: int) -> int:
    say(*f"{who}: error: {error}".splitlines(), to=sys.stderr)
    return code


def _accept_all_characters() -> None:
    """Have outputs escape what their encoding lacks, as Python does for standard error alone."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


class Terminated(KeyboardInterrupt):
    """SIGTERM arrived, which ends a command as Ctrl-C does."""


@contextmanager
def ending_at_sigterm() -> Iterator[None]:
    """Handle SIGTERM as Ctrl-C, which Python does not.

    The kernel drops a signal that process 1 does not handle. Commands that end otherwise, such as
    ``serve``, handle it themselves meanwhile.

    Raises:
      Terminated: SIGTERM arrived.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    is_ended = False

    def interrupt(_: int, frame: FrameType | None) -> None:
        nonlocal is_ended
        is_ended = True
        # That of Trio or asyncio if one runs, which ends its tasks in order.
        handler = signal.getsignal(signal.SIGINT)
        (handler if callable(handler) else signal.default_int_handler)(signal.SIGINT, frame)

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except KeyboardInterrupt:
        if is_ended:
            raise Terminated from None
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _flushing() -> Iterator[None]:
    """Write all output before the end, where an error is still reported in one line."""
    try:
        yield
    finally:
        if sys.stdout is not None:
            with writing():
                sys.stdout.flush()


def _discard_output() -> None:
    """Drop what could not be written, which Python would try to write again at its exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _command(argv: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return the command and its arguments.

    Raises:
      OptionError: there is no such command.
      SystemExit: help or the version was printed.
    """
    at = _leading(argv)
    if at and at >= len(argv):
        raise OptionError(f"a command is missing after {argv[0].partition('=')[0]}")
    first, rest = (argv[at], [*argv[:at], *argv[at + 1 :]]) if argv else ("", argv)
    if first == "help" and rest:
        first, rest = rest[0], ["--help"]
    if first in ("-h", "--help", "help"):
        _print_and_end(help_text())
    first = ALIASES.get(first, first)
    if first in VERSION and not rest:
        _print_and_end(f"{PROGRAM} {__version__}\n")
    if first in names():
        return first, rest
    # Options, or words of stompica: name=value.
    if not first or first.startswith("-") or "=" in first:
        return "serve", argv
    # Imported here, so that only a typing error costs the time.
    from trio_stomp.cli._hints import command_hint

    meant = command_hint(first, rest[:1]) or near(first, names())
    raise OptionError(f"unknown command {first[:80]!r}{meant} ({PROGRAM} --help lists all)")


def _leading(argv: Sequence[str]) -> int:
    """Return how many words are common options of tools, before the command."""
    at = 0
    while at < len(argv) and (name := argv[at].partition("=")[0]) in COMMON:
        at += 1 + (COMMON[name] and name == argv[at])
    return at


def _print_and_end(text: str) -> NoReturn:
    put(text)
    raise SystemExit(0)


def names() -> list[str]:
    """Return all commands, in the order of the help."""
    return [name for _, commands in GROUPS for name, _ in commands]


def text_of(name: str) -> str:
    """Return the line about a command in the help."""
    return next(text for _, commands in GROUPS for each, text in commands if each == name)


def command_of(name: str) -> "Command":
    """Return a command other than ``serve``."""
    found = import_module(f"trio_stomp.cli.commands.{MODULES.get(name, f'_{name}')}")
    commands: Mapping[str, Command] | None = getattr(found, "COMMANDS", None)
    command: Command = found.COMMAND if commands is None else commands[name]
    return command


def parser_of(name: str) -> "ArgumentParser":
    """Return the parser of the arguments after a command."""
    if name == "serve":
        from trio_stomp.cli._arguments import make_parser

        return make_parser()
    text = text_of(name)
    return command_of(name).make_parser(name, f"{text[:1].upper()}{text[1:]}.")


def run_command(name: str, argv: Sequence[str]) -> int:
    """Run a command with the words behind it, and return the exit code."""
    if name == "serve":
        code: int = import_module("trio_stomp.cli.commands._serve").main(argv)
        return code
    return command_of(name).run(parser_of(name).parse_args(list(argv)))


def help_text() -> str:
    """Return the help: the commands in groups, with a line for each."""
    width = max(map(len, names()))
    parts = [USAGE]
    for title, commands in GROUPS:
        lines = "".join(f"  {name:<{width}}  {text}\n" for name, text in commands)
        parts.append(f"{title}:\n{lines}")
    return "\n".join([*parts, EPILOG])
