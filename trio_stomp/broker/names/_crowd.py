"""Matching of patterns with several ``*`` before other words, by bit sets.

In a trie each such ``*`` doubles the branches: 16,000 patterns of ``a`` and ``*`` took 18 ms for a
name. Here a name takes a few operations for each of its words, on integers with a bit for each
pattern.
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
"""Sets of up to FEW patterns, or one in SHARE of all, are kept as a ``set``: an integer would take
more memory than is charged for the words."""
_Key = tuple[str, int, str | None]
"""A property of patterns, an index of tokens, and a token. ``at``: the token is at this index (None
= any word). ``plain``, ``rest`` or ``glued``: the tokens end there, in this way."""


@define(eq=False)
class _Bits:
    """A set of patterns by number: ``few`` while it is small, then the bits of ``many``."""

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
        """Remove a pattern, and return whether the set is empty."""
        if self.few is None:
            self.many ^= 1 << number
            return not self.many
        self.few.discard(number)
        return not self.few

    def all(self) -> int:
        """Return the set as an integer with a bit for each pattern."""
        if self.few is None:
            return self.many
        data = bytearray(max(self.few) // 8 + 1)
        for number in self.few:
            data[number // 8] |= 1 << number % 8
        return int.from_bytes(data, "little")


@define(eq=False)
class Crowd(Generic[T]):
    """The patterns of a ``WildcardTrie`` with several ``*``, and their items."""

    _items: "dict[int, dict[T, None]]" = field(factory=dict)
    _numbers: dict[Pattern, int] = field(factory=dict)
    _free: list[int] = field(factory=list)
    """Unused numbers, as a heap."""
    _sets: dict[_Key, _Bits] = field(factory=dict)
    _lengths: dict[int, dict[int, int]] = field(factory=dict)
    """Index where a glued text begins → its length → the number of patterns."""

    def add(self, pattern: Pattern, item: T) -> None:
        """Add ``item``, which must not be there yet."""
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
        """Remove ``item``, and its pattern if no item is left."""
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

    def _forget_length(self, index: int, length: int) -> None:
        lengths = self._lengths[index]
        lengths[length] -= 1
        if not lengths[length]:
            del lengths[length]
        if not lengths:
            del self._lengths[index]

    def tables(self, name: str) -> "list[dict[T, None]]":
        """Return the items whose patterns match ``name``, in one table for each pattern."""
        if not self._numbers:
            return []
        tokens = split(name)
        candidates, found, offset = -1, 0, 0
        for index, token in enumerate(tokens):
            is_word = index % 2 == 0
            if not is_word:
                found |= candidates & self._set("rest", index, token)
            for length in self._lengths.get(index, ()):
                found |= candidates & self._set("glued", index, name[offset : offset + length])
            matching = self._set("at", index, token)
            if is_word and token:
                matching |= self._set("at", index, ONE_WORD)
            candidates &= matching
            if not candidates:
                break
            offset += len(token)
        else:
            index = len(tokens)
            ends = self._set("plain", index, None)
            found |= candidates & (
                ends | self._set("rest", index, ".") | self._set("rest", index, "/")
            )
        return list(map(self._items.__getitem__, _numbers_in(found)))

    def _set(self, kind: str, index: int, token: str | None) -> int:
        found = self._sets.get((kind, index, token))
        return 0 if found is None else found.all()


def _keys(pattern: Pattern) -> Iterator[_Key]:
    for index, token in enumerate(pattern.tokens):
        yield "at", index, token
    end = len(pattern.tokens)
    if pattern.glued is not None:
        yield "glued", end, pattern.glued
    elif pattern.rest:
        yield "rest", end, pattern.rest
    else:
        yield "plain", end, None


def _numbers_in(bits: int) -> Iterator[int]:
    """Return the positions of the one bits, lowest first."""
    digits = bin(bits)[:1:-1].encode().translate(_TRUTHS)
    return compress(range(len(digits)), digits)
