"""Pages and operations of a node with partitions, so that any node answers for the whole cluster.

Handles: who answers a request (the owner of a partition, a node, or this one), lists and sums over
all partitions and nodes, the metrics of this node.
Does not handle: the figures themselves; see ``web`` and ``diag``.
"""

from trio_stomp.startup.pages._peers import Peers as Peers
from trio_stomp.startup.pages._routing import answer_for_all as answer_for_all
