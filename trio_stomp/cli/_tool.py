"""Code that the commands beside ``serve`` share: parser, errors, output."""

import argparse
import json
import math
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import NoReturn, TextIO

from trio_stomp.base import OptionError

PROGRAM = "trio-stomp"
WELL, CANNOT, BAD_OPTION, UNWRITTEN = 0, 1, 2, 74
"""Exit codes."""

CHOICE = re.compile(r"invalid choice: '([^']*)' \(choose from (.*)\)")
UNKNOWN = "unrecognized arguments: "
BETWEEN = re.compile(r"[^\t\n]+")


MAX_SECONDS = 365 * 24 * 3600.0
MAX_COUNT = 10**15


class CannotDo(Exception):
    """The broker or the machine refuses: one line for the operator, and exit code 1."""


class OutputFailed(CannotDo):
    """The output cannot be written. The changes of the command stay."""


class Helper(argparse.ArgumentParser):
    """A parser whose help is output like any other: argparse ignores that it is full."""

    def print_help(self, file: object = None) -> None:  # noqa: ARG002
        """Print the help."""
        put(self.format_help())


class Parser(Helper):
    """A parser whose errors are one line with the remedy, and never quote a possible secret.

    Options may stand anywhere: before a command, and between positional arguments. Plain argparse
    would treat an optional positional argument as missing at the first option.
    """

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Implement ``ArgumentParser.parse_known_args``."""
        words = sys.argv[1:] if args is None else list(args)
        return super().parse_known_args(self._sorted(words), namespace)

    def _sorted(self, words: Sequence[str]) -> list[str]:
        """Return the words with the options and their values first, or behind the command."""
        has_commands = any(isinstance(each, argparse._SubParsersAction) for each in self._actions)
        if has_commands and (not words[:1] or words[0] in self._option_string_actions):
            return list(words)
        known = dict(_options(self))
        options: list[str] = []
        others: list[str] = []
        unknown: list[str] = []
        rest = iter(words)
        for word in rest:
            name = word.partition("=")[0] if word.startswith("--") else word[:2]
            if word == "--":
                others += rest
            elif word == "-" or not word.startswith("-") or self._is_number(word):
                others.append(word)
            else:
                options.append(word)
                if name not in known:
                    unknown.append(word)
                elif name == word and known[name].nargs is None:
                    options += islice(rest, 1)
        if has_commands:
            return [*others[:1], *options, *(["--"] if others[1:] else ()), *others[1:]]
        if unknown:
            self.error(UNKNOWN + " ".join(unknown))
        return [*options, "--", *others] if others else options

    def _is_number(self, word: str) -> bool:
        return self._negative_number_matcher.match(word) is not None

    def error(self, message: str) -> NoReturn:
        """Refuse the command line.

        Raises:
          OptionError: always.
        """
        if found := CHOICE.search(message):
            message += near(found[1], re.findall(r"[\w-]+", found[2]))
        elif message.startswith(UNKNOWN):
            message = self._unknown(message.removeprefix(UNKNOWN).split(" "))
        raise OptionError(f"{self.prog.partition(' ')[2]}: {message}")

    def _unknown(self, words: Sequence[str]) -> str:
        words = [word for word in words if word != "--"]
        flags = [word.partition("=")[0] for word in words if word.startswith("-") and word != "-"]
        if not flags:
            return f"{words[0][:80]!r} is an unexpected argument (see --help)"
        # The rest of the message is omitted: it may hold a passcode.
        if flags[0].startswith("--pass"):
            return (
                f"{flags[0]} is not an option: every user of the machine can see a passcode on "
                "the command line; use TRIO_STOMP_PASSCODE or --passcode-file"
            )
        # Imported here, so that only a typing error costs the time.
        from trio_stomp.cli._hints import option_hint

        ours = dict(_options(self))
        hints = (f"{flag[:80]}{option_hint(flag, ours)}" for flag in dict.fromkeys(flags[:4]))
        return f"{UNKNOWN}{'; '.join(hints)} (--help lists all)"


def _options(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.Action]]:
    """Yield all options of a parser and of its commands."""
    for action in parser._actions:
        yield from ((flag, action) for flag in action.option_strings)
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _options(command)


def make_tool_parser(name: str, description: str, epilog: str = "") -> Parser:
    """Return a parser of the arguments after ``name``."""
    return Parser(
        prog=f"{PROGRAM} {name}",
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def add_commands(parser: Parser, texts: dict[str, str]) -> dict[str, argparse.ArgumentParser]:
    """Add commands, one of which must be given, as ``command``.

    Args:
      parser: The parser to extend.
      texts: The help text of each command.
    """
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    return {
        name: commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        for name, text in texts.items()
    }


def add_json(parser: argparse.ArgumentParser, text: str = "for programs") -> None:
    """Add ``--json``."""
    parser.add_argument("--json", action="store_true", help=text)


def add_progress(parser: argparse.ArgumentParser) -> None:
    """Add ``--progress`` and ``--no-progress``."""
    parser.add_argument(
        "--progress",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="show progress on standard error (default: if it is a terminal)",
    )


def seconds(text: str) -> float:
    """Parse a number of seconds, above 0.

    Raises:
      ArgumentTypeError: it is none.
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= MAX_SECONDS:
        raise argparse.ArgumentTypeError(f"{text[:80]!r} is not a number of seconds above 0")
    return value


