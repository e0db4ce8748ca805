"""The binary format of a stream's files: records, and compressed blocks of them.

A record is a run of messages with one header block::

    header   marker, kind, sizes, first offset, count, time, since, commit, three checksums
    head     the header block, as encoded by the core
    table    the lengths of the bodies, then their checksums
    bodies

Every record of a file begins with the file's marker: eight random bytes, so that no client can
forge a record in a body. So the next record is found whatever precedes it. Each part and each body
has a checksum of its own, so damage affects nothing else.

*Since* is the size of the file at the last sync before the record: an invalid record after that may
never have been confirmed. *Commit* is the commit of the journal that the record depends on; 0 =
none. Records of kind ``RUN1``, written by older versions, have neither.

A full file is compressed: blocks of records, each after a header that begins with the marker; then
an index, which repeats these headers; and a footer.
"""

import struct
import zlib
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

from attrs import astuple

from trio_stomp.base import value
from trio_stomp.store._port import Streamed

MARKER_BYTES = 8
MESSAGE_OVERHEAD_BYTES = 8
"""Bytes of a message in a record in addition to its body: its length and its checksum."""
READ_COST_BYTES = 256
"""Bytes that a read counts for each message beside its body: however small, it takes memory, and
time in the turn that takes the result."""
RUN_BYTES = 128 * 1024
"""Longer runs are split into several records, to read only parts of them."""

_OLD_RUN, _RUN = b"RUN1", b"RUN2"
_BLOCK = b"ZIP1"
_FOOTER = b"END1"
_CHECKSUM = struct.Struct("<I")
_OLD_RUN_FIELDS = struct.Struct("<8s4sIQIIQII")
_RUN_FIELDS = struct.Struct("<8s4sIQIIQIIQQ")
_BLOCK_FIELDS = struct.Struct("<8s4sIQQQQI")
_FOOTER_FIELDS = struct.Struct("<8s4sII")
_OLD_RUN_HEADER_BYTES = _OLD_RUN_FIELDS.size + _CHECKSUM.size
_RUN_HEADER_BYTES = _RUN_FIELDS.size + _CHECKSUM.size
UNKNOWN = -1
BLOCK_HEADER_BYTES = _BLOCK_FIELDS.size + _CHECKSUM.size
FOOTER_BYTES = _FOOTER_FIELDS.size


@value
class RunHeader:
    """The header of a record.

    Args:
      size: Size of the record, in bytes.
      meta_crc: Checksum of head and table.
      bodies_crc: Checksum of all bodies together.
      since: Size of the file at the last sync before it; UNKNOWN in records of kind ``RUN1``.
      commit: Commit of the journal that it depends on; 0 = none.
    """

    size: int
    first: int
    count: int
    head_bytes: int
    written_ms: int
    meta_crc: int
    bodies_crc: int
    since: int = UNKNOWN
    commit: int = 0

    @property
    def next(self) -> int:
        """Return the offset after its last message."""
        return self.first + self.count

    @property
    def own_bytes(self) -> int:
        """Return the size of the header itself, in bytes."""
        return _OLD_RUN_HEADER_BYTES if self.since == UNKNOWN else _RUN_HEADER_BYTES


@value
class BlockHeader:
    """The header of a compressed block.

    Args:
      size: Size of the block, in bytes.
      next: Offset after its last message.
      first_ms: Time when its first message was written.
      last_ms: Time when its last message was written.
      crc: Checksum of the compressed bytes.
    """

    size: int
    first: int
    next: int
    first_ms: int
    last_ms: int
    crc: int


def split_bodies(first: int, bodies: Sequence[bytes]) -> Iterator[tuple[int, Sequence[bytes]]]:
    """Yield the bodies of a run in groups of at most RUN_BYTES, each with its first offset."""
    if sum(map(len, bodies)) + len(bodies) * MESSAGE_OVERHEAD_BYTES <= RUN_BYTES:
        if bodies:
            yield first, bodies
        return
    start = size = 0
    for number, body in enumerate(bodies):
        cost = len(body) + MESSAGE_OVERHEAD_BYTES
        if size and size + cost > RUN_BYTES:
            yield first + start, bodies[start:number]
            start, size = number, 0
        size += cost
    yield first + start, bodies[start:]


