"""Frees disk space: deletes the oldest segment once it has no live messages, or they are copied.

Segments are deleted in order of age only. So a record that revokes another one (Done, Forget,
DropPlace) is deleted after it, nothing reappears, and no references need tracking. The price is
that old messages are copied once more than half of the journal is dead: it takes at most twice the
live bytes, plus four segments.
"""

from collections.abc import Iterable
from contextlib import suppress

from attrs import define, field

from trio_stomp.store._records import Keep
from trio_stomp.store.journal._extents import Extent
from trio_stomp.store.journal._index import Index, Key
from trio_stomp.store.journal._reader import Chunk, Content
from trio_stomp.store.journal._shared import Shared
from trio_stomp.store.journal.format import Copy

FEW_SEGMENTS = 4
FREED_AT_ONCE = 2
"""Segments deleted with one append: each costs a sync, and an append begins at most one."""
SAMPLES = 4096
"""Extents sampled to estimate the live bytes."""


@define(eq=False)
class Piece:
    """Extents to remove, with the records that replace them.

    Args:
      left: Number of extents that remain after it.
    """

    extents: list[tuple[Key, Extent]] = field(factory=list)
    left: int = 0
    copies: list[Copy] = field(factory=list)
    settings: list[Keep] = field(factory=list)


@define(eq=False)
class Cleaner:
    """The remaining work in the oldest segment. Used by the appending thread alone.

    Args:
      is_cleaning: Live messages are copied out of the oldest segment.
      witness: An id in it that was live at the last check. While it is, no other id is checked.
    """

    _shared: Shared
    is_cleaning: bool = False
    _number: int = 0
    _work: list[tuple[Key, int]] = field(factory=list)
    _witness: int | None = None

    def judge(self, is_crowded: bool = False) -> None:
        """Decide whether too much of the journal is dead: more than half.

        Args:
          is_crowded: ``max_store_bytes`` is reached: more than a quarter is too much.
        """
        shared = self._shared
        most = shared.bytes * (0.75 if is_crowded else 0.5)
        if len(shared.segments) <= FEW_SEGMENTS:
            self.is_cleaning = False
            return
        with shared.lock:
            self.is_cleaning = living_bytes(shared.index) < most

    def free(self) -> None:
        """Delete the oldest segments without live messages, a few per call.

        Call it when all else is synced. It delays the append that it comes with.

        Raises:
          OSError: the disk failed; the next call continues.
        """
        shared = self._shared
        for _ in range(FREED_AT_ONCE):
            if len(shared.segments) <= 1:
                return
            oldest = next(iter(shared.segments.values()))
            if self._number != oldest.number:
                self._begin(oldest.number)
            if not self._is_dead():
                return
            if shared.index.settings_in(oldest.number):
                self.is_cleaning = True
                return
            with suppress(FileNotFoundError):
                shared.files.remove(oldest.path)
            # It must not reappear once the records that finished its messages are deleted.
            shared.files.sync_directory(shared.journal)
            with shared.lock:
                del shared.segments[oldest.number]

    def _begin(self, number: int) -> None:
        shared = self._shared
        with shared.lock:
            shared.index.coalesce()
            self._work = shared.index.in_segment(number)[::-1]
        self._number = number
        self._witness = None
        self.judge()

    def _is_dead(self) -> bool:
        """Return whether the segment has no live messages, and remove extents found dead."""
        index = self._shared.index
        while self._witness is None or self._witness not in index.live:
            if not self._work:
                return True
            key, first = self._work[-1]
            extent = self._get(key, first)
            self._witness = None if extent is None else self._find_witness(key, extent)
            if self._witness is None:
                self._work.pop()
                self._shared.remove(key, first)
        return False

    def _get(self, key: Key, first: int) -> Extent | None:
        # Readers may have removed a dead extent.
        with self._shared.lock:
            return self._shared.index.get(key, first)

    def _find_witness(self, key: Key, extent: Extent) -> int | None:
        """Return the last live id of an extent, which usually stays live longest."""
        last = self._shared.index.live.last_of(extent.ids)
        if last is None or extent.is_pure:
            return last
        content = self._shared.read_extent(key, extent)
        return max(self.living(content), default=None)

    def living(self, content: Content) -> Iterable[int]:
        """Return the live ids of an extent's messages."""
        live = self._shared.index.live
        return (id for chunk in content.chunks for id in chunk.run.ids if id in live)

    def next_piece(self, budget: int) -> Piece:
        """Return the next extents to copy, of about ``budget`` bytes, without removing them.

        The last piece of a segment includes its settings.
        """
        if not self.is_cleaning:
            return Piece()
        piece, position = Piece(), len(self._work)
        while position and budget > 0:
            position -= 1
            key, first = self._work[position]
            extent = self._get(key, first)
            if extent is None:
                continue
            content = self._shared.read_extent(key, extent)
            piece.extents.append((key, extent))
            piece.copies += self._copies(content)
            budget -= extent.end - extent.start
        piece.left = position
        if not position:
            piece.settings = self._shared.index.settings_in(self._number)
        return piece

    def give_up(self, piece: Piece) -> None:
        """Remove the extents of a piece whose copies were appended.

        The caller holds the lock, and applies the copies next.
        """
        if not piece.extents and not piece.settings:
            return
        for key, extent in piece.extents:
            self._shared.index.remove(key, extent.first)
        del self._work[piece.left :]
        self._witness = None

    def _copies(self, content: Content) -> Iterable[Copy]:
        for chunk in content.chunks:
            if copy := self._copy(chunk):
                yield copy

    def _copy(self, chunk: Chunk) -> Copy | None:
        run, live, counts = chunk.run, self._shared.index.live, self._shared.index.deliveries
        pairs = [(id, body) for id, body in zip(run.ids, chunk.bodies(), strict=True) if id in live]
        if not pairs:
            return None
        ids = [id for id, _ in pairs]
        return Copy(
            run.place,
            ids=ids,
            head=run.head,
            bodies=[body for _, body in pairs],
            level=run.level,
            received_ms=run.received_ms,
            expires_ms=run.expires_ms,
            transient=run.transient,
            deliveries=[counts.get(id, 0) for id in ids],
        )


def living_bytes(index: Index) -> int:
    """Estimate the bytes of live records in the journal, from a sample of extents."""
    step = index.extents // SAMPLES + 1
    total, position = 0, 0
    for extents in index.places.values():
        count = len(extents)
        while position < count:
            extent = extents[position]
            living = index.live.count_of(extent.ids)
            total += extent.own * min(living, extent.count) // extent.count
            position += step
        position -= count
    return total * step
