"""Browses: what waits in queues, shown to somebody who takes none of it.

Handles: cursors, pages from the store, a turn's share.
Does not handle: consuming; see ``queues``.
"""

from trio_stomp.broker.browsing._browse import Browse as Browse
from trio_stomp.broker.browsing._browses import Browses as Browses
