"""Floor 3: the bytes of connections, TLS, HTTP and WebSocket, without STOMP.

Handles: sockets and streams, protocol detection, HTTP heads, WebSocket frames.
Does not handle: the meaning of the bytes, authentication, time limits.
"""

from trio_stomp.transport.http import UPGRADE_REQUIRED_HEADERS as UPGRADE_REQUIRED_HEADERS
from trio_stomp.transport.http import HttpError as HttpError
from trio_stomp.transport.http import HttpRequest as HttpRequest
from trio_stomp.transport.http import ProxyNetworks as ProxyNetworks
from trio_stomp.transport.http import Relayed as Relayed
from trio_stomp.transport.http import RequestReader as RequestReader
from trio_stomp.transport.http import Speech as Speech
from trio_stomp.transport.http import Voucher as Voucher
from trio_stomp.transport.http import accept_websocket as accept_websocket
from trio_stomp.transport.http import check_origin as check_origin
from trio_stomp.transport.http import encode_response as encode_response
from trio_stomp.transport.http import is_forwarded as is_forwarded
from trio_stomp.transport.http import names_this_machine as names_this_machine
from trio_stomp.transport.http import read_proxy_header as read_proxy_header
from trio_stomp.transport.http import read_relay_header as read_relay_header
from trio_stomp.transport.http import relay_header as relay_header
from trio_stomp.transport.http import sniff as sniff
from trio_stomp.transport.tls import LinkTls as LinkTls
from trio_stomp.transport.tls import TlsBox as TlsBox
from trio_stomp.transport.tls import TlsError as TlsError
from trio_stomp.transport.tls import TlsWire as TlsWire
from trio_stomp.transport.websocket import JSON_GROWTH as JSON_GROWTH
from trio_stomp.transport.websocket import SOCKJS_HEARTBEAT as SOCKJS_HEARTBEAT
from trio_stomp.transport.websocket import SOCKJS_HEARTBEAT_S as SOCKJS_HEARTBEAT_S
from trio_stomp.transport.websocket import SOCKJS_OPEN as SOCKJS_OPEN
from trio_stomp.transport.websocket import SockJsCodec as SockJsCodec
from trio_stomp.transport.websocket import WebSocketClose as WebSocketClose
from trio_stomp.transport.websocket import WebSocketCodec as WebSocketCodec
from trio_stomp.transport.websocket import asks_sockjs as asks_sockjs
from trio_stomp.transport.websocket import asks_sockjs_info as asks_sockjs_info
from trio_stomp.transport.websocket import frame_message as frame_message
from trio_stomp.transport.websocket import quote_sockjs as quote_sockjs
from trio_stomp.transport.websocket import sockjs_info as sockjs_info
from trio_stomp.transport.websocket import sockjs_message as sockjs_message
from trio_stomp.transport.websocket import splice as splice
from trio_stomp.transport.websocket import splice_sockjs as splice_sockjs
from trio_stomp.transport.wire import MAX_BEHIND as MAX_BEHIND
from trio_stomp.transport.wire import MemoryStream as MemoryStream
from trio_stomp.transport.wire import SlicedPoll as SlicedPoll
from trio_stomp.transport.wire import SocketWire as SocketWire
from trio_stomp.transport.wire import StreamWire as StreamWire
from trio_stomp.transport.wire import Wire as Wire
from trio_stomp.transport.wire import WireStream as WireStream
from trio_stomp.transport.wire import memory_stream_pair as memory_stream_pair
from trio_stomp.transport.wire import wire_over as wire_over
