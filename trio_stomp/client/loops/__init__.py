"""The primitives of an async library that the client uses, on Trio and on asyncio.

Handles: events, cancel scopes, tasks, the clock, TCP and TLS.
Does not handle: STOMP, WebSocket, reconnecting; these exist once, above.
"""

from trio_stomp.client.loops._current import current_loop as current_loop
from trio_stomp.client.loops._loop import AsyncioConnector as AsyncioConnector
from trio_stomp.client.loops._loop import Connector as Connector
from trio_stomp.client.loops._loop import Event as Event
from trio_stomp.client.loops._loop import Loop as Loop
from trio_stomp.client.loops._loop import ParkingLot as ParkingLot
from trio_stomp.client.loops._loop import Receiver as Receiver
from trio_stomp.client.loops._loop import Scope as Scope
from trio_stomp.client.loops._loop import Sender as Sender
from trio_stomp.client.loops._loop import Stream as Stream
