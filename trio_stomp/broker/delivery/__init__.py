"""Basic types of the core: clients, subscriptions, deliveries, time and events.

Handles: these types, time shares of a turn, timers, the event history, policies.
Does not handle: the table of destinations and routing; see ``routing``.
"""

from trio_stomp.broker.delivery._above import AnyConsumer as AnyConsumer
from trio_stomp.broker.delivery._delivery import ASK as ASK
from trio_stomp.broker.delivery._delivery import MANY_RECIPIENTS as MANY_RECIPIENTS
from trio_stomp.broker.delivery._delivery import NEVER as NEVER
from trio_stomp.broker.delivery._delivery import STALE_GENERATION as STALE_GENERATION
from trio_stomp.broker.delivery._delivery import Delivery as Delivery
from trio_stomp.broker.delivery._delivery import Destination as Destination
from trio_stomp.broker.delivery._delivery import Publication as Publication
from trio_stomp.broker.delivery._event_history import DeliveryReason as DeliveryReason
from trio_stomp.broker.delivery._event_history import EventHistory as EventHistory
from trio_stomp.broker.delivery._event_history import LossReason as LossReason
from trio_stomp.broker.delivery._event_history import lifetime_rule as lifetime_rule
from trio_stomp.broker.delivery._histogram import BOUNDS_MS as BOUNDS_MS
from trio_stomp.broker.delivery._histogram import Histogram as Histogram
from trio_stomp.broker.delivery._history_events import Browsed as Browsed
from trio_stomp.broker.delivery._history_events import Delivered as Delivered
from trio_stomp.broker.delivery._history_events import Given as Given
from trio_stomp.broker.delivery._history_events import Happened as Happened
from trio_stomp.broker.delivery._history_events import HistoryEvent as HistoryEvent
from trio_stomp.broker.delivery._history_events import Lost as Lost
from trio_stomp.broker.delivery._history_events import Numbered as Numbered
from trio_stomp.broker.delivery._history_events import Queued as Queued
from trio_stomp.broker.delivery._history_events import Sent as Sent
from trio_stomp.broker.delivery._history_events import Settled as Settled
from trio_stomp.broker.delivery._history_events import Shown as Shown
from trio_stomp.broker.delivery._history_events import Span as Span
from trio_stomp.broker.delivery._message_ids import MAX_DIGITS as MAX_DIGITS
from trio_stomp.broker.delivery._message_ids import MessageNames as MessageNames
from trio_stomp.broker.delivery._message_ids import may_have_been_given as may_have_been_given
from trio_stomp.broker.delivery._policies import DISCONNECT as DISCONNECT
from trio_stomp.broker.delivery._policies import DROP_NEWEST as DROP_NEWEST
from trio_stomp.broker.delivery._policies import DROP_OLDEST as DROP_OLDEST
from trio_stomp.broker.delivery._policies import SEED as SEED
from trio_stomp.broker.delivery._policies import BrokerPolicies as BrokerPolicies
from trio_stomp.broker.delivery._ports import Census as Census
from trio_stomp.broker.delivery._ports import Guest as Guest
from trio_stomp.broker.delivery._ports import NullOutbox as NullOutbox
from trio_stomp.broker.delivery._ports import TakesCensus as TakesCensus
from trio_stomp.broker.delivery._seen import UNWRITTEN as UNWRITTEN
from trio_stomp.broker.delivery._seen import Seen as Seen
from trio_stomp.broker.delivery._seen import SeenId as SeenId
from trio_stomp.broker.delivery._subscription import AnyBinding as AnyBinding
from trio_stomp.broker.delivery._subscription import Client as Client
from trio_stomp.broker.delivery._subscription import Give as Give
from trio_stomp.broker.delivery._subscription import Member as Member
from trio_stomp.broker.delivery._subscription import Outbox as Outbox
from trio_stomp.broker.delivery._subscription import Subscription as Subscription
from trio_stomp.broker.delivery._subscription import Target as Target
from trio_stomp.broker.delivery._timers import Timers as Timers
from trio_stomp.broker.delivery._turn_away import turn_away as turn_away
from trio_stomp.broker.delivery._turns import PUMP_S as PUMP_S
from trio_stomp.broker.delivery._turns import SHARE_S as SHARE_S
from trio_stomp.broker.delivery._turns import NotYet as NotYet
from trio_stomp.broker.delivery._turns import Stop as Stop
from trio_stomp.broker.delivery._turns import Turns as Turns
from trio_stomp.broker.delivery._turns import TurnsHost as TurnsHost
from trio_stomp.broker.delivery._turns import Work as Work
from trio_stomp.broker.delivery._turns import after as after
from trio_stomp.broker.delivery._wall_time import STEPS as STEPS
from trio_stomp.broker.delivery._wall_time import DayEnd as DayEnd
from trio_stomp.broker.delivery._wall_time import WallTime as WallTime
