"""Operators' operations on a queue and its messages: browse, purge, move, retry, pause.

Handles: walking through a queue in steps, selecting messages, removing or moving them. Does not
handle: authorization, requests and answers; see ``web``.
"""

from trio_stomp.broker.managing._manager import Choice as Choice
from trio_stomp.broker.managing._manager import Manager as Manager
from trio_stomp.broker.managing._operation import Operation as Operation
from trio_stomp.broker.managing._operation import Step as Step
from trio_stomp.broker.managing._retry import Retry as Retry
