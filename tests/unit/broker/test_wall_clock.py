"""A wall clock that is set while the broker runs: what follows it, and what does not (V5).

``expires`` and schedules at a time of day follow the wall clock of now, also of what waited when it
was set, in memory, in the store and over restarts. ``ttl`` and delays follow the time that passes.
"""

import json
from collections.abc import Callable

import pytest
from attrs import define

from tests.support.core import Actor, Core, run_of
from tests.support.durable_fakes import WALL_OFFSET_S, DurableBench
from trio_stomp.broker import DestinationPolicy
from trio_stomp.broker.delivery import STEPS, WallTime
from trio_stomp.store import Record

MAX_STEPS = 64

Q, TOPIC = "/queue/q", "/topic/t"
HOUR = 3600.0
kept = pytest.mark.parametrize("persistent", ["true", "false"])


@define(eq=False, repr=False)
class WallBench(DurableBench):
    """A bench whose wall clock can be set."""

    def sets(self, seconds: float) -> None:
        """The wall clock is set ahead, or back; the core hears of it with the next turn."""
        self.wall_offset_s += seconds
        self.broker.use_wall(self.wall_offset_s, self.now)
        self.broker.tick(self.now)
        self.turn()

    def day_ms(self, in_s: float) -> int:
        """Return the time of day after a number of seconds, by the present wall clock."""
        return round((self.now + self.wall_offset_s + in_s) * 1000)

    def answers_all(self) -> None:
        """Have all done that is due now; it may take more than one turn."""
        for _ in range(3):
            self.passes(0)

    def restarts(self) -> "WallBench":
        """As that of the others, by the same wall clock."""
        return WallBench(
            book=self.book,
            policies=self.policies,
            store=self.store,
            now=self.now,
            wall_offset_s=self.wall_offset_s,
        )

    def got(self, name: str = Q) -> list[str]:
        """Settle, then return the messages that a new consumer of a queue gets."""
        self.answers_all()
        reader = self.reader(name)
        self.turn()
        bodies = reader.bodies()
        reader.unsubscribes()
        self.turn()
        return bodies


def wall_bench(**fields: object) -> WallBench:
    return WallBench(book={Q: DestinationPolicy(**fields)} if fields else {})  # type: ignore[arg-type]


def sends(actor: Actor, *bodies: str, to: str = Q, **headers: str | int) -> None:
    result = tuple((name, str(text)) for name, text in headers.items())
    actor.does(run_of(to, list(bodies), result))


def sends_at(core: WallBench, in_s: float, persistent: str, **further: str) -> None:
    """Send what is due at a time of day; ``further`` without their prefix."""
    schedules(core, persistent, TIME=str(core.day_ms(in_s)), **further)


def schedules(core: WallBench, persistent: str = "false", **reported: str) -> None:
    """Send something later; the headers without their prefix."""
    headers = tuple((f"AMQ_SCHEDULED_{name}", text) for name, text in reported.items())
    core.actor().does(run_of(Q, ["a"], (("persistent", persistent), *headers)))


def comes_after(core: WallBench, silence_s: float, last_s: float) -> None:
    """Nothing comes for a time, and then a message."""
    core.passes(silence_s)
    assert core.got() == []
    core.passes(last_s)
    assert core.got() == ["a"]


# --- the end of a message -------------------------------------------------------------------------


@pytest.fixture
def core() -> WallBench:
    return wall_bench()


@kept
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("count", [1, 50])
def test_expires_follows_a_wall_clock_that_is_set_back(
    core: WallBench, persistent: str, restarts: bool, count: int
) -> None:
    bodies = [f"a{number}" for number in range(count)]
    sends(core.actor(), *bodies, expires=core.day_ms(60), persistent=persistent)
    core.turn()
    core.sets(-HOUR)
    core.passes(HOUR)  # by the clock of the start it would have expired
    if restarts and persistent == "true":
        core = core.restarts()
    core.passes(59)
    assert core.got() == bodies


@kept
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("count", [1, 50])
def test_expires_follows_a_wall_clock_that_is_set_ahead(
    core: WallBench, persistent: str, restarts: bool, count: int
) -> None:
    bodies = [f"a{number}" for number in range(count)]
    sends(core.actor(), *bodies, expires=core.day_ms(HOUR + 60), persistent=persistent)
    sends(core.actor(), "later", expires=core.day_ms(HOUR + 90), persistent=persistent)
    core.turn()
    core.sets(HOUR)
    if restarts and persistent == "true":
        core = core.restarts()
    core.passes(61)
    assert core.got() == ["later"]


