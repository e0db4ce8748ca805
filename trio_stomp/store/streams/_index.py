"""The segments of a stream in memory, by offset and time."""

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import islice

from attrs import frozen

from trio_stomp.store.streams._segment import Extent, Segment, SegmentEnd


@frozen
class LogEnd:
    """The end of a log at some moment: a segment and a position in it. None: no segment yet."""

    segment: Segment | None
    end: SegmentEnd | None
    next: int


class StreamIndex:
    """The segments, oldest first, with a lock that is never held during disk operations.

    One thread adds, marks and removes; another may compress; any thread may read.

    Args:
      next: Offset of the next message to be appended.
    """

    def __init__(self, segments: Iterable[Segment] = ()) -> None:
        self._segments = list(segments)
        self._lock = threading.Lock()
        self._packing: Segment | None = None
        self.next = self._segments[-1].next if self._segments else 0
        self._mark = self._end()

    @property
    def tail(self) -> Segment | None:
        """Return the newest segment."""
        return self._segments[-1] if self._segments else None

    # For the appending thread.

    def add_segment(self, segment: Segment) -> None:
        """Add a new segment at the end."""
        with self._lock:
            if self._segments:
                segment.last_ms = self._segments[-1].last_ms
            self._segments.append(segment)

    def add_runs(self, runs: Sequence[tuple[int, int, int, int, int]]) -> None:
        """Add records to the newest segment, each as ``Segment.add_run`` takes it."""
        with self._lock:
            tail = self._segments[-1]
            for run in runs:
                tail.add_run(*run)
            tail.bytes = tail.end
            self.next = tail.next

    def mark(self) -> None:
        """Remember the current end for ``cut``. Older segments may be compressed from now on."""
        with self._lock:
            self._mark = self._end()

    def _end(self) -> LogEnd:
        tail = self.tail
        return LogEnd(tail, tail.state() if tail else None, self.next)

    def cut(self) -> list[Segment]:
        """Remove records added since ``mark``, and return the segments added since then."""
        with self._lock:
            mark = self._mark
            self.next = mark.next
            remaining = 0
            if mark.segment is not None and mark.end is not None:
                mark.segment.cut(mark.end)
                remaining = self._segments.index(mark.segment) + 1
            newer = self._segments[remaining:]
            del self._segments[remaining:]
            return newer

    def pop_oldest(self, before: int) -> Segment | None:
        """Remove and return the oldest full segment if it ends before an offset. Else return None.

        A claimed segment stays.
        """
        with self._lock:
            oldest = next(iter(self._full()), None)
            if oldest is None or oldest is self._packing or oldest.next > before:
                return None
            return self._segments.pop(0)

    def _full(self) -> list[Segment]:
        """Return the segments that are never appended to again, even after ``cut``."""
        newest = self._mark.segment
        return self._segments[: self._segments.index(newest)] if newest else []

    def put_back(self, oldest: Segment) -> None:
        """Insert a segment that ``pop_oldest`` removed."""
        with self._lock:
            self._segments.insert(0, oldest)

    def clear(self) -> None:
        """Remove all segments."""
        with self._lock:
            self._segments.clear()
            self._mark = self._end()

    # For the compressing thread.

    def claim_raw(self) -> Segment | None:
        """Claim the oldest full, uncompressed segment. It is not removed until it is released."""
        with self._lock:
            self._packing = next((full for full in self._full() if not full.is_packed), None)
            return self._packing

    def replace(self, claimed: Segment, other: Segment) -> None:
        """Replace the claimed segment by another one, which is then claimed."""
        with self._lock:
            self._segments[self._segments.index(claimed)] = self._packing = other

    def release(self) -> None:
        """Release the claimed segment."""
        with self._lock:
            self._packing = None

    # For any thread.

    def holds(self, segment: Segment) -> bool:
        """Return whether the log still has a segment."""
        with self._lock:
            return segment in self._segments

    def find(self, offset: int) -> Extent | None:
        """Return the extent that holds an offset, or else the first one after it."""
        with self._lock:
            start = bisect_right(self._segments, offset, key=lambda segment: segment.next)
            for segment in islice(self._segments, start, None):
                if segment.offsets:
                    return segment.extent(segment.extent_at(offset))
        return None

    def find_time(self, written_ms: int) -> Extent | None:
        """Return the first extent that may hold a message written at that time or later."""
        with self._lock:
            start = bisect_left(self._segments, written_ms, key=lambda segment: segment.last_ms)
            for segment in islice(self._segments, start, None):
                if segment.offsets:
                    return segment.extent(segment.extent_of(written_ms))
        return None

    def figures(self) -> tuple[int, int, int]:
        """Return the first offset, the next offset, and the bytes of all files."""
        with self._lock:
            first = next((s.offsets[0] for s in self._segments if s.offsets), self.next)
            return first, self.next, sum(segment.bytes for segment in self._segments)
