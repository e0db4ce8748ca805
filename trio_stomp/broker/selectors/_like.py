"""LIKE of selectors: texts with ``%`` (any characters, or none) and ``_`` (any one).

What stands between two ``%`` is taken where it first fits, for good, and what follows the last one
is looked for at the end alone: no way back, so the work is that of one search over the text for
each part. A part with ``_`` in it is looked for at all places at once: for each of its characters
the places where that stands are one long number, a byte for each character of the text.
"""

from array import array
from collections.abc import Sequence
from itertools import zip_longest

from attrs import define, field

PATTERN_STEPS = 3
"""For each character of the text: to look for what stands between two ``%``, in turn. A step takes
some 1.5 ns."""
CHAR_STEPS = 1
"""And for each character that stands between two ``%`` together with a ``_``."""
MAX_STEPS = 2 * PATTERN_STEPS * 16 * 1024
"""So many steps may all patterns of one selector take: two plain ones look for what stands between
two ``%`` in the longest header that there is by default."""

_Segment = list[str | None]
"""Characters in a row; None for any one."""


@define(eq=False)
class _Holed:
    """A part of a LIKE pattern between two ``%`` that contains ``_``.

    Args:
      runs: Its characters in a row, with ``_`` between them.
      offsets: Where each of the rows begins in it.
    """

    size: int
    runs: list[str]
    offsets: "array[int]"

    def stands(self, text: str, place: int) -> bool:
        """Return whether it fits at a place of a text that is long enough."""
        for offset, run in zip(self.offsets, self.runs, strict=True):
            if not text.startswith(run, place + offset):
                return False
        return True


_Part = str | _Holed
"""A part without ``_`` is a plain text, and takes no more memory."""


@define(eq=False)
class Like:
    """A compiled pattern.

    Args:
      first: What a text must begin with.
      last: What it must end with, behind the first ``%``; None = there is no ``%``.
      middle: What must stand between two ``%`` each, in order.
      most_chars: Texts that are longer are not looked through for the ``middle``.
    """

    first: _Part
    last: _Part | None
    middle: list[_Part]
    most_chars: int = field(init=False)

    def __attrs_post_init__(self) -> None:
        share([self])

    @property
    def steps(self) -> int:
        """Return the cost of looking through a text, for each character of it."""
        holed = [part for part in self.middle if not isinstance(part, str)]
        chars = sum(len(run) for part in holed for run in part.runs)
        return PATTERN_STEPS * (len(self.middle) > len(holed)) + CHAR_STEPS * chars

    def matches(self, text: str) -> bool | None:
        """Return whether a whole text matches, or None if it is too long to be sure this way."""
        if self.last is None:
            return len(text) == _size(self.first) and _stands(self.first, text, 0)
        place, stop = _size(self.first), len(text) - _size(self.last)
        if stop < place or not (_stands(self.first, text, 0) and _stands(self.last, text, stop)):
            return False
        if self.middle and len(text) > self.most_chars:
            return None
        for part in self.middle:
            if isinstance(part, str):
                place = text.find(part, place, stop)
                size = len(part)
            else:
                place = _find(part, text, place, stop)
                size = part.size
            if place < 0:
                return False
            place += size
        return True


def like(pattern: str, escape: str) -> Like:
    """Compile a pattern.

    Args:
      pattern: The pattern of LIKE.
      escape: The character before a ``%`` or ``_`` that stands for itself; "" = none.
    """
    first, *rest = map(_part, _segments(pattern, escape))
    last = rest.pop() if rest else None
    return Like(first, last, [part for part in rest if part])


def share(likes: Sequence[Like]) -> None:
    """Bound the work of all patterns of one selector together, by the length of the texts."""
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
    for place, char in enumerate([*segment, None]):
        if char is None:
            if begin < place:
                runs.append("".join(each or "" for each in segment[begin:place]))
                offsets.append(begin)
            begin = place + 1
    return _Holed(len(segment), runs, offsets)


def _size(part: _Part) -> int:
    return len(part) if isinstance(part, str) else part.size


def _stands(part: _Part, text: str, place: int) -> bool:
    return text.startswith(part, place) if isinstance(part, str) else part.stands(text, place)


_ZEROS = bytes(256)


def _find(part: _Holed, text: str, start: int, stop: int) -> int:
    """Return where a part with ``_`` first fits in a text, between two places, or -1."""
    count = stop - start - part.size + 1
    if count < 1 or not part.runs:
        return start if count > 0 else -1
    region = text[start:stop]
    size = len(region)
    # The first character is the highest byte: what is first is found by the number's length.
    found = int.from_bytes(b"\1" * count + bytes(part.size - 1))
    known: dict[str, int] = {}
    for offset, run in zip(part.offsets, part.runs, strict=True):
        for place, char in enumerate(run, offset):
            lanes = known.get(char)
            if lanes is None:
                lanes = known[char] = int.from_bytes(_where(char, region))
            found &= lanes << 8 * place
            if not found:
                return -1
    return start + size - 1 - (found.bit_length() - 1) // 8


def _where(char: str, text: str) -> bytes:
    """Return a byte for each character of a text: 1 where it is ``char``, else 0."""
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
