"""Scheduled messages: once, again and again, and over restarts."""

import pytest

from tests.support.core import Actor, Bench, bench, run_of
from tests.support.durable_fakes import WALL_OFFSET_S, DurableBench, answered
from tests.support.quota_fakes import ALL, user
from trio_stomp.base import ProtocolError
from trio_stomp.broker import BrokerPolicies, DestinationPolicy, MemoryBudget
from trio_stomp.broker.sending import Progress, read_progress
from trio_stomp.frames import FrameRun
from trio_stomp.store import Atomic, Done, Keep, Put, Turn

Q = "/queue/q"


def made(*, is_prompt: bool = True, **fields: object) -> DurableBench:
    book = {Q: DestinationPolicy(**fields)} if fields else {}  # type: ignore[arg-type]
    return DurableBench(book=book, is_prompt=is_prompt)


def schedules(actor: Actor, *bodies: str, **headers: str) -> None:
    actor.sends(Q, *bodies, **{"persistent": "true", **headers})  # type: ignore[arg-type]


def read(core: DurableBench, name: str = Q) -> list[str]:
    """Consume and return the messages in a queue."""
    reader = core.actor()
    reader.subscribes(name)
    core.turn()
    bodies = reader.bodies()
    reader.unsubscribes()
    core.turn()
    return bodies


def is_clean(core: DurableBench) -> None:
    core.turn()
    assert core.store.statistics().live_messages == 0
    assert core.memory.kept_bytes == 0
    assert core.broker.scheduler.waiting == 0
    assert not core.restarts().log.deliveries


def test_a_delayed_message_is_sent_in_time_over_a_restart() -> None:
    core = made()
    schedules(core.actor(), "a", "b", AMQ_SCHEDULED_DELAY="5000")
    core.turn()
    core.passes(3)
    core = core.restarts()
    assert core.broker.scheduler.waiting == 2
    core.passes(1)
    assert read(core) == []
    core.passes(1)
    assert read(core) == ["a", "b"]
    is_clean(core)


def test_overdue_message_is_sent_immediately() -> None:
    core = made()
    schedules(core.actor(), "a", AMQ_SCHEDULED_DELAY="5000")
    core.turn()
    core.now += 50
    core = core.restarts()
    core.passes(0)
    assert read(core) == ["a"]
    is_clean(core)


def test_a_repeated_message_is_sent_as_often_as_was_asked_over_restarts() -> None:
    core = made()
    schedules(
        core.actor(), "a", AMQ_SCHEDULED_DELAY="1000", AMQ_SCHEDULED_PERIOD="1000",
        AMQ_SCHEDULED_REPEAT="3",
    )  # fmt: skip
    core.turn()
    got = []
    for _ in range(8):
        core.passes(1)
        got += read(core)
        core = core.restarts()
    assert got == ["a"] * 4
    is_clean(core)
    assert core.store.recover(lambda done, total: None).settings.keys() == {"identity"}


def test_a_cron_schedule_continues_over_restarts() -> None:
    pytest.importorskip("cronsim")
    core = made()
    core.now = 60.0 - WALL_OFFSET_S % 60
    headers = (("persistent", "true"), ("AMQ_SCHEDULED_CRON", "* * * * *"))
    core.actor().does(run_of(Q, ["a"], headers))
    core.turn()
    got = []
    for _ in range(3):
        core.passes(60)
        got.append(read(core))
        core = core.restarts()
    assert got == [["a"]] * 3


def test_its_due_is_one_record() -> None:
    core = made(is_prompt=False)
    schedules(core.actor(), "a", AMQ_SCHEDULED_PERIOD="1000", AMQ_SCHEDULED_REPEAT="1")
    answered(core)
    kinds = []
    for _ in range(2):
        core.passes(1)
        (turn,) = core.turns
        (record,) = turn.records
        assert isinstance(record, Atomic)
        kinds.append([type(each) for each in record.records])
        answered(core)
    assert kinds[0] == [Put, Keep]
    assert kinds[1][0] is Put
    assert kinds[1][-1] is Done


def test_it_is_sent_once_though_the_store_failed_then() -> None:
    core = made(is_prompt=False)
    schedules(core.actor(), "a", AMQ_SCHEDULED_DELAY="1000")
    answered(core)
    core.passes(1)
    core.fails()
    assert read(core) == []
    answered(core)
    assert read(core) == ["a"]
    answered(core)
    is_clean(core)


