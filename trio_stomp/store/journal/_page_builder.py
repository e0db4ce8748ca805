"""Builds a page of live messages from extents, up to a limit."""

from attrs import define, field

from trio_stomp.base import value
from trio_stomp.store._port import Stored
from trio_stomp.store.journal._extents import Extent
from trio_stomp.store.journal._index import Index
from trio_stomp.store.journal._reader import Chunk, Content
from trio_stomp.store.journal.format import split


@value
class Cursor:
    """The position within an extent where a page ended and the next one continues.

    Args:
      after: The last id of the page.
      first: The first id of the extent, by which it is known: others may have its position.
      segment: The extent's segment.
      offset: The position in the segment.
    """

    after: int
    first: int
    segment: int
    offset: int


@define(eq=False)
class PageBuilder:
    """A page under construction.

    Args:
      after: Messages to come have higher ids.
      room: Remaining bytes for bodies; the first message always fits.
      cursor: Where the previous page ended; then where this one does.
    """

    after: int
    room: int
    runs: list[Stored] = field(factory=list)
    is_full: bool = False
    cursor: Cursor | None = None

    def start_in(self, extent: Extent) -> int:
        """Return where to start reading an extent: its start, or the end of the last page."""
        cursor = self.cursor
        if cursor is None or cursor.after != self.after:
            return extent.start
        is_here = (cursor.first, cursor.segment) == (extent.first, extent.segment)
        return cursor.offset if is_here else extent.start

    def take(self, content: Content, extent: Extent, index: Index) -> None:
        """Add the live messages read from an extent. The caller holds the lock."""
        end = content.end
        for chunk in content.chunks:
            self._take_chunk(chunk, index)
            if self.is_full:
                end = chunk.offset
                break
            self.after = max(self.after, chunk.run.ids[-1])
        else:
            if content.is_all:
                self.after = max(self.after, extent.last)
        self.cursor = Cursor(self.after, extent.first, extent.segment, end)

    def _take_chunk(self, chunk: Chunk, index: Index) -> None:
        run, lengths = chunk.run, chunk.run.lengths()
        ids, live = run.ids, index.live
        is_whole = isinstance(ids, range) and ids[0] > self.after and live.has_all(ids)
        if is_whole and sum(lengths) < self.room:
            bodies = split(chunk.data, chunk.bodies_at, lengths)
            self.room -= sum(lengths)
            self._add(chunk, list(ids), bodies, index)
            return
        taken, bodies, at = [], [], chunk.bodies_at
        for id, length in zip(ids, lengths, strict=True):
            if id > self.after and (is_whole or id in live):
                taken.append(id)
                bodies.append(chunk.data[at : at + length])
                self.room -= length
                if self.room <= 0:
                    self.is_full = True
                    break
            at += length
        self._add(chunk, taken, bodies, index)

    def _add(self, chunk: Chunk, ids: list[int], bodies: list[bytes], index: Index) -> None:
        """Add messages, split into runs with one delivery count each."""
        run, counts = chunk.run, index.deliveries
        start = 0
        while start < len(ids):
            end, count = len(ids), counts.get(ids[start], 0)
            if counts:
                end = start + 1
                while end < len(ids) and counts.get(ids[end], 0) == count:
                    end += 1
            part = slice(start, end)
            self.runs.append(
                Stored(
                    ids[part],
                    bodies=bodies[part],
                    head=run.head,
                    received_ms=run.received_ms,
                    expires_ms=run.expires_ms,
                    deliveries=count,
                )
            )
            start = end
        if ids:
            self.after = ids[-1]
