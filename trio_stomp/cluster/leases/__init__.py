"""The lease of each partition: which node tries to own it, and which nodes follow it.

Handles: taking, renewing, watching and handing over leases; the choice of followers.
Does not handle: what a node does with a lease; see ``Node`` and ``Standby``.
"""

from trio_stomp.cluster.leases._followers import Followers as Followers
from trio_stomp.cluster.leases._keeper import LeaseKeeper as LeaseKeeper
from trio_stomp.cluster.leases._keeper import keep_leases as keep_leases
from trio_stomp.cluster.leases._keeper import lease_time as lease_time
from trio_stomp.cluster.leases._keeper import parse_claim as parse_claim
from trio_stomp.cluster.leases._lease import Claim as Claim
from trio_stomp.cluster.leases._lease import Lease as Lease
from trio_stomp.cluster.leases._lease import LeaseOptions as LeaseOptions
