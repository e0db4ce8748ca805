"""Compresses full files of a stream."""

import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise

from trio_stomp.store.disk import Files
from trio_stomp.store.streams._damage import StreamDamage
from trio_stomp.store.streams._format import (
    BlockHeader,
    encode_block,
    encode_index,
    is_intact,
    walk,
)
from trio_stomp.store.streams._segment import (
    PACKED,
    RAW,
    UNFINISHED,
    Segment,
    named_segment,
    opened,
)

BLOCK_EXTENTS = 4
"""Extents of a raw file in one block, which readers read as a whole."""
QUICK, THOROUGH = 1, 6
"""Levels of zlib. For statistics the second takes three times the CPU time of the first, 0.13 s for
a file, and saves a fifth more space: a day of 1,000 destinations then fits into 256 MiB."""
LEISURE_MS = 10_000
"""Files that took at least this time to fill are compressed thoroughly. On faster streams,
compression must keep pace."""


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
