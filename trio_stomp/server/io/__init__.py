"""The buffers between connections and the dispatcher: one inbox, and an outbox per connection.

Handles: bounds, order, write queues, framing for each transport.
Does not handle: the meaning of frames.
"""

from trio_stomp.server.io._bugs import CONNECTION as CONNECTION
from trio_stomp.server.io._bugs import STORE as STORE
from trio_stomp.server.io._bugs import TURN as TURN
from trio_stomp.server.io._bugs import Bugs as Bugs
from trio_stomp.server.io._bugs import shape_of as shape_of
from trio_stomp.server.io._framing import SockJsMessages as SockJsMessages
from trio_stomp.server.io._framing import WebSocketMessages as WebSocketMessages
from trio_stomp.server.io._inbox import Batch as Batch
from trio_stomp.server.io._inbox import ConnectionEnd as ConnectionEnd
from trio_stomp.server.io._inbox import Control as Control
from trio_stomp.server.io._inbox import Inbox as Inbox
from trio_stomp.server.io._inbox import Item as Item
from trio_stomp.server.io._items import lose_some as lose_some
from trio_stomp.server.io._outbox import Outbox as Outbox
from trio_stomp.server.io._outbox import OutboxShared as OutboxShared
from trio_stomp.server.io._outbox import Output as Output
from trio_stomp.server.io._read_turns import MOST_S as MOST_S
from trio_stomp.server.io._read_turns import Owner as Owner
from trio_stomp.server.io._read_turns import ReadTurns as ReadTurns
