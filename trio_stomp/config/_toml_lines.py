"""The line numbers of the keys of a TOML file, which ``tomllib`` does not give.

The file is known to be TOML when it comes here, so that this reads just as much of the grammar as
tells keys from what only looks like one: strings, comments, arrays, inline tables.
"""

import re
from bisect import bisect_right
from collections.abc import Mapping
from contextlib import suppress
from tomllib import loads

from attrs import define, field

Path = tuple[str | int, ...]
"""Keys from the outermost on; a number is a place in an array."""

_BLANK = re.compile(r"(?:[ \t\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_KEY = re.compile(r"""[ \t]*([A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')[ \t]*""")
_STRING = re.compile(
    # Up to two quotes may stand before the three that end a text of many lines.
    r"""\"{3}(?:[^\\]|\\.)*?\"{3,5}|'{3}.*?'{3,5}|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'""",
    re.DOTALL,
)
_BARE = re.compile(r"[^,\]}#\n]*")


def lines_of(text: str) -> dict[Path, int]:
    """Return the line of each key, table and element of an array, counted from 1.

    Args:
      text: TOML. Of anything else some lines are found, or none.

    Limits: linear in the text; what is nested deeper than Python calls is left out.
    """
    scanner = _Scanner(text.replace("\r\n", "\n"))
    with suppress(_Lost, ValueError, RecursionError):  # an error without its line is one, too
        scanner.scan()
    return scanner.lines


def line_of(lines: Mapping[Path, int], path: Path) -> int:
    """Return the line of a key, or of the nearest thing around it, or 0 if there is none."""
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path, 0)


class _Lost(Exception):
    """This is no TOML, or TOML that was not foreseen."""


@define
class _Scanner:
    text: str
    lines: dict[Path, int] = field(factory=dict)
    _at: int = 0
    _ends: list[int] = field(init=False)
    _arrays: dict[Path, int] = field(factory=dict)
    """The last element of each array of tables."""

    def __attrs_post_init__(self) -> None:
        self._ends = [found.start() for found in re.finditer("\n", self.text)]

    def scan(self) -> None:
        """Read everything.

        Raises:
          _Lost: at the first thing that is not understood.
        """
        table: Path = ()
        while self._skip(_BLANK) < len(self.text):
            if self._peek() == "[":
                table = self._header()
            else:
                self._pair(table)

    def _header(self) -> Path:
        start, is_array = self._at, self.text.startswith("[[", self._at)
        self._at += 2 if is_array else 1
        *outer, last = self._keys()
        self._at += 2 if is_array else 1
        path: Path = ()
        for key in outer:
            path = self._last_of((*path, key))
            self._note(path, start)
        path = (*path, last)
        if is_array:
            self._arrays[path] = self._arrays.get(path, -1) + 1
            self._note(path, start)
        path = self._last_of(path)
        self._note(path, start)
        return path

    def _last_of(self, path: Path) -> Path:
        return (*path, self._arrays[path]) if path in self._arrays else path

    def _pair(self, table: Path) -> None:
        start, path = self._at, table
        for key in self._keys():
            path = (*path, key)
            self._note(path, start)
        self._take("=")
        self._value(path)

    def _value(self, path: Path) -> None:
        self._skip(_SPACE)
        first = self._peek()
        if first == "[":
            self._array(path)
        elif first == "{":
            self._inline_table(path)
        elif first in ("'", '"'):
            self._match(_STRING)
        else:
            self._match(_BARE)

    def _array(self, path: Path) -> None:
        self._take("[")
        number = 0
        while self._goes_on("]"):
            self._note((*path, number), self._at)
            self._value((*path, number))
            self._comma("]")
            number += 1
        self._take("]")

    def _inline_table(self, path: Path) -> None:
        self._take("{")
        while self._goes_on("}"):
            self._pair(path)
            self._comma("}")
        self._take("}")

    def _goes_on(self, end: str) -> bool:
        self._skip(_BLANK)
        return self._peek() != end

    def _comma(self, end: str) -> None:
        if self._goes_on(end):
            self._take(",")

    def _keys(self) -> list[str]:
        found = [self._key()]
        while self._peek() == ".":
            self._at += 1
            found.append(self._key())
        return found

    def _key(self) -> str:
        raw = self._match(_KEY).group(1)
        if raw[0] not in "\"'":
            return raw
        return next(iter(loads(f"{raw} = 0")))

    def _note(self, path: Path, at: int) -> None:
        if path not in self.lines:
            self.lines[path] = bisect_right(self._ends, at - 1) + 1

    def _peek(self) -> str:
        return self.text[self._at : self._at + 1]

    def _take(self, character: str) -> None:
        if self._peek() != character:
            raise _Lost
        self._at += 1

    def _skip(self, what: "re.Pattern[str]") -> int:
        self._at = self._match(what).end()
        return self._at

    def _match(self, what: "re.Pattern[str]") -> "re.Match[str]":
        found = what.match(self.text, self._at)
        if found is None:
            raise _Lost
        self._at = found.end()
        return found
