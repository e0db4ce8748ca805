"""Snapshots of the local state, so that the log need not be kept from its beginning.

A snapshot has the content of the state as records, packed as in the log and compressed, in parts,
in a stream of its own. Each part is published only if the one before it is the stream's last. So
the parts of a complete snapshot follow one another, and if two nodes write at the same time, one
fails. A later snapshot has a later state. So the writer of a complete one may delete, at any time,
all older entries of this stream and of the log.
"""

import secrets
import struct
import zlib
from collections.abc import Iterator

import msgpack
from attrs import evolve

from trio_stomp.base import value
from trio_stomp.cluster._commit_log import CommitLog, LogEntry
from trio_stomp.cluster._entries import pack_records, read_records
from trio_stomp.store import (
    Append,
    Done,
    Put,
    Record,
    Recovered,
    StaleSequence,
    StoreError,
    StoreUnavailable,
)
from trio_stomp.store.tools import Content, View, content, grouped, used_id

APPLIED = "cluster:applied"
"""The setting of the local store with the sequence of the last entry that it holds."""
BASE = "cluster:base"
"""The setting with the number of commits before the store's first, if a snapshot filled it."""
WRITER = "cluster:writer"
"""The setting with ``APPLIED`` and the entry's writer. 0 = the state is only a snapshot's copy."""
_HEADER = struct.Struct("<4s8sQQI?")
"""Mark with the version, key, sequence, commit, number of the part, flag of the last part."""
_MARK = b"TSS2"
LEVEL = 1
"""The level of compression: the fastest."""


@value
class Snapshot:
    """A snapshot in its stream.

    Args:
      sequence: The last entry of the log that it covers.
      commit: The number of the last turn.
      first, last: The sequences of its parts in the stream of snapshots.
    """

    sequence: int
    commit: int
    first: int
    last: int


def write_snapshot(view: View, stream: CommitLog) -> Snapshot | None:
    """Write a snapshot of a view. Blocks.

    Args:
      view: A view of the local state, not recovered yet.
      stream: The stream of snapshots.

    Returns:
      The snapshot, or None if another node was faster or the state is not newer than the last one.

    Raises:
      StoreError: The view cannot be read or is damaged, or the stream cannot be written to.
    """
    recovered = view.recover(lambda _done, _total: None)
    damage = [*recovered.damage, *view.take_damage()]
    if damage:
        raise StoreError(f"no snapshot is made of a damaged state: {damage[0]}")
    sequence = int(recovered.settings.get(APPLIED, "0"))
    last = stream.last()
    if sequence <= _covered(stream, last):
        return None
    commit = recovered.commit + int(recovered.settings.get(BASE, "0"))
    found = evolve(without_ours(recovered), commit=commit)
    return write_state(view, found, stream, sequence, last)


def write_state(
    view: View, recovered: Recovered, stream: CommitLog, sequence: int, last: int
) -> Snapshot | None:
    """Write the content of a view as a snapshot. Blocks.

    Args:
      view: The view.
      recovered: The result of its ``recover``.
      stream: The stream of snapshots.
      sequence: The last entry of the log that the snapshot covers.
      last: The sequence of the last part in the stream.

    Returns:
      The snapshot, or None if another node was faster.

    Raises:
      StoreError: The view cannot be read, or the stream cannot be written to.
    """
    key, commit, first = secrets.token_bytes(8), recovered.commit, 0
    parts = _parts(view, recovered, stream.max_bytes - _HEADER.size)
    for number, (text, is_last) in enumerate(parts):
        header = _HEADER.pack(_MARK, key, sequence, commit, number, is_last)
        try:
            last = stream.publish(header + text, last)
        except StaleSequence:
            return None
        first = first or last
    return Snapshot(sequence, commit, first, last)


def without_ours(recovered: Recovered) -> Recovered:
    """Return the broker's content, without the settings of this package."""
    ours = (APPLIED, BASE, WRITER)
    settings = {key: text for key, text in recovered.settings.items() if key not in ours}
    return evolve(recovered, settings=settings)


def _covered(stream: CommitLog, last: int) -> int:
    """Return the sequence that the newest snapshot covers, complete or not."""
    entries = stream.read(last - 1) if last else ()
    return _header_of(entries[-1]).sequence if entries else 0


