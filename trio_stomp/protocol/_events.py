"""The events of a session: frames that have been validated.

A ``FrameRun`` of SENDs is an event as it is: the hot path makes no object of its own.
"""

from collections.abc import Sequence

from trio_stomp.base import ANONYMOUS, Identity, RemoteError, value
from trio_stomp.frames import FrameRun, Head, Headers
from trio_stomp.protocol._heartbeat import HeartbeatPlan
from trio_stomp.protocol._versions import Version


@value
class Opened:
    """CONNECT was accepted, and CONNECTED is to be sent."""

    version: Version
    heartbeats: HeartbeatPlan
    headers: Headers
    identity: Identity = ANONYMOUS
    """Who it is, once that has been found out."""


@value
class Subscribed:
    """SUBSCRIBE. ``id`` is None in STOMP 1.0 only, or in the dialect rabbitmq."""

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
    headers: Headers = ()


@value
class Acked:
    """ACKs or NACKs, a run of them.

    Args:
      ids: What was acknowledged, as the client wrote it.
      header: The header in which the id was told: ``id``, or ``message-id``.
      subscription: The ``subscription`` header of STOMP 1.1, or None if it does not matter.
      negative: NACK.
      requeue: Of a NACK: whether to deliver again, or to bury at once.
      receipts: ``(ids of this run up to and with the asker, wire-ready receipt id)``.
    """

    ids: Sequence[bytes]
    header: str
    subscription: str | None
    negative: bool
    requeue: bool
    receipts: Sequence[tuple[int, bytes]]


@value
class Received:
    """Frames were taken into a transaction: their receipts say no more than that (T08).

    Args:
      head: Of SENDs, if the core is to refuse at once what is not allowed, and not only at COMMIT.
      acked: ACKs and NACKs that were taken in: their consumers may have other messages meanwhile.
      returned: ACKs and NACKs that ABORT took back.
    """

    receipts: Sequence[tuple[int, bytes]]
    head: Head | None = None
    acked: Sequence[Acked] = ()
    returned: Sequence[Acked] = ()


@value
class Committed:
    """The actions of a COMMIT, applied in order, all or none. Receipts follow at the end."""

    actions: Sequence[FrameRun | Acked]
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


Event = (
    FrameRun
    | Opened
    | Subscribed
    | Unsubscribed
    | Acked
    | Received
    | Committed
    | Asked
    | Left
    | Refused
)
