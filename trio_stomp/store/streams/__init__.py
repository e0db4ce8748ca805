"""Stream logs: one append-only log for each stream, with an index by offset and time.

Handles: appending, reading from an offset, retention, recovery and damage.
Does not handle: subscriptions and their offsets; see ``broker.streams``.
"""

from trio_stomp.store.streams._recovery import NO_JOURNAL as NO_JOURNAL
from trio_stomp.store.streams._recovery import JournalState as JournalState
from trio_stomp.store.streams._streams import Streams as Streams
from trio_stomp.store.streams._streams import is_bound as is_bound
from trio_stomp.store.streams._streams import journal_records as journal_records
from trio_stomp.store.streams._streams import stream_records as stream_records
