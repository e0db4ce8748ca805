"""When a connection is checked, each deadline once; and its end, whose first cause counts."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trio_stomp.base import CloseReason, ProtocolError
from trio_stomp.protocol import NO_HEARTBEATS, HeartbeatPlan
from trio_stomp.server.connection._deadlines import Deadlines
from trio_stomp.server.connection._lifecycle import Lifecycle

seconds = st.floats(0.001, 1000.0)


class Silent(SimpleNamespace):
    """The link of a peer that sends nothing, not even answers to pings."""

    def __init__(self, since: float, plan: HeartbeatPlan, ping_s: float, stall_s: float) -> None:
        limits = SimpleNamespace(write_stall_s=stall_s, websocket_ping_s=ping_s)
        super().__init__(
            client=None,
            outbox=SimpleNamespace(blocked_since=since if stall_s else 0.0),
            shared=SimpleNamespace(limits=limits, report_late=lambda client, outbox, by: None),
            session=SimpleNamespace(heartbeats=plan),
            websocket=SimpleNamespace(ping=bytes) if ping_s else None,
        )

    def send_now(self, data: bytes, now: float, *, beat: bool) -> None:
        """Send a ping."""


def silent(since: float, plan: HeartbeatPlan, ping_s: float, stall_s: float) -> Deadlines:
    link: Any = Silent(since, plan, ping_s, stall_s)
    lifecycle = Lifecycle()
    lifecycle.open()
    reader: Any = SimpleNamespace(last_received=since, is_reading=True)
    return Deadlines(link, lifecycle, reader, opened_at=since)


def error_code(deadlines: Deadlines) -> str:
    error = deadlines.lifecycle.pending_error
    return error.code if error is not None else ""


@given(st.floats(0.0, 1e7), seconds, st.floats(1.0, 4.0), st.sampled_from([0.0, 0.1, 1.0, 30.0]))
@example(14.947800668523643, 1.0, 4.0, 0.0)
def test_no_look_asks_for_another_at_once(
    since: float, every: float, tolerance: float, pings: float
) -> None:
    deadlines = silent(since, HeartbeatPlan(0.0, every, every * tolerance), every * pings, 0.0)
    now = since
    for _ in range(100):
        following = deadlines.look(now)
        assert following > now
        if math.isinf(following):
            break
        now = following
    assert error_code(deadlines) == "heart-beat-timeout"


@given(st.floats(0.001, 1e7), seconds)
def test_a_stalled_writer_ends_at_its_deadline(since: float, stall: float) -> None:
    deadlines = silent(since, NO_HEARTBEATS, 0.0, stall)
    due = deadlines.look(since)
    assert due == since + stall
    assert deadlines.look(due) == math.inf
    assert error_code(deadlines) == "write-stalled"


# --- the end of a connection ----------------------------------------------------------------------

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