def test_message_sent_after_the_clock_was_set_uses_the_new_time(core: WallBench) -> None:
    """The report's case: RTC wrong at boot, NTP, a SEND with ``expires``, and it never came."""
    core.sets(-HOUR)
    sends(core.actor(), "a", expires=core.day_ms(60), persistent="true")
    core.turn()
    core.passes(59)
    assert core.got() == ["a"]


def test_expires_of_a_returned_message_follows_it(core: WallBench) -> None:
    actor = core.reader(Q, ack="client-individual")
    sends(core.actor(), "a", expires=core.day_ms(60))
    (message,) = actor.reads()
    core.sets(HOUR)
    actor.nacks(message)
    assert core.got() == []
    assert core.broker.destinations.open(Q).expired == 1


def test_an_unread_queue_drops_messages_expired_since_the_clock_was_set(
    core: WallBench,
) -> None:
    for number in range(3):
        sends(core.actor(), f"a{number}", expires=core.day_ms(HOUR + number * 10))
    sends(core.actor(), "b", expires=core.day_ms(2 * HOUR), ttl=40_000)
    core.turn()
    assert core.waiting(Q) == ["a0", "a1", "a2", "b"]
    core.sets(HOUR)
    assert core.waiting(Q) == ["a1", "a2", "b"]
    core.sets(-HOUR)
    core.passes(39)
    assert core.waiting(Q) == ["a1", "a2", "b"]
    core.sets(HOUR)
    assert core.waiting(Q) == ["b"]
    for _ in range(3):
        core.passes(1)
    assert core.waiting(Q) == []
    assert core.broker.destinations.open(Q).expired == 4
    # No call for each time that it was looked through.
    assert len(core.broker.timers) <= 1


def test_scanning_a_queue_leaves_no_timers(core: WallBench) -> None:
    sends(core.actor(), "kept", expires=core.day_ms(30 * HOUR), priority=9)
    core.turn()
    for number in range(50):
        sends(core.actor(), f"a{number}", ttl=1000, priority=4)
        core.passes(2)
    assert core.waiting(Q) == ["kept"]
    assert len(core.broker.timers) <= 2


@kept
@pytest.mark.parametrize("step_s", [-HOUR, HOUR])
@pytest.mark.parametrize("restarts", [False, True])
def test_ttl_follows_the_time_that_passes(
    core: WallBench, persistent: str, step_s: float, restarts: bool
) -> None:
    sends(core.actor(), "short", ttl=10_000, persistent=persistent)
    sends(core.actor(), "long", ttl=60_000, persistent=persistent)
    core.turn()
    core.passes(5)
    core.sets(step_s)
    sends(core.actor(), "new", ttl=60_000, persistent=persistent)
    core.turn()
    if restarts and persistent == "true":
        core = core.restarts()
        assert core.log.next_id == 4
    core.passes(6)
    assert core.got() == ["long", "new"]


def test_ttl_of_paged_messages_follows_the_elapsed_time(core: WallBench) -> None:
    sends(core.actor(), "short", ttl=10_000, persistent="true")
    sends(core.actor(), "long", ttl=60_000, persistent="true")
    core.turn()
    core = core.restarts()  # what was found at the start is read when somebody comes
    core.sets(HOUR)
    core.passes(11)
    assert core.got() == ["long"]


@pytest.mark.parametrize("step_s", [-HOUR, HOUR])
def test_earlier_of_ttl_and_expires_counts(core: WallBench, step_s: float) -> None:
    sends(core.actor(), "a", ttl=60_000, expires=core.day_ms(30))
    core.turn()
    core.sets(step_s)
    core.passes(59 if step_s < 0 else 0)
    assert core.got() == (["a"] if step_s < 0 else [])
    core.passes(2)
    assert core.got() == []


def test_a_dead_letter_does_not_end_with_the_message_that_it_is_of() -> None:
    """Its headers still have ``expires``, which is over."""
    core = WallBench(
        book={
            Q: DestinationPolicy(dead_letter="/queue/DLQ.q", dead_letter_expired=True),
            "/queue/DLQ.q": DestinationPolicy(ttl_ms=7_200_000),
        }
    )
    sends(core.actor(), "a", expires=core.day_ms(60), persistent="true")
    core.turn()
    core.sets(HOUR)
    core = core.restarts()
    core.passes(60)
    assert core.got("/queue/DLQ.q") == ["a"]


