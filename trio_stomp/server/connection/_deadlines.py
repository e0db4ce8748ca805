"""The deadlines of a connection: opening, heart-beats, pings, stalled writes, credentials."""

import math

from attrs import define

from trio_stomp.base import CloseReason, ProtocolError, RemoteError
from trio_stomp.server.connection._lifecycle import Lifecycle
from trio_stomp.server.connection._link import Link
from trio_stomp.server.connection._reader import Reader

_LATE = 1.25
"""A heart-beat is late after this many intervals, well before the peer counts as dead."""
_PINGS_UNANSWERED = 4
"""A peer that promised no heart-beats is dead after this many ping intervals of silence."""
_PINGS_PER_LIFE = 3
"""Pings within the time after which a silent WebSocket counts as dead."""


@define(eq=False, repr=False)
class Deadlines:
    """The deadlines of a connection, checked by the watchdog.

    Handles: the connect timeout, stalled writes, heart-beats both ways, WebSocket pings, the
    expiry of a token or certificate.
    Does not handle: ending the connection (``Lifecycle``).

    Args:
      opened_at: When the connection was accepted, in seconds of the broker's clock.
    """

    link: Link
    lifecycle: Lifecycle
    reader: Reader
    opened_at: float
    expires_at: float = math.inf
    """When the client's token or certificate expires, as Unix time."""
    next_look: float = math.inf
    heartbeats_missed: int = 0
    _late_since: float = -1.0
    """``last_received`` at the start of the silence that was reported."""
    _pinged_at: float = 0.0

    @property
    def is_finished(self) -> bool:
        """Return whether the connection has ended and so has no more deadlines."""
        return self.lifecycle.is_finished

    def end(self) -> None:
        """Release a connection that has ended: the watchdog keeps this object for a while."""
        del self.link, self.reader

    def look(self, now: float) -> float:
        """Act on missed deadlines.

        Returns:
          The time of the next check, in seconds of the broker's clock; ``math.inf`` = none.
        """
        if self.lifecycle.pending_error is not None:
            return math.inf
        if not self.lifecycle.is_open:
            return self._look_opening(now)
        return min(
            self._look_writing(now),
            self._look_silence(now),
            self._look_sending(now),
            self._look_expiry(now),
        )

    def _look_opening(self, now: float) -> float:
        timeout = self.link.shared.limits.connect_timeout_s
        due = self.opened_at + timeout
        if now < due:
            return due
        if self.link.is_operating:
            return now + timeout
        remedy = "send CONNECT"
        if self.link.session.decoder.buffered_bytes:
            remedy = "a frame has begun, and ends with a blank line and a NUL byte (Ctrl-@)"
        error = ProtocolError(
            "connect-timeout",
            f"no session was opened within {timeout:g} s (option connect_timeout_s); {remedy}",
            reason=CloseReason.CONNECT_TIMEOUT,
        )
        return self._end(error)

    def _look_expiry(self, now: float) -> float:
        """End the session when its token or certificate expires."""
        if self.expires_at == math.inf:
            return math.inf
        left_s = self.expires_at - self.link.shared.authenticator.wall_s()
        if left_s > 0:
            return now + left_s
        error = ProtocolError(
            "credentials-expired",
            "the token or certificate of this session has expired, or the token must be presented "
            "again (option max_token_session_s); reconnect with a valid one",
            reason=CloseReason.CREDENTIALS_EXPIRED,
        )
        return self._end(error)

    def _look_writing(self, now: float) -> float:
        blocked_since = self.link.outbox.blocked_since
        if not blocked_since:
            return math.inf
        stall = self.link.shared.limits.write_stall_s
        if now < blocked_since + stall:
            return blocked_since + stall
        error = ProtocolError(
            "write-stalled",
            f"the connection accepted no bytes for {stall:g} s (option write_stall_s)",
            reason=CloseReason.WRITE_STALLED,
        )
        return self._end(error)

    def _look_silence(self, now: float) -> float:
        """Check the peer's heart-beats (H07-H09, H11): any byte counts as one, a pong too."""
        if not self.reader.is_reading:
            # The broker makes the peer wait, so its silence means nothing.
            self.reader.last_received = now
        last = self.reader.last_received
        silent = now - last
        plan = self.link.session.heartbeats
        due = math.inf
        if plan.dead_after_s:
            # Compare sums, not differences: a difference is rounded in another way than the
            # deadline, so the check could repeat for ever.
            due = last + plan.dead_after_s
            if now >= due:
                error = ProtocolError(
                    "heart-beat-timeout",
                    f"no data for {silent * 1000:,.0f} ms,"
                    f" limit {plan.dead_after_s * 1000:,.0f} ms",
                    reason=CloseReason.HEARTBEAT_TIMEOUT,
                )
                return self._end(error)
            late = plan.expect_every_s * _LATE
            if late < plan.dead_after_s:
                if now < last + late:
                    due = last + late
                elif self._late_since != last:
                    self._note_late(silent - plan.expect_every_s)
        return min(due, self._look_ping(now, plan.dead_after_s))

    def _look_ping(self, now: float, dead_after_s: float) -> float:
        """Ping silent WebSockets: browsers answer without JavaScript, in background tabs too.

        A peer that answers none of them is gone, even if it promised no heart-beats (RFC 6455
        section 5.5.2).
        """
        every = self.link.shared.limits.websocket_ping_s
        if self.link.websocket is None or not every:
            return math.inf
        silent = now - self.reader.last_received
        if not dead_after_s and silent >= _PINGS_UNANSWERED * every:
            error = ProtocolError(
                "heart-beat-timeout",
                f"no data for {silent * 1000:,.0f} ms, and no answer to pings",
                reason=CloseReason.HEARTBEAT_TIMEOUT,
            )
            return self._end(error)
        if dead_after_s:
            every = min(every, dead_after_s / _PINGS_PER_LIFE)
        due = max(self.reader.last_received, self._pinged_at) + every
        if now < due:
            return due
        self._pinged_at = now
        self.link.send_now(self.link.websocket.ping(b""), now, beat=True)
        return now + every

    def _look_sending(self, now: float) -> float:
        """Send a heart-beat (H03-H06), which is a line feed, if nothing else was sent in time."""
        after = self.link.session.heartbeats.send_after_s
        if not after:
            return math.inf
        outbox = self.link.outbox
        if outbox.waiting_bytes or not outbox.bytes_out:
            # Data is being sent, and a heart-beat behind it would arrive no sooner (H13).
            # Before CONNECTED there are no heart-beats.
            return now + after
        if now >= outbox.last_sent + after:
            outbox.stage_frame(b"\n")
            outbox.publish(now)
            return now + after
        return outbox.last_sent + after

    def _end(self, error: RemoteError) -> float:
        self.lifecycle.abort(error)
        return math.inf

    def _note_late(self, late_s: float) -> None:
        """Report a late heart-beat, once for each silence."""
        link = self.link
        self._late_since = self.reader.last_received
        self.heartbeats_missed += 1
        link.shared.report_late(link.client, link.outbox, late_s)
