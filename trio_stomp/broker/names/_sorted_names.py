"""Names in order, so that those with one beginning are found without a look at the others."""

from bisect import bisect_left, bisect_right, insort

from attrs import define, field

CHUNK_SIZE = 512
"""Names that stand together; twice as many are parted. To move so many takes less than 1 µs."""


@define(eq=False, repr=False)
class SortedNames:
    """A set of names in order. What is read of it stays right while others come and go."""

    _chunks: list[list[str]] = field(factory=list)
    """None of them is empty."""

    def __len__(self) -> int:
        return sum(map(len, self._chunks))

    def add(self, name: str) -> None:
        """Put a name in its place. It must not be there yet."""
        if not self._chunks:
            self._chunks.append([])
        place = self._place(name)
        chunk = self._chunks[place]
        insort(chunk, name)
        if len(chunk) > 2 * CHUNK_SIZE:
            self._chunks[place : place + 1] = [chunk[:CHUNK_SIZE], chunk[CHUNK_SIZE:]]

    def discard(self, name: str) -> None:
        """Take a name out that is there."""
        place = self._place(name)
        chunk = self._chunks[place]
        del chunk[bisect_left(chunk, name)]
        if not chunk:
            del self._chunks[place]

    def since(self, name: str) -> list[str]:
        """Return some names from ``name`` on, in order, or none if there are no more."""
        if not self._chunks:
            return []
        place = self._place(name)
        chunk = self._chunks[place]
        found = chunk[bisect_left(chunk, name) :]
        if not found and place + 1 < len(self._chunks):
            return self._chunks[place + 1][:]
        return found

    def _place(self, name: str) -> int:
        """Which chunk a name belongs into."""
        return max(0, bisect_right(self._chunks, name, key=_first) - 1)


def _first(chunk: list[str]) -> str:
    return chunk[0] if chunk else ""
