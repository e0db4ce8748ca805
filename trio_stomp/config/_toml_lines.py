"""The line numbers of the keys of a TOML file, which ``tomllib`` does not provide.

The text is already known to be valid TOML. So this parses only as much as it needs to find the
keys: strings, comments, arrays, inline tables.
"""

import re
from bisect import bisect_right
from collections.abc import Mapping
from contextlib import suppress
from tomllib import loads

from attrs import define, field

Path = tuple[str | int, ...]
"""Keys from the outermost on; a number is an index in an array."""

_BLANK = re.compile(r"(?:[ \t\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_KEY = re.compile(r"""[ \t]*([A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')[ \t]*""")
_STRING = re.compile(
    # Up to two quotes may precede the three that end a multi-line string.
    r"""\"{3}(?:[^\\]|\\.)*?\"{3,5}|'{3}.*?'{3,5}|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'""",
    re.DOTALL,
)
_BARE = re.compile(r"[^,\]}#\n]*")


def lines_of(text: str) -> dict[Path, int]:
    """Return the line of each key, table and element of an array, counted from 1.

    Args:
      text: TOML. For other text the result is incomplete.

    Limits: linear in the text; keys nested deeper than Python's recursion limit are omitted.
    """
    scanner = _Scanner(text.replace("\r\n", "\n"))
    with suppress(_Lost, ValueError, RecursionError):  # an error without its line is still useful
        scanner.scan()
    return scanner.lines


def line_of(lines: Mapping[Path, int], path: Path) -> int:
    """Return the line of a key or of its nearest parent, or 0."""
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path, 0)


class _Lost(Exception):
    """The text is not TOML, or not understood."""


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
        """Parse the whole text.

        Raises:
          _Lost: at the first unknown syntax.
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