def test_a_crash_at_its_due_sends_it_again_or_once() -> None:
    core = made(is_prompt=False)
    schedules(core.actor(), "a", AMQ_SCHEDULED_DELAY="1000")
    answered(core)
    core.passes(1)
    core = core.restarts()
    core.passes(0)
    assert read(core) == ["a"]
    is_clean(core)


def test_withdrawn_message_is_never_sent() -> None:
    core = made(is_prompt=False)
    actor = core.actor()
    schedules(actor, "a", AMQ_SCHEDULED_DELAY="1000")
    core.turn()
    core.fails()
    assert actor.error().get("code") == "storage"
    core.passes(2)
    assert read(core) == []
    is_clean(core)


def test_nothing_is_sent_before_the_store_has_it() -> None:
    core = made(is_prompt=False)
    actor = core.actor()
    actor.sends(Q, "a", AMQ_SCHEDULED_DELAY="1", persistent="true", receipts=[(1, b"1")])
    core.turn()
    core.passes(2)
    assert core.waiting(Q) == []
    assert actor.frames() == []
    core.answers()
    (receipt,) = actor.frames()
    assert receipt.get("stored") == "memory"
    core.passes(0)
    answered(core)
    assert core.waiting(Q) == ["a"]


def test_a_transient_one_ends_with_the_process() -> None:
    core = made()
    schedules(core.actor(), "a", AMQ_SCHEDULED_DELAY="1000", persistent="false")
    core.turn()
    assert core.restarts().broker.scheduler.waiting == 0
    core.passes(1)
    assert read(core) == ["a"]


def test_a_transaction_schedules_as_a_whole() -> None:
    core = made(is_prompt=False)
    actor = core.actor()
    later = (("AMQ_SCHEDULED_DELAY", "1000"),)
    actor.commits(run_of(Q, ["now"], (("persistent", "true"),)), run_of(Q, ["later"], later))
    core.turn()
    core.fails()
    assert core.broker.scheduler.waiting == 0
    actor = core.actor()
    actor.commits(run_of(Q, ["now"], (("persistent", "true"),)), run_of(Q, ["later"], later))
    answered(core)
    assert core.restarts().broker.scheduler.waiting == 1


@pytest.mark.parametrize("overflow", ["reject", "block", "drop-newest"])
@pytest.mark.parametrize("repeat", ["", "1"])
def test_what_is_due_waits_for_room_in_order_over_a_restart(overflow: str, repeat: str) -> None:
    core = made(max_messages=2, overflow=overflow)
    again = {"AMQ_SCHEDULED_PERIOD": "9000", "AMQ_SCHEDULED_REPEAT": repeat} if repeat else {}
    schedules(core.actor(), "a", "b", "c", AMQ_SCHEDULED_DELAY="1000", **again)
    schedules(core.actor(), "d", AMQ_SCHEDULED_DELAY="1001")
    core.turn()
    core.passes(2)
    core = core.restarts()
    core.passes(1)
    assert read(core) == ["a", "b"]
    core.passes(2)
    assert read(core) == ["c", "d"]
    core.passes(9)
    core.passes(2)
    assert read(core) == (["a", "b"] if repeat else [])
    core.passes(9)
    core.passes(2)
    assert read(core) == (["c"] if repeat else [])
    assert core.broker.scheduler.lost == 0
    is_clean(core)


def removes(actor: Actor) -> None:
    to = "/topic/ActiveMQ.Scheduler.Management"
    actor.sends(to, "", AMQ_SCHEDULER_ACTION="REMOVEALL")


def test_what_waits_for_room_can_be_cancelled() -> None:
    core = made(max_messages=1)
    actor = core.actor()
    for body in "ab":
        schedules(actor, body, AMQ_SCHEDULED_DELAY="1000")
    core.turn()
    core.passes(1)
    removes(actor)
    assert read(core) == ["a"]
    core.passes(3)
    assert read(core) == []
    is_clean(core)


