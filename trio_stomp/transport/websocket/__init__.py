"""WebSocket and SockJS, which carry STOMP frames in messages.

Handles: the upgrade, masking, messages, pings, Close; SockJS sessions.
Does not handle: the meaning of frames.
"""

from trio_stomp.transport.websocket._sockjs import JSON_GROWTH as JSON_GROWTH
from trio_stomp.transport.websocket._sockjs import SOCKJS_HEARTBEAT as SOCKJS_HEARTBEAT
from trio_stomp.transport.websocket._sockjs import SOCKJS_HEARTBEAT_S as SOCKJS_HEARTBEAT_S
from trio_stomp.transport.websocket._sockjs import SOCKJS_OPEN as SOCKJS_OPEN
from trio_stomp.transport.websocket._sockjs import SockJsCodec as SockJsCodec
from trio_stomp.transport.websocket._sockjs import asks_sockjs as asks_sockjs
from trio_stomp.transport.websocket._sockjs import asks_sockjs_info as asks_sockjs_info
from trio_stomp.transport.websocket._sockjs import quote_sockjs as quote_sockjs
from trio_stomp.transport.websocket._sockjs import sockjs_info as sockjs_info
from trio_stomp.transport.websocket._sockjs import sockjs_message as sockjs_message
from trio_stomp.transport.websocket._sockjs import splice_sockjs as splice_sockjs
from trio_stomp.transport.websocket._websocket import WebSocketClose as WebSocketClose
from trio_stomp.transport.websocket._websocket import WebSocketCodec as WebSocketCodec
from trio_stomp.transport.websocket._websocket_frames import frame_message as frame_message
from trio_stomp.transport.websocket._websocket_frames import splice as splice
