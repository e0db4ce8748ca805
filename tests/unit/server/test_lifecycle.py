"""The end of a connection: the first cause counts, and is fixed once the broker knows it."""

import pytest

from trio_stomp.base import CloseReason, ProtocolError
from trio_stomp.server.connection._lifecycle import Lifecycle

TIMEOUT = ProtocolError("connect-timeout", "late", reason=CloseReason.CONNECT_TIMEOUT)
REFUSED = ProtocolError("tls-required", "no", reason=CloseReason.AUTHENTICATION_FAILED)


def test_end_found_by_the_reader_does_not_replace_the_first_error() -> None:
    lifecycle = Lifecycle()
    lifecycle.abort(TIMEOUT)
    lifecycle.fail(REFUSED)  # caused by bytes that it had read before
    assert lifecycle.pending_error is TIMEOUT
    assert lifecycle.reading.cancel_called


async def test_the_reason_is_fixed_when_the_broker_learns_of_the_end() -> None:
    lifecycle = Lifecycle()
    lifecycle.end(CloseReason.WEBSOCKET_ERROR)
    assert not lifecycle.reading.cancel_called
    lifecycle.disconnect(TIMEOUT)
    lifecycle.on_close(CloseReason.CONNECTION_LOST)  # caused by the socket of the farewell
    assert lifecycle.reason is CloseReason.CONNECT_TIMEOUT


@pytest.mark.parametrize("name", ["reason", "pending_error", "is_open", "is_finished"])
def test_only_the_lifecycle_assigns_its_state(name: str) -> None:
    with pytest.raises(AttributeError):
        setattr(Lifecycle(), name, None)
