"""The end of a client's connection for what it did wrong."""

from trio_stomp.base import RemoteError
from trio_stomp.broker.delivery._subscription import Client
from trio_stomp.broker.headers import error_frame


def turn_away(client: Client, error: RemoteError) -> None:
    """Tell a client the error and end its connection. What else it sent is ignored."""
    client.is_refused = True
    client.outbox.stage_frame(error_frame(error, client.rules))
    client.outbox.close(error.reason)
