"""Heart-beats: what both sides agreed on, and the arithmetic of being late (no clock here)."""

from attrs import frozen

from trio_stomp.base import ProtocolError
from trio_stomp.protocol._options import ProtocolOptions

_MAX_MS = 2**31 - 1
_MARGIN = 0.8
"""We send at this share of the agreed interval, so that no gap is ever longer (H05)."""


@frozen
class HeartbeatPlan:
    """The heart-beat intervals negotiated in CONNECT and CONNECTED.

    Args:
      send_every_s: At least one byte goes out in each such span; 0 = no promise.
      expect_every_s: The client promised the same; 0 = no promise.
      dead_after_s: Silence after which the client counts as dead; 0 = never.
    """

    send_every_s: float
    expect_every_s: float
    dead_after_s: float

    @property
    def send_after_s(self) -> float:
        """Return the idle time in seconds before a heart-beat is sent. 0 = no heart-beats."""
        return self.send_every_s * _MARGIN


NO_HEARTBEATS = HeartbeatPlan(0.0, 0.0, 0.0)


def negotiate_heartbeats(header: str | None, options: ProtocolOptions) -> HeartbeatPlan:
    """Return the plan from the client's ``heart-beat`` header (H01-H04, H08).

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
    # Cut before it becomes a number: a header of 16 KiB may be all digits.
    return min(int(digits.lstrip("0")[:12] or "0"), _MAX_MS)
