"""Negotiation of heart-beats, and the deadlines that follow from it (without a clock)."""

from attrs import frozen

from trio_stomp.base import ProtocolError
from trio_stomp.protocol._options import ProtocolOptions

_MAX_MS = 2**31 - 1
_MARGIN = 0.8
"""Heart-beats are sent at this part of the agreed interval, so that no gap exceeds it (H05)."""


@frozen
class HeartbeatPlan:
    """The heart-beat intervals negotiated in CONNECT and CONNECTED.

    Args:
      send_every_s: Maximum interval between sent bytes; 0 = unlimited.
      expect_every_s: Maximum interval between received bytes; 0 = unlimited.
      dead_after_s: Silence after which the peer is considered dead; 0 = never.
    """

    send_every_s: float
    expect_every_s: float
    dead_after_s: float

    @property
    def send_after_s(self) -> float:
        """Return the idle time in seconds after which to send a heart-beat, or 0 for never."""
        return self.send_every_s * _MARGIN


NO_HEARTBEATS = HeartbeatPlan(0.0, 0.0, 0.0)


def negotiate_heartbeats(header: str | None, options: ProtocolOptions) -> HeartbeatPlan:
    """Return the plan that follows from the peer's ``heart-beat`` header (H01-H04, H08).

    Args:
      header: The header; None = the peer has no heart-beats.
      options: The intervals of this side.

    Raises:
      ProtocolError: the header is not two non-negative integers with a comma.
    """
    can_send, wants = _parse(header)
    sends = _agree(options.heartbeat_send_ms, wants)
    expects = _agree(can_send, options.heartbeat_expect_ms)
    dead_after = 0.0
    if expects:
        dead_after = max(
            expects * options.heartbeat_tolerance, expects + options.heartbeat_margin_s
        )
    return HeartbeatPlan(sends, expects, dead_after)


def _agree(can_ms: int, wants_ms: int) -> float:
    return max(can_ms, wants_ms) / 1000 if can_ms and wants_ms else 0.0


def _parse(header: str | None) -> tuple[int, int]:
    if header is None:
        return 0, 0
    parts = header.split(",")
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() for part in parts):
        raise ProtocolError(
            "invalid-heart-beat",
            f"heart-beat:{header[:40]} is not two non-negative integers with a comma,"
            " as in heart-beat:10000,10000",
        )
    sends, wants = (_clamp(part) for part in parts)
    return sends, wants


def _clamp(digits: str) -> int:
    # Truncate before the conversion: a header may have 16 KiB of digits.
    return min(int(digits.lstrip("0")[:12] or "0"), _MAX_MS)
