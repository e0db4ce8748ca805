"""SUBSCRIBE, UNSUBSCRIBE, and the end of a client's subscriptions when it disconnects.

Handles: these steps, spread over several turns for large subscriptions.
Does not handle: deliveries; see ``delivery``.
"""

from trio_stomp.broker.subscribing._leaving import LOST as LOST
from trio_stomp.broker.subscribing._leaving import Leaving as Leaving
from trio_stomp.broker.subscribing._subscriber import Subscriptions as Subscriptions
from trio_stomp.broker.subscribing._unsubscriber import Unsubscriber as Unsubscriber
