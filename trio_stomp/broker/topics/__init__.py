"""Messages that topics store for later subscribers.

Handles: parked messages, last values, durable subscriptions, initial deliveries.
Does not handle: fan-out; see ``routing``.
"""

from trio_stomp.broker.topics._binding import Binding as Binding
from trio_stomp.broker.topics._bindings import Bindings as Bindings
from trio_stomp.broker.topics._durables import PREFIX as PREFIX
from trio_stomp.broker.topics._durables import Durables as Durables
from trio_stomp.broker.topics._durables import ambiguous as ambiguous
from trio_stomp.broker.topics._durables import is_shared as is_shared
from trio_stomp.broker.topics._durables import read_back as read_back
from trio_stomp.broker.topics._durables import unknown as unknown
from trio_stomp.broker.topics._initial_delivery import CatchUp as CatchUp
from trio_stomp.broker.topics._initial_delivery import InitialDelivery as InitialDelivery
from trio_stomp.broker.topics._last_values import NOBODY as NOBODY
from trio_stomp.broker.topics._last_values import PLACE as PLACE
from trio_stomp.broker.topics._last_values import LastValueOwner as LastValueOwner
from trio_stomp.broker.topics._last_values import LastValues as LastValues
from trio_stomp.broker.topics._stale import ParkedDestination as ParkedDestination
from trio_stomp.broker.topics._stale import StaleQueue as StaleQueue
