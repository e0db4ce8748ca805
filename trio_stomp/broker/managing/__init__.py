"""What operators do to a queue and its messages: look, purge, move, retry, pause.

Handles: the walk through a queue in steps, the choice of messages, their removal or move.
Does not handle: who may do it, requests and answers; see ``web``.
"""

from trio_stomp.broker.managing._manager import Choice as Choice
from trio_stomp.broker.managing._manager import Manager as Manager
from trio_stomp.broker.managing._operation import Operation as Operation
from trio_stomp.broker.managing._operation import Step as Step
from trio_stomp.broker.managing._retry import Retry as Retry
