"""Floor 4: the client, for Trio and asyncio.

Handles: connections that are re-established, receipts, subscriptions with bounded buffers,
requests.
Does not handle: the broker, with which it shares only ``frames`` and ``protocol``.
"""

from trio_stomp.client._awaited import Receipt as Receipt
from trio_stomp.client._client import Client as Client
from trio_stomp.client._core import ClientEvent as ClientEvent
from trio_stomp.client._errors import AuthenticationError as AuthenticationError
from trio_stomp.client._errors import BrokerError as BrokerError
from trio_stomp.client._errors import ClientClosed as ClientClosed
from trio_stomp.client._errors import ClientError as ClientError
from trio_stomp.client._errors import ConnectFailed as ConnectFailed
from trio_stomp.client._errors import LinkLost as LinkLost
from trio_stomp.client._errors import NoResponder as NoResponder
from trio_stomp.client._errors import NotAuthorized as NotAuthorized
from trio_stomp.client._errors import ProtocolViolation as ProtocolViolation
from trio_stomp.client._errors import Refused as Refused
from trio_stomp.client._errors import RequestTimedOut as RequestTimedOut
from trio_stomp.client._errors import SlowConsumer as SlowConsumer
from trio_stomp.client._errors import StaleMessage as StaleMessage
from trio_stomp.client._message import Message as Message
from trio_stomp.client._open import open_client as open_client
from trio_stomp.client._reconnect import ReconnectPolicy as ReconnectPolicy
from trio_stomp.client._subscription import Subscription as Subscription
from trio_stomp.client._transaction import Transaction as Transaction
from trio_stomp.client.loops import AsyncioConnector as AsyncioConnector
from trio_stomp.client.loops import Connector as Connector
from trio_stomp.client.loops import Receiver as Receiver
