"""Sorted names, to find those with a common prefix."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Sequence

from attrs import define, field

from trio_stomp.broker.names._trie import matches
from trio_stomp.broker.names._wildcards import Pattern, beginning

CHUNK_SIZE = 512
"""Names of one chunk, which is split at twice as many. Moving this many takes less than 1 µs."""


@define(eq=False, repr=False)
class SortedNames:
    """A sorted set of names. It may change between two calls of ``since``."""

    _chunks: list[list[str]] = field(factory=list)
    """Consecutive sorted lists, none of them empty."""

    def __len__(self) -> int:
        return sum(map(len, self._chunks))

    def add(self, name: str) -> None:
        """Insert a name. It must not be there yet."""
        if not self._chunks:
            self._chunks.append([])
        index = self._index_of(name)
        chunk = self._chunks[index]
        insort(chunk, name)
        if len(chunk) > 2 * CHUNK_SIZE:
            self._chunks[index : index + 1] = [chunk[:CHUNK_SIZE], chunk[CHUNK_SIZE:]]

    def discard(self, name: str) -> None:
        """Remove a name. It must be there."""
        index = self._index_of(name)
        chunk = self._chunks[index]
        del chunk[bisect_left(chunk, name)]
        if not chunk:
            del self._chunks[index]

    def since(self, name: str) -> list[str]:
        """Return the next names from ``name`` on, in order. [] means that there are no more."""
        if not self._chunks:
            return []
        index = self._index_of(name)
        chunk = self._chunks[index]
        found = chunk[bisect_left(chunk, name) :]
        if not found and index + 1 < len(self._chunks):
            return self._chunks[index + 1][:]
        return found

    def _index_of(self, name: str) -> int:
        """Return the index of the chunk for a name."""
        return max(0, bisect_right(self._chunks, name, key=_first) - 1)


def walk(pattern: Pattern, since: Callable[[str], Sequence[str]]) -> Iterator[str | None]:
    """Yield the names that a pattern matches, in order, and None for others.

    Names may come and go between two steps.

    Args:
      pattern: A compiled wildcard.
      since: Returns the next names from a name on, in order; empty = no more.
    """
    start = following = beginning(pattern)
    while names := since(following):
        for name in names:
            if not name.startswith(start):
                return
            yield name if matches(pattern, name) else None
        following = names[-1] + "\0"


def _first(chunk: list[str]) -> str:
    return chunk[0] if chunk else ""
