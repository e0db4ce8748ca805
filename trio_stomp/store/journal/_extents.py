"""The positions of a place's messages: parts of segments, in arrays of numbers."""

from array import array
from collections.abc import Iterator, Sequence

from attrs import define, field

from trio_stomp.base import value

MAX_EXTENT_BYTES = 256 * 1024
"""Maximum length of an extent of merged records."""
MAX_EXTENT_IDS = 128 * 1024
"""Maximum range of ids in an extent, because a search for live ids walks it, 512 at a time."""
MANY_EXTENTS = 250_000
"""With each further 250,000 extents, an extent may hold more of other places' messages."""
SPARSE = 8
"""With fewer extents, at least 1/SPARSE of an extent's bytes are the place's own messages."""

FIRST, LAST, SEGMENT, START, END, COUNT, OWN, BODIES, KIND = range(9)
WIDTH = 9
COPIED, MIXED = 1, 2
"""Flags of an extent's kind."""


@value
class Extent:
    """A part of a segment with messages of a place's level.

    Args:
      first: Lowest id of its messages.
      last: Highest id.
      count: Number of messages, including finished ones.
      own: Bytes of their records; the rest belongs to other places.
      bodies: Bytes of their bodies.
      kind: COPIED if it has copies of older messages: ids between theirs may follow in other
        extents. MIXED if its messages are not in the order of their ids. 0 = neither.
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
        """Return the range of its ids."""
        return range(self.first, self.last + 1)

    @property
    def is_mixed(self) -> bool:
        """Return whether readers must sort its messages."""
        return bool(self.kind & MIXED)

    @property
    def is_pure(self) -> bool:
        """Return whether it holds a message for each id of ``ids``."""
        return self.count == self.last - self.first + 1


@define(eq=False)
class Extents:
    """The extents of one level of a place, by id. Their ids do not overlap."""

    _rows: "array[int]" = field(factory=lambda: array("Q"))
    _head: int = 0
    """Removed numbers at the front."""

    def __len__(self) -> int:
        return (len(self._rows) - self._head) // WIDTH

    def __iter__(self) -> Iterator[Extent]:
        return (self[position] for position in range(len(self)))

    def __getitem__(self, position: int) -> Extent:
        at = self._head + position * WIDTH
        return Extent(*self._rows[at : at + WIDTH])

    def add(self, extent: Extent, share: int) -> bool:
        """Add an extent, merged into the preceding one if possible.

        Args:
          extent: The extent of one record.
          share: At least 1/share of a merged extent's bytes must be the place's own.

        Returns:
          Whether the number of extents grew.
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
        """Merge messages with ids between those of an extent into it.

        This occurs within a batch: a transaction that overflows a full queue makes it move messages
        to its dead letters. Their records do not depend on the transaction, and precede it.
        """
        rows = self._rows
        rows[at + END] = max(rows[at + END], extent.end)
        rows[at + COUNT] += extent.count
        rows[at + OWN] += extent.own
        rows[at + BODIES] += extent.bodies
        rows[at + KIND] |= extent.kind | MIXED

    def _merge(self, at: int, extent: Extent, share: int, is_all: bool = False) -> bool:
        rows = self._rows
        # Readers walk an extent from start to end, and must meet ids in order. So the added extent
        # must follow it in the file, or be in the same transaction as its end. Copies may stand
        # among new messages.
        is_behind = extent.start >= rows[at + END]
        is_same_record = not is_all and extent.end == rows[at + END]
        length = extent.end - rows[at + START]
        own = rows[at + OWN] + extent.own
        # The parts of one record are read together anyway: apart, each would read all of it.
        is_near = is_behind and length <= MAX_EXTENT_BYTES and own * share >= length
        # Copies of messages with ids between a copy and its neighbours may be still to come. An
        # extent of both would overlap with theirs.
        may_gap = is_all or not (rows[at + KIND] or extent.kind)
        if (
            not (may_gap or rows[at + LAST] + 1 == extent.first)
            or rows[at + SEGMENT] != extent.segment
            or not (is_near or is_same_record)
            or extent.last - rows[at + FIRST] >= MAX_EXTENT_IDS
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
        """Merge neighbours, including copies, when no extent can come between them any more.

        Args:
          share: At least 1/share of a merged extent's bytes must be the place's own.
        """
        rows, self._rows, head, self._head = self._rows, array("Q"), self._head, 0
        for at in range(head, len(rows), WIDTH):
            extent = Extent(*rows[at : at + WIDTH])
            last = len(self._rows) - WIDTH
            if last < 0 or not self._merge(last, extent, share, is_all=True):
                self._rows.extend(rows[at : at + WIDTH])

    def position_after(self, id: int) -> int:
        """Return the position of the first extent that has a higher id."""
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
        """Return the position of the extent with this first id, or -1 if there is none."""
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
    """Return ``share`` of ``Extents.add``, which grows with the number of extents."""
    return SPARSE << 3 * (extents // MANY_EXTENTS)


def extent_of(
    ids: Sequence[int],
    segment: int,
    start: int,
    end: int,
    bodies: int,
    *,
    own: int = 0,
    is_copy: bool = False,
) -> Extent:
    """Return the extent of one record.

    Args:
      ids: The ids of its messages.
      segment: Number of its segment.
      start: Position of the record, or of the atomic group that it is a part of.
      end: Its end, or the group's.
      bodies: Total size of its bodies.
      own: Size of the record; 0 = it is no part of a group, and takes all from start to end.
      is_copy: Whether it is a Copy.
    """
    own, kind = own or end - start, COPIED if is_copy else 0
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
