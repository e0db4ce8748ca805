"""Code that the commands beside ``serve`` share: errors and output."""

import errno
import json
import re
import socket
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from trio_stomp.base import OptionError

if TYPE_CHECKING:
    from argparse import Namespace

PROGRAM = "trio-stomp"
WELL, CANNOT, BAD_OPTION, UNWRITTEN = 0, 1, 2, 74
"""Exit codes."""

AT_HOME = "choose an address of this machine with --host"
LISTENING = {
    errno.EADDRINUSE: "stop the program that uses it, or choose another --port",
    errno.EADDRNOTAVAIL: AT_HOME,
    errno.EACCES: "choose a --port of 1024 or more, or grant the right to use this one",
}
"""Remedies for an address on which a broker cannot listen."""
BETWEEN = re.compile(r"[^\t\n]+")


class CannotDo(Exception):
    """The broker or the machine refuses: one line for the operator, and exit code 1."""


class OutputFailed(CannotDo):
    """The output cannot be written. The changes of the command stay."""


def near(name: str, names: Iterable[str]) -> str:
    """Return the text ``did you mean …?`` for the nearest known name, or an empty string."""
    # Imported here, so that only a typing error costs the time.
    import difflib

    found = difflib.get_close_matches(name, list(names), n=5)
    # Swapped letters are nearer than missing ones: --form is --from, not --for.
    found.sort(key=lambda each: sorted(each) != sorted(name))
    return f"; did you mean {found[0]}?" if found else ""


def cause_of(error: Exception) -> str:
    """Return in a few words why an address cannot be used."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, socket.gaierror | UnicodeError):
        return "no such host"
    return (getattr(error, "strerror", None) or str(error)).lower()


def remedy_of_listening(error: Exception) -> str:
    """Return the remedy if a broker cannot listen on an address; "" = unknown."""
    if isinstance(error, socket.gaierror | UnicodeError):
        return AT_HOME
    return LISTENING.get(getattr(error, "errno", None) or 0, "")


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


def report(given: "Namespace", record: object, *lines: object, code: int = WELL) -> int:
    """Print a result, as JSON if ``--json`` is given, and return the exit code.

    Args:
      given: The parsed command line.
      record: The result for programs.
      lines: The result for people.
      code: The exit code.
    """
    if given.json:
        show_json(record)
    else:
        say(*lines)
    return code


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
