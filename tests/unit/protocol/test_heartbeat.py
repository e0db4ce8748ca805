"""The negotiation of heart-beats, and the detection of a dead peer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_stomp.base import ProtocolError
from trio_stomp.protocol import NO_HEARTBEATS, HeartbeatPlan, ProtocolOptions
from trio_stomp.protocol._heartbeat import negotiate_heartbeats

DAYS_24 = (2**31 - 1) / 1000


def options(
    send: int = 1000, expect: int = 1000, tolerance: float = 2.0, margin: float = 1.0
) -> ProtocolOptions:
    return ProtocolOptions(
        heartbeat_send_ms=send,
        heartbeat_expect_ms=expect,
        heartbeat_tolerance=tolerance,
        heartbeat_margin_s=margin,
    )


@pytest.mark.covers("H02")
def test_no_header_is_no_heartbeats() -> None:
    assert negotiate_heartbeats(None, options()) == NO_HEARTBEATS
    assert negotiate_heartbeats("0,0", options()) == NO_HEARTBEATS


@pytest.mark.covers("H03")
@pytest.mark.parametrize(
    ("can_send", "broker_wants", "expected"),
    [
        (0, 1000, 0.0),
        (1000, 0, 0.0),
        (0, 0, 0.0),
        (5000, 1000, 5.0),
        (1000, 5000, 5.0),
        (1, 1, 0.001),
    ],
)
def test_the_client_sends_at_the_longer_interval(
    can_send: int, broker_wants: int, expected: float
) -> None:
    plan = negotiate_heartbeats(f"{can_send},0", options(expect=broker_wants))
    assert (plan.expect_every_s, plan.send_every_s) == (expected, 0.0)


@pytest.mark.covers("H04")
@pytest.mark.parametrize(
    ("broker_can", "client_wants", "expected"),
    [(0, 1000, 0.0), (1000, 0, 0.0), (1000, 5000, 5.0), (5000, 1000, 5.0), (1, 2, 0.002)],
)
def test_the_broker_sends_at_the_longer_interval(
    broker_can: int, client_wants: int, expected: float
) -> None:
    plan = negotiate_heartbeats(f"0,{client_wants}", options(send=broker_can))
    assert (plan.send_every_s, plan.expect_every_s) == (expected, 0.0)


@pytest.mark.covers("H01")
@pytest.mark.parametrize(
    "header",
    [
        *["", ",", "1", "1,", ",1", "a,b", "-1,0", "0,-1", "1,2,3", "1;2", "1.5,2", "+1,1"],
        *["1 ,1", " 1,1", "1, 1", "0x1,1", "1_0,1", "1e3,1", "١,١", "²,1", "1,2\n"],
    ],
)
def test_heart_beat_that_is_not_two_numbers_is_refused(header: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        negotiate_heartbeats(header, options())
    assert caught.value.code == "invalid-heart-beat"
    assert f"heart-beat:{header} " in caught.value.message
    assert "10000,10000" in caught.value.message


@pytest.mark.covers("H01")
@pytest.mark.parametrize("digits", ["2147483647", "2147483648", "9" * 12, "9" * 13, "9" * 16_000])
def test_huge_numbers_are_clamped(digits: str) -> None:
    plan = negotiate_heartbeats(f"{digits},{digits}", options())
    assert (plan.send_every_s, plan.expect_every_s) == (DAYS_24, DAYS_24)


@pytest.mark.covers("H01")
@pytest.mark.parametrize("digits", ["05000", "0" * 12 + "5000", "0" * 9000 + "5000"])
def test_leading_zeros_do_not_count(digits: str) -> None:
    plan = negotiate_heartbeats(f"{digits},{digits}", options())
    assert (plan.send_every_s, plan.expect_every_s) == (5.0, 5.0)
    assert negotiate_heartbeats("0" * 9000 + ",00", options()) == NO_HEARTBEATS


def test_a_message_quotes_little_of_a_long_header() -> None:
    with pytest.raises(ProtocolError) as caught:
        negotiate_heartbeats("x" * 10_000, options())
    assert len(caught.value.message) < 200


@pytest.mark.covers("H08")
@pytest.mark.parametrize(
    ("interval", "tolerance", "margin", "dead_after"),
    [
        (10_000, 2.0, 1.0, 20.0),
        (1000, 2.0, 1.0, 2.0),
        (999, 2.0, 1.0, 1.999),  # The floor: never sooner than a second after it was due.
        (100, 2.0, 1.0, 1.1),
        (100, 2.0, 0.0, 0.2),
        (10_000, 1.0, 0.0, 10.0),
        (10_000, 1.5, 1.0, 15.0),
    ],
)
def test_when_silence_is_death(
    interval: int, tolerance: float, margin: float, dead_after: float
) -> None:
    plan = negotiate_heartbeats(f"{interval},0", options(1, 1, tolerance, margin))
    assert plan.dead_after_s == pytest.approx(dead_after)


@pytest.mark.covers("H08")
def test_the_default_margin_is_twice_with_a_floor_of_one_second() -> None:
    assert negotiate_heartbeats("30000,0", ProtocolOptions()).dead_after_s == 60.0
    assert negotiate_heartbeats("1,0", ProtocolOptions(heartbeat_expect_ms=1)).dead_after_s == 1.001


def test_without_a_promise_there_is_no_deadline() -> None:
    assert negotiate_heartbeats("0,9000", options()).dead_after_s == 0.0
    assert HeartbeatPlan(0.0, 5.0, 10.0).send_after_s == 0.0
    assert NO_HEARTBEATS.dead_after_s == NO_HEARTBEATS.send_after_s == 0.0


@given(*[st.integers(0, 2**31 - 1)] * 4)
def test_the_plan_follows_from_the_four_numbers(cx: int, cy: int, sx: int, sy: int) -> None:
    plan = negotiate_heartbeats(f"{cx},{cy}", options(send=sx, expect=sy))
    assert plan.expect_every_s == (max(cx, sy) / 1000 if cx * sy else 0)
    assert plan.send_every_s == (max(sx, cy) / 1000 if sx * cy else 0)
    # We send sooner than promised, and give the client more time than it promised.
    assert 0 <= plan.send_after_s <= plan.send_every_s
    assert (0 < plan.send_after_s < plan.send_every_s) or not plan.send_every_s
    assert plan.dead_after_s > plan.expect_every_s or not plan.expect_every_s
