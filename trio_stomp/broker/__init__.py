"""Floor 2: the synchronous messaging core.

Handles: destinations, subscriptions, queues, topics, streams, transactions, receipts and errors.
Does not handle: sockets, tasks, clocks.
"""

from trio_stomp.base import MemoryBudget as MemoryBudget
from trio_stomp.broker._broker import Broker as Broker
from trio_stomp.broker._recovery import Recovery as Recovery
from trio_stomp.broker.delivery import BOUNDS_MS as BOUNDS_MS
from trio_stomp.broker.delivery import NEVER as NEVER
from trio_stomp.broker.delivery import BrokerPolicies as BrokerPolicies
from trio_stomp.broker.delivery import Census as Census
from trio_stomp.broker.delivery import Client as Client
from trio_stomp.broker.delivery import Delivery as Delivery
from trio_stomp.broker.delivery import Histogram as Histogram
from trio_stomp.broker.delivery import Outbox as Outbox
from trio_stomp.broker.delivery import Publication as Publication
from trio_stomp.broker.delivery import Subscription as Subscription
from trio_stomp.broker.delivery import WallTime as WallTime
from trio_stomp.broker.durability import SOON_S as SOON_S
from trio_stomp.broker.durability import Log as Log
from trio_stomp.broker.durability import PageWanted as PageWanted
from trio_stomp.broker.durability import StreamWanted as StreamWanted
from trio_stomp.broker.headers import dialect as dialect
from trio_stomp.broker.headers import error_frame as error_frame
from trio_stomp.broker.headers import internal_error as internal_error
from trio_stomp.broker.names import DIAG_STREAM as DIAG_STREAM
from trio_stomp.broker.names import base36 as base36
from trio_stomp.broker.queues import Queue as Queue
from trio_stomp.broker.routing import Binding as Binding
from trio_stomp.broker.routing import BrokerEvent as BrokerEvent
from trio_stomp.broker.routing import Destination as Destination
from trio_stomp.broker.routing import DestinationPolicy as DestinationPolicy
from trio_stomp.broker.routing import PolicyBook as PolicyBook
from trio_stomp.broker.routing import read_policy as read_policy
from trio_stomp.broker.rules import AccessRules as AccessRules
from trio_stomp.broker.rules import Action as Action
from trio_stomp.broker.rules import Need as Need
from trio_stomp.broker.rules import Rule as Rule
from trio_stomp.broker.rules import Verdict as Verdict
from trio_stomp.broker.rules import built_in_rules as built_in_rules
from trio_stomp.broker.rules import hides as hides
from trio_stomp.broker.rules import needs as needs
from trio_stomp.broker.rules import places as places
from trio_stomp.broker.streams import Retention as Retention
from trio_stomp.broker.streams import Stream as Stream
from trio_stomp.broker.topics import ParkedDestination as ParkedDestination
