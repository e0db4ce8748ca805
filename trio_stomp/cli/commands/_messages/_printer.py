"""Printing of messages to standard output."""

import argparse

from attrs import define

from trio_stomp.base import OptionError
from trio_stomp.cli._command import Argument
from trio_stomp.cli._lines import line_of
from trio_stomp.cli._tool import put
from trio_stomp.cli.commands._messages._template import Filling, Template

VERBOSE = ("{body}", "{destination} {body}", "{destination}  {headers}\n{body}\n")
"""The formats of no ``-v``, ``-v`` and ``-vv``."""


PRINTING = (
    Argument(
        "-v --verbose",
        "print the destination before each body; -vv: and the headers on a line of their own",
        default=0,
        action="count",
    ),
    Argument("--format FORMAT", "print each message like this (see below)"),
)


def printer_of(given: argparse.Namespace, wanted: int | None) -> "Printer":
    """Return a printer with the options of ``PRINTING``, and ``--json``.

    Args:
      given: The parsed command line.
      wanted: The number of messages after which to stop; None = unlimited.

    Raises:
      OptionError: they exclude each other, or the format is wrong.
    """
    if sum((given.json, given.format is not None, given.verbose > 0)) > 1:
        raise OptionError("--json, --format and -v exclude each other; give one of them")
    text = VERBOSE[min(given.verbose, 2)] if given.format is None else given.format
    return Printer(Template.parse(text, "--format"), as_json=given.json, wanted=wanted)


@define
class Printer:
    """Prints messages to standard output.

    Args:
      template: The form of a message, unless it is printed as JSON.
      wanted: The number of messages after which to stop; None = unlimited.
    """

    template: Template
    as_json: bool = False
    wanted: int | None = None
    count: int = 0

    @property
    def is_done(self) -> bool:
        """Return whether the wanted number of messages has arrived."""
        return self.wanted is not None and self.count >= self.wanted

    def show(self, message: Filling) -> None:
        """Print a message and flush the output.

        Raises:
          BrokenPipeError, OutputFailed: the output takes no more.
        """
        self.count += 1
        if self.as_json:
            put(line_of(message.destination, message.headers, message.body) + "\n")
        else:
            put(self.template.fill(message, self.count) + b"\n")
