"""Gathers a page: what lives of what was read, up to a limit."""

from attrs import define, field

from trio_stomp._value import value
from trio_stomp.store._decode import split
from trio_stomp.store._extents import Extent
from trio_stomp.store._index import Index
from trio_stomp.store._port import Stored
from trio_stomp.store._reader import Chunk, Content


@value
class Stand:
    """Where a page ended: what is wanted next stands in this record, or behind it."""

    after: int
    segment: int
    offset: int


@define(eq=False)
class Taking:
    """A page that is being filled.

    Args:
      after: What comes next has ids above this.
      room: Bytes of bodies that may still come; the first message always may.
    """

    after: int
    room: int
    runs: list[Stored] = field(factory=list)
    is_full: bool = False
    _segment: int = 0
    _offset: int = 0

    @property
    def stand_now(self) -> Stand:
        """Where it ends."""
        return Stand(self.after, self._segment, self._offset)

    def stand(self, stand: Stand | None) -> None:
        """Begin where an earlier page ended, if this one is to follow it."""
        if stand is not None and stand.after == self.after:
            self._segment, self._offset = stand.segment, stand.offset

    def start_in(self, extent: Extent) -> int:
        """Where to begin to read an extent."""
        is_here = self._segment == extent.segment and extent.start <= self._offset < extent.end
        return self._offset if is_here else extent.start

    def take(self, content: Content, extent: Extent, index: Index) -> None:
        """Take what lives of what was read of an extent. To be called under the lock."""
        self._segment = extent.segment
        for chunk in content.chunks:
            self._offset = chunk.offset
            self._take_chunk(chunk, index)
            if self.is_full:
                return
            self.after = max(self.after, chunk.run.ids[-1])
        self._offset = content.end
        if content.is_all:
            self.after = max(self.after, extent.last)

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
        """Add messages; a ``Stored`` has one count of deliveries."""
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
                Stored(ids[part], bodies[part], run.head, run.received_ms, run.expires_ms, count)
            )
            start = end
        if ids:
            self.after = ids[-1]
