"""SENDs for other brokers of a cluster, which are stored here and sent on.

Handles: which SENDs these are, their place in the store, recovery.
Does not handle: connections to the other brokers; see ``cluster``.
"""

from trio_stomp.broker.forwarding._forwards import FORWARD as FORWARD
from trio_stomp.broker.forwarding._forwards import FORWARDS as FORWARDS
from trio_stomp.broker.forwarding._forwards import Forward as Forward
from trio_stomp.broker.forwarding._forwards import Forwards as Forwards
from trio_stomp.broker.forwarding._forwards import check_none as check_none
