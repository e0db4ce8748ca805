"""The state that a journal's appending thread shares with its readers, under one lock."""

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from attrs import evolve

from trio_stomp.store._port import Page, StoreError
from trio_stomp.store._records import Atomic, Put, Record
from trio_stomp.store.disk import Files, Quarantine
from trio_stomp.store.journal._extents import Extent, extent_of
from trio_stomp.store.journal._index import Index, Key
from trio_stomp.store.journal._page_builder import Cursor, PageBuilder
from trio_stomp.store.journal._reader import EVERYTHING, Content, Reader
from trio_stomp.store.journal.format import Copy, Small, run_bytes

if TYPE_CHECKING:
    from trio_stomp.store.journal._segment import Segment

MAX_CURSORS = 1000
"""Maximum number of places whose last page's end is remembered."""


class Shared:
    """The segments and their index. The lock is never held during disk operations.

    Only the appending thread changes it, and may read it without the lock. Readers only finish
    messages that they find damaged.
    """

    def __init__(self, directory: str, files: Files) -> None:
        self.files = files
        self.journal = f"{directory}/journal"
        self.quarantine = Quarantine(f"{directory}/damaged", files)
        self.lock = threading.Lock()
        self.index = Index()
        self.segments: dict[int, Segment] = {}
        """Segments by number, oldest first."""
        self.keeps_small = False
        """Keep messages of small places that are appended, too: the store follows another one."""
        self._reader = Reader(files, self.quarantine)
        self._cursors: dict[Key, Cursor] = {}

    @property
    def bytes(self) -> int:
        """Return the size of all segments."""
        return sum(segment.end for segment in tuple(self.segments.values()))

    def apply(self, record: Record | Copy, segment: int, start: int, end: int) -> None:
        """Apply an appended record to the index. The caller holds the lock.

        Args:
          record: The record.
          segment: Number of its segment.
          start: Position of the record in the segment.
          end: Its end.
        """
        index = self.index
        if isinstance(record, Atomic):
            for part in record.records:
                self.apply(part, segment, start, end)
        elif isinstance(record, Copy):
            size = sum(map(len, record.bodies))
            extent = extent_of(record.ids, segment, start, end, size, is_copy=True)
            index.add(record.place, record.level, extent)
        elif isinstance(record, Put):
            if count := len(record.bodies):
                ids = range(record.first, record.first + count)
                size = sum(map(len, record.bodies))
                own = run_bytes(record, size)
                extent = extent_of(ids, segment, start, end, size, own=own)
                if self.keeps_small:
                    index.keep_small(record, ids, record.bodies)
                expires_ms = record.expires_ms
                index.put(record.place, record.level, ids, extent, expires_ms=expires_ms)
                if record.deliveries:
                    index.set_deliveries(ids, (record.deliveries,) * count)
        elif isinstance(record, Small):
            index.apply(record, segment)

    def remove(self, key: Key, first: int) -> None:
        """Remove an extent without live messages."""
        with self.lock:
            self.index.remove(key, first)

    def sweep(self) -> None:
        """Finish messages of dropped places in extents that they share with other places.

        Raises:
          OSError: the disk failed; the next call continues.
        """
        while self.index.dropped:
            key, extent = self.index.dropped[-1]
            content = self.read_extent(key, extent)
            with self.lock:
                for chunk in content.chunks:
                    self.index.finish(chunk.run.ids)
                self.index.dropped.pop()

    def read(self, key: Key, after: int, limit_bytes: int) -> Page:
        """Implement ``Store.read``."""
        with self.lock:
            if not after and self.index.small.holds(key):
                page = self.index.small.take(key, self.index.deliveries)
                return evolve(page, lost=self.index.lost.pop(key, 0))
            builder = PageBuilder(after, limit_bytes, cursor=self._cursors.pop(key, None))
        while not builder.is_full:
            with self.lock:
                extent = self.index.find(key, builder.after)
            if extent is None:
                break
            try:
                start = builder.start_in(extent)
                content = self.read_extent(key, extent, builder.room, builder.after, start)
            except FileNotFoundError as error:
                if self._is_still_there(key, extent):
                    raise StoreError(f"{self.journal} cannot be read: {error}") from error
            except OSError as error:
                raise StoreError(f"{self.journal} cannot be read: {error}") from error
            else:
                with self.lock:
                    builder.take(content, extent, self.index)
        with self.lock:
            is_last = self.index.find(key, builder.after) is None
            lost = self.index.lost.pop(key, 0)
            if not is_last and builder.cursor is not None:
                if len(self._cursors) >= MAX_CURSORS:
                    self._cursors.clear()
                self._cursors[key] = builder.cursor
        return Page(builder.runs, builder.after, is_last, lost)

    def _is_still_there(self, key: Key, extent: Extent) -> bool:
        """Return whether the index still has the extent in the same segment."""
        with self.lock:
            found = self.index.get(key, extent.first)
        return found is not None and found.segment == extent.segment

    def read_extent(
        self, key: Key, extent: Extent, limit: int = EVERYTHING, after: int = 0, start: int = 0
    ) -> Content:
        """Read an extent as ``Reader.read`` does. Damaged messages are finished and counted.

        Raises:
          FileNotFoundError: the segment was deleted.
          OSError: the disk failed.
        """
        with self.lock:
            segment = self.segments.get(extent.segment)
        if segment is None:
            raise FileNotFoundError(f"segment {extent.segment} is not there any more")
        content = self._reader.read(
            segment,
            key=key,
            extent=extent,
            living=self._living,
            limit_bytes=limit,
            after=after,
            start=start,
        )
        if content.lost:
            with self.lock:
                lost = [id for id in content.lost if id in self.index.live]
                self.index.finish(lost)
                self.index.lost[key] += len(lost)
        return content

    def _living(self, ids: range) -> Iterable[int]:
        with self.lock:
            return list(self.index.live.members_of(ids))
