"""Recovers a stream's files when it is opened, and finds damage."""

import os
from collections.abc import Iterator
from itertools import accumulate, pairwise

from trio_stomp.base import value
from trio_stomp.store.disk import Files
from trio_stomp.store.streams._damage import StreamDamage
from trio_stomp.store.streams._format import (
    FOOTER_BYTES,
    MESSAGE_OVERHEAD_BYTES,
    UNKNOWN,
    BlockHeader,
    decode_index,
    index_bytes,
    is_intact,
    is_torn,
    walk,
    walk_blocks,
)
from trio_stomp.store.streams._segment import (
    PACKED,
    RAW,
    STEM,
    UNFINISHED,
    Segment,
    named_segment,
    opened,
)


@value
class Known:
    """The state of the streams according to the journal.

    Args:
      commit: The last one that holds. What came with a later one, and is bound to it, never did.
      may_be_torn: The store was not closed in order: of what was written last, and never promised,
        any part may be there without the others.
      is_closed: It was closed in order: all that was written should be there.
    """

    commit: int
    may_be_torn: bool = False
    is_closed: bool = False


ALL_KNOWN = Known(1 << 64)
"""Where there is no journal, or one of format 1: nothing of the streams is bound to it."""


def recover_segments(
    names: set[str], files: Files, damage: StreamDamage, known: Known
) -> list[Segment]:
    """Return the segments of a directory, oldest first, without what was never finished."""
    directory = damage.directory
    for name in names:
        if name.endswith(UNFINISHED):
            files.remove(os.path.join(directory, name))
    stems = sorted({match[1] for match in map(STEM.fullmatch, names) if match})
    newest = stems[-1].partition("-")[0] if stems else ""
    found: list[Segment] = []
    for older, stem in reversed([*pairwise(["", *stems])]):
        path = os.path.join(directory, stem)
        rules: Known | None = None
        if stem.startswith(newest):
            rules = known
        elif not any(segment.bytes for segment in found):
            # All behind it was cut off. It was on the disk before that began, but may be bound.
            rules = Known(known.commit, is_closed=known.is_closed)
        segment = _recover_segment(path, names, files, damage, rules)
        if rules is not None and not segment.bytes and f"{older}{RAW}" in names:
            # Its name tells an offset which may be one of what is cut off next.
            files.remove(segment.path)
            files.sync_directory(directory)
            continue
        found.append(segment)
    # Where nothing is left of one, the next may begin at the same offset; names tell no order then.
    found.sort(key=lambda segment: (segment.first, segment.next))
    segments: list[Segment] = []
    for segment in found:
        behind = segments[-1].next if segments else 0
        if not segment.bytes and (segment is not found[-1] or segment.first < behind):
            # Begun by a commit that failed.
            files.remove(segment.path)
            continue
        if segments:
            segments[-1].next = min(behind, segment.first)
            segment.last_ms = max(segment.last_ms, segments[-1].last_ms)
        segments.append(segment)
    return segments


def _recover_segment(
    stem: str, names: set[str], files: Files, damage: StreamDamage, rules: Known | None
) -> Segment:
    raw, packed = stem + RAW, stem + PACKED
    if os.path.basename(raw) not in names:
        return read_packed(packed, files, damage)
    if os.path.basename(packed) in names:
        # The raw one was not removed in time. It has all, even if the other should not.
        files.remove(packed)
    return read_raw(raw, files, damage, rules)


def scan(segment: Segment, data: bytes) -> Iterator[tuple[int, int]]:
    """Index all records of a raw file, and yield the bounds of damaged parts."""
    for at, end, header in walk(data, segment.marker):
        if header is None:
            yield at, end
            continue
        segment.add_run(at, end, header.first, header.next, header.written_ms)
        if not is_intact(data, at, header):
            yield at, end


def is_whole(segment: Segment, data: bytes) -> bool:
    """Return whether a raw file's bytes are complete and undamaged."""
    found = named_segment(segment.path)
    damaged = next(scan(found, data), None)
    return damaged is None and (found.next, found.end) == (segment.next, segment.end)


