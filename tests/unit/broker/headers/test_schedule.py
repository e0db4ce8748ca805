"""AMQ_SCHEDULED headers: reading, bounds and due times."""

import sys
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_stomp.base import MAX_INTEGER, ProtocolError
from trio_stomp.broker.headers import LAST_MS, Removal, Schedule, parse_schedule, removal_of
from trio_stomp.frames import Head

FOREVER = -1
MAX_AHEAD_MS = 3653 * 24 * 3600 * 1000
"""Ten years."""
MAX_TIME_MS = LAST_MS - MAX_AHEAD_MS
MAX_REPEAT = 1_000_000

SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000
NOW = 1_700_000_000_123

HEADERS = st.dictionaries(
    st.sampled_from(["DELAY", "TIME", "PERIOD", "REPEAT"]),
    st.integers(-2, 2000).map(str) | st.text(max_size=20),
)


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1000


def parse(**headers: str) -> Schedule | None:
    pairs = tuple((f"AMQ_SCHEDULED_{name}", text) for name, text in headers.items())
    return parse_schedule(Head("SEND", pairs))


def parsed(**headers: str) -> Schedule:
    schedule = parse(**headers)
    assert schedule is not None
    return schedule


def refusal(**headers: str) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        parse(**headers)
    return caught.value


def check_code(error: ProtocolError) -> None:
    assert error.code == "invalid-schedule"


def dues(schedule: Schedule, now: int, most: int = 100) -> list[int]:
    """The first ``most`` due times of a message sent at ``now``."""
    due: int | None = schedule.first_due(now)
    found: list[int] = []
    while due is not None and len(found) < most:
        found.append(due)
        due = schedule.next_due(due, len(found))
    return found


@pytest.mark.parametrize(
    "headers",
    [{}, {"DELAY": "0"}, {"TIME": "0"}, {"REPEAT": "0"}, {"PERIOD": "0"}, {"CRON": " "}],
    ids=str,
)
def test_message_without_a_schedule_is_delivered_immediately(headers: dict[str, str]) -> None:
    assert parse(**headers) is None


def test_headers_may_come_from_any_lookup() -> None:
    assert parse_schedule({"AMQ_SCHEDULED_DELAY": "5"}.get) == Schedule(delay_ms=5)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"DELAY": "60000"}, [MINUTE]),
        # The documented example: ten deliveries, ten seconds apart.
        (
            {"DELAY": "30000", "PERIOD": "10000", "REPEAT": "9"},
            [30 * SECOND + 10 * SECOND * n for n in range(10)],
        ),
        # Without a delay the first is sent after one period.
        ({"PERIOD": "10", "REPEAT": "2"}, [10, 20, 30]),
        ({"PERIOD": "10"}, [10]),
        # An absolute time has priority over a delay; one that has passed is due now.
        (
            {"TIME": str(NOW + HOUR), "DELAY": "5", "PERIOD": "7", "REPEAT": "1"},
            [HOUR, HOUR + 7],
        ),
        ({"TIME": "1"}, [0]),
    ],
    ids=str,
)
def test_due_times(headers: dict[str, str], expected: list[int]) -> None:
    assert dues(parsed(**headers), NOW) == [NOW + after for after in expected]


def test_spaces_round_a_number_are_taken() -> None:
    assert parsed(DELAY=" 5 ").delay_ms == 5


def test_for_ever_has_no_end() -> None:
    schedule = parsed(PERIOD="100", REPEAT="-1")
    assert schedule.repeat == FOREVER
    assert schedule.next_due(NOW, 10**9) == NOW + 100


def test_a_time_is_at_most_ten_years_ahead() -> None:
    assert parsed(TIME=str(NOW + MAX_AHEAD_MS)).first_due(NOW) == NOW + MAX_AHEAD_MS
    with pytest.raises(ProtocolError, match=r"AMQ_SCHEDULED_TIME:.* ten years") as caught:
        parsed(TIME=str(NOW + MAX_AHEAD_MS + 1)).first_due(NOW)
    assert caught.value.code == "invalid-schedule"


