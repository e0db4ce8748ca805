"""The entries of a log: turns, split into parts where they exceed the largest entry.

An entry is a header and a part of the packed turns of one append. The parts of an append follow one
another; an append without its last part was never finished, and is ignored.
"""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

import msgpack
from attrs import define, field

from trio_stomp.base import value
from trio_stomp.cluster._commit_log import LogEntry
from trio_stomp.store import (
    Append,
    Atomic,
    Begin,
    Delivered,
    Done,
    DropPlace,
    DropStream,
    Forget,
    Keep,
    Put,
    Record,
    StoreError,
    Trim,
    Turn,
)

_HEADER = struct.Struct("<4sQQII")
"""Mark with the version, writer, number of the first turn (0 = an epoch begins or ends), number of
the part, number of parts (of an epoch: 1 at its beginning, 2 at its end)."""
_MARK = b"TSL1"
_DONE = 1

Packed = tuple[object, ...]


@value
class Batch:
    """The turns of one append, or of none if they begin an epoch.

    Args:
      first: The commit number of the first turn.
      sequence: The sequence of the last entry of the append.
      writer: Its writer.
    """

    first: int
    turns: Sequence[Turn]
    sequence: int
    writer: int


def epoch_entry(writer: int) -> bytes:
    """Return the entry with which a writer begins: older writers' appends fail from then on."""
    return _HEADER.pack(_MARK, writer, 0, 0, 1)


def end_entry(writer: int) -> bytes:
    """Return the entry with which a writer ends in order, with all its deliveries in the log."""
    return _HEADER.pack(_MARK, writer, 0, 0, 2)


def encode_append(writer: int, first: int, turns: Sequence[Turn], max_bytes: int) -> list[bytes]:
    """Return the entries of an append.

    Args:
      writer: A number that no other writer has ever had.
      first: The commit number of the first turn.
      turns: The turns. Transient messages are written as done: other nodes need only their ids.
      max_bytes: The largest entry.
    """
    packed = msgpack.packb([(turn.is_urgent, pack_records(turn.records)) for turn in turns])
    step = max_bytes - _HEADER.size
    parts = range(0, len(packed), step)
    return [
        _HEADER.pack(_MARK, writer, first, number, len(parts)) + packed[at : at + step]
        for number, at in enumerate(parts)
    ]


@define
class BatchReader:
    """Joins the parts of appends, in the order of the log.

    Args:
      ended_at: The sequence of the last entry with which a writer ended in order.
      writer: The writer of the last entry; 0 = not known.
    """

    ended_at: int = 0
    writer: int = 0
    _parts: list[bytes] = field(factory=list)
    _header: tuple[int, int, int] = (0, 0, 0)
    """Writer, first turn and number of parts of the append that is not complete."""

    def feed(self, entries: Sequence[LogEntry]) -> Iterator[Batch]:
        """Yield the appends that entries complete.

        Raises:
          StoreError: An entry is not of this broker, or of a newer version.
        """
        for entry in entries:
            writer, first, part, parts = header_of(entry)
            self.writer = writer
            if not first and parts == 2:
                self.ended_at = entry.sequence
            if part == 0:
                self._parts, self._header = [], (writer, first, parts)
            elif (writer, first, parts) != self._header or part != len(self._parts):
                continue  # a part of an unfinished append
            self._parts.append(entry.payload[_HEADER.size :])
            if first and len(self._parts) == parts:
                yield Batch(first, _unpacked(entry, b"".join(self._parts)), entry.sequence, writer)
                self._parts = []


def header_of(entry: LogEntry) -> tuple[int, int, int, int]:
    """Return writer, number of the first turn, number of the part, and number of parts.

    Raises:
      StoreError: The entry is not of this broker, or of a newer version.
    """
    if len(entry.payload) < _HEADER.size or not entry.payload.startswith(_MARK):
        raise StoreError(
            f"entry {entry.sequence} of the log is not of this broker, or of a newer version: "
            f"{entry.payload[:16]!r}. Use a stream of its own, or this node's newest version"
        )
    _, writer, first, part, parts = _HEADER.unpack_from(entry.payload)
    return writer, first, part, parts