def read_raw(path: str, files: Files, damage: StreamDamage, rules: Known | None) -> Segment:
    """Look through a raw file, all of it.

    What was never promised is cut off its end. What is damaged is set aside; nothing is to be
    written into the file any more then, and the offsets that may have stood at its end are left
    out. What is left is on the disk.

    Args:
      path: The file.
      files: The file system.
      damage: Receives reports of damage.
      rules: Of the end of the log, if it is in this file; None if it is not.
    """
    segment = named_segment(path)
    with opened(files, files.open(path)) as handle:
        data = files.read(handle, 0, files.size(handle))
        end = len(data) if rules is None else _promised(data, segment, rules, damage)
        if end < len(data):
            files.truncate(handle, end)
            data = data[:end]
        segment.bytes = end
        for at, end in scan(segment, data):
            is_record = at < segment.end
            if not is_record and end == len(data):
                is_closed = rules is not None and rules.is_closed
                if not is_closed and is_torn(data, at, segment.marker):
                    files.truncate(handle, at)
                    segment.bytes = at
                    break
                # A message takes at least so much: none of the lost offsets is used again.
                segment.next += (end - at) // MESSAGE_OVERHEAD_BYTES
            segment.is_sealed = True
            damage.set_aside(path, at, data[at:end])
        if rules is not None:
            # Who wrote it may have been killed before it was synced.
            files.sync(handle)
    return segment


def _promised(data: bytes, segment: Segment, rules: Known, damage: StreamDamage) -> int:
    """Return the end of what may have been promised in a raw file."""
    runs = list(walk(data, segment.marker))
    end = len(data)
    since = max((header.since for _, _, header in runs if header), default=0)
    if rules.may_be_torn and since != UNKNOWN:
        for at, _, header in runs:
            if at < since or (header is not None and is_intact(data, at, header)):
                continue
            if header is not None or not is_torn(data, at, segment.marker):
                damage.keep(segment.path, at, data[at:])
            end = at
            break
    for at, behind, header in reversed(runs):
        if behind <= end:
            if header is None or header.commit <= rules.commit:
                break
            end = at
    return end


def read_packed(path: str, files: Files, damage: StreamDamage) -> Segment:
    """Read a compressed file's index. If it is damaged, search for the blocks."""
    segment = named_segment(path)
    segment.is_sealed = True
    with opened(files, files.open(path)) as handle:
        segment.bytes = files.size(handle)
        lost = 0
        blocks = _read_index(handle, files, segment)
        if blocks is None:
            blocks = _find_blocks(files.read(handle, 0, segment.bytes), segment, damage)
            end = blocks[-1][0] + blocks[-1][1].size if blocks else 0
            # None of the offsets that may have stood there is used again, as of a raw file.
            lost = (segment.bytes - end) // MESSAGE_OVERHEAD_BYTES
    for at, header in blocks:
        segment.add_block(at, header)
    segment.next += lost
    return segment


def _read_index(
    handle: int, files: Files, segment: Segment
) -> list[tuple[int, BlockHeader]] | None:
    """Return the blocks and their positions, or None if the index is damaged."""
    footer_at = max(segment.bytes - FOOTER_BYTES, 0)
    footer = files.read(handle, footer_at, FOOTER_BYTES)
    size = index_bytes(footer, segment.marker)
    if size is None or size > footer_at:
        return None
    headers = decode_index(files.read(handle, footer_at - size, size), footer, segment.marker)
    if headers is None:
        return None
    starts = accumulate((header.size for header in headers), initial=0)
    return list(zip(starts, headers, strict=False))


def _find_blocks(
    data: bytes, segment: Segment, damage: StreamDamage
) -> list[tuple[int, BlockHeader]]:
    blocks = []
    for at, end, header in walk_blocks(data, segment.marker):
        if header is None:
            damage.set_aside(segment.path, at, data[at:end])
        else:
            blocks.append((at, header))
    return blocks
