"""Reads the records of a journal, for tools, even while a broker writes to it."""

from collections.abc import Iterator

from trio_stomp.base import value
from trio_stomp.store.disk import Files
from trio_stomp.store.journal import (
    DAMAGED,
    TORN,
    Segment,
    find_ending,
    list_segments,
    read_header,
    scan,
)
from trio_stomp.store.journal.format import (
    ATOMIC,
    COMMIT,
    COPY,
    PUT,
    SEGMENT_HEADER_BYTES,
    Commit,
    Copy,
    Found,
    Small,
    bad_ids,
    decode_commit,
    decode_run,
    decode_small,
    nested_in,
)


@value
class Scanned:
    """A record of a journal, or a damaged part.

    Args:
      path: The file.
      offset: Its position in the file.
      length: Its size, in bytes.
      content: The record without damaged messages; None if all of it is damaged. A Put is
        represented as a ``Copy``, which has each id.
      damage: Description of the damage; "" if there is none.
      is_atomic: It forms an atomic group with the other records of the same offset.
    """

    path: str
    offset: int
    length: int
    content: Commit | Copy | Small | None
    damage: str = ""
    is_atomic: bool = False


def scan_records(directory: str, files: Files) -> Iterator[Scanned]:
    """Yield the records of the journal in a store's directory, oldest first.

    Files that the broker deletes meanwhile are omitted, and so are incomplete writes.

    Raises:
      StoreError: a file is not part of the journal.
      OSError: the disk failed.
    """
    segments = list_segments(files, f"{directory}/journal")
    for segment in segments:
        try:
            handle = files.open(segment.path)
        except FileNotFoundError:
            continue
        try:
            yield from _scan_segment(files, handle, segment, segment is segments[-1])
        finally:
            files.close(handle)


def _scan_segment(files: Files, handle: int, segment: Segment, is_last: bool) -> Iterator[Scanned]:
    size = files.size(handle)
    header = read_header(files, handle, segment)
    if header is None and size >= SEGMENT_HEADER_BYTES:
        yield Scanned(segment.path, 0, SEGMENT_HEADER_BYTES, None, "damaged header")
    if is_last:
        size = min(size, find_ending(files, handle, segment.marker, header, size).end)
    for found in scan(files, handle, segment.marker, SEGMENT_HEADER_BYTES, size):
        yield from _scanned(segment, found)


def _scanned(segment: Segment, found: Found) -> Iterator[Scanned]:
    place = segment.path, found.offset, found.end - found.offset
    if found.kind in (DAMAGED, TORN):
        yield Scanned(*place, None, "no valid record")
    elif found.kind == COMMIT:
        yield Scanned(*place, decode_commit(found.front))
    elif found.kind != ATOMIC:
        yield Scanned(*place, *_content(found))
    elif found.is_whole():
        for inner in nested_in(found):
            yield Scanned(*place, *_content(inner), is_atomic=True)
    else:
        yield Scanned(*place, None, "damaged transaction")


def _content(found: Found) -> tuple[Copy | Small, str]:
    if found.kind not in (PUT, COPY):
        return decode_small(found.kind, found.front), ""
    run = decode_run(found)
    bad = frozenset() if found.is_whole() else bad_ids(run, found)
    rows = [
        (id, body, deliveries)
        for id, body, deliveries in zip(
            run.ids, run.bodies(found), run.deliveries or (0,) * len(run.ids), strict=True
        )
        if id not in bad
    ]
    copy = Copy(
        run.place,
        ids=[id for id, _, _ in rows],
        head=run.head,
        bodies=[body for _, body, _ in rows],
        level=run.level,
        received_ms=run.received_ms,
        expires_ms=run.expires_ms,
        transient=run.transient,
        deliveries=[deliveries for _, _, deliveries in rows],
    )
    return copy, f"{len(bad)} damaged messages" if bad else ""
