"""Patterns with several ``*`` before other words: all are matched at once, a bit for each.

In a trie each such ``*`` doubles the ways through it: 16,000 patterns of ``a`` and ``*`` took 18 ms
for a name. Here a name takes a few steps for each of its words, over numbers that have a bit for
each pattern, whatever the patterns are.
"""

import heapq
from collections.abc import Iterator
from itertools import compress
from typing import Generic, TypeVar

from attrs import define, field

from trio_stomp.broker.names._wildcards import ONE_WORD, Pattern, split

T = TypeVar("T")

_TRUTHS = bytes.maketrans(b"01", b"\0\1")

FEW = 8
SHARE = 2048
"""A set of so many patterns, or of such a share of all, is listed: a number of it would take more
memory than is charged for the words."""
_Key = tuple[str, int, str | None]
"""What is told of patterns: ``at`` a place stands a token (None = any word), or the tokens end
there, and how: ``plain``, ``rest`` behind a separator, ``glued`` text."""


@define(eq=False)
class _Bits:
    """A set of patterns, by their numbers."""

    few: "set[int] | None" = field(factory=set)
    many: int = 0

    def add(self, number: int, total: int) -> None:
        if self.few is None:
            self.many |= 1 << number
            return
        self.few.add(number)
        if len(self.few) > max(FEW, total // SHARE):
            self.many, self.few = self.all(), None

    def discard(self, number: int) -> bool:
        """Take a pattern out, and return whether none is left."""
        if self.few is None:
            self.many ^= 1 << number
            return not self.many
        self.few.discard(number)
        return not self.few

    def all(self) -> int:
        """Return the set as a number."""
        if self.few is None:
            return self.many
        data = bytearray(max(self.few) // 8 + 1)
        for number in self.few:
            data[number // 8] |= 1 << number % 8
        return int.from_bytes(data, "little")


@define(eq=False)
class Crowd(Generic[T]):
    """The crowded patterns of a ``WildcardTrie``, each of one token at least, with their items."""

    _items: "dict[int, dict[T, None]]" = field(factory=dict)
    _numbers: dict[Pattern, int] = field(factory=dict)
    _free: list[int] = field(factory=list)
    """Numbers below the greatest that no pattern has: a heap."""
    _sets: dict[_Key, _Bits] = field(factory=dict)
    _lengths: dict[int, dict[int, int]] = field(factory=dict)
    """Of glued texts, by the place where they begin: how many patterns have one of a length."""

    def add(self, pattern: Pattern, item: T) -> None:
        """Enter ``item``, which must not be there yet."""
        number = self._numbers.get(pattern)
        if number is None:
            number = heapq.heappop(self._free) if self._free else len(self._numbers)
            self._numbers[pattern] = number
            self._items[number] = {}
            for key in _keys(pattern):
                self._sets.setdefault(key, _Bits()).add(number, len(self._numbers))
            if pattern.glued is not None:
                lengths = self._lengths.setdefault(len(pattern.tokens), {})
                length = len(pattern.glued)
                lengths[length] = lengths.get(length, 0) + 1
        self._items[number][item] = None

    def remove(self, pattern: Pattern, item: T) -> None:
        """Take ``item`` out, and whatever nobody needs any more."""
        number = self._numbers[pattern]
        items = self._items[number]
        del items[item]
        if items:
            return
        del self._items[number], self._numbers[pattern]
        for key in _keys(pattern):
            if self._sets[key].discard(number):
                del self._sets[key]
        if pattern.glued is not None:
            self._forget_length(len(pattern.tokens), len(pattern.glued))
        if self._numbers:
            heapq.heappush(self._free, number)
        else:
            self._free.clear()

    def _forget_length(self, place: int, length: int) -> None:
        lengths = self._lengths[place]
        lengths[length] -= 1
        if not lengths[length]:
            del lengths[length]
        if not lengths:
            del self._lengths[place]

    def tables(self, name: str) -> "list[dict[T, None]]":
        """Return the items whose pattern matches ``name``, those of each pattern in a table."""
        if not self._numbers:
            return []
        tokens = split(name)
        alive, found, offset = -1, 0, 0
        for place, token in enumerate(tokens):
            is_word = place % 2 == 0
            if not is_word:
                found |= alive & self._set("rest", place, token)
            for length in self._lengths.get(place, ()):
                found |= alive & self._set("glued", place, name[offset : offset + length])
            here = self._set("at", place, token)
            if is_word and token:
                here |= self._set("at", place, ONE_WORD)
            alive &= here
            if not alive:
                break
            offset += len(token)
        else:
            place = len(tokens)
            ends = self._set("plain", place, None)
            found |= alive & (ends | self._set("rest", place, ".") | self._set("rest", place, "/"))
        return list(map(self._items.__getitem__, _numbers_in(found)))

    def _set(self, what: str, place: int, token: str | None) -> int:
        found = self._sets.get((what, place, token))
        return 0 if found is None else found.all()


def _keys(pattern: Pattern) -> Iterator[_Key]:
    for place, token in enumerate(pattern.tokens):
        yield "at", place, token
    end = len(pattern.tokens)
    if pattern.glued is not None:
        yield "glued", end, pattern.glued
    elif pattern.rest:
        yield "rest", end, pattern.rest
    else:
        yield "plain", end, None


def _numbers_in(bits: int) -> Iterator[int]:
    """Return the places of ones, the lowest first."""
    digits = bin(bits)[:1:-1].encode().translate(_TRUTHS)
    return compress(range(len(digits)), digits)
