"""The one tree of errors, and why a connection ends.

An error tells whose fault it is. A ``RemoteError`` is the peer's: it becomes an ERROR frame and
a closed connection, and never a traceback. Everything else is the caller's or a bug of ours.
"""

from enum import Enum
from typing import Self


class CloseReason(Enum):
    """Why a connection ended: logged, counted, told on ``DIAG/event/disconnect``.

    Each carries the WebSocket close code (RFC 6455 section 7.4) that a browser is shown.
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
    TLS_REQUIRED = ("tls-required", 1008)
    TLS_FAILED = ("tls-failed", 1002)
    BAD_PROXY_HEADER = ("bad-proxy-header", 1002)
    INTERNAL_ERROR = ("internal-error", 1011)

    def __init__(self, text: str, websocket_code: int) -> None:
        self.text = text
        self.websocket_code = websocket_code


class StompError(Exception):
    """Base of every error that this package raises on purpose."""


class RemoteError(StompError):
    """A violation by the peer, reported by an ERROR frame before the connection closes.

    Args:
      code: Stable word for programs (``invalid-escape``); the ERROR frame's ``code`` header.
      message: One line for people: the input, the rule, the remedy; the ``message`` header.
      reason: What the connection's end is counted as.
      receipt_id: Wire-ready receipt of the frame at fault, if it asked for one.
      excerpt: The start of the frame at fault, as received; secrets are cut out when quoted.
      headers: What the ERROR frame tells beside, as ``(("retry-after-ms", "500"),)``.
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
        """It is refused for want of room in a user's share alone: others could have done it."""

    def kept(self) -> Self:
        """Drop the error's traceback and causes, so that it can be stored, and return it.

        They hold whatever was at hand, such as the bytes that were read; and what keeps the error
        is mostly in one of them, so that nobody would ever let go of it all.
        """
        self.__traceback__ = self.__context__ = self.__cause__ = None
        return self

    @property
    def is_survivable(self) -> bool:
        """Return whether the session may go on, as clients of the dialect stompica expect."""
        return isinstance(self, ProtocolError) and self.reason is CloseReason.PROTOCOL_ERROR


class FrameError(RemoteError):
    """The bytes are no STOMP frame, or one that is over a limit."""


class ProtocolError(RemoteError):
    """A well-formed frame that this session does not allow here."""


class OptionError(StompError):
    """An option's name or value is wrong: the operator's fault, told in one line."""
