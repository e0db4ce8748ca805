"""Authentication, between CONNECT and CONNECTED."""

from attrs import evolve

from trio_stomp.base import RemoteError
from trio_stomp.frames import excerpt
from trio_stomp.protocol import Event, Opened
from trio_stomp.server.connection._deadlines import Deadlines
from trio_stomp.server.connection._lifecycle import Lifecycle
from trio_stomp.server.connection._link import Link


async def log_in(
    link: Link, lifecycle: Lifecycle, deadlines: Deadlines, events: list[Event]
) -> list[Event]:
    """Authenticate the client that opened a session, before later frames are processed.

    Returns:
      The events, with the identity in that of CONNECT. If the login is refused, they end before
      CONNECT, and the connection's pending error has the reason.

    Checkpoint: only if a passcode must be hashed. Limits: the connect timeout holds.
    """
    passed: list[Event] = []
    for event in events:
        if isinstance(event, Opened):
            try:
                identity = link.vouched
                if identity is None:
                    authenticator = link.shared.authenticator
                    identity = await authenticator.identify(event.headers, link)
            except RemoteError as error:
                lines = "".join(f"\n{name}:{text}" for name, text in event.headers)
                error.excerpt = excerpt(f"CONNECT{lines}".encode())
                lifecycle.fail(error)
                link.session.close()
                link.shared.report_failed_login(link.client, error.code)
                return passed
            event = evolve(event, identity=identity, generation=link.shared.generation())
            deadlines.expires_at = min(identity.expires_at, link.certificate_end)
        passed.append(event)
    return passed
