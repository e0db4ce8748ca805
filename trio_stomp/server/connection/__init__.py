"""A connection, from its first byte to its last.

Handles: opening, login, reading, decoding, heart-beats, the farewell.
Does not handle: messaging; batches of frames go to the dispatcher.
"""

from trio_stomp.server.connection._connection import Connection as Connection
from trio_stomp.server.connection._connection import ConnectionShared as ConnectionShared
from trio_stomp.server.connection._decoding import WebSocketReads as WebSocketReads
from trio_stomp.server.connection._login import end_revoked as end_revoked
from trio_stomp.server.connection._pages import Pages as Pages
