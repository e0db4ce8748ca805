"""SUBSCRIBE and UNSUBSCRIBE, and the subscriptions of who leaves.

Handles: the steps, in pieces where there are many.
Does not handle: what is delivered then.
"""

from trio_stomp.broker.subscribing._leaving import LOST as LOST
from trio_stomp.broker.subscribing._leaving import Leaving as Leaving
from trio_stomp.broker.subscribing._subscriber import Subscriber as Subscriber
from trio_stomp.broker.subscribing._unsubscriber import Unsubscriber as Unsubscriber
