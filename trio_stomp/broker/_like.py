"""LIKE of selectors: texts with ``%`` (any characters, or none) and ``_`` (any one).

What stands between two ``%`` is taken where it first fits, for good, and what follows the last one
is looked for at the end alone: no way back, so the work is that of one search over the text for
each part, and all searches together go over it once.
"""

import re
from collections.abc import Callable
from itertools import zip_longest

Matcher = Callable[[str], bool]

_Segment = list[str | None]
"""Characters in a row; None for any one."""
_Find = Callable[[str, int, int], int]
"""Where a segment first fits in a text, from a place on and before another; -1 = nowhere."""

SHORT = 64
"""So many characters with ``_`` among them are looked for by a regular expression."""


def like(pattern: str, escape: str) -> Matcher:
    """What tells whether a whole text matches a LIKE pattern.

    Args:
      escape: The character before a ``%`` or ``_`` that stands for itself; "" = none.

    Limits: the work for a text is bounded by its length times ``SHORT``; with a longer segment that
    holds ``_`` by its length times that of the segment, 64 characters at a time.
    """
    first, *rest = _segments(pattern, escape)
    begins = _at(first)
    size = len(first)
    if not rest:
        return lambda text: len(text) == size and begins(text, 0)
    last = rest.pop()
    ends, end_size = _at(last), len(last)
    middle = [(_finder(segment), len(segment)) for segment in rest if segment]

    def matches(text: str) -> bool:
        stop = len(text) - end_size
        if stop < size or not begins(text, 0) or not ends(text, stop):
            return False
        place = size
        for part, length in middle:
            if isinstance(part, str):
                place = text.find(part, place, stop)
            else:
                place = part(text, place, stop)
            if place < 0:
                return False
            place += length
        return True

    return matches


def _segments(pattern: str, escape: str) -> list[_Segment]:
    """What stands between the ``%``."""
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


def _literal(segment: _Segment) -> str | None:
    """The text of a segment without ``_``."""
    return None if None in segment else "".join(char or "" for char in segment)


def _regex(segment: _Segment) -> "re.Pattern[str]":
    return re.compile("".join("." if char is None else re.escape(char) for char in segment), re.S)


def _at(segment: _Segment) -> Callable[[str, int], bool]:
    """What tells whether a segment stands at a place of a text that is long enough."""
    literal = _literal(segment)
    if literal is not None:
        return lambda text, place: text.startswith(literal, place)
    match = _regex(segment).match
    return lambda text, place: match(text, place) is not None


def _finder(segment: _Segment) -> str | _Find:
    """How a segment is found; a plain text says it by itself, and takes no more memory."""
    literal = _literal(segment)
    if literal is not None:
        return literal
    if len(segment) <= SHORT:
        search = _regex(segment).search

        def find(text: str, start: int, stop: int) -> int:
            found = search(text, start, stop)
            return -1 if found is None else found.start()

        return find
    return _parallel(segment)


def _parallel(segment: _Segment) -> _Find:
    """Looks for a long segment with ``_`` in it: all its places at once, a bit for each."""
    size, any_one = len(segment), 0
    masks: dict[str, int] = {}
    for place, char in enumerate(segment):
        if char is None:
            any_one |= 1 << place
        else:
            masks[char] = masks.get(char, 0) | 1 << place
    masks = {char: mask | any_one for char, mask in masks.items()}
    whole = 1 << size - 1

    def find(text: str, start: int, stop: int) -> int:
        begun = 0
        for place in range(start, stop):
            begun = (begun << 1 | 1) & masks.get(text[place], any_one)
            if begun & whole:
                return place - size + 1
        return -1

    return find
