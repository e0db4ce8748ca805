"""Decodes records of the format in ``_format``, whose headers and fronts have been verified."""

from collections.abc import Iterator, Sequence
from struct import unpack_from
from zlib import crc32

from trio_stomp.base import value
from trio_stomp.store._records import Delivered, Done, DropPlace, Forget, Keep
from trio_stomp.store.journal.format._format import (
    COMMIT_FIELDS,
    COMMIT_FIELDS_1,
    COPY,
    DELIVERED,
    DONE,
    DROP,
    KEEP,
    NESTED,
    RANGE,
    RUN_FIELDS,
    TEXT_FIELDS,
    Commit,
    Found,
    Small,
    parse_header,
)


@value
class Run:
    """The front of a Put or Copy.

    Args:
      deliveries: The delivery count for each id; () if all are 0.
      front: Its bytes.
      table: Position of the bodies' lengths in ``front``.
    """

    place: str
    level: int
    head: bytes
    ids: Sequence[int]
    transient: bool
    received_ms: int
    expires_ms: int
    deliveries: Sequence[int]
    front: bytes
    table: int

    def lengths(self) -> tuple[int, ...]:
        """Return the lengths of the bodies."""
        return unpack_from(f"<{len(self.ids)}I", self.front, self.table)

    def bodies(self, found: Found) -> list[bytes]:
        """Return all bodies of its record, in order."""
        return split(found.data, found.bodies_at, self.lengths())

    def checks(self) -> tuple[int, ...]:
        """Return the CRC-32 of each body."""
        count = len(self.ids)
        return unpack_from(f"<{count}I", self.front, self.table + 4 * count)


def decode_commit(front: bytes) -> Commit:
    """Decode a commit of the current format or of format 1."""
    if len(front) == COMMIT_FIELDS_1.size:
        return Commit(*COMMIT_FIELDS_1.unpack(front))
    number, turns, length, next_id, synced, check, is_closed = COMMIT_FIELDS.unpack(front)
    return Commit(
        number,
        turns=turns,
        length=length,
        next_id=next_id,
        synced=synced,
        check=check,
        is_closed=bool(is_closed),
    )


def nested_in(found: Found) -> Iterator[Found]:
    """Yield the records of an Atomic, which must be undamaged."""
    at = found.bodies_at
    while at < found.bodies_end:
        inner = parse_header(found.data, at, 0, NESTED)
        assert not isinstance(inner, int)
        at = inner.bodies_end
        yield inner


def decode_run(found: Found) -> Run:
    """Decode the front of a Put or Copy."""
    front = found.front
    fields = RUN_FIELDS.unpack_from(front)
    first, place_bytes, level, transient, received, expires, deliveries, head_bytes, count = fields
    head_at = RUN_FIELDS.size + place_bytes
    table = head_at + head_bytes
    ids: Sequence[int] = range(first, first + count)
    each: Sequence[int] = (deliveries,) * count if deliveries else ()
    if found.kind == COPY:
        ids = unpack_from(f"<{count}Q", front, table + 8 * count)
        each = unpack_from(f"<{count}I", front, table + 16 * count)
    place = front[RUN_FIELDS.size : head_at].decode()
    head = front[head_at:table]
    return Run(
        place,
        level=level,
        head=head,
        ids=ids,
        transient=bool(transient),
        received_ms=received,
        expires_ms=expires,
        deliveries=each,
        front=front,
        table=table,
    )


def decode_ids(front: bytes) -> Sequence[int]:
    """Decode the ids of a Done or Delivered."""
    count = len(front) // 8
    if front[0] == RANGE:
        first, count = unpack_from("<QQ", front, 1)
        return range(first, first + count)
    ids: tuple[int, ...] = unpack_from(f"<{count}Q", front, 1)
    return ids


def decode_small(kind: int, front: bytes) -> Small:
    """Decode a record without bodies."""
    if kind == DONE:
        return Done(decode_ids(front))
    if kind == DELIVERED:
        return Delivered(decode_ids(front))
    if kind == DROP:
        return DropPlace(front.decode())
    if kind == KEEP:
        (key_bytes,) = TEXT_FIELDS.unpack_from(front)
        text_at = TEXT_FIELDS.size + key_bytes
        return Keep(front[TEXT_FIELDS.size : text_at].decode(), front[text_at:].decode())
    return Forget(front.decode())


def split(data: bytes, at: int, lengths: Sequence[int]) -> list[bytes]:
    """Split ``data`` into bodies, beginning at ``at``."""
    bodies = []
    for length in lengths:
        bodies.append(data[at : at + length])
        at += length
    return bodies


def bad_ids(run: Run, found: Found) -> frozenset[int]:
    """Return the ids of the damaged bodies of a run."""
    bodies = run.bodies(found)
    checked = zip(run.ids, bodies, run.checks(), strict=True)
    return frozenset(id for id, body, check in checked if crc32(body) != check)
