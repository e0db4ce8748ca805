"""Errors of a client. Their classes say whose fault it is."""

from collections.abc import Mapping
from types import MappingProxyType

from trio_stomp.base import PASSING_CODES, StompError
from trio_stomp.protocol import Failed

_DETAIL_CHARS = 200
"""Maximum number of characters of the body's first line in the text of an error without a code."""


class ClientError(StompError):
    """Base of all errors of the client, except OptionError for a wrong argument."""


class ConnectFailed(ClientError):
    """Connecting failed: wrong address, network failure, certificate, or no listener."""


class LinkLost(ClientError):
    """The connection broke without an ERROR, and the request cannot be repeated."""


class ClientClosed(ClientError):
    """The subscription or the client was closed by the program."""


class StaleMessage(ClientError):
    """The connection of the message has ended, and the broker will redeliver the message."""


class RequestTimedOut(ClientError):
    """No answer to a request arrived in time. It may have been handled nevertheless."""


class NoResponder(ClientError):
    """A request was sent to a destination without subscribers, which did not keep it."""


class SlowConsumer(ClientError):
    """A subscription was ended: it was not read while the client waited for RECEIPTs."""


class Refused(ClientError):
    """The broker answered with an ERROR.

    Args:
      code: Its stable code (docs/reference/wire.md), or "" if another broker gives none.
      message: Its text for people, one line.
      headers: All headers of the ERROR.
      body: Its body as text.
    """

    def __init__(self, code: str, message: str, headers: Mapping[str, str], body: str = "") -> None:
        # RabbitMQ's "Bad CONNECT" is a wrong user or virtual host; only the body says which.
        detail = code or body.strip().partition("\n")[0].strip()[:_DETAIL_CHARS]
        super().__init__(f"{message} ({detail})" if detail not in ("", message) else message)
        self.code = code
        self.message = message
        self.headers = headers
        self.body = body

    @property
    def retry_after_s(self) -> float:
        """Return the seconds to wait before another attempt, as the broker requests, or 0."""
        text = self.headers.get("retry-after-ms", "")
        return int(text) / 1000 if text.isascii() and text.isdigit() and len(text) < 12 else 0.0


class AuthenticationError(Refused):
    """The login, passcode or token is wrong, missing or expired: a fault of the configuration."""


class NotAuthorized(Refused):
    """The access rules do not permit this. Only the broker's operator can change them."""


class ProtocolViolation(Refused):
    """The broker refused a frame: a fault of the program or of this library."""


class BrokerError(Refused):
    """The broker failed, is overloaded or violates the protocol."""


_AUTHENTICATION = frozenset(
    {"authentication-failed", "authentication-required", "bad-credentials", "credentials-expired"}
)
_BROKERS = PASSING_CODES | {"bad-proxy-header", "tls-failed", "unsupported"}
_HARMLESS = frozenset({"unknown-ack"})
"""Codes that concern one frame only: the broker may have taken back the delivery meanwhile."""
_HINTS = ("access refused", "authent", "login", "password", "passcode", "bad connect", "credential")
"""Words that mean a wrong password in ERRORs of other brokers, which have no code."""


def refusal(failed: Failed, *, opening: bool) -> Refused:
    """Return the error for an ERROR frame.

    Args:
      failed: The ERROR frame.
      opening: Whether it is the answer to CONNECT.
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
    """Return whether a retry without any change may succeed."""
    if isinstance(error, Refused):
        return error.code in PASSING_CODES or error.code in _HARMLESS
    return isinstance(error, ConnectFailed | LinkLost)
