"""Who is charged for the messages of a journal: added up while it is read at the start."""

from array import array
from collections.abc import Iterator, Sequence

from attrs import define, field

from trio_stomp.store.journal._id_set import IdSet
from trio_stomp.store.journal._index import LEVELS, Key

MAX_ROWS = 4_000_000
"""Rows, of 32 bytes each; what is found beyond them is nobody's until it is read."""
MAX_ROW_IDS = 1024
"""Messages of one row: what some of them cost is known by their number alone."""

FIRST, STOP, COST, OWNER = range(4)
WIDTH = 4


@define(eq=False)
class Tally:
    """For each place and level, rows: ids without a gap, what they cost, and who is charged."""

    count: int = 0
    """Of all rows."""
    _rows: "dict[Key, array[int]]" = field(factory=dict)
    _owners: dict[bytes, int] = field(factory=dict)
    _lines: list[bytes] = field(factory=list)

    def add(self, key: Key, ids: range, cost: int, line: bytes) -> None:
        """Add messages, whose ids have no gap.

        Args:
          key: The key.
          ids: Their ids.
          cost: Their cost, in bytes.
          line: Tells who is charged.
        """
        rows = self._rows.get(key)
        if rows is None:
            rows = self._rows[key] = array("Q")
        owner = self._owners.get(line)
        if owner is None:
            owner = self._owners[line] = len(self._lines)
            self._lines.append(line)
        goes_on = rows and rows[-WIDTH + OWNER] == owner and rows[-WIDTH + STOP] == ids.start
        if goes_on and ids.stop - rows[-WIDTH + FIRST] <= MAX_ROW_IDS:
            rows[-WIDTH + STOP] = ids.stop
            rows[-WIDTH + COST] += cost
        elif self.count < MAX_ROWS:
            self.count += 1
            rows.extend((ids.start, ids.stop, cost, owner))

    def drop(self, place: str) -> None:
        """Forget all that has come to a place."""
        for level in LEVELS:
            rows = self._rows.pop((place, level), None)
            if rows is not None:
                self.count -= len(rows) // WIDTH

    def living(self, key: Key, live: IdSet) -> dict[bytes, int]:
        """Return what the living messages of a place's level cost, by who is charged."""
        charged: dict[bytes, int] = {}
        rows = self._rows.get(key, ())
        for at in range(0, len(rows), WIDTH):
            ids = range(rows[at + FIRST], rows[at + STOP])
            if count := live.count_of(ids):
                line = self._lines[rows[at + OWNER]]
                cost = rows[at + COST] * count // len(ids)
                charged[line] = charged.get(line, 0) + cost
        return charged


def stretches(ids: Sequence[int]) -> Iterator[range]:
    """Yield growing ids as ranges without a gap."""
    if isinstance(ids, range):
        yield ids
        return
    first = last = ids[0]
    for id in ids[1:]:
        if id != last + 1:
            yield range(first, last + 1)
            first = id
        last = id
    yield range(first, last + 1)
