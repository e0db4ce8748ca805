"""SEND: immediate, scheduled or in a transaction.

Handles: plans, receipts, schedules, BEGIN to COMMIT, temporary destinations.
Does not handle: recipients; see ``routing`` and ``queues``.
"""

from trio_stomp.broker.sending._context import SendContext as SendContext
from trio_stomp.broker.sending._dead_letters import send_dead as send_dead
from trio_stomp.broker.sending._due import DueSender as DueSender
from trio_stomp.broker.sending._duplicates import SEEN as SEEN
from trio_stomp.broker.sending._duplicates import Duplicates as Duplicates
from trio_stomp.broker.sending._duplicates import read_ids as read_ids
from trio_stomp.broker.sending._leftover_requests import LeftoverRequests as LeftoverRequests
from trio_stomp.broker.sending._leftover_requests import read_question as read_question
from trio_stomp.broker.sending._publisher import Publisher as Publisher
from trio_stomp.broker.sending._room import Planned as Planned
from trio_stomp.broker.sending._scheduled import SCHEDULED as SCHEDULED
from trio_stomp.broker.sending._scheduled import Progress as Progress
from trio_stomp.broker.sending._scheduled import Scheduled as Scheduled
from trio_stomp.broker.sending._scheduled import read_progress as read_progress
from trio_stomp.broker.sending._scheduler import Scheduler as Scheduler
from trio_stomp.broker.sending._send_later import Later as Later
from trio_stomp.broker.sending._send_later import SendLater as SendLater
from trio_stomp.broker.sending._temporary import Temporary as Temporary
from trio_stomp.broker.sending._temporary import unguessable as unguessable
from trio_stomp.broker.sending._to_queue import QueueSender as QueueSender
from trio_stomp.broker.sending._to_topic import TopicSender as TopicSender
from trio_stomp.broker.sending._transaction import TransactionCommitter as TransactionCommitter
