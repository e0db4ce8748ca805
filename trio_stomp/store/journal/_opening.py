"""Opens a journal: looks at all of it first, and only then changes what must be changed."""

from collections.abc import Sequence

from trio_stomp.store._port import Progress
from trio_stomp.store.disk import Files, Quarantine
from trio_stomp.store.journal._replay import Replay
from trio_stomp.store.journal._segment import Segment, read_header
from trio_stomp.store.journal.format import COMMIT_BYTES, SEGMENT_HEADER_BYTES

EMPTY_BYTES = SEGMENT_HEADER_BYTES + COMMIT_BYTES
"""A commit that is alone has nothing in it."""


def replay(
    files: Files,
    segments: Sequence[Segment],
    quarantine: Quarantine,
    progress: Progress,
    keeps_transient: bool = False,
) -> Replay:
    """Read the content of segments, and set each ``end`` to the end of its valid part.

    Raises:
      StoreError: a file is not ours.
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

    def tell(size: int) -> None:
        nonlocal done
        done += size
        progress(done, total)

    found = Replay(files, quarantine, keeps_transient)
    found.run(segments, tell)
    return found


def cut_torn(files: Files, segments: list[Segment]) -> int:
    """Cut what was not written completely. Returns the number of the segment to come."""
    number = segments[-1].number + 1 if segments else 1
    while segments and segments[-1].end <= EMPTY_BYTES:
        if len(segments) == 1 and segments[-1].end >= SEGMENT_HEADER_BYTES:
            # Nobody else knows the last commit and the ids that were used: streams go by them.
            break
        # It was begun, and at most closed: no turn is in it. Its number must not be missing.
        number = segments[-1].number
        path = segments.pop().path
        files.remove(path)
        files.sync_directory(path.rpartition("/")[0])
    if segments:
        # Who wrote it may have been killed before it was synced.
        cut(files, segments[-1].path, segments[-1].end)
    return number


def cut(files: Files, path: str, end: int) -> None:
    """Have a file end there, and what stands before that on the disk."""
    handle = files.open(path)
    try:
        files.forget_cached(handle)
        if files.size(handle) > end:
            files.truncate(handle, end)
        files.sync(handle)
    finally:
        files.close(handle)
