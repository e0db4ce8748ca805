"""Operators' operations on queues, streams, schedules and durable subscriptions.

Handles: walking through a queue in steps, selecting messages, removing or moving them; reading
and trimming streams; changes in steps.
Does not handle: authorization, requests and answers; see ``web``.
"""

from trio_stomp.broker.managing._choice import Choice as Choice
from trio_stomp.broker.managing._declaring import DECLARED as DECLARED
from trio_stomp.broker.managing._declaring import Deletion as Deletion
from trio_stomp.broker.managing._declaring import restore as restore
from trio_stomp.broker.managing._left import LeftManager as LeftManager
from trio_stomp.broker.managing._manager import Manager as Manager
from trio_stomp.broker.managing._operation import Operation as Operation
from trio_stomp.broker.managing._sending import Sending as Sending
from trio_stomp.broker.managing._stream_manager import Reading as Reading
from trio_stomp.broker.managing._stream_manager import StreamManager as StreamManager
from trio_stomp.broker.managing._stream_manager import Trimming as Trimming
from trio_stomp.broker.managing._task import InSteps as InSteps
from trio_stomp.broker.managing._task import Step as Step
from trio_stomp.broker.managing._task import Steps as Steps
from trio_stomp.broker.managing._task import Task as Task
