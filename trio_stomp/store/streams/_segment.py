"""One file of a stream, as indexed in memory."""

import os
import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import contextmanager

from attrs import Factory, define

from trio_stomp.base import value
from trio_stomp.store.disk import Files
from trio_stomp.store.streams._format import BlockHeader

RAW = ".log"
PACKED = ".packed"
UNFINISHED = ".part"
STEM = re.compile(r"(\d{20}-[0-9a-f]{16})\.(?:log|packed)")
EXTENT_BYTES = 64 * 1024
"""A raw file has a point in the index every so often: a reader reads that much at once."""


def _numbers() -> "array[int]":
    return array("Q")


@define(eq=False)
class Segment:
    """The index of a file: where some of its records stand, or all of its blocks.

    What stands from one such point to the next is an *extent*: the unit of reading. It takes 24
    bytes of memory for 64 KiB of a raw file, or 256 KiB of a compressed one.

    Args:
      path: Its name tells ``first`` and the marker.
      first: No message of it has a lower offset.
      next: Offset behind the last message.
      last_ms: When that was written.
      end: Where the last extent ends.
      bytes: Size of the file.
      is_sealed: Nothing is to be written behind what is there.
      cuts: How often it was cut back.
      offsets: Of each extent's first message.
      positions: Of each extent in the file.
      times: When each extent's first message was written.
    """

    path: str
    marker: bytes
    first: int
    next: int
    last_ms: int = 0
    end: int = 0
    bytes: int = 0
    is_sealed: bool = False
    cuts: int = 0
    offsets: "array[int]" = Factory(_numbers)
    positions: "array[int]" = Factory(_numbers)
    times: "array[int]" = Factory(_numbers)

    @property
    def is_packed(self) -> bool:
        """Return whether it is compressed."""
        return self.path.endswith(PACKED)

    def add_run(self, at: int, end: int, first: int, behind: int, written_ms: int) -> None:
        """Add a record behind all others. ``behind`` is the offset after its last message."""
        if not self.positions or at - self.positions[-1] >= EXTENT_BYTES:
            self._add_point(at, first, written_ms)
        self.next = max(self.next, behind)  # a record may stand there twice, by a stray write
        self.last_ms = written_ms
        self.end = end

    def add_block(self, at: int, header: BlockHeader) -> None:
        """Add a block behind all others."""
        self._add_point(at, header.first, header.first_ms)
        self.next = header.next
        self.last_ms = header.last_ms
        self.end = at + header.size

    def _add_point(self, at: int, first: int, written_ms: int) -> None:
        self.positions.append(at)
        self.offsets.append(first)
        self.times.append(written_ms)

    def extent_at(self, offset: int) -> int:
        """Return the number of the extent where ``offset`` stands, or would."""
        return max(bisect_right(self.offsets, offset) - 1, 0)

    def extent_of(self, written_ms: int) -> int:
        """Return the number of the first extent that may hold a message of that time or later."""
        return max(bisect_left(self.times, written_ms) - 1, 0)

    def extent(self, number: int) -> "Extent":
        """Return the present position of an extent."""
        is_last = number + 1 == len(self.offsets)
        at = self.positions[number]
        end = self.end if is_last else self.positions[number + 1]
        behind = self.next if is_last else self.offsets[number + 1]
        return Extent(
            self,
            path=self.path,
            marker=self.marker,
            at=at,
            size=end - at,
            first=self.offsets[number],
            next=behind,
            cuts=self.cuts,
        )

    def state(self) -> "SegmentEnd":
        """Return the present end, for ``cut``."""
        return SegmentEnd(self.next, self.last_ms, self.end, self.bytes, len(self.offsets))

    def cut(self, end: "SegmentEnd") -> None:
        """Forget what was added since that end."""
        self.next, self.last_ms, self.end = end.next, end.last_ms, end.end
        self.bytes = end.bytes
        self.cuts += 1
        for numbers in (self.offsets, self.positions, self.times):
            del numbers[end.extents :]


@value
class Extent:
    """A part of a file at some moment: the offsets from ``first`` to ``next``."""

    segment: Segment
    path: str
    marker: bytes
    at: int
    size: int
    first: int
    next: int
    cuts: int

    @property
    def is_packed(self) -> bool:
        """Return whether it is a compressed block."""
        return self.segment.is_packed

    @property
    def is_outdated(self) -> bool:
        """Return whether its segment was cut back since."""
        return self.cuts != self.segment.cuts


@value
class SegmentEnd:
    """The end of a segment at some moment."""

    next: int
    last_ms: int
    end: int
    bytes: int
    extents: int


def segment_path(directory: str, first: int, marker: bytes) -> str:
    """Return the path of a raw segment."""
    return os.path.join(directory, f"{first:020}-{marker.hex()}{RAW}")


def named_segment(path: str) -> Segment:
    """Return a segment with no more than its file's name tells."""
    first, _, marker = os.path.basename(path).partition(".")[0].partition("-")
    return Segment(path, bytes.fromhex(marker), int(first), int(first))


@contextmanager
def opened(files: Files, handle: int) -> Iterator[int]:
    """Close a handle in the end."""
    try:
        yield handle
    finally:
        files.close(handle)