@pytest.mark.parametrize("step_s", [-HOUR, HOUR])
def test_a_last_value_follows_it(core: WallBench, step_s: float) -> None:
    day_ms = core.day_ms(60)
    sends(core.actor(), "a", to=TOPIC, retain="set", expires=day_ms, persistent="true")
    core.turn()
    core.sets(step_s)
    core = core.restarts()
    core.passes(0 if step_s > 0 else HOUR)
    assert core.got(TOPIC) == ([] if step_s > 0 else ["a"])


@pytest.mark.parametrize("step_s", [-HOUR, HOUR])
def test_parked_messages_follow_the_wall_clock(step_s: float) -> None:
    core = Core(book={TOPIC: DestinationPolicy(ttl_ms=10_000_000)}, wall_offset_s=900.0)
    day_ms = round((core.now + 960) * 1000)
    core.peer().sends(TOPIC, "a", headers=(("expires", str(day_ms)),))
    core.broker.use_wall(900.0 + step_s, core.now)
    core.passes(0 if step_s > 0 else 61)
    assert core.broker.stale.size == (0 if step_s > 0 else 1)
    reader = core.reader(TOPIC)
    assert reader.bodies() == ([] if step_s > 0 else ["a"])
    core.ends()


def test_late_records_follow_the_wall_clock() -> None:
    core = Core(wall_offset_s=900.0)
    reader, other = core.peer(), core.peer()
    reader.subscribes(TOPIC)
    headers = (("expires", str(round((core.now + 960) * 1000))),)
    other.sends(TOPIC, "a", headers=headers)
    core.broker.use_wall(900.0 + HOUR, core.now)
    other.sends(TOPIC, "b", headers=headers)
    (staged,) = reader.outbox.staged
    assert staged[1] is not None
    assert staged[1].publication.is_over(core.now)


# --- schedules ------------------------------------------------------------------------------------


@kept
def test_a_time_of_day_follows_the_wall_clock(core: WallBench, persistent: str) -> None:
    sends_at(core, HOUR, persistent)
    core.turn()
    core.sets(-HOUR)
    core.passes(HOUR)
    assert core.got() == []
    core.sets(HOUR)
    assert core.got() == ["a"]


def test_a_time_of_day_follows_the_wall_clock_over_a_restart(core: WallBench) -> None:
    sends_at(core, HOUR, "true")
    core.turn()
    core.sets(HOUR - 10)
    core = core.restarts()
    comes_after(core, 9, 1)


@kept
@pytest.mark.parametrize("step_s", [-HOUR, HOUR])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_delay_follows_the_time_that_passes(
    core: WallBench, persistent: str, step_s: float, restarts: bool
) -> None:
    schedules(core, persistent, DELAY="60000", PERIOD="10000", REPEAT="2")
    core.turn()
    core.passes(30)
    core.sets(step_s)
    if restarts and persistent == "true":
        core = core.restarts()
    comes_after(core, 29, 1)
    core.sets(-step_s)
    core.passes(9)
    assert core.got() == []
    core.passes(1)
    core.sets(3 * step_s)
    if restarts and persistent == "true":
        core = core.restarts()
    assert core.got() == ["a"]
    comes_after(core, 9, 1)
    core.passes(100)
    assert core.got() == []


@pytest.mark.parametrize("step_s", [-HOUR, HOUR])
def test_step_of_the_wall_clock_is_not_compensated(core: WallBench, step_s: float) -> None:
    """From TIME on every second: an hour that did not pass brings no 3,600 messages."""
    sends_at(core, 60, "false", PERIOD="1000", REPEAT="9000")
    core.turn()
    core.sets(step_s)
    core.passes(60 if step_s > 0 else 60 + HOUR)
    assert core.got() == ["a"] * (61 if step_s > 0 else 1)


@pytest.fixture
def cron() -> Callable[..., WallBench]:
    pytest.importorskip("cronsim")

    def made(persistent: str, fields: str) -> WallBench:
        core = wall_bench()
        core.now = 7200.0 - WALL_OFFSET_S % 3600  # a whole hour
        schedules(core, persistent, CRON=fields)
        core.turn()
        return core

    return made


