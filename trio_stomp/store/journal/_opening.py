"""Opens a journal: reads all of it before changing anything."""

from collections.abc import Sequence

from trio_stomp.store._port import Progress
from trio_stomp.store.disk import Files, Quarantine
from trio_stomp.store.journal._replay import Replay
from trio_stomp.store.journal._segment import Segment, read_header
from trio_stomp.store.journal.format import COMMIT_BYTES, SEGMENT_HEADER_BYTES

EMPTY_BYTES = SEGMENT_HEADER_BYTES + COMMIT_BYTES
"""Size of a segment without records, apart from one empty commit."""


def replay(
    files: Files,
    segments: Sequence[Segment],
    quarantine: Quarantine,
    progress: Progress,
    keeps_transient: bool = False,
) -> Replay:
    """Read the content of segments, and set each ``end`` to the end of its valid part.

    Args:
      files: The disk.
      segments: The segments, oldest first.
      quarantine: Receives damaged bytes.
      progress: Called after each segment.
      keeps_transient: Whether to keep transient messages, as the store is running.

    Raises:
      OSError: the disk failed.
      StoreError: a file is not part of this journal.
    """
    total = 0
    for segment in segments:
        handle = files.open(segment.path)
        try:
            read_header(files, handle, segment)
            total += files.size(handle)
        finally:
            files.close(handle)
    done = 0

    def report(size: int) -> None:
        nonlocal done
        done += size
        progress(done, total)

    found = Replay(files, quarantine, keeps_transient)
    found.run(segments, report)
    return found


def cut_torn(files: Files, segments: list[Segment]) -> int:
    """Cut off incomplete writes, and return the number of the next segment."""
    number = segments[-1].number + 1 if segments else 1
    while segments and segments[-1].end <= EMPTY_BYTES:
        if len(segments) == 1 and segments[-1].end >= SEGMENT_HEADER_BYTES:
            # Its header alone holds the last commit, which streams depend on, and the used ids.
            break
        # It has no turns. Its number is used again, as numbers have no gaps.
        number = segments[-1].number
        path = segments.pop().path
        files.remove(path)
        files.sync_directory(path.rpartition("/")[0])
    if segments:
        # The writing process may have been killed before it synced.
        cut(files, segments[-1].path, segments[-1].end)
    return number


def cut(files: Files, path: str, end: int) -> None:
    """Truncate a file to ``end`` bytes, and sync it."""
    handle = files.open(path)
    try:
        files.forget_cached(handle)
        if files.size(handle) > end:
            files.truncate(handle, end)
        files.sync(handle)
    finally:
        files.close(handle)