def test_cron_fires_at_the_full_minute_and_again() -> None:
    at = ms("2026-03-01T09:59:30") + 500
    assert dues(parsed(CRON="0 * * * *"), at, 2) == [
        ms("2026-03-01T10:00:00"),
        ms("2026-03-01T11:00:00"),
    ]


def test_cron_never_fires_in_the_moment_it_is_asked() -> None:
    full = ms("2026-03-01T10:00:00")
    assert [parsed(CRON="* * * * *").first_due(full + late) for late in (0, 1, 999, 59_999)] == [
        full + MINUTE
    ] * 4


def test_cron_has_priority_over_a_delay() -> None:
    at = ms("2026-03-01T10:30:00")
    assert parsed(CRON="0 * * * *", DELAY="5000").first_due(at) == ms("2026-03-01T11:00:00")


def test_the_documented_example_ten_deliveries_every_hour() -> None:
    schedule = parsed(CRON="0 * * * *", DELAY="1000", PERIOD="1000", REPEAT="9")
    eleven = ms("2026-03-01T11:00:00")
    assert dues(schedule, eleven - 1, 20) == [
        hour + SECOND * n for hour in (eleven, eleven + HOUR) for n in range(1, 11)
    ]


def test_each_firing_waits_one_period_without_a_delay() -> None:
    schedule = parsed(CRON="0 0 * * *", PERIOD="5000", REPEAT="1")
    day = ms("2026-03-02T00:00:00")
    assert dues(schedule, day - 1, 3) == [day + 5000, day + 10_000, day + DAY + 5000]


def test_a_firing_during_a_sequence_is_passed_over() -> None:
    schedule = parsed(CRON="* * * * *", DELAY="1", PERIOD="90000", REPEAT="1")
    assert dues(schedule, -1, 3) == [1, 90_001, 2 * MINUTE + 1]


@pytest.mark.parametrize(
    ("cron", "due"),
    [
        ("*/15 9-17 * * MON-FRI", "2026-03-02T09:00:00"),
        ("0 0 29 2 *", "2028-02-29T00:00:00"),
        ("5  4\t1 jan 5", "2027-01-01T04:05:00"),
        ("0 12 L * *", "2026-03-31T12:00:00"),
        ("0 0 * * 7", "2026-03-08T00:00:00"),
    ],
)
def test_cron_fields(cron: str, due: str) -> None:
    start = ms("2026-03-01T00:00:00")
    assert parsed(CRON=cron).first_due(start) == ms(due)


@pytest.mark.parametrize("cron", ["0 0 */29 2 MON#5", "0 0 * 2 MON#5"])
def test_a_cron_that_does_not_fire_in_ten_years_is_refused_when_sent(cron: str) -> None:
    schedule = parsed(CRON=cron)
    with pytest.raises(ProtocolError, match=r"AMQ_SCHEDULED_CRON:.* within ten years"):
        schedule.first_due(ms("2026-03-01T00:00:00"))
    assert schedule.next_due(ms("2026-03-01T00:00:00"), 1) is None


def test_the_end_of_the_calendar_is_an_end() -> None:
    assert parsed(CRON="0 0 1 1 *").next_due(MAX_TIME_MS + MAX_AHEAD_MS, 1) is None
    assert parsed(CRON="0 0 1 1 *").next_due(MAX_TIME_MS * 1000, 1) is None


