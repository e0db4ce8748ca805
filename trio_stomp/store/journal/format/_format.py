"""The journal's binary format. No files, clocks or random numbers.

A segment is a header (``SegmentHeader``) and then records. All numbers are little-endian.

| bytes | of a record |
|--:|---|
| 8 | the segment's marker, random, so that no client can forge a record in a body |
| 1 | kind |
| 3 | zero |
| 4 | length of the front |
| 8 | length of the bodies |
| 4 | CRC-32 of all bodies |
| 4 | CRC-32 of all of the above and of the front |
| | the front: all fields except the bodies |
| | the bodies, raw |

Each batch begins with a commit. It has a CRC-32 of the headers and fronts of the batch, which in
turn have those of the bodies; and the size of the segment that was synced before the batch was
written. An invalid record after that may never have been confirmed. Format 1 had neither.

The front of a run also has a length and a CRC-32 for each body, to tell damaged bodies from others.
"""

from collections.abc import Sequence
from struct import Struct
from zlib import crc32

from trio_stomp.base import value
from trio_stomp.store._records import Atomic, Delivered, Done, DropPlace, Forget, Keep, Put

VERSION = 2
READABLE = (1, 2)
"""Versions of segments that can be read. New segments have VERSION."""
MAGIC = b"trio_stomp journal\n\0"
SEGMENT = Struct("<20sI8sQQQ")
CRC = Struct("<I")
SEGMENT_HEADER_BYTES = SEGMENT.size + CRC.size

MARKER_BYTES = 8
NESTED = bytes(MARKER_BYTES)
"""Replaces the marker within an Atomic, so that no scan finds a nested record by itself."""

FIELDS = Struct("<8sB3xIQI")
HEADER_BYTES = FIELDS.size + CRC.size

COMMIT, PUT, COPY, DONE, DELIVERED, DROP, KEEP, FORGET, ATOMIC = range(1, 10)
KINDS = ("damage", "commit", "put", "copy", "done", "delivered", "drop", "keep", "forget", "atomic")

COMMIT_FIELDS_1 = Struct("<QIQQ")
COMMIT_FIELDS = Struct("<QIQQQII")
COMMIT_BYTES = HEADER_BYTES + COMMIT_FIELDS.size
RUN_FIELDS = Struct("<QHBBqqIII")
TEXT_FIELDS = Struct("<I")
LIST, RANGE = 0, 1


Small = Done | Delivered | DropPlace | Keep | Forget
"""Records without bodies."""


@value
class SegmentHeader:
    """The header of a segment.

    Args:
      number: Segments are numbered without gaps.
      commit: Number of the last commit before it.
      next_id: Greater than every message id used before it.
    """

    marker: bytes
    number: int
    commit: int
    next_id: int
    version: int = VERSION


@value
class Commit:
    """The first record of each batch.

    Args:
      number: Commit number of the last turn in it.
      turns: Number of turns.
      length: Bytes of the batch, including this record.
      next_id: Greater than every message id used so far.
      synced: Bytes of the segment that were on the disk before the batch; 0 in format 1.
      check: CRC-32 of the headers and fronts of the batch's other records.
      is_closed: The store was closed cleanly after it.
    """

    number: int
    turns: int
    length: int
    next_id: int
    synced: int = 0
    check: int = 0
    is_closed: bool = False


@value
class Copy:
    """Messages of one Put, copied from a segment that will be deleted. Ids may have gaps."""

    place: str
    ids: Sequence[int]
    head: bytes
    bodies: Sequence[bytes]
    level: int
    received_ms: int
    expires_ms: int
    transient: bool
    deliveries: Sequence[int]


Entry = Put | Copy | Small | Atomic
"""Records of the journal; streams have logs of their own."""


@value
class Found:
    """A record with a verified header and front.

    Args:
      offset: Its position in the file.
      end: Its end in the file.
      data: The bytes that were read. The next three arguments are positions in them.
      check: Expected CRC-32 of the bodies.
    """

    offset: int
    end: int
    kind: int
    data: bytes
    front_at: int
    bodies_at: int
    bodies_end: int
    check: int

    @property
    def front(self) -> bytes:
        """Return a copy of the front."""
        return self.data[self.front_at : self.bodies_at]

    def is_whole(self) -> bool:
        """Return whether the bodies match their checksum."""
        if self.bodies_at == self.bodies_end:
            return self.check == 0
        return crc32(memoryview(self.data)[self.bodies_at : self.bodies_end]) == self.check


def run_bytes(put: Put, size: int) -> int:
    """Return the size of a Put's record, whose bodies have ``size`` bytes in total."""
    table = 8 * len(put.bodies)
    return HEADER_BYTES + RUN_FIELDS.size + len(put.place.encode()) + len(put.head) + table + size


def encode_segment_header(header: SegmentHeader) -> bytes:
    """Encode the first bytes of a segment."""
    packed = SEGMENT.pack(
        MAGIC, header.version, header.marker, header.number, header.commit, header.next_id
    )
    return packed + CRC.pack(crc32(packed))


def decode_segment_header(data: bytes) -> SegmentHeader | None:
    """Decode the header of a segment, or None if it is damaged."""
    packed = data[: SEGMENT.size]
    if len(data) < SEGMENT_HEADER_BYTES or data[SEGMENT.size :][: CRC.size] != CRC.pack(
        crc32(packed)
    ):
        return None
    magic, version, marker, number, commit, next_id = SEGMENT.unpack(packed)
    if magic != MAGIC:
        return None
    return SegmentHeader(marker, number, commit, next_id, version)


def parse_header(data: bytes, at: int, base: int, marker: bytes) -> Found | int:
    """Parse the record at ``at`` in ``data``, which begins at position ``base`` of its file.

    Returns:
      The record if its header and front are valid; -1 if it is damaged; the length that its header
      claims if ``data`` ends within its front.
    """
    if not data.startswith(marker, at):
        return -1
    fields: tuple[bytes, int, int, int, int] = FIELDS.unpack_from(data, at)
    _, kind, front, bodies, check = fields
    front_at = at + HEADER_BYTES
    bodies_at = front_at + front
    if bodies_at > len(data):
        return HEADER_BYTES + front + bodies
    expected: int = CRC.unpack_from(data, at + FIELDS.size)[0]
    view = memoryview(data)
    if crc32(view[front_at:bodies_at], crc32(view[at : at + FIELDS.size])) != expected:
        return -1
    end = bodies_at + bodies
    return Found(
        base + at,
        end=base + end,
        kind=kind,
        data=data,
        front_at=front_at,
        bodies_at=bodies_at,
        bodies_end=end,
        check=check,
    )
