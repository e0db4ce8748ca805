"""A connection, from its first byte to its last.

Handles: opening, login, reading, decoding, heart-beats, the farewell. Does not handle: messaging;
the dispatcher gets batches of frames.
"""

from trio_stomp.server.connection._connection import Connection as Connection
from trio_stomp.server.connection._shared import ConnectionShared as ConnectionShared
from trio_stomp.server.connection._shared import WebSocketReads as WebSocketReads
from trio_stomp.server.connection._web_pages import ANSWER_BYTES as ANSWER_BYTES
from trio_stomp.server.connection._web_pages import API as API
from trio_stomp.server.connection._web_pages import Pages as Pages
from trio_stomp.server.connection._web_pages import Send as Send
from trio_stomp.server.connection._web_pages import WebOperation as WebOperation
