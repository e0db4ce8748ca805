"""Floor 2: the synchronous messaging core.

Handles: destinations, wildcards, topics, work queues, the stale queue, receipts and errors.
Does not handle: sockets, tasks, clocks.
"""

from trio_stomp._memory import MemoryBudget as MemoryBudget
from trio_stomp.broker._broker import Broker as Broker
from trio_stomp.broker._delivery import NEVER as NEVER
from trio_stomp.broker._delivery import Delivery as Delivery
from trio_stomp.broker._delivery import Publication as Publication
from trio_stomp.broker._destination import DIAG_STREAM as DIAG_STREAM
from trio_stomp.broker._destination_policy import DestinationPolicy as DestinationPolicy
from trio_stomp.broker._destination_policy import PolicyBook as PolicyBook
from trio_stomp.broker._destination_policy import read_policy as read_policy
from trio_stomp.broker._dialect import dialect as dialect
from trio_stomp.broker._error_frame import error_frame as error_frame
from trio_stomp.broker._error_frame import internal_error as internal_error
from trio_stomp.broker._events import BrokerEvent as BrokerEvent
from trio_stomp.broker._feed import Feed as Feed
from trio_stomp.broker._histogram import BOUNDS_MS as BOUNDS_MS
from trio_stomp.broker._histogram import Histogram as Histogram
from trio_stomp.broker._log import SOON_S as SOON_S
from trio_stomp.broker._log import Log as Log
from trio_stomp.broker._log import PageWanted as PageWanted
from trio_stomp.broker._log import StreamWanted as StreamWanted
from trio_stomp.broker._policies import BrokerPolicies as BrokerPolicies
from trio_stomp.broker._ports import Census as Census
from trio_stomp.broker._ports import Outbox as Outbox
from trio_stomp.broker._queue import Queue as Queue
from trio_stomp.broker._recovery import Recovery as Recovery
from trio_stomp.broker._route import Route as Route
from trio_stomp.broker._rules import AccessRules as AccessRules
from trio_stomp.broker._rules import Action as Action
from trio_stomp.broker._rules import Need as Need
from trio_stomp.broker._rules import Rule as Rule
from trio_stomp.broker._rules import Verdict as Verdict
from trio_stomp.broker._rules import built_in_rules as built_in_rules
from trio_stomp.broker._rules import hides as hides
from trio_stomp.broker._rules import needs as needs
from trio_stomp.broker._rules import places as places
from trio_stomp.broker._stale import ParkedDestination as ParkedDestination
from trio_stomp.broker._stream import Stream as Stream
from trio_stomp.broker._streams import Retention as Retention
from trio_stomp.broker._subscriber import base36 as base36
from trio_stomp.broker._subscription import Client as Client
from trio_stomp.broker._subscription import Subscription as Subscription
from trio_stomp.broker._wall_time import WallTime as WallTime
