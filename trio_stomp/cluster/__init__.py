"""Several nodes as one broker: a store whose truth is a replicated log.

Handles: the log's entries, a store that writes to it and applies it to local state, leases.
Does not handle yet: links between nodes, placement.
"""

from trio_stomp.cluster._commit_log import CommitLog as CommitLog
from trio_stomp.cluster._commit_log import InDoubt as InDoubt
from trio_stomp.cluster._commit_log import LogEntry as LogEntry
from trio_stomp.cluster._jetstream_log import JetStreamLog as JetStreamLog
from trio_stomp.cluster._keeper import LeaseKeeper as LeaseKeeper
from trio_stomp.cluster._keeper import keep_leases as keep_leases
from trio_stomp.cluster._lease import Lease as Lease
from trio_stomp.cluster._lease import LeaseOptions as LeaseOptions
from trio_stomp.cluster._replicated_store import ReplicatedStore as ReplicatedStore
