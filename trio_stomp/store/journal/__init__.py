"""The journal: the store's log of messages, in segments.

Handles: appending, recovery, deleting finished messages, reading messages back.
Does not handle: streams, which have logs of their own; SQL.
"""

from trio_stomp.store.journal._ending import find_ending as find_ending
from trio_stomp.store.journal._journal import JournalStore as JournalStore
from trio_stomp.store.journal._opening import replay as replay
from trio_stomp.store.journal._replay import summarize as summarize
from trio_stomp.store.journal._scan import DAMAGED as DAMAGED
from trio_stomp.store.journal._scan import TORN as TORN
from trio_stomp.store.journal._scan import scan as scan
from trio_stomp.store.journal._segment import Segment as Segment
from trio_stomp.store.journal._segment import list_segments as list_segments
from trio_stomp.store.journal._segment import read_header as read_header
from trio_stomp.store.journal._shared import Shared as Shared
