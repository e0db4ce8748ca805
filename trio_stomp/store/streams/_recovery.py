"""Recovers a stream's files when the log is opened, and finds damage."""

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
class JournalState:
    """The journal's state, as far as the recovery of streams needs it.

    Args:
      commit: The last valid commit. Records that depend on a later one are invalid.
      may_be_torn: The store was not closed cleanly: any part of an unsynced write may be missing.
      is_closed: The store was closed cleanly: all writes should be complete.
    """

    commit: int
    may_be_torn: bool = False
    is_closed: bool = False


NO_JOURNAL = JournalState(1 << 64)
"""Used without a journal, or with one of format 1, whose streams never depend on it."""


def recover_segments(
    names: set[str], files: Files, damage: StreamDamage, journal_state: JournalState
) -> list[Segment]:
    """Return the segments of a directory, oldest first, without incomplete writes.

    Args:
      names: Names of the files in the directory.
      files: The disk.
      damage: Receives damaged bytes.
      journal_state: The state of the journal.
    """
    directory = damage.directory
    for name in names:
        if name.endswith(UNFINISHED):
            files.remove(os.path.join(directory, name))
    stems = sorted({match[1] for match in map(STEM.fullmatch, names) if match})
    newest = stems[-1].partition("-")[0] if stems else ""
    found: list[Segment] = []
    for older, stem in reversed([*pairwise(["", *stems])]):
        path = os.path.join(directory, stem)
        rules: JournalState | None = None
        if stem.startswith(newest):
            rules = journal_state
        elif not any(segment.bytes for segment in found):
            # All later files were cut off. This one was synced before, but may depend on a commit.
            rules = JournalState(journal_state.commit, is_closed=journal_state.is_closed)
        segment = _recover_segment(path, names, files, damage, rules)
        if rules is not None and not segment.bytes and f"{older}{RAW}" in names:
            # The offset in its name may be one that is cut off next.
            files.remove(segment.path)
            files.sync_directory(directory)
            continue
        found.append(segment)
    # An empty file and the next one may begin at the same offset, so names do not give the order.
    found.sort(key=lambda segment: (segment.first, segment.next))
    segments: list[Segment] = []
    for segment in found:
        behind = segments[-1].next if segments else 0
        if not segment.bytes and (segment is not found[-1] or segment.first < behind):
            # A failed commit began it.
            files.remove(segment.path)
            continue
        if segments:
            segments[-1].next = min(behind, segment.first)
            segment.last_ms = max(segment.last_ms, segments[-1].last_ms)
        segments.append(segment)
    return segments


def _recover_segment(
    stem: str, names: set[str], files: Files, damage: StreamDamage, rules: JournalState | None
) -> Segment:
    raw, packed = stem + RAW, stem + PACKED
    if os.path.basename(raw) not in names:
        return read_packed(packed, files, damage)
    if os.path.basename(packed) in names:
        # Compression was interrupted. The raw file is complete, the packed one perhaps not.
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
    """Return whether a raw file's bytes are undamaged and match its index."""
    found = named_segment(segment.path)
    damaged = next(scan(found, data), None)
    return damaged is None and (found.next, found.end) == (segment.next, segment.end)


def read_raw(path: str, files: Files, damage: StreamDamage, rules: JournalState | None) -> Segment:
    """Read and check a raw file, and return its index.

    Incomplete writes are cut off its end. Damaged bytes are set aside; then the file is sealed, and
    the offsets that may have been at its end are skipped. The rest is synced.

    Args:
      path: The file.
      files: The disk.
      damage: Receives damaged bytes.
      rules: The journal's state, if the end of the log may be in this file; else None.
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
                # This is the maximum number of lost messages: their offsets are not used again.
                segment.next += (end - at) // MESSAGE_OVERHEAD_BYTES
            segment.is_sealed = True
            damage.set_aside(path, at, data[at:end])
        if rules is not None:
            # The writing process may have been killed before it synced.
            files.sync(handle)
    return segment


def _promised(data: bytes, segment: Segment, rules: JournalState, damage: StreamDamage) -> int:
    """Return the end of the records in a raw file that may have been confirmed."""
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
    """Return the index of a compressed file. If it is damaged, search for the blocks."""
    segment = named_segment(path)
    segment.is_sealed = True
    with opened(files, files.open(path)) as handle:
        segment.bytes = files.size(handle)
        lost = 0
        blocks = _read_index(handle, files, segment)
        if blocks is None:
            blocks = _find_blocks(files.read(handle, 0, segment.bytes), segment, damage)
            end = blocks[-1][0] + blocks[-1][1].size if blocks else 0
            # Offsets that may have been lost are not used again, as in a raw file.
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
