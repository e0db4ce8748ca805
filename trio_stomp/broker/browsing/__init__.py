"""Browsers, which list a queue's messages without consuming them.

Handles: positions, pages from the store, a share of each turn.
Does not handle: consuming; see ``queues``.
"""

from trio_stomp.broker.browsing._browse import Browse as Browse
from trio_stomp.broker.browsing._browses import Browses as Browses
from trio_stomp.broker.browsing._walk import Walk as Walk
