"""Templates that turn a message into bytes, for ``--format`` and for answers."""

import re
import string
import time
from collections.abc import Iterator, Mapping
from typing import Protocol, Self

from attrs import frozen

from trio_stomp.base import OptionError
from trio_stomp.cli._tool import near

ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}
ESCAPE = re.compile(r"\\([ntr0\\])")
ISO = "%Y-%m-%dT%H:%M:%S%z"
FIELDS = ("body", "destination", "headers", "header", "n", "time")
OF_THE_FRAME = frozenset({"ack", "content-length", "destination", "subscription"})
"""Headers that ``{headers}`` leaves out."""

HELP = """\
FORMAT is a text with {body}, {destination}, {headers}, {header:NAME}, {n} (1, 2, ...) and {time}
({time:%H:%M:%S} as in date). {{ and }} are braces; \\n, \\t, \\r, \\0 and \\\\ are understood.
"""


class Filling(Protocol):
    """The part of a message that fills a template."""

    @property
    def body(self) -> bytes:
        """The body."""

    @property
    def destination(self) -> str:
        """The destination."""

    @property
    def headers(self) -> Mapping[str, str]:
        """All headers."""


@frozen
class Template:
    """A text with fields that a message fills.

    Args:
      parts: Literals, each with the field behind it, "" = none, and that field's parameter.
    """

    parts: tuple[tuple[bytes, str, str], ...]

    @classmethod
    def parse(cls, text: str, where: str) -> Self:
        """Read a template.

        Args:
          text: The template.
          where: The option that gave it, for the error.

        Raises:
          OptionError: a field is unknown or a brace is left open.
        """
        return cls(tuple(_parts(text, where)))

    def fill(self, message: Filling, number: int) -> bytes:
        """Return the text for a message.

        Args:
          message: The message.
          number: The value of ``{n}``.
        """
        found = []
        for literal, name, parameter in self.parts:
            found.append(literal)
            match name:
                case "body":
                    found.append(message.body)
                case "destination":
                    found.append(message.destination.encode())
                case "headers":
                    found.append(" ".join(_headers(message.headers)).encode())
                case "header":
                    found.append(message.headers.get(parameter, "").encode())
                case "n":
                    found.append(b"%d" % number)
                case "time":
                    found.append(time.strftime(parameter or ISO).encode())
        return b"".join(found)


def _parts(text: str, where: str) -> Iterator[tuple[bytes, str, str]]:
    try:
        parsed = list(string.Formatter().parse(text))
    except ValueError as error:
        raise OptionError(
            f"{where}: {str(error).lower()}; write {{{{ and }}}} for braces"
        ) from None
    for literal, name, parameter, conversion in parsed:
        # The exact bytes of the shell: invalid UTF-8 arrives as lone surrogates.
        plain = ESCAPE.sub(lambda found: ESCAPES[found[1]], literal)
        if name is not None and (name not in FIELDS or conversion):
            raise OptionError(
                f"{where}: unknown field {{{name[:80]}}}{near(name, FIELDS)} (known: "
                f"{', '.join(FIELDS)}; {{{{ and }}}} are braces)"
            )
        if name == "header" and not parameter:
            raise OptionError(f"{where}: {{header}} needs a name, as in {{header:type}}")
        yield plain.encode("utf-8", "surrogateescape"), name or "", parameter or ""


def _headers(headers: Mapping[str, str]) -> Iterator[str]:
    return (f"{name}:{text}" for name, text in headers.items() if name not in OF_THE_FRAME)
