"""The journal's bytes: records to bytes and back. Pure: no file, no clock, no chance.

A segment is a header (``SegmentHeader``) and then records. All numbers are little-endian.

| bytes | of a record |
|--:|---|
| 8 | the segment's marker: what no client knows, so that none can write a record into a body |
| 1 | kind |
| 3 | zero |
| 4 | length of the front |
| 8 | length of the bodies |
| 4 | crc-32 of the bodies as a whole |
| 4 | crc-32 of all of the above and of the front |
| | the front: all but the bodies |
| | the bodies, raw |

Each batch is led by a commit. It has a crc-32 of the headers and fronts of all that follows it in
the batch, and by theirs of the bodies; and it says up to where the segment was on the disk when it
was written: what is not whole behind that may never have been promised. In format 1 it had neither.

The front of a run also holds a length and a crc-32 for each body: if the bodies as a whole are not
what they were, it is known which of them are.
"""

from collections.abc import Sequence
from struct import Struct
from zlib import crc32

from trio_stomp.base import value
from trio_stomp.store._records import Atomic, Delivered, Done, DropPlace, Forget, Keep, Put

VERSION = 2
READABLE = (1, 2)
"""What stands in a directory may be older: it is read, and what is new is written beside it."""
MAGIC = b"trio_stomp journal\n\0"
SEGMENT = Struct("<20sI8sQQQ")
CRC = Struct("<I")
SEGMENT_HEADER_BYTES = SEGMENT.size + CRC.size

MARKER_BYTES = 8
NESTED = bytes(MARKER_BYTES)
"""In place of the marker, within an Atomic: what is in it must not be found without it."""

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
"""What has no bodies."""


@value
class SegmentHeader:
    """The header of a segment.

    Args:
      number: Segments are numbered without a gap.
      commit: The last commit before it.
      next_id: Greater than every message id used before it.
    """

    marker: bytes
    number: int
    commit: int
    next_id: int
    version: int = VERSION


@value
class Commit:
    """The record that leads each batch.

    Args:
      number: Of the last turn in it.
      turns: How many there are.
      length: Of the batch, this record included.
      next_id: Greater than every message id used so far.
      synced: Up to there the segment was on the disk before this was written; 0 in format 1.
      check: The crc of the headers and fronts of all that follows it in the batch.
      is_closed: The store was closed in order: nothing was to follow.
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
    """Messages of one Put, copied from a segment that is to be removed. Ids may have gaps."""

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
"""What the journal keeps; streams have logs of their own."""


@value
class Found:
    """A record in a piece of a file, its header and front verified.

    Args:
      offset: In the file.
      end: Likewise.
      data: The piece; where front and bodies stand in it follows.
      check: What the crc of the bodies must be.
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
    """Read the record at ``at`` of ``data``, which begins at ``base`` of its file.

    Returns:
      The record if its header and front are valid; -1 if it is damaged; else the length that it
      claims, if its front is not all in ``data``: it may be valid, once there is more.
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