def encode_run(
    marker: bytes,
    first: int,
    head: bytes,
    bodies: Sequence[bytes],
    written_ms: int,
    *,
    since: int = 0,
    commit: int = 0,
) -> tuple[bytes, bytes]:
    """Return a record in two parts: header, head and table first, then the bodies."""
    count = len(bodies)
    joined = b"".join(bodies)
    table = struct.pack(f"<{2 * count}I", *map(len, bodies), *map(zlib.crc32, bodies))
    meta = head + table
    size = _RUN_HEADER_BYTES + len(meta) + len(joined)
    fields = _RUN_FIELDS.pack(
        marker,
        _RUN,
        size,
        first,
        count,
        len(head),
        written_ms,
        zlib.crc32(meta),
        zlib.crc32(joined),
        since,
        commit,
    )
    return fields + _CHECKSUM.pack(zlib.crc32(fields)) + meta, joined


def read_run_header(data: bytes, at: int, marker: bytes) -> RunHeader | None:
    """Return the header of the record at a position, or None if there is no valid one."""
    kind_at = at + MARKER_BYTES
    packing = _OLD_RUN_FIELDS if data.startswith(_OLD_RUN, kind_at) else _RUN_FIELDS
    end = at + packing.size
    if not data.startswith(marker, at) or end + _CHECKSUM.size > len(data):
        return None
    if zlib.crc32(data[at:end]) != _CHECKSUM.unpack_from(data, end)[0]:
        return None
    _, kind, *numbers = packing.unpack_from(data, at)
    return RunHeader(*numbers) if kind in (_OLD_RUN, _RUN) else None


def walk(data: bytes, marker: bytes) -> Iterator[tuple[int, int, RunHeader | None]]:
    """Yield start, end and header of each record in ``data``.

    The header is None for a part without valid records.
    """
    at = 0
    while at < len(data):
        header = read_run_header(data, at, marker)
        if header is None or at + header.size > len(data):
            end = _find_run(data, at + 1, marker)
            yield at, end, None
        else:
            end = at + header.size
            yield at, end, header
        at = end


def _find_run(data: bytes, at: int, marker: bytes) -> int:
    """Return the position of the next complete record, or the end if there is none."""
    while (at := data.find(marker, at)) >= 0:
        header = read_run_header(data, at, marker)
        if header is not None and at + header.size <= len(data):
            return at
        at += 1
    return len(data)


def is_torn(data: bytes, at: int, marker: bytes) -> bool:
    """Return whether the bytes from ``at`` on are the rest of an unfinished write."""
    if len(data) - at < _RUN_HEADER_BYTES or read_run_header(data, at, marker) is not None:
        return True
    return not data[at:].strip(b"\0")


def is_intact(data: bytes, at: int, header: RunHeader) -> bool:
    """Return whether a complete record is undamaged."""
    meta_at = at + header.own_bytes
    bodies_at = meta_at + header.head_bytes + header.count * MESSAGE_OVERHEAD_BYTES
    view = memoryview(data)
    return (
        zlib.crc32(view[meta_at:bodies_at]) == header.meta_crc
        and zlib.crc32(view[bodies_at : at + header.size]) == header.bodies_crc
    )


def decode_run(data: bytes, at: int, header: RunHeader) -> list[Streamed]:
    """Return the messages of a complete record.

    Returns:
      One run; several or none if bodies are damaged.
    """
    count = header.count
    meta_at = at + header.own_bytes
    table_at = meta_at + header.head_bytes
    bodies_at = table_at + count * MESSAGE_OVERHEAD_BYTES
    meta = data[meta_at:bodies_at]
    if zlib.crc32(meta) != header.meta_crc:
        return []
    sizes = struct.unpack_from(f"<{count}I", data, table_at)
    bodies = [data[a:b] for a, b in pairwise(accumulate(sizes, initial=bodies_at))]
    run = Streamed(header.first, meta[: header.head_bytes], bodies, header.written_ms)
    if zlib.crc32(memoryview(data)[bodies_at : at + header.size]) == header.bodies_crc:
        return [run]
    crcs = struct.unpack_from(f"<{count}I", data, table_at + 4 * count)
    return _undamaged(run, crcs)


def _undamaged(run: Streamed, crcs: Sequence[int]) -> list[Streamed]:
    """Return the undamaged messages of a run, as runs without gaps."""
    parts: list[Streamed] = []
    expected = -1
    for offset, (body, crc) in enumerate(zip(run.bodies, crcs, strict=True), run.first):
        if zlib.crc32(body) != crc:
            continue
        if offset != expected:
            parts.append(Streamed(offset, run.head, [], run.written_ms))
        parts[-1].bodies.append(body)
        expected = offset + 1
    return parts


