"""A client of NATS and JetStream for Trio.

Handles: the protocol, reconnection, requests, streams, consumers. Does not handle: the meaning of
messages, and resending them.
"""

from trio_stomp.nats._address import Address as Address
from trio_stomp.nats._address import NatsOptions as NatsOptions
from trio_stomp.nats._address import parse_address as parse_address
from trio_stomp.nats._client import NatsClient as NatsClient
from trio_stomp.nats._client import Subscription as Subscription
from trio_stomp.nats._client import open_client as open_client
from trio_stomp.nats._consumer import Entry as Entry
from trio_stomp.nats._consumer import Follower as Follower
from trio_stomp.nats._consumer import Puller as Puller
from trio_stomp.nats._consumer import follow as follow
from trio_stomp.nats._errors import Disconnected as Disconnected
from trio_stomp.nats._errors import JetStreamError as JetStreamError
from trio_stomp.nats._errors import NoAnswer as NoAnswer
from trio_stomp.nats._errors import NoResponders as NoResponders
from trio_stomp.nats._errors import NotFound as NotFound
from trio_stomp.nats._errors import OutgoingFull as OutgoingFull
from trio_stomp.nats._errors import Refused as Refused
from trio_stomp.nats._errors import WrongLastSequence as WrongLastSequence
from trio_stomp.nats._jetstream import JetStream as JetStream
from trio_stomp.nats._jetstream import Published as Published
from trio_stomp.nats._jetstream import StreamInfo as StreamInfo
from trio_stomp.nats._jetstream import expecting as expecting
from trio_stomp.nats.codec import Headers as Headers
from trio_stomp.nats.codec import Message as Message
from trio_stomp.nats.codec import NatsError as NatsError
from trio_stomp.nats.codec import NatsProtocolError as NatsProtocolError
from trio_stomp.nats.codec import encode_headers as encode_headers
from trio_stomp.nats.codec import parse_headers as parse_headers
from trio_stomp.nats.codec import parse_object as parse_object
