"""The set of live message ids, which takes little memory where ids are dense."""

from collections.abc import Iterable, Iterator, Sequence

from attrs import define, field

CHUNK_SHIFT = 9
CHUNK_IDS = 1 << CHUNK_SHIFT
CHUNK_MASK = CHUNK_IDS - 1
FULL = (1 << CHUNK_IDS) - 1


@define(eq=False)
class IdSet:
    """A set of ids, as one int of 512 bits for each chunk of 512 ids.

    A million dense ids take 400 KB, and full chunks take the dict's slots only, as they share one
    int. Ranges are added, removed and counted by chunks.
    """

    count: int = 0
    _chunks: dict[int, int] = field(factory=dict)

    def __contains__(self, id: int) -> bool:
        return bool(self._chunks.get(id >> CHUNK_SHIFT, 0) >> (id & CHUNK_MASK) & 1)

    def add(self, ids: Sequence[int]) -> None:
        """Add ids. A ``range`` is added in one step."""
        if len(ids) == 1:
            self._add_one(ids[0])
            return
        for key, mask in _masks(ids):
            chunk = self._chunks.get(key, 0)
            self.count += (mask & ~chunk).bit_count()
            chunk |= mask
            self._chunks[key] = FULL if chunk == FULL else chunk

    def _add_one(self, id: int) -> None:
        key, mask = id >> CHUNK_SHIFT, 1 << (id & CHUNK_MASK)
        chunk = self._chunks.get(key, 0)
        if not chunk & mask:
            self.count += 1
            chunk |= mask
            self._chunks[key] = FULL if chunk == FULL else chunk

    def remove(self, ids: Sequence[int]) -> None:
        """Remove the ids that are present. A ``range`` is removed in one step."""
        for key, mask in _masks(ids):
            chunk = self._chunks.get(key, 0)
            if found := chunk & mask:
                self.count -= found.bit_count()
                if found == chunk:
                    del self._chunks[key]
                else:
                    self._chunks[key] = chunk ^ found

    def count_of(self, ids: range) -> int:
        """Return how many ids of a range are in the set."""
        chunks = self._chunks
        return sum((chunks.get(key, 0) & mask).bit_count() for key, mask in _range_masks(ids))

    def first_of(self, ids: range) -> int | None:
        """Return the smallest id of a range that is in the set."""
        for key, mask in _range_masks(ids):
            if found := self._chunks.get(key, 0) & mask:
                return (key << CHUNK_SHIFT) + (found & -found).bit_length() - 1
        return None

    def last_of(self, ids: range) -> int | None:
        """Return the greatest id of a range that is in the set."""
        last = None
        for key, mask in _range_masks(ids):
            if found := self._chunks.get(key, 0) & mask:
                last = (key << CHUNK_SHIFT) + found.bit_length() - 1
        return last

    def has_all(self, ids: range) -> bool:
        """Return whether all ids of a range are in the set."""
        return all(self._chunks.get(key, 0) & mask == mask for key, mask in _range_masks(ids))

    def members_of(self, ids: range) -> Iterator[int]:
        """Yield the ids of a range that are in the set, in ascending order."""
        for key, mask in _range_masks(ids):
            found = self._chunks.get(key, 0) & mask
            while found:
                yield (key << CHUNK_SHIFT) + (found & -found).bit_length() - 1
                found &= found - 1


def _masks(ids: Sequence[int]) -> Iterable[tuple[int, int]]:
    if isinstance(ids, range) and ids.step == 1:
        return _range_masks(ids)
    return ((id >> CHUNK_SHIFT, 1 << (id & CHUNK_MASK)) for id in ids)


def _range_masks(ids: range) -> Iterable[tuple[int, int]]:
    """Return the keys of the chunks that a range touches, with its bits in each."""
    first, stop = ids.start, ids.stop
    key = first >> CHUNK_SHIFT
    if stop - first == 1:
        return ((key, 1 << (first & CHUNK_MASK)),)
    if stop <= (key + 1) << CHUNK_SHIFT:
        return ((key, ((1 << max(stop - first, 0)) - 1) << (first & CHUNK_MASK)),)
    return _many_masks(first, stop)


def _many_masks(first: int, stop: int) -> Iterator[tuple[int, int]]:
    key, last = first >> CHUNK_SHIFT, stop >> CHUNK_SHIFT
    yield key, FULL >> (first & CHUNK_MASK) << (first & CHUNK_MASK)
    for between in range(key + 1, last):
        yield between, FULL
    if stop & CHUNK_MASK:
        yield last, (1 << (stop & CHUNK_MASK)) - 1
