"""The journal's files: names, headers, order."""

import re
from collections.abc import Sequence
from itertools import pairwise

from attrs import define

from trio_stomp.store._port import StoreError
from trio_stomp.store.disk import Files
from trio_stomp.store.journal.format import (
    READABLE,
    SEGMENT_HEADER_BYTES,
    VERSION,
    SegmentHeader,
    decode_segment_header,
    encode_segment_header,
)

NAME = re.compile(r"(\d{10})-([0-9a-f]{16})\.log")


@define(eq=False)
class Segment:
    """A file of the journal.

    Args:
      end: End of its last record, as far as known.
    """

    number: int
    marker: bytes
    path: str
    end: int = 0


def name_segment(directory: str, number: int, marker: bytes) -> Segment:
    """Return a segment, without creating its file."""
    return Segment(number, marker, f"{directory}/{number:010}-{marker.hex()}.log")


def list_segments(files: Files, directory: str) -> list[Segment]:
    """Return the journal's files, oldest first.

    Raises:
      StoreError: the directory has other files.
    """
    segments: list[Segment] = []
    for name in sorted(files.names(directory)):
        match = NAME.fullmatch(name)
        if match is None or (segments and segments[-1].number == int(match[1])):
            raise StoreError(
                f"{directory}/{name} is not part of this journal: move it away and restart"
            )
        segment = name_segment(directory, int(match[1]), bytes.fromhex(match[2]))
        segments.append(segment)
    return segments


def missing_between(segments: Sequence[Segment]) -> list[str]:
    """Return a line for each gap between the numbers of segments."""
    return [
        f"{before.path}: the file that followed it (number {before.number + 1}) is missing"
        for before, after in pairwise(segments)
        if after.number != before.number + 1
    ]


def create_segment(files: Files, segment: Segment, commit: int, next_id: int) -> int:
    """Create a segment's file with its header, sync its name, and return its handle."""
    handle = files.create(segment.path)
    try:
        header = SegmentHeader(segment.marker, segment.number, commit, next_id)
        files.write(handle, 0, [encode_segment_header(header)])
        files.sync(handle)
        files.sync_directory(segment.path.rpartition("/")[0])
    except BaseException:
        files.close(handle)
        raise
    segment.end = SEGMENT_HEADER_BYTES
    return handle


def read_header(files: Files, handle: int, segment: Segment) -> SegmentHeader | None:
    """Return a segment's header, or None if it is damaged.

    Raises:
      StoreError: it has an unknown version, or belongs to another segment.
    """
    header = decode_segment_header(files.read(handle, 0, SEGMENT_HEADER_BYTES))
    if header is None:
        return None
    if header.version not in READABLE:
        raise StoreError(
            f"{segment.path} has format {header.version}, this program knows {VERSION}: "
            "open it with the program that wrote it"
        )
    if (header.number, header.marker) != (segment.number, segment.marker):
        raise StoreError(f"{segment.path} was renamed: restore its name, or move it away")
    return header
