"""The segment that the journal writes to."""

from collections.abc import Sequence
from contextlib import suppress
from secrets import token_bytes
from time import perf_counter
from zlib import crc32

from attrs import define, field

from trio_stomp.store._records import Atomic, Keep, Put, Record
from trio_stomp.store.disk import Files
from trio_stomp.store.journal._segment import Segment, create_segment, name_segment
from trio_stomp.store.journal.format import (
    COMMIT_BYTES,
    MARKER_BYTES,
    Commit,
    Copy,
    encode,
    encode_commit,
)


@define(eq=False)
class Batch:
    """The bytes of one append.

    Args:
      marker: The segment's marker.
      next_id: Greater than every id used so far.
      entries: Each record, with its start and end in the batch.
      grows: It has messages or settings, which take disk space until they are finished.
    """

    marker: bytes
    next_id: int
    entries: list[tuple[Record | Copy, int, int]] = field(factory=list)
    size: int = COMMIT_BYTES
    grows: bool = False
    _buffers: list[bytes] = field(factory=lambda: [b""])
    _check: int = 0

    def add(self, record: Record | Copy) -> None:
        """Add a record, unless it is empty or concerns a stream."""
        buffers = self._buffers
        head = len(buffers)
        if size := encode(record, self.marker, buffers):
            # The head includes the CRC of the bodies, so a CRC of the heads covers everything.
            self._check = crc32(buffers[head], self._check)
            self.entries.append((record, self.size, self.size + size))
            self.size += size
            for part in record.records if isinstance(record, Atomic) else (record,):
                if isinstance(part, Put):
                    self.next_id = max(self.next_id, part.first + len(part.bodies))
                    self.grows = True
                elif isinstance(part, Keep):
                    self.grows = True

    def buffers(
        self, commit: int, turns: int, synced: int, *, is_closed: bool = False
    ) -> Sequence[bytes]:
        """Return all bytes, beginning with the commit record.

        Args:
          commit: The commit number of the last turn.
          turns: The number of turns.
          synced: The part of the segment that is on the disk now, in bytes.
          is_closed: Whether the store is being closed.
        """
        leader = Commit(
            commit,
            turns=turns,
            length=self.size,
            next_id=self.next_id,
            synced=synced,
            check=self._check,
            is_closed=is_closed,
        )
        self._buffers[0] = encode_commit(leader, self.marker)
        return self._buffers


@define(eq=False)
class Tail:
    """Writes, syncs and truncates the newest segment. All methods may raise OSError.

    Args:
      synced: The part of the segment that is on the disk, in bytes.
      syncs: Number of syncs.
      sync_s: Their total time.
    """

    _files: Files
    segment: Segment
    _handle: int
    synced: int
    syncs: int = 0
    sync_s: float = 0.0

    @classmethod
    def begin(cls, files: Files, directory: str, number: int, commit: int, next_id: int) -> "Tail":
        """Create a new segment. A failure leaves at most a file without records."""
        segment = name_segment(directory, number, token_bytes(MARKER_BYTES))
        try:
            handle = create_segment(files, segment, commit, next_id)
        except OSError:
            with suppress(OSError):
                files.remove(segment.path)
            raise
        return cls(files, segment, handle, segment.end)

    @property
    def is_synced(self) -> bool:
        """Return whether everything written is on the disk."""
        return self.synced == self.segment.end

    def write(self, buffers: Sequence[bytes], size: int) -> None:
        """Write ``buffers``, of ``size`` bytes in total, at the end. A failed write is void."""
        self._files.write(self._handle, self.segment.end, buffers)
        self.segment.end += size

    def cut_back(self) -> None:
        """Remove what a failed write left behind."""
        self._files.truncate(self._handle, self.segment.end)

    def sync(self) -> None:
        """Wait for the disk."""
        start = perf_counter()
        self._files.sync(self._handle)
        self.syncs += 1
        self.sync_s += perf_counter() - start
        self.synced = self.segment.end

    def close(self) -> None:
        """Close the handle."""
        self._files.close(self._handle)