def _parts(view: View, recovered: Recovered, max_bytes: int) -> Iterator[tuple[bytes, bool]]:
    """Yield the parts of compressed records, and whether each is the last.

    Raises:
      StoreError: Messages are damaged. The last part is missing, so the snapshot is incomplete.
    """
    packed = bytearray()
    for data in _compressed(view, recovered):
        packed += data
        while len(packed) > max_bytes:
            yield bytes(packed[:max_bytes]), False
            del packed[:max_bytes]
    yield bytes(packed), True


def _compressed(view: View, recovered: Recovered) -> Iterator[bytes]:
    """Yield the compressed records of a view. Raises as ``_parts``."""
    compressor = zlib.compressobj(LEVEL)
    for group in grouped(_whole(view, recovered)):
        yield compressor.compress(msgpack.packb(pack_records(group)))
    yield compressor.flush()


def _whole(view: View, recovered: Recovered) -> Iterator[Content | Done]:
    """Yield the content of a view. Raises as ``_parts``."""
    lacking = sum(place.count for place in recovered.places.values())
    lacking += sum(stream.next - stream.first for stream in recovered.streams.values())
    last_id = 0
    for record in content(view, recovered, lambda _done, _total: None):
        if isinstance(record, Put | Append):
            lacking -= len(record.bodies)
        if isinstance(record, Put):
            last_id = record.first + len(record.bodies) - 1
        yield record
    if lacking:
        raise StoreError(
            f"{lacking} stored messages are damaged: other nodes may have them, and trio-stomp"
            " store export has the rest of a single store"
        )
    yield from used_id(recovered.next_id, last_id)


def newest(stream: CommitLog) -> tuple[Snapshot, Iterator[list[Record]]] | None:
    """Return the newest complete snapshot with its records, or None. Blocks, as its iterator does.

    Raises:
      StoreError: The stream cannot be read, or has other content.
    """
    snapshot = find_snapshot(stream)
    return None if snapshot is None else (snapshot, read_snapshot(stream, snapshot))


def find_snapshot(stream: CommitLog) -> Snapshot | None:
    """Return the newest complete snapshot, or None. Blocks.

    Raises:
      StoreError: The stream cannot be read, or has other content.
    """
    found: Snapshot | None = None
    key, first, expected = b"", 0, 0
    for entry in _entries(stream, 0):
        header = _header_of(entry)
        if header.part == 0:
            key, first, expected = header.key, entry.sequence, 0
        if (header.key, header.part) != (key, expected):
            continue  # the rest of a snapshot whose beginning was deleted
        expected += 1
        if header.is_last:
            found = Snapshot(header.sequence, header.commit, first, entry.sequence)
    return found


def read_snapshot(stream: CommitLog, snapshot: Snapshot) -> Iterator[list[Record]]:
    """Yield the records of a snapshot, in groups for one append each. Blocks.

    Raises:
      StoreUnavailable: A newer snapshot has taken its place meanwhile.
      StoreError: The stream cannot be read, or the snapshot is damaged.
    """
    decompressor, unpacker = zlib.decompressobj(), msgpack.Unpacker(max_buffer_size=0)
    expected = snapshot.first
    for entry in _entries(stream, snapshot.first - 1):
        if entry.sequence != expected:
            break
        expected += 1
        where = f"entry {entry.sequence} of the snapshots"
        try:
            unpacker.feed(decompressor.decompress(entry.payload[_HEADER.size :]))
            groups = list(unpacker)
        except (zlib.error, ValueError) as error:
            raise StoreError(f"{where} is damaged: {error!r}") from error
        for packed in groups:
            yield read_records(packed, where)
        if entry.sequence == snapshot.last:
            if not decompressor.eof:
                raise StoreError(f"{where} is damaged: its data ends early")
            return
    raise StoreUnavailable("the snapshot was deleted while it was read, since there is a newer one")


def _entries(stream: CommitLog, after: int) -> Iterator[LogEntry]:
    while entries := stream.read(after):
        yield from entries
        after = entries[-1].sequence


@value
class _Header:
    key: bytes
    sequence: int
    commit: int
    part: int
    is_last: bool


def _header_of(entry: LogEntry) -> _Header:
    if len(entry.payload) < _HEADER.size or not entry.payload.startswith(_MARK):
        raise StoreError(
            f"entry {entry.sequence} of the snapshots is not of this broker, or of a newer version"
        )
    return _Header(*_HEADER.unpack_from(entry.payload)[1:])
