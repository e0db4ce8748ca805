"""Queues, which deliver each message to one consumer.

Handles: waiting messages, consumers, credit, hand-out, ACK and NACK, message groups, overflow,
dead letters.
Does not handle: the options of a SUBSCRIBE; see ``subscribing``.
"""

from trio_stomp.broker.queues._acknowledger import AckCounters as AckCounters
from trio_stomp.broker.queues._acknowledger import Acknowledger as Acknowledger
from trio_stomp.broker.queues._acknowledger import without_covered as without_covered
from trio_stomp.broker.queues._claim import Claim as Claim
from trio_stomp.broker.queues._consumer import AUTO as AUTO
from trio_stomp.broker.queues._consumer import AUTO_BATCH_BYTES as AUTO_BATCH_BYTES
from trio_stomp.broker.queues._consumer import CLIENT as CLIENT
from trio_stomp.broker.queues._consumer import Consumer as Consumer
from trio_stomp.broker.queues._consumer import Source as Source
from trio_stomp.broker.queues._message import MESSAGE_OVERHEAD_BYTES as MESSAGE_OVERHEAD_BYTES
from trio_stomp.broker.queues._message import DeadLetterReason as DeadLetterReason
from trio_stomp.broker.queues._message import Message as Message
from trio_stomp.broker.queues._message import charge as charge
from trio_stomp.broker.queues._message import cost_alone as cost_alone
from trio_stomp.broker.queues._message import cost_of as cost_of
from trio_stomp.broker.queues._overflow import Admission as Admission
from trio_stomp.broker.queues._overflow import Need as Need
from trio_stomp.broker.queues._overflow import Overflow as Overflow
from trio_stomp.broker.queues._overflow import QueueFull as QueueFull
from trio_stomp.broker.queues._queue import AGAIN_S as AGAIN_S
from trio_stomp.broker.queues._queue import PLACE as PLACE
from trio_stomp.broker.queues._queue import Queue as Queue
from trio_stomp.broker.queues._queue import queue_of as queue_of
from trio_stomp.broker.queues._queues import QueueBook as QueueBook
from trio_stomp.broker.queues._readers import Readers as Readers
from trio_stomp.broker.queues._storage import Storage as Storage
from trio_stomp.broker.queues._storage import head_lines as head_lines
from trio_stomp.broker.queues._waiting import LEVELS as LEVELS
from trio_stomp.broker.queues._waiting import Paged as Paged
from trio_stomp.broker.queues._wildcard_queues import FEW_QUEUES as FEW_QUEUES
from trio_stomp.broker.queues._wildcard_queues import STEP as STEP
from trio_stomp.broker.queues._windows import searches as searches