@pytest.mark.parametrize("restarts", [False, True])
def test_if_the_rest_of_a_repetition_is_cancelled_the_others_are_repeated(restarts: bool) -> None:
    core = made(max_messages=2, overflow="reject")
    again = {"AMQ_SCHEDULED_PERIOD": "9000", "AMQ_SCHEDULED_REPEAT": "1"}
    actor = core.actor()
    schedules(actor, "a", "b", "c", AMQ_SCHEDULED_DELAY="1000", **again)
    core.turn()
    (item,) = core.broker.scheduler.jobs.beginning_at(0)
    core.passes(1)
    actor.sends(
        "/topic/ActiveMQ.Scheduler.Management",
        "",
        scheduledJobId=f"{item.numbers[-1]}",
        AMQ_SCHEDULER_ACTION="REMOVE",
    )
    core.turn()
    assert core.broker.scheduler.waiting == 2
    if restarts:
        core = core.restarts()
        core.passes(0)
    assert read(core) == ["a", "b"]
    core.passes(2)
    core.passes(8)
    assert read(core) == ["a", "b"]
    is_clean(core)


@pytest.mark.parametrize("is_all", [False, True])
def test_a_repetition_that_waits_for_room_leaves_nothing_when_it_is_cancelled(is_all: bool) -> None:
    core = made(max_messages=2, overflow="reject")
    actor = core.actor()
    again = {"AMQ_SCHEDULED_PERIOD": "9000", "AMQ_SCHEDULED_REPEAT": "1"}
    schedules(actor, "a", "b", "c", AMQ_SCHEDULED_DELAY="1000", **again)
    core.turn()
    (item,) = core.broker.scheduler.jobs.beginning_at(0)
    first = item.numbers[0]
    core.passes(1)
    if not is_all:
        actor.sends(
            "/topic/ActiveMQ.Scheduler.Management",
            "",
            scheduledJobId=f"{first}",
            AMQ_SCHEDULER_ACTION="REMOVE",
        )
        core.turn()
        core = core.restarts()
        core.passes(0)
        assert read(core) == ["a", "b"]
        core.passes(1)
        assert read(core) == ["c"]
        actor = core.actor()
    removes(actor)
    core.turn()
    assert read(core) == (["a", "b"] if is_all else [])
    core.turn()
    assert set(core.store.recover(lambda done, total: None).settings) == {"identity"}
    is_clean(core)


def test_what_waits_for_room_counts_for_the_limit_of_its_user() -> None:
    limits = BrokerPolicies(max_schedules_per_user=2)
    core = Bench(book={Q: DestinationPolicy(max_messages=1)}, policies=limits)
    core.broker.use_rules(ALL, lambda _: True, core.now)
    sender = user(core, "u")
    sender.sends(Q, "a")
    sender.sends(Q, "b", "c", AMQ_SCHEDULED_DELAY="1000")
    core.passes(2)
    core.passes(2)
    sender.sends(Q, "d", AMQ_SCHEDULED_DELAY="1000")
    assert sender.error().get("code") == "too-many-schedules"


@pytest.mark.parametrize("dead", ["/queue/q", "/queue/dead"])
@pytest.mark.parametrize("is_run", [False, True])
def test_what_can_never_fit_does_not_hold_up_others(dead: str, is_run: bool) -> None:
    core = made(max_bytes=3, dead_letter=dead)
    everything = ("long", "b", "more")
    for bodies in [everything] if is_run else [(each,) for each in everything]:
        schedules(core.actor(), *bodies, AMQ_SCHEDULED_DELAY="1000", priority="7")
    core.turn()
    core.passes(1)
    assert read(core) == ["b"]
    assert core.broker.scheduler.lost == 2 * (dead == Q)
    core = core.restarts()
    assert dead == Q or read(core, dead) == ["long", "more"]
    is_clean(core)


def test_what_may_never_be_sent_is_counted_as_lost() -> None:
    core = made()
    schedules(core.actor(), "a", "b", AMQ_SCHEDULED_DELAY="1000")
    scheduler = core.broker.scheduler
    (item,) = scheduler.jobs.beginning_at(0)
    run = FrameRun(item.head, item.bodies, [])
    assert scheduler.sender.refused(item, run, ProtocolError("unsupported", "no"), core.now) == 2
    assert scheduler.lost == 2