@pytest.mark.parametrize("name", ["DELAY", "TIME", "PERIOD", "REPEAT"])
@pytest.mark.parametrize("text", ["", "x", "1.5", "-2", "1e3", "\u0663", "--1", "9" * 5000, "0x1"])
def test_a_bad_number_is_refused_by_name_value_and_rule(name: str, text: str) -> None:
    error = refusal(**{"PERIOD": "1000", name: text})
    assert error.code == "invalid-schedule"
    assert error.message.startswith(f"AMQ_SCHEDULED_{name}:{text[:40]} must be a whole number")
    assert len(error.message) < 150


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("DELAY", MAX_AHEAD_MS),
        ("TIME", MAX_TIME_MS),
        ("PERIOD", MAX_AHEAD_MS),
        ("REPEAT", MAX_REPEAT),
    ],
)
def test_bounds_hold_exactly(name: str, most: int) -> None:
    assert parse(**{"PERIOD": "1000", name: str(most)})
    assert f"to {most}" in refusal(**{"PERIOD": "1000", name: str(most + 1)}).message


@pytest.mark.parametrize(
    ("headers", "rule"),
    [
        ({"REPEAT": "1"}, "AMQ_SCHEDULED_REPEAT:1 needs AMQ_SCHEDULED_PERIOD"),
        ({"REPEAT": "-1", "DELAY": "5"}, "AMQ_SCHEDULED_REPEAT:-1 needs AMQ_SCHEDULED_PERIOD"),
        ({"REPEAT": "-1", "PERIOD": "99"}, "of at least 100 ms"),
        ({"REPEAT": "1001", "PERIOD": "99"}, "of at least 100 ms"),
        ({"CRON": "* * * * *", "TIME": "5"}, "leave one of them out"),
        ({"CRON": "* * * * *", "PERIOD": "500", "REPEAT": "-1"}, "set a limit"),
        ({"CRON": "* * * *"}, "five fields"),
        ({"CRON": "0 * * * * *"}, "five fields"),
        ({"CRON": "@hourly"}, "five fields"),
        ({"CRON": "60 * * * *"}, "bad minute"),
        ({"CRON": "* * 31 2 *"}, "bad day-of-month"),
        ({"CRON": "* * * * " + "1," * 100 + "1"}, "five fields"),
    ],
    ids=str,
)
def test_senseless_schedule_is_refused(headers: dict[str, str], rule: str) -> None:
    error = refusal(**headers)
    assert error.code == "invalid-schedule"
    assert rule in error.message


def test_a_thousand_repetitions_may_be_fast() -> None:
    assert parsed(PERIOD="1", REPEAT="1000").period_ms == 1


def test_cron_without_its_library_names_the_package_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "cronsim", None)
    error = refusal(CRON="* * * * *")
    assert error.code == "unsupported"
    assert "pip install cronsim" in error.message
    assert parsed(DELAY="5").first_due(0) == 5


@given(HEADERS)
def test_any_headers_are_a_schedule_or_an_error(headers: dict[str, str]) -> None:
    try:
        schedule = parse(**headers)
    except ProtocolError as error:
        check_code(error)
        return
    if schedule is None:
        return
    found = dues(schedule, NOW, 50)
    assert found[0] >= NOW
    assert all(later - due == schedule.period_ms for due, later in pairwise(found))
    assert len(found) == (50 if schedule.repeat == FOREVER else min(50, schedule.repeat + 1))


@given(st.text("0123456789*/,-#LWMONAUGJL ²", max_size=24), st.integers(0, MAX_TIME_MS))
def test_any_cron_is_a_schedule_or_an_error(field: str, now: int) -> None:
    for cron in (f"{field} * * * *", f"0 0 {field} * *", f"0 0 * * {field}", field):
        try:
            schedule = parse(CRON=cron)
            due = schedule.first_due(now) if schedule else now + 1
        except ProtocolError as error:
            check_code(error)
        else:
            assert now < due <= now + MAX_AHEAD_MS


def test_a_number_of_a_schedule_is_not_cut_to_another() -> None:
    assert removal_of(str(2**64)) == Removal(MAX_INTEGER, MAX_INTEGER)
    assert removal_of(f"7-{'9' * 5000}") == Removal(7, MAX_INTEGER)
