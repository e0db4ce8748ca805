"""Incremental decoder for JSON messages that are strings or flat arrays of strings.

``["a","b"]`` and ``"ab"`` both decode to ``ab``. The text may arrive in any pieces, and is returned
as soon as it is decoded: at most an incomplete escape is buffered. Arrays do not nest, so no limit
of depth is needed, and the output is never longer than the input.

Spec: RFC 8259 section 7. Does not handle: bytes that are not UTF-8, frames, limits.
"""

import json
import re
from enum import Enum, auto

from attrs import define, field


class _State(Enum):
    START = auto()
    FIRST = auto()
    """After the bracket."""
    NEXT = auto()
    """After a comma."""
    BEHIND = auto()
    """After a string of an array."""
    DONE = auto()


_STEPS = {
    (_State.START, "["): _State.FIRST,
    (_State.START, '"'): _State.DONE,
    (_State.FIRST, '"'): _State.BEHIND,
    (_State.FIRST, "]"): _State.DONE,
    (_State.NEXT, '"'): _State.BEHIND,
    (_State.BEHIND, ","): _State.NEXT,
    (_State.BEHIND, "]"): _State.DONE,
}

_SPACE = re.compile(r"[ \t\n\r]*+")
# Possessive quantifiers: a string matches in one way only, so backtracking is useless.
_PLAIN = r'[^"\\\x00-\x1f]*+'
_RUN = re.compile(_PLAIN + r'(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})' + _PLAIN + r")*+")
_CUT_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?")

_unescape = json.JSONDecoder().decode


@define(eq=False, repr=False)
class JsonStrings:
    """Reads consecutive messages, each of which is a string or a flat array of strings.

    A message may be empty. Characters beyond the BMP may be split into surrogates, even across
    strings or messages, and are joined. A lone surrogate becomes U+FFFD.
    """

    _state: _State = field(default=_State.START, init=False)
    _is_in_string: bool = field(default=False, init=False)
    _held: str = field(default="", init=False)
    """An incomplete escape."""
    _half: str = field(default="", init=False)
    """The high surrogate at the end of the input so far, or ""."""

    def feed(self, text: str, *, is_end: bool) -> bytes:
        """Return the content of the strings in ``text``, in UTF-8.

        Args:
          text: A piece of a message.
          is_end: The message ends with this piece.

        Raises:
          ValueError: the message is anything else. The reader must not be used any more.
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
            if self._is_in_string or self._state not in (_State.START, _State.DONE):
                raise ValueError("the message ends too soon")
            self._state = _State.START
        content = "".join(parts)
        self._half = content[-1:] if "\ud800" <= content[-1:] <= "\udbff" else ""
        return _encode(content[:-1] if self._half else content)

    def _read_between(self, text: str, position: int) -> int:
        found = _SPACE.match(text, position)
        assert found is not None  # it also matches the empty string
        position = found.end()
        if position == len(text):
            return position
        state = _STEPS.get((self._state, text[position]))
        if state is None:
            raise ValueError("it is neither a string nor an array of strings")
        self._state = state
        self._is_in_string = text[position] == '"'
        return position + 1

    def _read_string(self, text: str, position: int, parts: list[str]) -> int:
        found = _RUN.match(text, position)
        assert found is not None  # it also matches the empty string
        run, end = found[0], found.end()
        parts.append(_unescape(f'"{run}"') if "\\" in run else run)
        if end == len(text):
            return end
        if text[end] == '"':
            self._is_in_string = False
            return end + 1
        if _CUT_ESCAPE.fullmatch(text, end) is None:
            raise ValueError(
                "a string has a control character, or an escape that JSON does not have"
            )
        self._held = text[end:]
        return len(text)


def _encode(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        # Encoding in UTF-16 joins pairs of surrogates.
        halves = text.encode("utf-16-le", "surrogatepass")
        return halves.decode("utf-16-le", "replace").encode()
