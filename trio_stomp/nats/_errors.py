"""Errors between a client and the servers of NATS."""

from trio_stomp.nats.codec import NatsError


class Disconnected(NatsError):
    """No server is connected, or the connection ended before an answer came.

    It is unknown whether the server carried out the last operations.
    """


class NoAnswer(NatsError):
    """No answer to a request came in time. It is unknown whether it was carried out."""


class NoResponders(NatsError):
    """No client subscribes to the subject of a request; for JetStream's: it is disabled."""


class Refused(NatsError):
    """A server refused the credentials, the TLS handshake or the connection."""


class JetStreamError(NatsError):
    """JetStream refused a request.

    Args:
      code: A status as in HTTP.
      err_code: The number of the error in NATS' list of errors.
      description: The server's text.
    """

    def __init__(self, code: int, err_code: int, description: str) -> None:
        super().__init__(f"JetStream: {description} (code {code}, error {err_code})")
        self.code = code
        self.err_code = err_code
        self.description = description


class WrongLastSequence(JetStreamError):
    """Another writer has published: the expected sequence is stale. Nothing was stored."""


class OutgoingFull(NatsError):
    """The connection accepts less than is published. No part of the refused message was sent."""


class NotFound(JetStreamError):
    """The stream, consumer or message does not exist."""
