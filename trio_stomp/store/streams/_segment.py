"""One file of a stream: its index in memory, and how a full file is compressed."""

import os
import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise

from attrs import Factory, define

from trio_stomp.base import value
from trio_stomp.store.disk import Files
from trio_stomp.store.streams._damage import StreamDamage
from trio_stomp.store.streams._format import (
    BlockHeader,
    encode_block,
    encode_index,
    is_intact,
    walk,
)

RAW = ".log"
PACKED = ".packed"
UNFINISHED = ".part"
STEM = re.compile(r"(\d{20}-[0-9a-f]{16})\.(?:log|packed)")
EXTENT_BYTES = 64 * 1024
"""Minimum distance between two points of a raw file in the index, which readers read at once."""
BLOCK_EXTENTS = 4
"""Extents of a raw file in one block, which readers read as a whole."""
QUICK, THOROUGH = 1, 6
"""Levels of zlib. For statistics the second takes three times the CPU time of the first, 0.13 s for
a file, and saves a fifth more space: a day of 1,000 destinations then fits into 256 MiB."""
LEISURE_MS = 10_000
"""Files that took at least this time to fill are compressed thoroughly. On faster streams,
compression must keep pace."""


def _numbers() -> "array[int]":
    return array("Q")


@define(eq=False)
class Segment:
    """The index of a file: positions of some of its records, or of all its blocks.

    The part from one such point to the next is an *extent*, the unit of reading. It takes 24 bytes
    of memory for 64 KiB of a raw file, or 256 KiB of compressed records.

    Args:
      path: The path, whose name has ``first`` and the marker.
      first: Lower bound of its offsets.
      next: Offset after the last message.
      last_ms: Time when the last message was written.
      end: End of the last extent.
      bytes: Size of the file.
      is_sealed: The file must not be appended to.
      cuts: Number of calls of ``cut``.
      offsets: Offset of each extent's first message.
      positions: Position of each extent in the file.
      times: Time when each extent's first message was written.
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
        """Add a record at the end. ``behind`` is the offset after its last message."""
        if not self.positions or at - self.positions[-1] >= EXTENT_BYTES:
            self._add_point(at, first, written_ms)
        self.next = max(self.next, behind)  # a stray write may have repeated a record
        self.last_ms = written_ms
        self.end = end

    def add_block(self, at: int, header: BlockHeader) -> None:
        """Add a block at the end."""
        self._add_point(at, header.first, header.first_ms)
        self.next = header.next
        self.last_ms = header.last_ms
        self.end = at + header.size

    def _add_point(self, at: int, first: int, written_ms: int) -> None:
        self.positions.append(at)
        self.offsets.append(first)
        self.times.append(written_ms)

    def extent_at(self, offset: int) -> int:
        """Return the number of the extent that holds ``offset``, or would hold it."""
        return max(bisect_right(self.offsets, offset) - 1, 0)

    def extent_of(self, written_ms: int) -> int:
        """Return the number of the first extent that may hold a message of that time or later."""
        return max(bisect_left(self.times, written_ms) - 1, 0)

    def extent(self, number: int) -> "Extent":
        """Return the current state of an extent."""
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
        """Return the current end, for ``cut``."""
        return SegmentEnd(self.next, self.last_ms, self.end, self.bytes, len(self.offsets))

    def cut(self, end: "SegmentEnd") -> None:
        """Remove what was added since ``end`` was taken by ``state``."""
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
        """Return whether its segment was cut since."""
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
    """Return an empty index of a file, with the marker and first offset from its name."""
    first, _, marker = os.path.basename(path).partition(".")[0].partition("-")
    return Segment(path, bytes.fromhex(marker), int(first), int(first))


@contextmanager
def opened(files: Files, handle: int) -> Iterator[int]:
    """Close a handle at the end of the block."""
    try:
        yield handle
    finally:
        files.close(handle)


def write_packed(raw: Segment, files: Files, damage: StreamDamage) -> Segment:
    """Compress a full file into a synced file beside it, and keep the original.

    Raises:
      OSError: the disk failed; the compressed file was removed.
    """
    packed = named_segment(raw.path.removesuffix(RAW) + PACKED)
    part = packed.path + UNFINISHED
    with suppress(FileNotFoundError):
        files.remove(part)
    try:
        with opened(files, files.create(part)) as target:
            _write_blocks(raw, packed, target, files, damage)
            files.sync(target)
        files.rename(part, packed.path)
        files.sync_directory(os.path.dirname(part))
    except OSError:
        for path in (part, packed.path):
            with suppress(OSError):
                files.remove(path)
        raise
    packed.next, packed.last_ms = raw.next, raw.last_ms
    return packed


def _write_blocks(
    raw: Segment, packed: Segment, target: int, files: Files, damage: StreamDamage
) -> None:
    headers = []
    with opened(files, files.open(raw.path)) as source:
        for header, fields, records in _blocks(raw, source, files, damage):
            files.write(target, packed.end, [fields, records])
            packed.add_block(packed.end, header)
            headers.append(fields)
    index = encode_index(raw.marker, headers)
    files.write(target, packed.end, [index])
    packed.bytes = packed.end + len(index)


def _blocks(
    raw: Segment, source: int, files: Files, damage: StreamDamage
) -> Iterator[tuple[BlockHeader, bytes, bytes]]:
    """Yield a raw file's records as blocks, setting damage aside."""
    is_slow = bool(raw.times) and raw.last_ms - raw.times[0] >= LEISURE_MS
    level = THOROUGH if is_slow else QUICK
    for start, end in pairwise([*raw.positions[::BLOCK_EXTENTS], raw.end]):
        data = files.read(source, start, end - start)
        headers, records = [], []
        for at, behind, header in walk(data, raw.marker):
            if header is None or not is_intact(data, at, header):
                damage.set_aside(raw.path, start + at, data[at:behind])
            if header is not None:
                headers.append(header)
                records.append(data[at:behind])
        if headers:
            yield encode_block(raw.marker, b"".join(records), headers, level)
