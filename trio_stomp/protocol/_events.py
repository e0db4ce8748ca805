"""The events of a session: validated frames.

A ``FrameRun`` of SENDs is itself an event, to save an object on the hot path.
"""

from collections.abc import Sequence

from trio_stomp.base import ANONYMOUS, Identity, RemoteError, value
from trio_stomp.frames import FrameRun, Head, Headers
from trio_stomp.protocol._heartbeat import HeartbeatPlan
from trio_stomp.protocol._versions import Version


@value
class Opened:
    """A valid CONNECT, to be answered by CONNECTED."""

    version: Version
    heartbeats: HeartbeatPlan
    headers: Headers
    identity: Identity = ANONYMOUS
    """The client's identity, once it is authenticated."""
    generation: int = 0
    """The generation of users and rules by which it is (``Authorizer.changes``)."""


@value
class Subscribed:
    """SUBSCRIBE. ``id`` can be None in STOMP 1.0 and in the dialect rabbitmq only."""

    id: str | None
    destination: str
    ack: str
    headers: Headers
    receipt: bytes | None


@value
class Unsubscribed:
    """UNSUBSCRIBE by id, by destination (STOMP 1.0, S13), by both, or by a durable name."""

    id: str | None
    destination: str | None
    receipt: bytes | None
    headers: Headers = ()


@value
class Acked:
    """A run of ACKs or NACKs.

    Args:
      ids: The acknowledged ids, as received.
      header: The header with the id: ``id`` or ``message-id``.
      subscription: The ``subscription`` header of STOMP 1.1; None if it is not required.
      negative: Whether they are NACKs.
      requeue: Whether a NACK returns the message to the queue; else it becomes a dead letter.
      receipts: Requested receipts: the number of the frame in this run, from 1, and the encoded id.
    """

    ids: Sequence[bytes]
    header: str
    subscription: str | None
    negative: bool
    requeue: bool
    receipts: Sequence[tuple[int, bytes]]


@value
class Received:
    """BEGIN, ABORT, or frames added to a transaction: their receipts confirm only that (T08).

    Args:
      receipts: Requested receipts, as in ``FrameRun``.
      head: The header block of added SENDs, if the core must check them before COMMIT.
      acked: Added ACKs and NACKs: their credit returns to the consumers now.
      returned: ACKs and NACKs revoked by ABORT.
      transaction: The transaction that they belong to.
      ignored: The RECEIPT's line for a frame without effect.
    """

    receipts: Sequence[tuple[int, bytes]]
    head: Head | None = None
    acked: Sequence[Acked] = ()
    returned: Sequence[Acked] = ()
    transaction: str = ""
    ignored: bytes = b""


@value
class Committed:
    """COMMIT, with actions that are applied in order, all or none. Receipts follow at the end.

    ``size`` is what the transaction was charged, in bytes.
    """

    actions: Sequence[FrameRun | Acked]
    receipt: bytes | None
    transaction: str = ""
    size: int = 0


@value
class Queried:
    """The DIAG command of stompica: a query about the broker, allowed before CONNECT too."""

    query: str


@value
class Disconnected:
    """DISCONNECT, the last event of a session."""

    receipt: bytes | None


@value
class Refused:
    """A violation by the client, to be answered by ERROR. It is the last event of a session.

    With ``Codecs.survives_errors``, other events may follow.
    """

    error: RemoteError


Event = (
    FrameRun
    | Opened
    | Subscribed
    | Unsubscribed
    | Acked
    | Received
    | Committed
    | Queried
    | Disconnected
    | Refused
)
