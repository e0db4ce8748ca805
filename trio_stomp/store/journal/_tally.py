"""The cost of messages by charged user: added up during recovery, or kept up to date."""

from array import array
from collections.abc import Iterable, Iterator, Sequence

from attrs import define, field

from trio_stomp.store._records import Atomic, DropPlace, Put, Turn, charged_to, stored_cost
from trio_stomp.store.journal._id_set import IdSet
from trio_stomp.store.journal._index import LEVELS, Key

MAX_ROWS = 4_000_000
"""Maximum number of rows, of 32 bytes each. Further messages are charged when they are read."""
FEW_ROWS = 65_536
"""Up to this number, rows of messages that have ended may stay."""
MAX_ROW_IDS = 1024
"""Maximum number of messages in a row. The cost of some of them is proportional to their number."""

FIRST, STOP, COST, OWNER = range(4)
WIDTH = 4


@define(eq=False)
class Tally:
    """Rows for each place and level: contiguous ids, their cost, and the charged user."""

    count: int = 0
    """Number of rows."""
    _rows: "dict[Key, array[int]]" = field(factory=dict)
    _owners: dict[bytes, int] = field(factory=dict)
    _lines: list[bytes] = field(factory=list)
    _prune_at: int = 0

    def add(self, key: Key, ids: range, cost: int, line: bytes) -> None:
        """Add messages with contiguous ids.

        Args:
          key: Their place and level.
          ids: Their ids.
          cost: Their total cost, in bytes.
          line: The header line that names the charged user.
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

    def note(self, turns: Iterable[Turn]) -> None:
        """Add what turns bring, when they were appended."""
        for turn in turns:
            for record in turn.records:
                for each in record.records if isinstance(record, Atomic) else (record,):
                    self._note(each)

    def _note(self, record: object) -> None:
        if isinstance(record, DropPlace):
            self.drop(record.place)
        elif isinstance(record, Put) and not record.transient:
            line, count = charged_to(record.head), len(record.bodies)
            if line:
                cost = stored_cost(len(record.head), count, sum(map(len, record.bodies)))
                ids = range(record.first, record.first + count)
                self.add((record.place, record.level), ids, cost, line)

    def prune(self, live: IdSet) -> None:
        """Remove the rows of messages that have ended, if many may have."""
        if self.count < self._prune_at:
            return
        for key, rows in self._rows.items():
            left = array("Q")
            for at in range(0, len(rows), WIDTH):
                if live.count_of(range(rows[at + FIRST], rows[at + STOP])):
                    left.extend(rows[at : at + WIDTH])
            self._rows[key] = left
        self._rows = {key: rows for key, rows in self._rows.items() if rows}
        self.count = sum(map(len, self._rows.values())) // WIDTH
        self._prune_at = max(FEW_ROWS, 2 * self.count)

    def drop(self, place: str) -> None:
        """Remove all rows of a place."""
        for level in LEVELS:
            rows = self._rows.pop((place, level), None)
            if rows is not None:
                self.count -= len(rows) // WIDTH

    def living(self, key: Key, live: IdSet) -> dict[bytes, int]:
        """Return the cost of the live messages of a place's level, by the user's header line."""
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
    """Yield ascending ids as ranges without gaps."""
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
