"""Browsers, which list a queue's messages without consuming them.

Handles: cursors, pages from the store, a time share for each turn.
Does not handle: consuming; see ``queues``.
"""

from trio_stomp.broker.browsing._browse import Browse as Browse
from trio_stomp.broker.browsing._browses import Browses as Browses
