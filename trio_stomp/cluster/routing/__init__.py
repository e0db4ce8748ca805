"""The sessions of clients at a node of a cluster with several partitions.

Handles: the partition of a destination, one connection to the owner of each partition that a client
uses, the order of RECEIPTs over partitions, requests that concern all partitions, messages of
transactions for other partitions.
Does not handle: messaging, which the owners do; the sockets of clients; see ``server``.
"""

from trio_stomp.cluster.routing._forwarder import Forwarder as Forwarder
from trio_stomp.cluster.routing._forwards import Forward as Forward
from trio_stomp.cluster.routing._forwards import Forwards as Forwards
from trio_stomp.cluster.routing._forwards import forwards_of as forwards_of
from trio_stomp.cluster.routing._local import LocalLink as LocalLink
from trio_stomp.cluster.routing._parting import Parting as Parting
from trio_stomp.cluster.routing._parting import parts_of as parts_of
from trio_stomp.cluster.routing._placement import MAX_PARTITIONS as MAX_PARTITIONS
from trio_stomp.cluster.routing._placement import Placement as Placement
from trio_stomp.cluster.routing._placement import make_core as make_core
from trio_stomp.cluster.routing._placement import mark as mark
from trio_stomp.cluster.routing._router import Router as Router
