"""Encodes records in the format of ``_format``, with few calls for a run of any length."""

from array import array
from collections.abc import Callable, Sequence
from struct import pack
from sys import byteorder
from zlib import crc32

from trio_stomp.store._records import (
    Atomic,
    Delivered,
    Done,
    DropPlace,
    Forget,
    Keep,
    Put,
    Record,
)
from trio_stomp.store.journal.format._format import (
    ATOMIC,
    COMMIT,
    COMMIT_FIELDS,
    COPY,
    CRC,
    DELIVERED,
    DONE,
    DROP,
    FIELDS,
    FORGET,
    KEEP,
    LIST,
    NESTED,
    PUT,
    RANGE,
    RUN_FIELDS,
    TEXT_FIELDS,
    Commit,
    Copy,
)


def encode_commit(commit: Commit, marker: bytes) -> bytes:
    """Encode the record that leads a batch."""
    front = COMMIT_FIELDS.pack(
        commit.number,
        commit.turns,
        commit.length,
        commit.next_id,
        commit.synced,
        commit.check,
        commit.is_closed,
    )
    return _frame(COMMIT, front, 0, 0, marker)


def encode(record: Record | Copy, marker: bytes, out: list[bytes]) -> int:
    """Append a record's bytes to ``out``. A single body is not copied.

    Returns:
      The number of bytes; 0 for an empty record, or one that concerns a stream.
    """
    encoder = ENCODERS.get(type(record))
    return encoder(record, marker, out) if encoder else 0


def _frame(kind: int, front: bytes, size: int, check: int, marker: bytes) -> bytes:
    fields = FIELDS.pack(marker, kind, len(front), size, check)
    return fields + CRC.pack(crc32(front, crc32(fields))) + front


def _encode_put(put: Put, marker: bytes, out: list[bytes]) -> int:
    return _encode_run(
        PUT, run=put, first=put.first, deliveries=put.deliveries, tail=b"", marker=marker, out=out
    )


def _encode_copy(copy: Copy, marker: bytes, out: list[bytes]) -> int:
    count = len(copy.ids)
    tail = pack(f"<{count}Q{count}I", *copy.ids, *copy.deliveries)
    return _encode_run(
        COPY, run=copy, first=copy.ids[0], deliveries=0, tail=tail, marker=marker, out=out
    )


def _encode_run(
    kind: int,
    run: Put | Copy,
    first: int,
    deliveries: int,
    *,
    tail: bytes,
    marker: bytes,
    out: list[bytes],
) -> int:
    bodies = run.bodies
    count = len(bodies)
    if not count:
        return 0
    place = run.place.encode()
    fields = RUN_FIELDS.pack(
        first,
        len(place),
        run.level,
        run.transient,
        run.received_ms,
        run.expires_ms,
        deliveries,
        len(run.head),
        count,
    )
    if count == 1:
        joined = bodies[0]
        check = crc32(joined)
        table = pack("<II", len(joined), check)
    else:
        joined = b"".join(bodies)
        check = crc32(joined)
        table = pack(f"<{2 * count}I", *map(len, bodies), *map(crc32, bodies))
    front = b"".join((fields, place, run.head, table, tail))
    head = _frame(kind, front, len(joined), check, marker)
    out.append(head)
    out.append(joined)
    return len(head) + len(joined)


def _encode_ids(kind: int, ids: Sequence[int], marker: bytes, out: list[bytes]) -> int:
    if not ids:
        return 0
    first = ids[0]
    if is_contiguous(ids):
        front = pack("<BQQ", RANGE, first, len(ids))
    else:
        front = pack("<B", LIST) + _packed(ids)
    return _put_out(_frame(kind, front, 0, 0, marker), out)


def _packed(ids: Sequence[int]) -> bytes:
    # After a failure the ledger may hold millions of ids, in an array.
    if isinstance(ids, array) and ids.typecode == "Q" and byteorder == "little":
        return ids.tobytes()
    return pack(f"<{len(ids)}Q", *ids)


def is_contiguous(ids: Sequence[int]) -> bool:
    """Return whether ids are consecutive."""
    first, count = ids[0], len(ids)
    if isinstance(ids, range):
        return ids.step == 1
    return ids[-1] - first == count - 1 and list(ids) == list(range(first, first + count))


def _put_out(data: bytes, out: list[bytes]) -> int:
    out.append(data)
    return len(data)


def _encode_done(done: Done, marker: bytes, out: list[bytes]) -> int:
    return _encode_ids(DONE, done.ids, marker, out)


def _encode_delivered(delivered: Delivered, marker: bytes, out: list[bytes]) -> int:
    return _encode_ids(DELIVERED, delivered.ids, marker, out)


def _encode_drop(drop: DropPlace, marker: bytes, out: list[bytes]) -> int:
    return _put_out(_frame(DROP, drop.place.encode(), 0, 0, marker), out)


def _encode_keep(keep: Keep, marker: bytes, out: list[bytes]) -> int:
    key = keep.key.encode()
    front = TEXT_FIELDS.pack(len(key)) + key + keep.text.encode()
    return _put_out(_frame(KEEP, front, 0, 0, marker), out)


def _encode_forget(forget: Forget, marker: bytes, out: list[bytes]) -> int:
    return _put_out(_frame(FORGET, forget.key.encode(), 0, 0, marker), out)


def _encode_atomic(atomic: Atomic, marker: bytes, out: list[bytes]) -> int:
    nested: list[bytes] = []
    if not sum(encode(record, NESTED, nested) for record in atomic.records):
        return 0
    body = b"".join(nested)
    head = _frame(ATOMIC, b"", len(body), crc32(body), marker)
    out += (head, body)
    return len(head) + len(body)


ENCODERS: dict[type, Callable[..., int]] = {
    Put: _encode_put,
    Copy: _encode_copy,
    Done: _encode_done,
    Delivered: _encode_delivered,
    DropPlace: _encode_drop,
    Keep: _encode_keep,
    Forget: _encode_forget,
    Atomic: _encode_atomic,
}
