"""The end of a connection: send the last frames, and give the peer time to read them."""

from collections.abc import Awaitable, Callable
from contextlib import suppress

import trio

from trio_stomp.base import CloseReason
from trio_stomp.server.connection._lifecycle import Lifecycle
from trio_stomp.server.connection._link import Link

RECEIVE_BYTES = 64 * 1024
LEAST_RATE = 256
"""Minimum average rate of a peer to be waited for, in bytes/s (.NET's Kestrel requires 240)."""
LOOK_S = 0.1
"""Minimum interval between two checks of whether the peer's kernel has received everything."""
_NOT_WAITED_FOR = frozenset(
    {
        CloseReason.SLOW_CONSUMER,
        CloseReason.WRITE_STALLED,
        CloseReason.HEARTBEAT_TIMEOUT,
        CloseReason.CONNECTION_LOST,
    }
)


async def send_farewell(link: Link, lifecycle: Lifecycle, close_reply: bytes) -> None:
    """Send the last frames, and give the peer time to read them (R09).

    Closing a socket with unread input makes the kernel send a reset, which discards what the peer
    has not read yet: so half-close, read for a while, then close.

    The RECEIPT for a DISCONNECT may follow megabytes on a slow line. The broker waits while the
    peer accepts bytes, unless it ends the connection because the peer is slow.

    Checkpoint: only if bytes are queued. Cancel: the rest is not sent. Limits: ``write_stall_s``
    without a byte accepted, ``LEAST_RATE`` overall, and ``linger_s`` once the peer has everything.
    """
    outbox, websocket, reason = link.outbox, link.websocket, lifecycle.reason
    outbox.is_closed = outbox.is_over = True  # no heart-beat may follow the last frame
    await outbox.clear_away()
    outbox.publish(trio.current_time())  # its turn may not have come
    if websocket is not None:
        close = websocket.close(reason.websocket_code, reason.text)
        link.send_now(close_reply or close, trio.current_time())
    # Usually nothing waits, and three cancel scopes cost a tenth of a disconnect.
    if outbox.waiting_bytes and not await _let_out(link, reason, outbox.wait_empty):
        return
    if reason is CloseReason.CONNECTION_LOST:
        return
    with suppress(trio.BrokenResourceError):
        if await _let_out(link, reason, link.wire.send_eof):
            await _see_off(link, reason)


async def _let_out(link: Link, reason: CloseReason, wait: Callable[[], Awaitable[None]]) -> bool:
    """Wait for the outbox to drain while the peer accepts bytes.

    Args:
        link: The connection's link.
        reason: The reason for the end.
        wait: Waits until everything is sent; may be cancelled and called again.

    Returns:
        Whether everything was sent.
    """
    outbox, limits = link.outbox, link.shared.limits
    is_slow = reason in _NOT_WAITED_FOR
    patience_s = limits.linger_s if is_slow else limits.write_stall_s
    until = trio.current_time() + patience_s + outbox.waiting_bytes / LEAST_RATE
    before = outbox.bytes_out - link.wire.untaken()
    while True:
        with trio.move_on_after(patience_s):
            await wait()
            return True
        taken = outbox.bytes_out - link.wire.untaken()
        if is_slow or taken == before or trio.current_time() >= until:
            return False
        before = taken


async def _see_off(link: Link, reason: CloseReason) -> None:
    """Read and discard input until the peer's kernel has acknowledged the output."""
    if reason is CloseReason.CLIENT_CLOSED:
        return  # the peer sends nothing more, so the kernel sends no reset
    limits, wire = link.shared.limits, link.wire
    left = wire.untaken()
    changed_at = trio.current_time()
    until = changed_at + limits.write_stall_s + left / LEAST_RATE
    while True:
        with trio.move_on_after(max(limits.linger_s, LOOK_S) if left else limits.linger_s):
            await _read_to_end(link)
            return
        now, before, left = trio.current_time(), left, wire.untaken()
        if not before or now >= until:
            return
        if left != before:
            changed_at = now
        elif now - changed_at >= limits.write_stall_s:
            return


async def _read_to_end(link: Link) -> None:
    websocket = link.websocket
    while websocket is None or websocket.closed is None or not websocket.closed.by_peer:
        data = await link.wire.receive_some(RECEIVE_BYTES)
        if not data:
            return
        if websocket is not None:
            websocket.receive_data(data)
        await trio.lowlevel.checkpoint()