def test_there_may_be_no_destination_for_it_yet() -> None:
    core = DurableBench(book={}, policies=BrokerPolicies(max_destinations=16))
    schedules(core.actor(), "a", AMQ_SCHEDULED_DELAY="1000")
    core.turn()
    core = core.restarts()
    reader = core.actor()
    for number in range(16):
        reader.subscribes(f"/queue/{number}", f"{number}")
    core.passes(1)
    assert (core.broker.scheduler.lost, core.broker.scheduler.waiting) == (0, 1)
    reader.is_gone()
    core.turn()
    core.passes(100)
    core.passes(2)
    assert read(core) == ["a"]
    is_clean(core)


def test_there_may_be_no_memory_for_it() -> None:
    core = DurableBench(book={}, memory=MemoryBudget(100))
    actor = core.actor()
    schedules(actor, "a", AMQ_SCHEDULED_DELAY="1000")
    assert actor.error().get("code") == "memory-limit"


def test_one_that_cannot_be_read_hides_no_other() -> None:
    core = made()
    schedules(core.actor(), "bad", AMQ_SCHEDULED_DELAY="1000")
    schedules(core.actor(), "plain", AMQ_SCHEDULED_DELAY="1001")
    schedules(core.actor(), "good", AMQ_SCHEDULED_DELAY="1002")
    core.turn()
    lane = core.store._lanes["scheduled:", 4]  # type: ignore[attr-defined]
    bad, plain, _ = (held.put for held in lane.values())
    object.__setattr__(bad, "head", b"destination:/queue/q\nAMQ_SCHEDULED_DELAY:x\n")
    object.__setattr__(plain, "head", b"destination:/queue/q\n")
    core = core.restarts()
    assert len(core.failures) == 1
    core.passes(2)
    assert read(core) == ["good"]


def test_without_a_store_it_waits_in_memory() -> None:
    core = bench()
    core.actor().sends(Q, "a", AMQ_SCHEDULED_DELAY="1000", persistent="true")
    core.passes(1)
    assert core.waiting(Q) == ["a"]
    core.ends()


@pytest.mark.parametrize("size", [1, 600])
def test_a_long_repeated_run_continues_as_a_whole_after_a_restart(size: int) -> None:
    core = made()
    bodies = [f"{number}".rjust(size) for number in range(2500)]
    schedules(
        core.actor(), *bodies, AMQ_SCHEDULED_DELAY="1000", AMQ_SCHEDULED_PERIOD="1000",
        AMQ_SCHEDULED_REPEAT="3",
    )  # fmt: skip
    core.turn()
    for _ in range(4):
        core.passes(1)
        assert read(core) == bodies
        core = core.restarts()
    core.passes(10)
    assert read(core) == []
    is_clean(core)
    assert core.store.recover(lambda done, total: None).settings.keys() == {"identity"}


def test_damaged_message_keeps_the_progress_of_others() -> None:
    core = made()
    for prefix in "ab":
        schedules(
            core.actor(), f"{prefix}1", f"{prefix}2", f"{prefix}3", AMQ_SCHEDULED_DELAY="1000",
            AMQ_SCHEDULED_PERIOD="1000", AMQ_SCHEDULED_REPEAT="2",
        )  # fmt: skip
    core.turn()
    core.passes(1)
    assert len(read(core)) == 6
    core.commit = core.store.append([Turn([Done([1, 5])])], core.commit)
    core = core.restarts()
    core.passes(0)
    assert read(core) == []
    core.passes(1)
    assert read(core) == ["a2", "a3", "b1", "b3"]


def test_progress_that_cannot_be_read_is_left_out() -> None:
    settings = {"scheduled:7": '{"due_ms":5,"sent":1,"last":9}', "scheduled:x": "{}", "other": ""}
    bad = {"scheduled:1": "{}", "scheduled:2": "no", "scheduled:3": "5"}
    assert read_progress(settings | bad) == [Progress(7, 5, 1, 9)]


def test_transactionally_scheduled_message_survives_its_sending() -> None:
    core = made()
    later = (("AMQ_SCHEDULED_DELAY", "1000"),)
    core.actor().commits(
        run_of("/queue/other", ["now"], (("persistent", "true"),)), run_of(Q, ["later"], later)
    )
    core.turn()
    core.passes(1)
    assert core.waiting(Q) == ["later"]
    core = core.restarts()
    assert read(core) == ["later"]
