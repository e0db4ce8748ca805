"""When a connection is looked at: each deadline once, whatever floats make of it."""

import math
from types import SimpleNamespace
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from trio_stomp.protocol import NO_HEARTBEATS, HeartbeatPlan
from trio_stomp.server.connection._pulse import look

seconds = st.floats(0.001, 1000.0)


class Silent(SimpleNamespace):
    """A connection that nothing comes from, as far as ``look`` asks."""

    def __init__(self, since: float, plan: HeartbeatPlan, ping_s: float, stall_s: float) -> None:
        limits = SimpleNamespace(write_stall_s=stall_s, websocket_ping_s=ping_s)
        super().__init__(
            verdict=None,
            is_open=True,
            is_reading=True,
            last_received=since,
            late_since=-1.0,
            pinged_at=-math.inf,
            expires_at=math.inf,
            outbox=SimpleNamespace(blocked_since=since if stall_s else 0.0),
            shared=SimpleNamespace(limits=limits),
            session=SimpleNamespace(heartbeats=plan),
            websocket=SimpleNamespace(ping=bytes) if ping_s else None,
        )

    def note_late(self, by: float) -> None:
        self.late_since = self.last_received

    def send_now(self, data: bytes, now: float, *, beat: bool) -> None:
        """A ping, to which there is no answer."""

    def end(self, error: Any) -> None:
        self.verdict = error


@given(st.floats(0.0, 1e7), seconds, st.floats(1.0, 4.0), st.sampled_from([0.0, 0.1, 1.0, 30.0]))
@example(14.947800668523643, 1.0, 4.0, 0.0)
def test_no_look_asks_for_another_at_once(
    since: float, every: float, tolerance: float, pings: float
) -> None:
    connection = Silent(since, HeartbeatPlan(0.0, every, every * tolerance), every * pings, 0.0)
    now = since
    for _ in range(100):
        following = look(connection, now)  # type: ignore[arg-type]
        assert following > now
        if math.isinf(following):
            break
        now = following
    assert connection.verdict.code == "heart-beat-timeout"


@given(st.floats(0.001, 1e7), seconds)
def test_a_stalled_writer_ends_at_its_deadline(since: float, stall: float) -> None:
    connection = Silent(since, NO_HEARTBEATS, 0.0, stall)
    due = look(connection, since)  # type: ignore[arg-type]
    assert due == since + stall
    assert look(connection, due) == math.inf  # type: ignore[arg-type]
    assert connection.verdict.code == "write-stalled"
