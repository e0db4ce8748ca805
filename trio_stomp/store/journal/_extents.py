"""The positions of a place's messages: stretches of segments, in arrays of numbers."""

from array import array
from collections.abc import Iterator, Sequence

from attrs import define, field

from trio_stomp.base import value

MAX_EXTENT_BYTES = 256 * 1024
"""Runs are merged into an extent until it has this length."""
MAX_EXTENT_IDS = 128 * 1024
"""Or until its ids are so far apart: who lives in it is sought id by id, 512 at a time."""
MANY_EXTENTS = 250_000
"""From so many extents on, more of other places' messages is suffered in an extent."""
SPARSE = 8
"""At least this part of an extent are the place's own messages, while extents are few."""

FIRST, LAST, SEGMENT, START, END, COUNT, OWN, BODIES, KIND = range(9)
WIDTH = 9
COPIED, MIXED = 1, 2
"""Of an extent's kind."""


@value
class Extent:
    """A stretch of a segment in which messages of a place's level stand.

    Args:
      first: Id of the first one; all ids lie between it and ``last``.
      count: How many came with it.
      own: Bytes of their records; the others are other places'.
      bodies: Bytes of their bodies.
      kind: COPIED if some are copies of older ones: others may come between them and their
        neighbours later. MIXED if they do not all stand in the order of their ids. 0 = neither.
    """

    first: int
    last: int
    segment: int
    start: int
    end: int
    count: int
    own: int
    bodies: int
    kind: int = 0

    @property
    def ids(self) -> range:
        """Return all ids that can be in it."""
        return range(self.first, self.last + 1)

    @property
    def is_mixed(self) -> bool:
        """Return whether readers must sort its messages."""
        return bool(self.kind & MIXED)

    @property
    def is_pure(self) -> bool:
        """Return whether it holds all of ``ids``, and no message of another place."""
        return self.count == self.last - self.first + 1


@define(eq=False)
class Extents:
    """The extents of one level of a place, by id: no two of them overlap."""

    _rows: "array[int]" = field(factory=lambda: array("Q"))
    _head: int = 0
    """Numbers at the front that are given up."""

    def __len__(self) -> int:
        return (len(self._rows) - self._head) // WIDTH

    def __iter__(self) -> Iterator[Extent]:
        return (self[position] for position in range(len(self)))

    def __getitem__(self, position: int) -> Extent:
        at = self._head + position * WIDTH
        return Extent(*self._rows[at : at + WIDTH])

    def add(self, extent: Extent, share: int) -> bool:
        """Add messages, merged into the extent before them where that saves space.

        Args:
          extent: The extent.
          share: The place's own messages are to be at least one in so many bytes.

        Returns:
          Whether it is one extent more.
        """
        rows = self._rows
        at = len(rows)
        if at > self._head and extent.first <= rows[at - WIDTH + LAST]:
            at = self._head + self.position_after(extent.first) * WIDTH
            if rows[at + FIRST] < extent.first and rows[at + SEGMENT] == extent.segment:
                self._mix(at, extent)
                return False
        if at > self._head and self._merge(at - WIDTH, extent, share):
            return False
        row = (
            extent.first,
            extent.last,
            extent.segment,
            extent.start,
            extent.end,
            extent.count,
            extent.own,
            extent.bodies,
            extent.kind,
        )
        rows[at:at] = array("Q", row)
        return True

    def _mix(self, at: int, extent: Extent) -> None:
        """Take messages in whose ids are between those of an extent.

        They come in a transaction, and those around them in the same batch: what a transaction
        makes a full queue drop to the dead letters holds without it, and stands before it.
        """
        rows = self._rows
        rows[at + END] = max(rows[at + END], extent.end)
        rows[at + COUNT] += extent.count
        rows[at + OWN] += extent.own
        rows[at + BODIES] += extent.bodies
        rows[at + KIND] |= extent.kind | MIXED

    def _merge(self, at: int, extent: Extent, share: int, is_all: bool = False) -> bool:
        rows = self._rows
        # Who reads an extent goes from its start to its end, and must meet the ids in order: what
        # comes next stands behind it, or in the transaction that it ends with. Copies that were
        # made while new messages came stand among these.
        is_behind = extent.start >= rows[at + END]
        is_same_record = not is_all and extent.end == rows[at + END]
        length = extent.end - rows[at + START]
        own = rows[at + OWN] + extent.own
        # Between a copy and its neighbours there may be messages of older segments, or there were,
        # and their copies are still to come: an extent over both would overlap with theirs.
        may_gap = is_all or not (rows[at + KIND] or extent.kind)
        if (
            not (may_gap or rows[at + LAST] + 1 == extent.first)
            or rows[at + SEGMENT] != extent.segment
            or not (is_behind or is_same_record)
            or length > MAX_EXTENT_BYTES
            or extent.last - rows[at + FIRST] >= MAX_EXTENT_IDS
            or own * share < length
        ):
            return False
        rows[at + LAST] = extent.last
        rows[at + END] = extent.end
        rows[at + COUNT] += extent.count
        rows[at + OWN] = own
        rows[at + BODIES] += extent.bodies
        rows[at + KIND] |= extent.kind
        return True

    def coalesce(self, share: int) -> None:
        """Merge neighbours that stand in order, copies too: whatever there is, is there."""
        rows, self._rows, head, self._head = self._rows, array("Q"), self._head, 0
        for at in range(head, len(rows), WIDTH):
            extent = Extent(*rows[at : at + WIDTH])
            last = len(self._rows) - WIDTH
            if last < 0 or not self._merge(last, extent, share, is_all=True):
                self._rows.extend(rows[at : at + WIDTH])

    def position_after(self, id: int) -> int:
        """Return the position of the first extent with an id above this one."""
        rows, head = self._rows, self._head
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if rows[head + middle * WIDTH + LAST] > id:
                high = middle
            else:
                low = middle + 1
        return low

    def find(self, first: int) -> int:
        """Return the position of the extent that begins with this id, or -1 if there is none."""
        position = self.position_after(first - 1)
        at = self._head + position * WIDTH
        return position if at < len(self._rows) and self._rows[at] == first else -1

    def remove(self, position: int) -> None:
        """Remove the extent at a position. This is cheap at the front."""
        if position:
            at = self._head + position * WIDTH
            del self._rows[at : at + WIDTH]
            return
        self._head += WIDTH
        if self._head * 2 >= len(self._rows):
            del self._rows[: self._head]
            self._head = 0

    def firsts_in(self, segment: int) -> Iterator[int]:
        """Yield the first ids of the extents in a segment."""
        rows, head = self._rows, self._head
        if segment not in rows[head + SEGMENT :: WIDTH]:
            return
        for at in range(head, len(rows), WIDTH):
            if rows[at + SEGMENT] == segment:
                yield rows[at]


def share_for(extents: int) -> int:
    """Return how much of an extent other keys may own. It grows with the number of extents."""
    return SPARSE << 3 * (extents // MANY_EXTENTS)


def extent_of(
    ids: Sequence[int], segment: int, start: int, end: int, bodies: int, *, is_copy: bool = False
) -> Extent:
    """Return the extent of a single record. ``bodies`` is the size of the messages' bodies."""
    own, kind = end - start, COPIED if is_copy else 0
    return Extent(
        ids[0],
        last=ids[-1],
        segment=segment,
        start=start,
        end=end,
        count=len(ids),
        own=own,
        bodies=bodies,
        kind=kind,
    )
