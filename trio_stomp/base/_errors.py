"""The hierarchy of errors, and the reasons for which connections end.

A ``RemoteError`` is the peer's fault: it becomes an ERROR frame and the end of the connection,
never a traceback. Other errors are the caller's fault, or bugs; ``BrokenInvariant`` is a bug that
leaves the core's state in doubt.
"""

from enum import Enum
from typing import Self


class CloseReason(Enum):
    """The reason why a connection ended, for logs, metrics and ``DIAG/event/disconnect``.

    Each has a WebSocket close code (RFC 6455 section 7.4) for browsers.
    """

    CLIENT_DISCONNECT = ("client-disconnect", 1000)
    CLIENT_CLOSED = ("client-closed", 1000)
    CONNECTION_LOST = ("connection-lost", 1002)
    CONNECT_TIMEOUT = ("connect-timeout", 1008)
    HEARTBEAT_TIMEOUT = ("heart-beat-timeout", 1008)
    SLOW_CONSUMER = ("slow-consumer", 1008)
    WRITE_STALLED = ("write-stalled", 1008)
    PROTOCOL_ERROR = ("protocol-error", 1002)
    LIMIT_EXCEEDED = ("limit-exceeded", 1009)
    MEMORY_LIMIT = ("memory-limit", 1013)
    UNSUPPORTED = ("unsupported", 1008)
    TOO_MANY_CONNECTIONS = ("too-many-connections", 1013)
    TOO_MANY_FROM_ADDRESS = ("too-many-from-address", 1008)
    SHUTTING_DOWN = ("shutting-down", 1001)
    TLS_ON_PLAIN_PORT = ("tls-on-plain-port", 1002)
    WEBSOCKET_ERROR = ("websocket-error", 1002)
    HTTP_ANSWERED = ("http-answered", 1000)
    STORAGE = ("storage", 1013)
    AUTHENTICATION_FAILED = ("authentication-failed", 1008)
    CREDENTIALS_EXPIRED = ("credentials-expired", 1008)
    NOT_AUTHORIZED = ("not-authorized", 1008)
    CLOSED_BY_OPERATOR = ("closed-by-operator", 1008)
    TLS_REQUIRED = ("tls-required", 1008)
    TLS_FAILED = ("tls-failed", 1002)
    BAD_PROXY_HEADER = ("bad-proxy-header", 1002)
    INTERNAL_ERROR = ("internal-error", 1011)

    def __init__(self, text: str, websocket_code: int) -> None:
        self.text = text
        self.websocket_code = websocket_code


PASSING_CODES = frozenset(
    {
        "connect-timeout",
        "heart-beat-timeout",
        "internal-error",
        "memory-limit",
        "queue-full",
        "shutting-down",
        "slow-consumer",
        "storage",
        "too-many-attempts",
        "too-many-connections",
        "too-many-from-address",
        "write-stalled",
    }
)
"""Codes of ERRORs for passing troubles of the broker, after which a retry may succeed."""


class StompError(Exception):
    """The base class of this package's errors."""


class RemoteError(StompError):
    """A violation by the peer, reported by an ERROR frame before the connection closes.

    Args:
      code: Stable word for programs, such as ``invalid-escape``; the header ``code`` of the ERROR.
      message: One line with the input, the rule and the remedy; the header ``message``.
      reason: The reason to record for the end of the connection.
      receipt_id: Encoded id of the receipt that the frame at fault requested, or None.
      excerpt: The start of the frame at fault, without secrets.
      headers: Further headers of the ERROR, as ``(("retry-after-ms", "500"),)``.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        reason: CloseReason = CloseReason.PROTOCOL_ERROR,
        receipt_id: bytes | None = None,
        excerpt: bytes = b"",
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.reason = reason
        self.receipt_id = receipt_id
        self.excerpt = excerpt
        self.headers = headers
        self.is_by_quota = False
        """Only the user's own quota was exceeded: other users still have room."""

    def without_traceback(self) -> Self:
        """Drop the error's traceback and causes, so that it can be stored, and return it.

        Their frames reference local variables, such as received bytes, and often the object that
        stores the error, in a cycle.
        """
        self.__traceback__ = self.__context__ = self.__cause__ = None
        return self

    @property
    def is_survivable(self) -> bool:
        """Return whether the session may continue in the dialect stompica."""
        return isinstance(self, ProtocolError) and self.reason is CloseReason.PROTOCOL_ERROR


class FrameError(RemoteError):
    """The bytes are not a STOMP frame, or the frame exceeds a limit."""


class ProtocolError(RemoteError):
    """A well-formed frame that the session does not allow now."""


class OptionError(StompError):
    """An option's name or value is invalid. The text is one line for the operator."""


class FrameBug(Exception):
    """A bug that ended the work for one frame. The exception that it raised is the cause.

    Its only argument is the encoded id of the receipt that the frame requested, or None.
    """


class BrokenInvariant(Exception):
    """A condition that the core relies on does not hold: a bug, and its state is in doubt.

    Not a ``StompError``: no frame may lead to it, and no handler for clients' errors catches it.

    Args:
      name: The invariant, as in docs/inside/invariants.md, such as ``queue-order``.
      state: One line with the figures that tell the cause (ids, counts), without message bodies.
      concerns: The destination whose hand-out stops; "" = none.
    """

    def __init__(self, name: str, state: str, concerns: str = "") -> None:
        super().__init__(f"{name}: {state}")
        self.name = name
        self.state = state
        self.concerns = concerns
