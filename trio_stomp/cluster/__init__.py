"""Several nodes as one broker: a store whose authority is a replicated log.

Handles: the log's entries, a store that writes to it and applies it to local state, leases, and
relaying clients to the node that owns the log.
Does not handle: serving clients as the owner; see ``server``.
"""

from trio_stomp.cluster._commit_log import CommitLog as CommitLog
from trio_stomp.cluster._commit_log import InDoubt as InDoubt
from trio_stomp.cluster._commit_log import LogEntry as LogEntry
from trio_stomp.cluster._dial import Contact as Contact
from trio_stomp.cluster._dial import Dialer as Dialer
from trio_stomp.cluster._engine import ClusterNames as ClusterNames
from trio_stomp.cluster._engine import Layout as Layout
from trio_stomp.cluster._engine import open_engine as open_engine
from trio_stomp.cluster._engine import open_log as open_log
from trio_stomp.cluster._gate import Gate as Gate
from trio_stomp.cluster._jetstream_log import JetStreamLog as JetStreamLog
from trio_stomp.cluster._local_state import LocalState as LocalState
from trio_stomp.cluster._local_state import Newest as Newest
from trio_stomp.cluster._local_state import OtherLog as OtherLog
from trio_stomp.cluster._move_in import check_unused as check_unused
from trio_stomp.cluster._move_in import move_in as move_in
from trio_stomp.cluster._node import Node as Node
from trio_stomp.cluster._node import lease_of as lease_of
from trio_stomp.cluster._orders import Digest as Digest
from trio_stomp.cluster._orders import Report as Report
from trio_stomp.cluster._orders import ask_nodes as ask_nodes
from trio_stomp.cluster._orders import check_alone as check_alone
from trio_stomp.cluster._orders import figures_of as figures_of
from trio_stomp.cluster._orders import heir_of as heir_of
from trio_stomp.cluster._replicated_store import ReplicatedStore as ReplicatedStore
from trio_stomp.cluster._snapshot import Snapshot as Snapshot
from trio_stomp.cluster._snapshot import newest as newest
from trio_stomp.cluster._snapshot import write_snapshot as write_snapshot
from trio_stomp.cluster._vacate import vacate as vacate
from trio_stomp.cluster.leases import Followers as Followers
from trio_stomp.cluster.leases import Lease as Lease
from trio_stomp.cluster.leases import LeaseOptions as LeaseOptions
from trio_stomp.cluster.leases import lease_time as lease_time
