"""Routing of messages to subscribers.

Handles: the table of destinations, their policies, fan-out, quotas, the cost of tables in memory.
Does not handle: the content of queues and streams; see ``queues`` and ``streams``.
"""

from trio_stomp.broker.routing._destination_policy import BLOCK as BLOCK
from trio_stomp.broker.routing._destination_policy import DEAD_LETTER as DEAD_LETTER
from trio_stomp.broker.routing._destination_policy import REJECT as REJECT
from trio_stomp.broker.routing._destination_policy import DestinationPolicy as DestinationPolicy
from trio_stomp.broker.routing._destination_policy import PolicyBook as PolicyBook
from trio_stomp.broker.routing._destination_policy import read_policy as read_policy
from trio_stomp.broker.routing._destinations import Destinations as Destinations
from trio_stomp.broker.routing._destinations import too_many_subscribers as too_many_subscribers
from trio_stomp.broker.routing._events import BrokerEvent as BrokerEvent
from trio_stomp.broker.routing._events import BrokerEvents as BrokerEvents
from trio_stomp.broker.routing._events import hint_at as hint_at
from trio_stomp.broker.routing._fanout import FanOut as FanOut
from trio_stomp.broker.routing._quotas import Quotas as Quotas
from trio_stomp.broker.routing._quotas import beyond_quota as beyond_quota
from trio_stomp.broker.routing._quotas import kept_rule as kept_rule
from trio_stomp.broker.routing._quotas import stored_rule as stored_rule
from trio_stomp.broker.routing._table_costs import BINDING_BYTES as BINDING_BYTES
from trio_stomp.broker.routing._table_costs import JOIN_BYTES as JOIN_BYTES
from trio_stomp.broker.routing._table_costs import PASSED_BYTES as PASSED_BYTES
from trio_stomp.broker.routing._table_costs import force_selector as force_selector
from trio_stomp.broker.routing._table_costs import hold_selector as hold_selector
from trio_stomp.broker.routing._table_costs import id_cost as id_cost
from trio_stomp.broker.routing._table_costs import no_memory_for as no_memory_for
from trio_stomp.broker.routing._table_costs import no_table_memory as no_table_memory
from trio_stomp.broker.routing._table_costs import release_selector as release_selector
from trio_stomp.broker.routing._table_costs import subscription_cost as subscription_cost
from trio_stomp.broker.routing._table_costs import targets_cost as targets_cost