@kept
def test_a_cron_fires_by_a_wall_clock_that_was_set_back(
    cron: Callable[..., WallBench], persistent: str
) -> None:
    core = cron(persistent, "*/10 * * * *")
    core.passes(600)
    assert core.got() == ["a"]
    core.sets(-24 * HOUR)
    for _ in range(3):
        comes_after(core, 590, 10)


def test_a_cron_fires_by_a_wall_clock_that_was_set_back_before_the_start(
    cron: Callable[..., WallBench],
) -> None:
    core = cron("true", "*/10 * * * *")
    core.wall_offset_s -= 24 * HOUR  # while nobody looked
    core = core.restarts()
    core.passes(0)
    core.passes(600)
    assert core.got() == ["a"]


@kept
def test_a_cron_fires_once_for_the_time_that_the_clock_was_set_ahead(
    cron: Callable[..., WallBench], persistent: str
) -> None:
    core = cron(persistent, "*/10 * * * *")
    core.sets(24 * HOUR + 30)
    assert core.got() == ["a"]
    comes_after(core, 569, 1)


def test_a_cron_does_not_fire_again_for_half_a_second(cron: Callable[..., WallBench]) -> None:
    core = cron("false", "0 * * * *")
    core.passes(HOUR)
    assert core.got() == ["a"]
    core.sets(-0.5)
    comes_after(core, 1, HOUR)


def test_a_cron_that_is_in_its_repetitions_is_left_alone(
    core: WallBench, cron: Callable[..., WallBench]
) -> None:
    core.now = 7200.0 - WALL_OFFSET_S % 3600
    schedules(core, CRON="0 * * * *", PERIOD="10000", REPEAT="2")
    core.turn()
    core.passes(HOUR + 10)
    assert core.got() == ["a"]
    core.sets(-24 * HOUR)
    for _ in range(2):
        comes_after(core, 9, 1)
    comes_after(core, HOUR - 30, 10)


# --- the time of day itself -----------------------------------------------------------------------


def test_step_of_the_clock_is_stored_before_later_records(
    core: WallBench,
) -> None:
    sends(core.actor(), "a", persistent="true")
    core.turn()
    core.broker.use_wall(WALL_OFFSET_S + 5, core.now)
    core.wall_offset_s += 5
    sends(core.actor(), "b", persistent="true")
    turn = core.log.take()
    core.broker.end_turn(core.now)
    turn = turn or core.log.take()
    assert turn is not None
    kinds = [type(each).__name__ for each in turn.records if isinstance(each, Record)]
    assert kinds == ["Keep", "Put"]
    assert json.loads(core.broker.wall.as_setting()) == [[2, 5000]]
    core.turns.append(turn)
    core.answers()
    assert core.restarts().broker.wall.steps == [(2, 5000)]


def test_oldest_of_many_clock_steps_are_merged() -> None:
    wall = WallTime()
    for number in range(MAX_STEPS + 10):
        wall.set(float(number + 1), 10 * number)
    assert len(wall.steps) == MAX_STEPS
    assert wall.steps[0] == (100, 11_000)
    assert wall.set_ms == (MAX_STEPS + 10) * 1000
    assert wall.offset_s == MAX_STEPS + 10
    last = 10 * (MAX_STEPS + 9)
    assert wall.stored_s(0, last) == -wall.offset_s
    assert wall.stored_s(0, last - 1) == 1 - wall.offset_s


@pytest.mark.parametrize("text", ["", "{", "7", "[[1]]", '[["a", 1]]', "[[null, 1]]"])
def test_steps_that_cannot_be_read_are_left_out(text: str) -> None:
    wall = WallTime(5.0)
    wall.restore(text)
    assert (wall.steps, wall.offset_s) == ([], 5.0)


def test_the_setting_has_its_name() -> None:
    assert STEPS == "clock:steps"  # in data directories that are there


def test_a_time_beyond_the_calendar_is_never() -> None:
    wall = WallTime(1_700_000_000.0)
    assert wall.expiry_ms(float("inf")) == 0
    assert wall.expiry_ms(2**63 / 1000) == 0
    assert wall.expiry_ms(5.0) == 1_700_000_005_000


def test_a_last_value_expires_by_the_wall_clock(core: WallBench) -> None:
    sends(core.actor(), "old", to="/topic/t", expires=core.day_ms(60), retain="set")
    core.turn()
    core.sets(-HOUR)
    core.passes(61)
    assert list(core.broker.last_values.owners) == ["/topic/t"]
    core.passes(HOUR)
    assert not core.broker.last_values.owners
