"""Between CONNECT and CONNECTED: who is it? And who is no longer."""

from typing import TYPE_CHECKING

from attrs import evolve

from trio_stomp.base import CloseReason, ProtocolError, RemoteError
from trio_stomp.frames import excerpt
from trio_stomp.protocol import Event, Opened

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trio_stomp.server.connection._connection import Connection


async def log_in(connection: "Connection", events: list[Event]) -> list[Event]:
    """Find out who opened a session; nothing that follows is done before that.

    Returns: the events, CONNECT's with the identity; without it and all that follows if the client
    may not come in, and then the connection's verdict says why.

    Checkpoint: only if a passcode must be hashed. Limits: the connect timeout holds.
    """
    told: list[Event] = []
    for event in events:
        if isinstance(event, Opened):
            try:
                authenticator = connection.shared.authenticator
                identity = await authenticator.identify(event.headers, connection)
            except RemoteError as error:
                lines = "".join(f"\n{name}:{text}" for name, text in event.headers)
                error.excerpt = excerpt(f"CONNECT{lines}".encode())
                connection.verdict = error.kept()
                connection.session.close()
                connection.shared.tell_login(connection, error.code)
                return told
            event = evolve(event, identity=identity)
            connection.expires_at = identity.expires_at
        told.append(event)
    return told


def end_revoked(connections: "Iterable[Connection]", revoked: frozenset[str]) -> None:
    """End connections whose certificate was taken back since their handshake.

    Args:
      revoked: Keys of certificates.
    """
    for connection in connections if revoked else ():
        if connection.certificate_key in revoked:
            error = ProtocolError(
                "authentication-failed",
                "the certificate of this connection was revoked",
                reason=CloseReason.AUTHENTICATION_FAILED,
            )
            if connection.is_open:
                connection.end(error)
            else:
                connection.on_close(error.reason)
