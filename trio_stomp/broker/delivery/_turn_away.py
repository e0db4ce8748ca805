"""Ending a client's connection with an ERROR."""

from trio_stomp.base import RemoteError
from trio_stomp.broker.delivery._subscription import Client
from trio_stomp.broker.headers import error_frame


def turn_away(client: Client, error: RemoteError) -> None:
    """Send an ERROR to a client and end its connection. Its further events are ignored."""
    client.is_refused = True
    client.outbox.stage_frame(error_frame(error, client.rules))
    client.outbox.close(error.reason)
