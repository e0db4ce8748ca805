"""The bytes between a client of NATS and its server, without I/O.

Handles: operations, header blocks, their limits. Does not handle: connections, and the order of
operations.
"""

from trio_stomp.nats.codec._errors import NatsError as NatsError
from trio_stomp.nats.codec._errors import NatsProtocolError as NatsProtocolError
from trio_stomp.nats.codec._headers import Headers as Headers
from trio_stomp.nats.codec._headers import encode_headers as encode_headers
from trio_stomp.nats.codec._headers import parse_headers as parse_headers
from trio_stomp.nats.codec._protocol import PING as PING
from trio_stomp.nats.codec._protocol import PONG as PONG
from trio_stomp.nats.codec._protocol import Event as Event
from trio_stomp.nats.codec._protocol import Info as Info
from trio_stomp.nats.codec._protocol import Message as Message
from trio_stomp.nats.codec._protocol import NatsDecoder as NatsDecoder
from trio_stomp.nats.codec._protocol import ServerFault as ServerFault
from trio_stomp.nats.codec._protocol import Signal as Signal
from trio_stomp.nats.codec._protocol import check_subject as check_subject
from trio_stomp.nats.codec._protocol import encode_connect as encode_connect
from trio_stomp.nats.codec._protocol import encode_publish as encode_publish
from trio_stomp.nats.codec._protocol import encode_subscribe as encode_subscribe
from trio_stomp.nats.codec._protocol import encode_unsubscribe as encode_unsubscribe
from trio_stomp.nats.codec._protocol import parse_object as parse_object