def count_messages(runs: Sequence[Streamed]) -> int:
    """Return the number of messages in the runs."""
    return sum(len(run.bodies) for run in runs)


def tail_of(run: Streamed, first: int) -> tuple[Streamed, int]:
    """Return the part of a run from ``first`` on, and its size.

    The size is that of its bodies, with READ_COST_BYTES for each.
    """
    skipped = max(first - run.first, 0)
    bodies = run.bodies[skipped:]
    size = sum(map(len, bodies)) + len(bodies) * READ_COST_BYTES
    return Streamed(run.first + skipped, run.head, bodies, run.written_ms), size


def encode_block(
    marker: bytes, records: bytes, headers: Sequence[RunHeader], level: int
) -> tuple[BlockHeader, bytes, bytes]:
    """Compress records to a block.

    Args:
      marker: The marker of the file.
      records: The bytes of consecutive records.
      headers: Their headers.
      level: Compression level of zlib, 1 to 9.

    Returns:
      The block's header, decoded and encoded, and the compressed records.
    """
    packed = zlib.compress(records, level)
    first, last = headers[0], headers[-1]
    header = BlockHeader(
        BLOCK_HEADER_BYTES + len(packed),
        first=first.first,
        next=last.next,
        first_ms=first.written_ms,
        last_ms=last.written_ms,
        crc=zlib.crc32(packed),
    )
    fields = _BLOCK_FIELDS.pack(marker, _BLOCK, *astuple(header))
    return header, fields + _CHECKSUM.pack(zlib.crc32(fields)), packed


def read_block_header(data: bytes, at: int, marker: bytes) -> BlockHeader | None:
    """Return the header of the block at a position, or None if there is no valid one."""
    end = at + _BLOCK_FIELDS.size
    if not data.startswith(marker, at) or end + _CHECKSUM.size > len(data):
        return None
    if zlib.crc32(data[at:end]) != _CHECKSUM.unpack_from(data, end)[0]:
        return None
    _, kind, *numbers = _BLOCK_FIELDS.unpack_from(data, at)
    return BlockHeader(*numbers) if kind == _BLOCK else None


def decode_block(data: bytes, marker: bytes) -> bytes | None:
    """Return the records of the block that ``data`` starts with, or None if it is damaged."""
    header = read_block_header(data, 0, marker)
    if header is None:
        return None
    packed = data[BLOCK_HEADER_BYTES : header.size]
    return zlib.decompress(packed) if zlib.crc32(packed) == header.crc else None


def encode_index(marker: bytes, headers: Sequence[bytes]) -> bytes:
    """Return the index of blocks with its footer. ``headers`` are the encoded headers."""
    index = b"".join(headers)
    return index + _FOOTER_FIELDS.pack(marker, _FOOTER, len(headers), zlib.crc32(index))


def index_bytes(footer: bytes, marker: bytes) -> int | None:
    """Return the size of the index before a footer, or None if the footer is invalid."""
    if len(footer) != FOOTER_BYTES:
        return None
    found, kind, count, _ = _FOOTER_FIELDS.unpack(footer)
    return count * BLOCK_HEADER_BYTES if (found, kind) == (marker, _FOOTER) else None


def decode_index(index: bytes, footer: bytes, marker: bytes) -> list[BlockHeader] | None:
    """Return the headers of a file's blocks, or None if the index is damaged."""
    if zlib.crc32(index) != _FOOTER_FIELDS.unpack(footer)[3]:
        return None
    headers = [
        read_block_header(index, at, marker) for at in range(0, len(index), BLOCK_HEADER_BYTES)
    ]
    return [header for header in headers if header is not None]


def walk_blocks(data: bytes, marker: bytes) -> Iterator[tuple[int, int, BlockHeader | None]]:
    """Yield start, end and header of each block, as ``walk`` does, for a file without valid index.

    An entry of the index looks like a block's header, so the compressed bytes are checked as well.
    """
    at = behind = 0
    while (at := data.find(marker, at)) >= 0:
        header = read_block_header(data, at, marker)
        packed = data[at + BLOCK_HEADER_BYTES : at + header.size] if header else b""
        if header is None or zlib.crc32(packed) != header.crc:
            at += 1
            continue
        if behind < at:
            yield behind, at, None
        behind = at + header.size
        yield at, behind, header
        at = behind
    if behind < len(data):
        yield behind, len(data), None