def count(text: str) -> int:
    """Parse a whole number, 1 or more."""
    return _whole(text, 1, MAX_COUNT)


def size_in_bytes(text: str) -> int:
    """Parse a number of bytes, 0 or more."""
    return _whole(text, 0, MAX_COUNT)


def port_number(text: str) -> int:
    """Parse a port number."""
    return _whole(text, 0, 65535)


def time_ms(text: str) -> int:
    """Parse a time, into milliseconds since 1970.

    Raises:
      ArgumentTypeError: it is none.
    """
    # Imported here, as few commands take a time.
    from trio_stomp.cli._times import time_of

    try:
        return int(time_of(text) * 1000)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _whole(text: str, least: int, most: int) -> int:
    # int() alone accepts "1_0" and the digits of every script.
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else -1
    if not least <= value <= most:
        raise argparse.ArgumentTypeError(
            f"{text[:80]!r} is not a whole number from {least} to {most}"
        )
    return value


def near(name: str, names: Iterable[str]) -> str:
    """Return the text ``did you mean …?`` for the nearest known name, or an empty string."""
    # Imported here, so that only a typing error costs the time.
    import difflib

    found = difflib.get_close_matches(name, list(names), n=5)
    # Swapped letters are nearer than missing ones: --form is --from, not --for.
    found.sort(key=lambda each: sorted(each) != sorted(name))
    return f"; did you mean {found[0]}?" if found else ""


def printable(text: str) -> str:
    """Return a client's text as one line without control characters."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def say(*lines: object, to: TextIO | None = None) -> None:
    """Write lines for people, of which each stays one line and controls no terminal.

    All that a command says goes through this function, or through ``put``.

    Args:
      lines: The lines, whatever clients have put into them.
      to: The stream; None = standard output.

    Raises:
      BrokenPipeError: the reader has closed the pipe.
      OutputFailed: the stream cannot be written.
    """
    _write("".join(f"{printable(str(line))}\n" for line in lines), to)


def put(text: str | bytes) -> None:
    """Write data to standard output as they are, or harmlessly if a terminal shows them.

    Raises:
      BrokenPipeError, OutputFailed: as ``say``.
    """
    if sys.stdout is not None and sys.stdout.isatty():
        shown = text if isinstance(text, str) else text.decode(errors="backslashreplace")
        _write(BETWEEN.sub(lambda found: printable(found[0]), shown))
    else:
        _write(text if isinstance(text, bytes) else text.encode())


def _write(text: str | bytes, to: TextIO | None = None) -> None:
    out = to or sys.stdout
    if out is None:  # The process was started without one.
        return
    with writing():
        try:
            if isinstance(text, bytes):
                out.flush()
                out.buffer.write(text)
            else:
                out.write(text)
            out.flush()
        except OSError:
            # Nobody reads what is said about an error; the exit code still tells of it.
            if to is None:
                raise


@contextmanager
def writing() -> Iterator[None]:
    """Report an output that cannot be written in one line.

    Raises:
      BrokenPipeError, OutputFailed: as ``say``.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        cause = f"the output cannot be written: {error.strerror or error}"
        raise OutputFailed(f"{cause}; what the command was to do may be done") from None


def show_json(value: object, indent: int | None = 2) -> None:
    """Print a JSON document."""
    put(json.dumps(value, indent=indent) + "\n")


def show_table(rows: Iterable[Sequence[object]], *columns: str) -> None:
    """Print a table: numbers to the right, texts to the left."""
    rows = list(rows)
    lines = [list(columns), *([_shown(cell) for cell in row] for row in rows)]
    numeric = [
        bool(rows) and all(isinstance(row[at], int | float) for row in rows)
        for at in range(len(columns))
    ]
    widths = [max(len(line[at]) for line in lines) for at in range(len(columns))]
    cells = (
        (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        )
        for line in lines
    )
    say(*("  ".join(line).rstrip() for line in cells))


def _shown(cell: object) -> str:
    if isinstance(cell, float):
        return f"{cell:,.1f}"
    return f"{cell:,}" if isinstance(cell, int) else printable(str(cell))


def ask_yes(question: str) -> bool:
    """Ask a question at the terminal, and return whether the answer is yes.

    Raises:
      OptionError: there is no terminal.
    """
    if not sys.stdin.isatty():
        raise OptionError(f"{question} standard input is not a terminal; confirm with --yes")
    sys.stderr.write(f"{printable(question)} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
