"""The end of a connection: its last frames go out, and its peer gets the time to read them."""

from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from trio_stomp._errors import CloseReason

if TYPE_CHECKING:
    from trio_stomp.server._connection import Connection

RECEIVE_BYTES = 64 * 1024
_TOO_SLOW = frozenset(
    {CloseReason.SLOW_CONSUMER, CloseReason.WRITE_STALLED, CloseReason.HEARTBEAT_TIMEOUT}
)


async def say_farewell(connection: "Connection") -> None:
    """Let the last frames out, and give the peer time to read them (R09).

    Closing a socket that still has bytes to read makes the kernel send a reset, which eats
    what the peer had not read yet: hence half-close, read on for a while, then close.

    Checkpoint: perhaps. Cancel: the rest is not sent. Limits: ``linger_s`` and ``write_stall_s``.
    """
    outbox = connection.outbox
    outbox.is_closed = True  # no heart-beat comes behind the last word
    await outbox.clear_away()
    if not await _flush(connection):
        return
    reason = connection.reason
    with (
        trio.move_on_after(connection.shared.limits.linger_s),
        suppress(trio.BrokenResourceError),
    ):
        if connection.websocket is not None:
            close = connection.websocket.close(reason.websocket_code, reason.text)
            connection.send_now(connection.close_reply or close, trio.current_time())
            await outbox.wait_empty()
        if reason is CloseReason.CONNECTION_LOST:
            return
        await connection.wire.send_eof()
        if reason is not CloseReason.CLIENT_CLOSED:
            await _read_to_end(connection)


async def _flush(connection: "Connection") -> bool:
    """Let out what waits, as long as the peer takes some of it; whether all is out.

    A RECEIPT to DISCONNECT may stand behind megabytes on a slow line. Whoever was too slow
    before is not waited for.
    """
    outbox, limits = connection.outbox, connection.shared.limits
    if not outbox.waiting_bytes:
        return True  # nearly always, and three cancel scopes are a tenth of what an end costs
    with trio.move_on_after(limits.write_stall_s):
        while True:
            sent = outbox.bytes_out
            with trio.move_on_after(limits.linger_s):
                await outbox.wait_empty()
                return True
            if outbox.bytes_out == sent or connection.reason in _TOO_SLOW:
                return False
    return False


async def _read_to_end(connection: "Connection") -> None:
    websocket = connection.websocket
    while websocket is None or websocket.closed is None or not websocket.closed.by_peer:
        data = await connection.wire.receive_some(RECEIVE_BYTES)
        if not data:
            return
        if websocket is not None:
            websocket.receive_data(data)
        await trio.lowlevel.checkpoint()