def _unpacked(entry: LogEntry, data: bytes) -> list[Turn]:
    where = f"entry {entry.sequence} of the log"
    try:
        packed = msgpack.unpackb(data)
        return [Turn(read_records(records, where), urgent) for urgent, records, *_ in packed]
    except (ValueError, TypeError) as error:
        raise _damaged(where, error) from error


def _ids(ids: Sequence[int]) -> Sequence[int]:
    """Return ids as they are packed. A range becomes its first id and its negative length."""
    if isinstance(ids, range) and ids.step == 1 and ids:
        return (ids[0], -len(ids))
    return list(ids)


def _read_ids(packed: Sequence[int]) -> Sequence[int]:
    if len(packed) == 2 and packed[1] < 0:
        return range(packed[0], packed[0] - packed[1])
    return packed


def _pack_put(put: Put) -> Packed:
    bodies = [b""] * len(put.bodies) if put.transient else list(put.bodies)
    packed = put.place, put.first, put.head, bodies, put.level
    return (*packed, put.received_ms, put.expires_ms, put.transient, put.deliveries)


def _pack_append(record: Append) -> Packed:
    return record.stream, record.first, record.head, list(record.bodies), record.written_ms


def _pack_atomic(record: Atomic) -> Packed:
    return (pack_records(record.records),)


_PACKERS: Mapping[type, tuple[int, Callable[..., Packed]]] = MappingProxyType(
    {
        Put: (0, _pack_put),
        Done: (_DONE, lambda record: (_ids(record.ids),)),
        Delivered: (2, lambda record: (_ids(record.ids),)),
        DropPlace: (3, lambda record: (record.place,)),
        Keep: (4, lambda record: (record.key, record.text)),
        Forget: (5, lambda record: (record.key,)),
        Begin: (6, lambda record: (record.stream, record.epoch, record.first)),
        Append: (7, _pack_append),
        Trim: (8, lambda record: (record.stream, record.before)),
        DropStream: (9, lambda record: (record.stream,)),
        Atomic: (10, _pack_atomic),
    }
)
_READERS: tuple[tuple[int, Callable[..., Record]], ...] = (
    (9, Put),
    (1, lambda ids: Done(_read_ids(ids))),
    (1, lambda ids: Delivered(_read_ids(ids))),
    (1, DropPlace),
    (2, Keep),
    (1, Forget),
    (3, Begin),
    (5, Append),
    (2, Trim),
    (1, DropStream),
    (1, lambda records: Atomic([_record(each) for each in records])),  # type: ignore[misc]
)
"""The number of fields of each kind, and what reads them. A newer minor version may write more."""


class _Unknown(Exception):
    """A kind of records that this version does not know."""


def pack_records(records: Sequence[Record]) -> list[Packed]:
    """Return records as values for msgpack, which ``read_records`` undoes."""
    packed: list[Packed] = []
    for record in records:
        kind, pack = _PACKERS[type(record)]
        packed.append((kind, *pack(record)))
        if isinstance(record, Put) and record.transient:
            ids = range(record.first, record.first + len(record.bodies))
            packed.append((_DONE, _ids(ids)))
    return packed


def read_records(packed: Sequence[Sequence[object]], where: str) -> list[Record]:
    """Return the records that ``pack_records`` packed.

    Args:
      packed: The values.
      where: Their place, for errors.

    Raises:
      StoreError: They are damaged, or of a newer version.
    """
    try:
        return [_record(each) for each in packed]
    except _Unknown as error:
        raise StoreError(
            f"{where} has records of kind {error}, which only a newer version of trio_stomp"
            " writes: install the version of the other nodes here"
        ) from None
    except (ValueError, TypeError, LookupError) as error:
        raise _damaged(where, error) from error


def _damaged(where: str, error: Exception) -> StoreError:
    return StoreError(f"{where} is damaged: {error!r}")


def _record(packed: Sequence[object]) -> Record:
    kind, *fields = packed
    assert isinstance(kind, int)
    if kind >= len(_READERS):
        raise _Unknown(kind)
    count, read = _READERS[kind]
    return read(*fields) if len(fields) <= count else read(*fields[:count])
