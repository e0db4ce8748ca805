"""JSON messages that hold nothing but strings: text in, the bytes of the strings out.

``["a","b"]`` and ``"ab"`` both say ``ab``. The text may come in any pieces; what is decoded is
handed on at once, so a message of any length keeps no more here than an escape that is not whole.
Nothing nests, so there is no depth to bound, and what comes out is never longer than what came in.

Spec: RFC 8259 section 7. Does not handle: bytes that are not UTF-8, frames, limits.
"""

import json
import re
from enum import Enum, auto

from attrs import define, field


class _Place(Enum):
    START = auto()
    FIRST = auto()
    """Behind the bracket."""
    NEXT = auto()
    """Behind a comma."""
    BEHIND = auto()
    """Behind a string of an array."""
    DONE = auto()


_STEPS = {
    (_Place.START, "["): _Place.FIRST,
    (_Place.START, '"'): _Place.DONE,
    (_Place.FIRST, '"'): _Place.BEHIND,
    (_Place.FIRST, "]"): _Place.DONE,
    (_Place.NEXT, '"'): _Place.BEHIND,
    (_Place.BEHIND, ","): _Place.NEXT,
    (_Place.BEHIND, "]"): _Place.DONE,
}

_SPACE = re.compile(r"[ \t\n\r]*+")
# Possessive: there is one way to read a string, and no other to go back to.
_PLAIN = r'[^"\\\x00-\x1f]*+'
_RUN = re.compile(_PLAIN + r'(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})' + _PLAIN + r")*+")
_CUT_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?")

_unescape = json.JSONDecoder().decode


@define(eq=False, repr=False)
class JsonStrings:
    """Reads messages, one behind the other, that are each a string or a flat array of strings.

    An empty message says nothing. Characters beyond the BMP may be cut into their surrogates, even
    over two strings or messages: they are put together again. A lone one becomes U+FFFD.
    """

    _place: _Place = field(default=_Place.START, init=False)
    _is_in_string: bool = field(default=False, init=False)
    _held: str = field(default="", init=False)
    """An escape that is not whole."""
    _half: str = field(default="", init=False)
    """The high surrogate that all before ends with, or nothing."""

    def feed(self, text: str, *, is_end: bool) -> bytes:
        """Return what the strings in ``text`` say, in UTF-8.

        Args:
          text: The text of a message.
          is_end: The message ends with this piece.

        Raises:
          ValueError: it is anything else: the peer's fault. The reader is of no more use then.
        """
        parts = [self._half]
        text = self._held + text
        self._held = ""
        position = 0
        while position < len(text):
            if self._is_in_string:
                position = self._read_string(text, position, parts)
            else:
                position = self._read_between(text, position)
        if is_end:
            if self._is_in_string or self._place not in (_Place.START, _Place.DONE):
                raise ValueError("the message ends too soon")
            self._place = _Place.START
        said = "".join(parts)
        self._half = said[-1:] if "\ud800" <= said[-1:] <= "\udbff" else ""
        return _encode(said[:-1] if self._half else said)

    def _read_between(self, text: str, position: int) -> int:
        found = _SPACE.match(text, position)
        assert found is not None  # it matches nothing, too
        position = found.end()
        if position == len(text):
            return position
        place = _STEPS.get((self._place, text[position]))
        if place is None:
            raise ValueError("it is neither a string nor an array of strings")
        self._place = place
        self._is_in_string = text[position] == '"'
        return position + 1

    def _read_string(self, text: str, position: int, parts: list[str]) -> int:
        found = _RUN.match(text, position)
        assert found is not None  # it matches nothing, too
        run, end = found[0], found.end()
        parts.append(_unescape(f'"{run}"') if "\\" in run else run)
        if end == len(text):
            return end
        if text[end] == '"':
            self._is_in_string = False
            return end + 1
        if _CUT_ESCAPE.fullmatch(text, end) is None:
            raise ValueError("a string has a control character, or an escape that JSON has not")
        self._held = text[end:]
        return len(text)


def _encode(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        # UTF-16 joins surrogates that belong together.
        halves = text.encode("utf-16-le", "surrogatepass")
        return halves.decode("utf-16-le", "replace").encode()
