"""The binary format of the journal's records.

Handles: encoding and decoding of a record, with its checksums.
Does not handle: files.
"""

from trio_stomp.store.journal.format._decode import Run as Run
from trio_stomp.store.journal.format._decode import bad_ids as bad_ids
from trio_stomp.store.journal.format._decode import decode_commit as decode_commit
from trio_stomp.store.journal.format._decode import decode_run as decode_run
from trio_stomp.store.journal.format._decode import decode_small as decode_small
from trio_stomp.store.journal.format._decode import nested_in as nested_in
from trio_stomp.store.journal.format._decode import split as split
from trio_stomp.store.journal.format._encode import encode as encode
from trio_stomp.store.journal.format._encode import encode_commit as encode_commit
from trio_stomp.store.journal.format._format import ATOMIC as ATOMIC
from trio_stomp.store.journal.format._format import COMMIT as COMMIT
from trio_stomp.store.journal.format._format import COMMIT_BYTES as COMMIT_BYTES
from trio_stomp.store.journal.format._format import COPY as COPY
from trio_stomp.store.journal.format._format import HEADER_BYTES as HEADER_BYTES
from trio_stomp.store.journal.format._format import MARKER_BYTES as MARKER_BYTES
from trio_stomp.store.journal.format._format import PUT as PUT
from trio_stomp.store.journal.format._format import READABLE as READABLE
from trio_stomp.store.journal.format._format import SEGMENT_HEADER_BYTES as SEGMENT_HEADER_BYTES
from trio_stomp.store.journal.format._format import VERSION as VERSION
from trio_stomp.store.journal.format._format import Commit as Commit
from trio_stomp.store.journal.format._format import Copy as Copy
from trio_stomp.store.journal.format._format import Found as Found
from trio_stomp.store.journal.format._format import SegmentHeader as SegmentHeader
from trio_stomp.store.journal.format._format import Small as Small
from trio_stomp.store.journal.format._format import decode_segment_header as decode_segment_header
from trio_stomp.store.journal.format._format import encode_segment_header as encode_segment_header
from trio_stomp.store.journal.format._format import parse_header as parse_header
from trio_stomp.store.journal.format._format import run_bytes as run_bytes
