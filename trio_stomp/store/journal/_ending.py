"""Finds the end of the newest segment: after its last batch that was written completely.

A batch is valid by its checksum: after a power cut a file may have its length but not its data, or
only some of its sectors. Each commit records how far the segment was synced before it was written,
and an append is confirmed only after its own sync. So an invalid batch after the synced part was
never confirmed: the segment ends before it. An invalid record within the synced part is damage, and
only that record is lost.
"""

from zlib import crc32

from trio_stomp.base import value
from trio_stomp.store.disk import Files
from trio_stomp.store.journal._scan import DAMAGED, TORN, WINDOW_BYTES, scan
from trio_stomp.store.journal.format import (
    COMMIT,
    COMMIT_BYTES,
    HEADER_BYTES,
    MARKER_BYTES,
    SEGMENT_HEADER_BYTES,
    Commit,
    Found,
    SegmentHeader,
    decode_commit,
    parse_header,
)


@value
class Ending:
    """The end of a segment.

    Args:
      end: Position to truncate the file at.
      is_closed: The store was closed cleanly.
      is_checked: Its batches have checksums.
      is_doubtful: The part to cut off seems to be complete, so it may have been damaged later.
    """

    end: int
    is_closed: bool = False
    is_checked: bool = True
    is_doubtful: bool = False


def find_ending(
    files: Files, handle: int, marker: bytes, header: SegmentHeader | None, size: int
) -> Ending:
    """Return the end of the newest segment.

    Args:
      files: The file system.
      handle: The open segment.
      marker: The segment's marker.
      header: The segment's header, or None if it is damaged.
      size: The size of the file.
    """
    if size <= SEGMENT_HEADER_BYTES:
        # The segment was begun, perhaps without a whole header.
        return Ending(size)
    last = _last_commit(files, handle, marker, size)
    is_old = last.synced == 0 if last else header is None or header.version == 1
    if is_old:
        return Ending(_end_by_length(files, handle, marker, size), is_checked=False)
    at = SEGMENT_HEADER_BYTES if last is None else last.synced
    is_closed = is_doubtful = False
    while at < size:
        commit = _commit_at(files, handle, marker, at)
        if commit is None or at + commit.length > size:
            is_doubtful = commit is None and size - at >= COMMIT_BYTES
            break
        if not _is_whole(files, handle, marker, at, commit):
            is_doubtful = True
            break
        at += commit.length
        is_closed = commit.is_closed
    return Ending(at, is_closed and at == size, is_doubtful=is_doubtful)


def _commit_at(files: Files, handle: int, marker: bytes, at: int) -> Commit | None:
    """Return the commit at a position, of either format, or None if there is none."""
    data = files.read(handle, at, COMMIT_BYTES)
    if len(data) < HEADER_BYTES or data[MARKER_BYTES] != COMMIT:
        return None
    found = parse_header(data, 0, at, marker)
    return decode_commit(found.front) if isinstance(found, Found) else None


def _is_whole(files: Files, handle: int, marker: bytes, at: int, commit: Commit) -> bool:
    """Return whether the records of a commit's batch match its checksum."""
    check = 0
    for found in scan(files, handle, marker, at + COMMIT_BYTES, at + commit.length):
        if found.kind in (DAMAGED, TORN) or not found.is_whole():
            return False
        check = crc32(found.data[found.front_at - HEADER_BYTES : found.bodies_at], check)
    return check == commit.check


def _last_commit(files: Files, handle: int, marker: bytes, size: int) -> Commit | None:
    """Return the last valid commit of a segment, or None if there is none."""
    end = size
    while end > SEGMENT_HEADER_BYTES:
        start = max(end - WINDOW_BYTES, SEGMENT_HEADER_BYTES)
        # A marker may cross the border between two windows.
        data = files.read(handle, start, end - start + MARKER_BYTES - 1)
        at = len(data)
        while (at := data.rfind(marker, 0, at + MARKER_BYTES - 1)) >= 0:
            commit = _commit_at(files, handle, marker, start + at)
            if commit is not None:
                return commit
        end = start
    return None


def _end_by_length(files: Files, handle: int, marker: bytes, size: int) -> int:
    """Return the end of a segment of format 1, whose batches are valid by their length alone."""
    batch_end = SEGMENT_HEADER_BYTES
    for found in scan(files, handle, marker, SEGMENT_HEADER_BYTES, size):
        if found.kind == COMMIT:
            batch_end = found.offset + decode_commit(found.front).length
            is_torn = batch_end > size
        else:
            # Within a complete batch it is damage, even if it seems to exceed the file.
            is_torn = found.kind == TORN and found.offset >= batch_end
        if is_torn:
            return found.offset
    return size
