"""Reads messages back from a segment, and reports damage."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator

from attrs import define, field

from trio_stomp.store._port import StoreError
from trio_stomp.store.disk import Files, Quarantine
from trio_stomp.store.journal._extents import Extent
from trio_stomp.store.journal._scan import DAMAGED, TORN, scan
from trio_stomp.store.journal._segment import Segment
from trio_stomp.store.journal.format import (
    ATOMIC,
    COPY,
    PUT,
    Found,
    Run,
    bad_ids,
    decode_run,
    nested_in,
    split,
)

Key = tuple[str, int]
Living = Callable[[range], Iterable[int]]
EVERYTHING = 1 << 62


@define(eq=False)
class Chunk:
    """The messages of one Put or Copy in a file, verified.

    Args:
      offset: Position of the record in the segment.
      bodies_at: Position of the bodies in ``data``.
      bad: Ids with damaged bodies.
    """

    offset: int
    run: Run
    data: bytes
    bodies_at: int
    bad: frozenset[int]

    def bodies(self) -> list[bytes]:
        """Return all bodies, in the order of the run's ids."""
        return split(self.data, self.bodies_at, self.run.lengths())


@define(eq=False)
class Content:
    """The content read from an extent.

    Args:
      chunks: Chunks of the requested place and level, in order.
      lost: Ids of damaged messages, as far as known.
      end: Position in the segment where reading ended.
      is_all: Whether that is the extent's end.
    """

    chunks: list[Chunk]
    lost: set[int]
    end: int
    is_all: bool


def runs_in(found: Found) -> Iterator[tuple[Run, Found]]:
    """Yield the runs of a Put, Copy or Atomic. An Atomic must be whole."""
    for inner in nested_in(found) if found.kind == ATOMIC else (found,):
        if inner.kind in (PUT, COPY):
            yield decode_run(inner), inner


@define(eq=False)
class Reader:
    """Reads extents, opening the segment for each read."""

    _files: Files
    _quarantine: Quarantine

    def read(
        self,
        segment: Segment,
        key: Key,
        extent: Extent,
        living: Living,
        *,
        limit_bytes: int = EVERYTHING,
        after: int = 0,
        start: int = 0,
    ) -> Content:
        """Read a place's messages from an extent.

        Args:
          segment: The segment of the extent.
          key: The place and level.
          extent: The extent to read.
          living: Returns the live ids of a range.
          limit_bytes: Stop after the record that reaches this size of bodies. A mixed extent is
            always read as a whole.
          after: Omit messages with ids up to this one.
          start: Position of the first record to read, if after the extent's start.

        Raises:
          FileNotFoundError: the segment was deleted.
          OSError: the disk failed.
          StoreError: it has fewer messages than the index counts, and nothing is damaged.
        """
        after = max(after, extent.first - 1)
        if extent.is_mixed:
            limit_bytes, start = EVERYTHING, 0
        wanted = range(after + 1, extent.last + 1)
        reading = _Reading(key, living, after, wanted, limit_bytes)
        start = end = max(start, extent.start)
        is_whole = start == extent.start and wanted == extent.ids
        handle = self._files.open(segment.path)
        try:
            for found in scan(self._files, handle, segment.marker, start, extent.end):
                end = found.end
                if what := reading.take(found):
                    size = found.end - found.offset
                    self._quarantine.set_aside(handle, segment.path, found.offset, size, what)
                if reading.room <= 0:
                    break
        finally:
            self._files.close(handle)
        if end == extent.end:
            reading.close_gap(extent.last + 1)
            expected = len(wanted) if extent.is_pure else extent.count if is_whole else 0
            if reading.count < expected and not reading.has_gaps:
                raise StoreError(
                    f"{segment.path}: {reading.count} of {expected} messages of {key[0]}, level"
                    f" {key[1]}, were found from {start} to {end} (ids {after + 1} to"
                    f" {extent.last}). The index is wrong: report this, and keep the directory"
                )
        if extent.is_mixed or (reading.has_copies and not extent.is_pure):
            reading.lost = reading.bad
        if extent.is_mixed:
            reading.chunks.sort(key=lambda chunk: chunk.run.ids[0])
        return Content(reading.chunks, reading.lost, end, end == extent.end)


@define(eq=False)
class _Reading:
    """The state of reading an extent.

    Records are in the order of their ids. So live ids between those of the neighbours of a damaged
    record were in it, unless the extent has copies, which are older than their neighbours.
    """

    _key: Key
    _living: Living
    _before: int
    _wanted: range
    room: int
    chunks: list[Chunk] = field(factory=list)
    bad: set[int] = field(factory=set)
    lost: set[int] = field(factory=set)
    has_copies: bool = False
    has_gaps: bool = False
    """Records were damaged, so that their messages are unknown."""
    count: int = 0
    """Number of the wanted messages found, including finished ones."""
    _is_gap: bool = False

    def take(self, found: Found) -> str:
        """Add a record, and return a description of its damage, or ""."""
        if found.kind in (DAMAGED, TORN):
            self._is_gap = self.has_gaps = True
            return "no valid record"
        if found.kind not in (PUT, COPY, ATOMIC):
            return ""
        if found.kind == ATOMIC and not found.is_whole():
            self._is_gap = self.has_gaps = True
            return "damaged transaction"
        self.has_copies |= found.kind == COPY
        return "; ".join(
            filter(None, (self._take_run(found.offset, *pair) for pair in runs_in(found)))
        )

    def _take_run(self, offset: int, run: Run, found: Found) -> str:
        self.close_gap(run.ids[0])
        self._before = run.ids[-1]
        wanted = self._wanted
        # Extents of copied and of new messages may share a part of the file.
        if run.ids[-1] < wanted.start or run.ids[0] >= wanted.stop:
            return ""
        if (run.place, run.level) != self._key:
            return ""
        bad = frozenset() if found.is_whole() else bad_ids(run, found)
        self.count += bisect_left(run.ids, wanted.stop) - bisect_left(run.ids, wanted.start)
        # Ids of a copy outside this extent may be live in others, undamaged.
        ours = {id for id in bad if id in wanted}
        self.bad |= ours
        self.lost |= ours
        self.room -= found.bodies_end - found.bodies_at
        self.chunks.append(Chunk(offset, run, found.data, found.bodies_at, bad))
        return f"{len(bad)} damaged messages" if bad else ""

    def close_gap(self, id: int) -> None:
        """Count live ids before this one as lost, if damage precedes it."""
        if self._is_gap:
            self.lost.update(self._living(range(self._before + 1, id)))
            self._is_gap = False
