"""Floor 1: one session, without a clock.

Handles: version negotiation, allowed commands, required headers, heart-beat plans; for broker and
client.
Does not handle: time, sockets, destinations.
"""

from trio_stomp.protocol._client_frames import ClientFrames as ClientFrames
from trio_stomp.protocol._client_session import ClientSession as ClientSession
from trio_stomp.protocol._client_session import Delivered as Delivered
from trio_stomp.protocol._client_session import Failed as Failed
from trio_stomp.protocol._client_session import Receipted as Receipted
from trio_stomp.protocol._client_session import SessionEvent as SessionEvent
from trio_stomp.protocol._client_session import SessionOpened as SessionOpened
from trio_stomp.protocol._events import Acked as Acked
from trio_stomp.protocol._events import Committed as Committed
from trio_stomp.protocol._events import Disconnected as Disconnected
from trio_stomp.protocol._events import Event as Event
from trio_stomp.protocol._events import Opened as Opened
from trio_stomp.protocol._events import Queried as Queried
from trio_stomp.protocol._events import Received as Received
from trio_stomp.protocol._events import Refused as Refused
from trio_stomp.protocol._events import Subscribed as Subscribed
from trio_stomp.protocol._events import Unsubscribed as Unsubscribed
from trio_stomp.protocol._heartbeat import NO_HEARTBEATS as NO_HEARTBEATS
from trio_stomp.protocol._heartbeat import HeartbeatPlan as HeartbeatPlan
from trio_stomp.protocol._options import ProtocolOptions as ProtocolOptions
from trio_stomp.protocol._requests import DURABLE_NAMES as DURABLE_NAMES
from trio_stomp.protocol._server_session import Codecs as Codecs
from trio_stomp.protocol._server_session import ServerSession as ServerSession
from trio_stomp.protocol._states import State as State
from trio_stomp.protocol._versions import STOMP_1_0 as STOMP_1_0
from trio_stomp.protocol._versions import STOMP_1_1 as STOMP_1_1
from trio_stomp.protocol._versions import STOMP_1_2 as STOMP_1_2
from trio_stomp.protocol._versions import SUPPORTED as SUPPORTED
from trio_stomp.protocol._versions import Version as Version
