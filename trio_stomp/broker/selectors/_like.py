"""LIKE in selectors: patterns with ``%`` (any characters, or none) and ``_`` (any one).

A part between two ``%`` matches at its first occurrence, and the part after the last ``%`` must be
at the end. So there is no backtracking, and each part costs one search over the text. A part with
``_`` is searched at all positions at once: for each of its characters, an integer with a byte for
each character of the text has the positions where it occurs.
"""

from array import array
from collections.abc import Sequence
from itertools import zip_longest

from attrs import define, field

PATTERN_STEPS = 3
"""Steps for each character of the text to search all plain parts between two ``%``."""
STEP_S = 1.5e-9
CHAR_STEPS = 1
"""Steps for each character of the text, and each character of a part with ``_``."""
LONG_TEXT = 16 * 1024
"""The longest header of the default limits."""
MAX_STEPS = 2 * PATTERN_STEPS * LONG_TEXT
"""Limit of steps of all patterns in one selector: enough for two patterns with plain parts in the
longest header of the default limits."""

_Segment = list[str | None]
"""Consecutive characters; None = any one."""


@define(eq=False)
class _Holed:
    """A part of a LIKE pattern that contains ``_``.

    Args:
      size: Its length.
      runs: The texts between the ``_``.
      offsets: The index in the part at which each run begins.
    """

    size: int
    runs: list[str]
    offsets: "array[int]"

    def stands(self, text: str, index: int) -> bool:
        """Return whether it matches at an index of a text that is long enough."""
        for offset, run in zip(self.offsets, self.runs, strict=True):
            if not text.startswith(run, index + offset):
                return False
        return True


_Part = str | _Holed
"""A part of a pattern. Without ``_`` it is a plain text, to save memory."""


@define(eq=False)
class Like:
    """A compiled pattern.

    Args:
      first: The part before the first ``%``.
      last: The part after the last ``%``; None = there is no ``%``.
      middle: The parts between two ``%``, in order.
      most_chars: In longer texts ``middle`` is not searched.
    """

    first: _Part
    last: _Part | None
    middle: list[_Part]
    most_chars: int = field(init=False)

    def __attrs_post_init__(self) -> None:
        share([self])

    @property
    def steps(self) -> int:
        """Return the steps of a search for each character of the text."""
        holed = [part for part in self.middle if not isinstance(part, str)]
        chars = sum(len(run) for part in holed for run in part.runs)
        return PATTERN_STEPS * (len(self.middle) > len(holed)) + CHAR_STEPS * chars

    def matches(self, text: str) -> bool | None:
        """Return whether a whole text matches, or None if it is too long to search."""
        if self.last is None:
            return len(text) == _size(self.first) and _stands(self.first, text, 0)
        index, stop = _size(self.first), len(text) - _size(self.last)
        if stop < index or not (_stands(self.first, text, 0) and _stands(self.last, text, stop)):
            return False
        if self.middle and len(text) > self.most_chars:
            return None
        for part in self.middle:
            if isinstance(part, str):
                index = text.find(part, index, stop)
                size = len(part)
            else:
                index = _find(part, text, index, stop)
                size = part.size
            if index < 0:
                return False
            index += size
        return True


def like(pattern: str, escape: str) -> Like:
    """Compile a pattern.

    Args:
      pattern: The pattern of LIKE.
      escape: The character that makes a ``%`` or ``_`` after it literal; "" = none.
    """
    first, *rest = map(_part, _segments(pattern, escape))
    last = rest.pop() if rest else None
    return Like(first, last, [part for part in rest if part])


def share(likes: Sequence[Like]) -> None:
    """Limit the steps of all patterns of one selector together, by the length of texts."""
    steps = sum(each.steps for each in likes)
    for each in likes:
        each.most_chars = MAX_STEPS // max(1, steps)


def _segments(pattern: str, escape: str) -> list[_Segment]:
    """Return the parts between the ``%``."""
    segments: list[_Segment] = [[]]
    chars = zip_longest(pattern, pattern[1:], fillvalue="")
    for char, following in chars:
        if char == escape and following in ("%", "_", escape):
            segments[-1].append(following)
            next(chars)
        elif char == "%":
            segments.append([])
        else:
            segments[-1].append(None if char == "_" else char)
    return segments


def _part(segment: _Segment) -> _Part:
    if None not in segment:
        return "".join(char or "" for char in segment)
    runs, offsets, begin = [], array("L"), 0
    for index, char in enumerate([*segment, None]):
        if char is None:
            if begin < index:
                runs.append("".join(each or "" for each in segment[begin:index]))
                offsets.append(begin)
            begin = index + 1
    return _Holed(len(segment), runs, offsets)


def _size(part: _Part) -> int:
    return len(part) if isinstance(part, str) else part.size


def _stands(part: _Part, text: str, index: int) -> bool:
    return text.startswith(part, index) if isinstance(part, str) else part.stands(text, index)


_ZEROS = bytes(256)


def _find(part: _Holed, text: str, start: int, stop: int) -> int:
    """Return the first index of a part with ``_`` in ``text[start:stop]``, or -1."""
    count = stop - start - part.size + 1
    if count < 1 or not part.runs:
        return start if count > 0 else -1
    region = text[start:stop]
    size = len(region)
    # The first character is the highest byte, so the bit length has the first match.
    found = int.from_bytes(b"\1" * count + bytes(part.size - 1))
    positions: dict[str, int] = {}
    for offset, run in zip(part.offsets, part.runs, strict=True):
        for index, char in enumerate(run, offset):
            mask = positions.get(char)
            if mask is None:
                mask = positions[char] = int.from_bytes(_where(char, region))
            found &= mask << 8 * index
            if not found:
                return -1
    return start + size - 1 - (found.bit_length() - 1) // 8


def _where(char: str, text: str) -> bytes:
    """Return a byte for each character of a text: 1 where it is ``char``, otherwise 0."""
    if text.isascii():
        if not char.isascii():
            return b""
        code, data = ord(char), text.encode()
    else:
        code = 1
        if char != "\1":
            text = text.replace("\1", "\0").replace(char, "\1")
        data = text.encode("latin-1", "replace")
    return data.translate(_ZEROS[:code] + b"\1" + _ZEROS[code + 1 :])
