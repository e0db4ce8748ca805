"""What the watchdog does with a connection: deadlines, heart-beats, pings."""

import math
from typing import TYPE_CHECKING

from trio_stomp.base import CloseReason, ProtocolError, RemoteError

if TYPE_CHECKING:
    from trio_stomp.server.connection._connection import Connection

_LATE = 1.25
"""A peer is marked as late after this many of its intervals, long before it counts as dead."""
_PINGS_UNANSWERED = 4
"""So many intervals of pings may pass in silence, if heart-beats say nothing else."""
_PINGS_PER_LIFE = 3
"""Silent WebSockets are pinged so often within the time after which they count as dead."""


def look(connection: "Connection", now: float) -> float:
    """Act on what is due at ``connection``; when to look again.

    Returns: seconds of the broker's clock; ``math.inf`` if nothing will be due.
    """
    if connection.verdict is not None:
        return math.inf
    if not connection.is_open:
        return _look_opening(connection, now)
    return min(
        _look_writing(connection, now),
        _look_silence(connection, now),
        _look_sending(connection, now),
        _look_expiry(connection, now),
    )


def _look_opening(connection: "Connection", now: float) -> float:
    timeout = connection.shared.limits.connect_timeout_s
    due = connection.opened_at + timeout
    if now < due:
        return due
    error = ProtocolError(
        "connect-timeout",
        f"no session was opened within {timeout:g} s (option connect_timeout_s); send CONNECT",
        reason=CloseReason.CONNECT_TIMEOUT,
    )
    return _end(connection, error)


def _look_expiry(connection: "Connection", now: float) -> float:
    """A token is good for a while; so is a session that it opened."""
    if connection.expires_at == math.inf:
        return math.inf
    left_s = connection.expires_at - connection.shared.authenticator.wall_s()
    if left_s > 0:
        return now + left_s
    error = ProtocolError(
        "credentials-expired",
        "the token that opened this session has expired, or must be shown again"
        " (option max_token_session_s); connect again with one that is good",
        reason=CloseReason.CREDENTIALS_EXPIRED,
    )
    return _end(connection, error)


def _look_writing(connection: "Connection", now: float) -> float:
    blocked_since = connection.outbox.blocked_since
    if not blocked_since:
        return math.inf
    stall = connection.shared.limits.write_stall_s
    if now < blocked_since + stall:
        return blocked_since + stall
    error = ProtocolError(
        "write-stalled",
        f"the connection took no byte for {stall:g} s (option write_stall_s)",
        reason=CloseReason.WRITE_STALLED,
    )
    return _end(connection, error)


def _look_silence(connection: "Connection", now: float) -> float:
    """Inbound heart-beats (H07-H09, H11); any byte counts, a pong too."""
    if not connection.is_reading:
        # We make it wait, so that its silence says nothing.
        connection.last_received = now
    last = connection.last_received
    silent = now - last
    plan = connection.session.heartbeats
    due = math.inf
    if plan.dead_after_s:
        # Sums are compared, not differences: what is rounded otherwise than the deadline would
        # be due now, and not due, for ever.
        due = last + plan.dead_after_s
        if now >= due:
            error = ProtocolError(
                "heart-beat-timeout",
                f"no data for {silent * 1000:,.0f} ms, limit {plan.dead_after_s * 1000:,.0f} ms",
                reason=CloseReason.HEARTBEAT_TIMEOUT,
            )
            return _end(connection, error)
        late = plan.expect_every_s * _LATE
        if late < plan.dead_after_s:
            if now < last + late:
                due = last + late
            elif connection.late_since != last:
                connection.note_late(silent - plan.expect_every_s)
    return min(due, _look_ping(connection, now, plan.dead_after_s))


def _look_ping(connection: "Connection", now: float, dead_after_s: float) -> float:
    """Ping silent WebSockets: browsers answer without JavaScript, in background tabs too.

    A peer that answers none is gone, though it promised no heart-beats (RFC 6455 section 5.5.2).
    """
    every = connection.shared.limits.websocket_ping_s
    if connection.websocket is None or not every:
        return math.inf
    silent = now - connection.last_received
    if not dead_after_s and silent >= _PINGS_UNANSWERED * every:
        error = ProtocolError(
            "heart-beat-timeout",
            f"no data for {silent * 1000:,.0f} ms, and no answer to pings",
            reason=CloseReason.HEARTBEAT_TIMEOUT,
        )
        return _end(connection, error)
    if dead_after_s:
        every = min(every, dead_after_s / _PINGS_PER_LIFE)
    due = max(connection.last_received, connection.pinged_at) + every
    if now < due:
        return due
    connection.pinged_at = now
    connection.send_now(connection.websocket.ping(b""), now, beat=True)
    return now + every


def _look_sending(connection: "Connection", now: float) -> float:
    """Outbound heart-beats (H03-H06): one line feed when nothing else was sent in time."""
    after = connection.session.heartbeats.send_after_s
    if not after:
        return math.inf
    outbox = connection.outbox
    if outbox.waiting_bytes or not outbox.bytes_out:
        # Bytes are on their way; a line feed behind them would come no sooner (H13). And before
        # CONNECTED there are no heart-beats.
        return now + after
    if now >= outbox.last_sent + after:
        outbox.stage_frame(b"\n")
        outbox.publish(now)
        return now + after
    return outbox.last_sent + after


def _end(connection: "Connection", error: RemoteError) -> float:
    connection.end(error)
    return math.inf
