"""Errors of a client. The class of an error tells whose fault it is."""

from collections.abc import Mapping
from types import MappingProxyType

from trio_stomp.base import StompError
from trio_stomp.protocol import Failed

_DETAIL_CHARS = 200
"""Of the first line of the body, in the text of an error without a code."""


class ClientError(StompError):
    """Base of every error that the client raises on purpose. A wrong argument is an OptionError."""


class ConnectFailed(ClientError):
    """There is no connection: wrong address, network failure, certificate, or no listener."""


class LinkLost(ClientError):
    """The connection ended without an ERROR, and the request cannot be repeated."""


class ClientClosed(ClientError):
    """The subscription or the client has been left: the program's own fault."""


class StaleMessage(ClientError):
    """The link that brought the message is gone: the broker has it back, and hands it out again."""


class RequestTimedOut(ClientError):
    """No answer to a request came in time. It may have been handled all the same."""


class SlowConsumer(ClientError):
    """A subscription has been ended: its messages were not taken while RECEIPTs had to be read."""


class Refused(ClientError):
    """The broker answered with an ERROR.

    Args:
      code: Its stable word (docs/reference/wire.md), or "" where another broker gives none.
      message: Its line for people.
      headers: All headers of the ERROR.
      body: Its body, as text.
    """

    def __init__(self, code: str, message: str, headers: Mapping[str, str], body: str = "") -> None:
        # RabbitMQ's "Bad CONNECT" means a wrong user or virtual host: only the body says which.
        detail = code or body.strip().partition("\n")[0].strip()[:_DETAIL_CHARS]
        super().__init__(f"{message} ({detail})" if detail not in ("", message) else message)
        self.code = code
        self.message = message
        self.headers = headers
        self.body = body

    @property
    def retry_after_s(self) -> float:
        """Return the seconds that the broker asks to be left alone, or 0 if it does not say."""
        text = self.headers.get("retry-after-ms", "")
        return int(text) / 1000 if text.isascii() and text.isdigit() and len(text) < 12 else 0.0


class AuthenticationError(Refused):
    """The login, passcode or token is wrong, missing or expired: a fault of its configuration."""


class NotAuthorized(Refused):
    """The broker's rules do not allow this user to do that: for its operator to decide."""


class ProtocolViolation(Refused):
    """The broker refused a frame of this client: a fault of the program, or of this library."""


class BrokerError(Refused):
    """The broker cannot, or breaks a rule itself: its own fault, or that of its load."""


_AUTHENTICATION = frozenset(
    {"authentication-failed", "authentication-required", "bad-credentials", "credentials-expired"}
)
_PASSING = frozenset(
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
"""The broker's troubles, which may be over when it is asked again."""
_BROKERS = _PASSING | {"bad-proxy-header", "tls-failed", "unsupported"}
_HARMLESS = frozenset({"unknown-ack"})
"""Ours, but of one frame alone: the broker may have taken a delivery back in the meantime."""
_HINTS = ("access refused", "authent", "login", "password", "passcode", "bad connect", "credential")
"""Words for a wrong password in other brokers' ERRORs, which have no code."""


def refusal(failed: Failed, *, opening: bool) -> Refused:
    """Return the error for an ERROR frame.

    Args:
      failed: The ERROR frame.
      opening: Whether it answers CONNECT.
    """
    headers: dict[str, str] = {}
    for name, text in failed.headers:
        headers.setdefault(name, text)
    code = headers.get("code", "")
    message = headers.get("message", "") or "the broker sent an ERROR without a message"
    kind: type[Refused] = ProtocolViolation
    if code in _AUTHENTICATION:
        kind = AuthenticationError
    elif code == "not-authorized":
        kind = NotAuthorized
    elif code in _BROKERS:
        kind = BrokerError
    elif not code:
        text = message.lower()
        denied = opening and any(hint in text for hint in _HINTS)
        kind = AuthenticationError if denied else BrokerError
    body = failed.body.decode(errors="replace")
    return kind(code, message, MappingProxyType(headers), body)


def may_pass(error: StompError) -> bool:
    """Return whether another attempt may succeed without any change."""
    if isinstance(error, Refused):
        return error.code in _PASSING or error.code in _HARMLESS
    return isinstance(error, ConnectFailed | LinkLost)
