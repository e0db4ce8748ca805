"""Wires: the server's interface to the bytes of a connection.

Handles: TCP sockets, Trio's streams, memory streams, and polling thousands of sockets.
Does not handle: TLS, HTTP, WebSocket.
"""

from trio_stomp.transport.wire._memory_stream import MemoryStream as MemoryStream
from trio_stomp.transport.wire._memory_stream import memory_stream_pair as memory_stream_pair
from trio_stomp.transport.wire._sliced_poll import SlicedPoll as SlicedPoll
from trio_stomp.transport.wire._wire import MAX_BEHIND as MAX_BEHIND
from trio_stomp.transport.wire._wire import Piece as Piece
from trio_stomp.transport.wire._wire import SocketWire as SocketWire
from trio_stomp.transport.wire._wire import StreamWire as StreamWire
from trio_stomp.transport.wire._wire import Wire as Wire
from trio_stomp.transport.wire._wire import WireStream as WireStream
from trio_stomp.transport.wire._wire import wire_over as wire_over
