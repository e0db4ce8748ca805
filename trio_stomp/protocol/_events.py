"""What a session says upward, once a frame has been found to be allowed.

A ``FrameRun`` of SENDs is an event as it is: the hot path makes no object of its own.
"""

from trio_stomp._errors import RemoteError
from trio_stomp._value import value
from trio_stomp.frames import FrameRun, Headers
from trio_stomp.protocol._heartbeat import HeartbeatPlan
from trio_stomp.protocol._versions import Version


@value
class Opened:
    """CONNECT was accepted; CONNECTED is due."""

    version: Version
    heartbeats: HeartbeatPlan
    headers: Headers


@value
class Subscribed:
    """SUBSCRIBE. ``id`` is None only in STOMP 1.0."""

    id: str | None
    destination: str
    ack: str
    headers: Headers
    receipt: bytes | None


@value
class Unsubscribed:
    """UNSUBSCRIBE, by id, by destination (STOMP 1.0, S13) or by both."""

    id: str | None
    destination: str | None
    receipt: bytes | None


@value
class Asked:
    """The DIAG command of stompica: a query about the broker, answered before CONNECT too."""

    query: str


@value
class Left:
    """DISCONNECT: nothing more comes from this session."""

    receipt: bytes | None


@value
class Refused:
    """The peer broke a rule: ERROR, then close. Nothing more comes from this session."""

    error: RemoteError


Event = FrameRun | Opened | Subscribed | Unsubscribed | Asked | Left | Refused
