"""Scheduled messages and last values, listed at DIAG/left, and ended by AMQ_SCHEDULER_ACTION."""

import json
from typing import Any

import pytest

from tests.support.core import OVERHEAD, Actor, Bench, Received, bench, run_of
from tests.support.durable_fakes import DurableBench
from tests.support.owners import (
    ALICE,
    BOB,
    LATER,
    Q,
    T,
    enters,
    got,
    is_clean,
    judged,
    reads_all,
    rules,
)
from trio_stomp.base import ANONYMOUS
from trio_stomp.broker import AccessRules, BrokerPolicies
from trio_stomp.broker.routing import beyond_quota
from trio_stomp.broker.rules import Action, Rule

MAX_LOOKED, MAX_ROWS = 2_000, 200
FEW = 64
"""Cancelled schedules whose numbers are kept."""

MANAGEMENT = "/topic/ActiveMQ.Scheduler.Management"
SAVED: dict[str, Any] = {"persistent": "true", **LATER}
REPEATS: dict[str, Any] = {
    "persistent": "true", "AMQ_SCHEDULED_PERIOD": "1000", "AMQ_SCHEDULED_REPEAT": "-1",
}  # fmt: skip


def made() -> DurableBench:
    return DurableBench()


def schedules(actor: Actor, *bodies: str, to: str = Q, **headers: Any) -> int:
    """SEND, to be sent later; the number of the last."""
    actor.sends(to, *bodies, receipts=[(len(bodies), b"r")], **(headers or SAVED))
    (receipt,) = actor.frames()
    return int(receipt.get("scheduledJobId") or "")


def removes(actor: Actor, job: int | str, to: str = MANAGEMENT) -> int:
    """End one; how many that were."""
    return asks(actor, to=to, AMQ_SCHEDULER_ACTION="REMOVE", scheduledJobId=str(job))


def removes_all(actor: Actor, **times: Any) -> int:
    return asks(actor, AMQ_SCHEDULER_ACTION="removeall ", **times)


def asks(actor: Actor, to: str = MANAGEMENT, **headers: str) -> int:
    actor.does(run_of(to, [""], tuple(headers.items()), [(1, b"r")]))
    while not (frames := actor.frames()):
        pass
    (receipt,) = frames
    return int(receipt.get("removed") or "")


def left(core: Bench, **question: Any) -> list[dict[str, Any]]:
    """Return the complete answer of DIAG/left, from its parts."""
    rows: list[dict[str, Any]] = []
    reader = reads_all(core)  # type: ignore[arg-type]
    reader.subscribes("DIAG/left")
    while True:
        reader.sends("DIAG/left", json.dumps(question) if question else "")
        core.settles()
        (frame,) = reader.reads()
        record = json.loads(frame.text)
        assert len(record["left"]) <= MAX_ROWS
        rows += record["left"]
        if "next" not in record:
            return rows
        question["after"] = record["next"]


def in_store(core: DurableBench) -> set[str]:
    return set(core.store.recover(lambda done, total: None).settings) - {"identity"}


# --- ended ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("persistent", ["true", "false"])
def test_a_user_ends_own_schedules_only(persistent: str) -> None:
    core = made()
    judged(core, rules("alice"))
    alice = enters(core, ALICE)
    assert removes(alice, 10**17, to="/queue/ActiveMQ.Scheduler.Management") == 0
    later = {"persistent": persistent, **LATER}
    ids = [schedules(alice, each, **later) for each in "abc"]
    assert removes(alice, ids[1]) == 1
    assert removes(alice, ids[1]) == 0
    if persistent == "true":
        core = core.restarts()
    core.passes(6)
    assert got(core, Q) == ["a", "c"]
    is_clean(core)


def test_its_number_is_the_same_after_a_restart() -> None:
    core = made()
    ids = [schedules(core.actor(), each, **REPEATS) for each in "ab"]
    core.passes(1)
    assert got(core, Q) == ["a", "b"]
    core = core.restarts()
    assert removes(core.actor(), ids[0]) == 1
    core = core.restarts()
    core.passes(1)
    assert got(core, Q) == ["b"]
    assert removes(core.actor(), ids[1]) == 1
    assert not core.broker.scheduler.jobs
    assert len(core.broker.timers) == 0
    assert not in_store(core)
    is_clean(core)


def test_one_schedule_of_a_run_is_ended_and_the_others_continue() -> None:
    """They are one SEND for the scheduler, but separate messages for their sender."""
    for gone, expected in ((0, "bcd"), (1, "acd"), (3, "abc")):
        core = made()
        last = schedules(core.actor(), *"abcd", **REPEATS)
        core.passes(1)
        assert got(core, Q) == list("abcd")
        assert removes(core.actor(), last - 3 + gone) == 1
        assert removes(core.actor(), last - 3 + gone) == 0
        core.passes(1)
        assert got(core, Q) == list(expected)
        core = core.restarts()
        core.passes(1)
        assert got(core, Q) == list(expected)
        assert len(in_store(core)) == 1
        assert removes(core.actor(), f"{last - 3}-{last}") == 3
        assert not in_store(core)
        is_clean(core)


def test_before_it_was_sent_first_too() -> None:
    core = made()
    last = schedules(core.actor(), *"abcd")
    assert removes(core.actor(), f"{last - 2}-{last - 1}") == 2
    core = core.restarts()
    core.passes(6)
    assert got(core, Q) == ["a", "d"]
    is_clean(core)


def test_other_users_cancel_schedules_only_with_the_right_admin() -> None:
    core = made()
    admin = Rule(True, frozenset({Action.ADMIN}), ("/queue/*",), ("bob",), location="r1")
    everything = Rule(True, frozenset({Action.SEND, Action.CREATE}), ("**",), location="r2")
    anonymous = Rule(True, frozenset({Action.SEND}), ("**",), ("anonymous",), location="r3")
    judged(core, AccessRules((everything, anonymous)))
    hers = schedules(enters(core, ALICE), "a", "b")
    nobodys = schedules(enters(core, ANONYMOUS), "c", to=T)
    schedules(enters(core, ALICE), "d", to="/topic/u,/topic/v")
    for who in (BOB, ANONYMOUS):
        actor = enters(core, who)
        assert removes(actor, hers) == removes(actor, nobodys) == removes_all(actor) == 0
    judged(core, AccessRules((admin, everything, anonymous)))
    assert removes(enters(core, BOB), nobodys) == 0
    assert removes_all(enters(core, BOB)) == 2
    assert removes_all(enters(core, ALICE)) == 1
    assert [row["user"] for row in left(core)] == ["anonymous"]


def test_message_stored_under_another_dialect_is_judged_by_its_name() -> None:
    core = made()
    schedules(core.actor(), "a")
    (item,) = core.broker.scheduler.jobs.beginning_at(0)
    item.head = run_of(Q, [], (("priority", "x"),)).head
    judged(core, rules("bob"))
    assert removes_all(enters(core, BOB)) == 1


def test_all_of_a_time_are_ended() -> None:
    core = made()
    now = core.broker.wall.ms(core.now)
    actor = core.actor()
    for delay in (1000, 2000, 3000, 4000):
        schedules(actor, str(delay), persistent="true", AMQ_SCHEDULED_DELAY=str(delay))
    at: dict[str, Any] = {"ACTION_START_TIME": str(now + 2000), "ACTION_END_TIME": str(now + 3000)}
    assert removes_all(actor, **at) == 2
    assert removes_all(actor, ACTION_START_TIME=str(now + 4000)) == 1
    assert removes_all(actor) == 1
    is_clean(core)


def test_a_cron_is_ended() -> None:
    pytest.importorskip("cronsim")
    core = made()
    number = schedules(core.actor(), "a", persistent="true", AMQ_SCHEDULED_CRON="* * * * *")
    core.broker.use_wall(core.broker.wall.offset_s - 7200, core.now)
    assert removes(core.actor(), number) == 1
    core.passes(120)
    assert got(core, Q) == []
    is_clean(core)


def test_user_is_informed_that_a_message_will_not_return() -> None:
    core = made()
    number = schedules(core.actor(), "a")
    core.is_prompt = False
    actor = core.actor()
    headers = (("AMQ_SCHEDULER_ACTION", "REMOVE"), ("scheduledJobId", str(number)))
    actor.does(run_of(MANAGEMENT, [""], headers, [(1, b"r")]))
    assert actor.frames() == []
    assert core.restarts().broker.scheduler.waiting == 1  # the crash was before the store had it
    core.fails()
    assert actor.frames() == []
    core.answers()
    assert [frame.command for frame in actor.frames()] == ["RECEIPT"]
    assert core.restarts().broker.scheduler.waiting == 0


def test_unstored_messages_arrive_later() -> None:
    core = DurableBench(is_prompt=False)
    core.actor().sends(Q, "a", **SAVED)
    assert removes_all(core.actor()) == 0
    assert left(core) == []
    core.answers()
    assert len(left(core)) == 1


def test_it_takes_turns_if_there_are_many() -> None:
    core = bench()
    actor = core.actor()
    for number in range(500):
        actor.sends(f"{Q}{number % 7}", **LATER)
    ticks = iter(range(10**9))
    core.broker.turns.clock = lambda: core.now + next(ticks) / 10_000
    other = core.actor()
    headers = (("AMQ_SCHEDULER_ACTION", "REMOVEALL"),)
    actor.does(run_of(MANAGEMENT, [""], headers, [(1, b"r")]), run_of(Q, ["x"], (), [(1, b"s")]))
    assert 0 < core.broker.scheduler.waiting < 500
    core.turn()
    assert 0 < core.broker.scheduler.waiting < 500
    other.sends("/queue/other", receipts=[(1, b"o")])
    assert [frame.command for frame in other.frames()] == ["RECEIPT"]
    frames: list[Received] = []
    while len(frames) < 2:
        frames += actor.frames()
    assert [(each.get("receipt-id"), each.get("removed")) for each in frames] == [
        ("r", "500"), ("s", None),
    ]  # fmt: skip
    assert core.broker.scheduler.waiting == len(core.broker.scheduler.jobs) == 0
    assert removes_all(actor) == 0
    core.ends()


def test_not_in_a_transaction() -> None:
    core = made()
    schedules(core.actor(), "a")
    actor = core.actor()
    actor.commits(run_of(MANAGEMENT, [""], (("AMQ_SCHEDULER_ACTION", "REMOVEALL"),)))
    assert actor.error().get("code") == "unsupported"
    assert core.broker.scheduler.waiting == 1


@pytest.mark.parametrize(
    "headers",
    [
        {"AMQ_SCHEDULER_ACTION": "BROWSE"},
        {"AMQ_SCHEDULER_ACTION": "REMOVE"},
        {"AMQ_SCHEDULER_ACTION": "REMOVE", "scheduledJobId": "x"},
        {"AMQ_SCHEDULER_ACTION": "REMOVE", "scheduledJobId": "7-"},
        {"AMQ_SCHEDULER_ACTION": "REMOVE", "scheduledJobId": "-7"},
        {"AMQ_SCHEDULER_ACTION": "REMOVEALL", "ACTION_START_TIME": "x"},
    ],
)
def test_unknown_action_is_refused(headers: dict[str, str]) -> None:
    actor = made().actor()
    actor.does(run_of(MANAGEMENT, [""], tuple(headers.items())))
    assert actor.error().get("code") == "invalid-schedule"


def test_elsewhere_it_is_a_header_like_any_other() -> None:
    core = bench()
    core.actor().sends(Q, "a", AMQ_SCHEDULER_ACTION="REMOVEALL")
    core.actor().sends(MANAGEMENT, "b")
    core.actor().sends(MANAGEMENT, "c", **LATER)
    assert core.waiting(Q) == ["a"]
    assert core.broker.scheduler.waiting == 1


def test_a_receipt_in_a_run_tells_its_own_number() -> None:
    core = made()
    actor = core.actor()
    actor.sends(Q, *"abc", receipts=[(1, b"1"), (3, b"3")], **SAVED)
    first, last = (int(frame.get("scheduledJobId") or "") for frame in actor.frames())
    assert last - first == 2


def test_numbers_of_cancelled_schedules_take_no_memory() -> None:
    core = bench()
    actor = core.actor()
    kept = schedules(actor, "kept", **LATER)
    for _ in range(256):
        assert removes(actor, schedules(actor, "a", **LATER)) == 1
    jobs = core.broker.scheduler.jobs
    assert len(jobs) == len(list(jobs.beginning_at(0))) == 1
    assert removes(actor, kept) == 1


# --- listed ---------------------------------------------------------------------------------------


def test_schedules_are_listed_with_whose_they_are() -> None:
    core = made()
    judged(core, rules("alice", "bob", "anonymous"))
    schedules(enters(core, ALICE), "a", "bc")
    schedules(enters(core, BOB), "d", to=T, **LATER)
    schedules(enters(core, ANONYMOUS), "e", **REPEATS)
    core.passes(1)
    rows = left(core)
    assert [(row["user"], row["destination"], row["messages"], row["bytes"]) for row in rows] == [
        ("alice", Q, 2, 3), ("bob", T, 1, 1), ("anonymous", Q, 1, 1),
    ]  # fmt: skip
    assert [(row["sent"], row["repeats"], row["stored"]) for row in rows] == [
        (0, False, True), (0, False, False), (1, True, True),
    ]  # fmt: skip
    assert [row["due_ms"] - core.broker.wall.ms(core.now) for row in rows] == [4000, 4000, 1000]
    assert [row["destination"] for row in left(core, user="bob")] == [T]
    for row in rows:
        assert removes(reads_all(core), row["id"]) == row["messages"]
    assert left(core) == []


def test_last_values_are_listed_too() -> None:
    core = made()
    judged(core, rules("alice", "anonymous"))
    enters(core, ALICE).sends(T, "abc", persistent="true", retain="set")
    enters(core, ANONYMOUS).sends("/topic/u", "d", retain="set")
    core.turn()
    rows = left(core, what="last-values")
    now_ms = core.broker.wall.ms(core.now)
    assert all(now_ms - 1000 <= row.pop("set_ms") <= now_ms for row in rows)
    assert sorted(rows, key=lambda row: str(row["destination"])) == [
        {"user": "alice", "destination": T, "bytes": 3, "stored": True},
        {"user": "anonymous", "destination": "/topic/u", "bytes": 1, "stored": False},
    ]
    core = core.restarts()
    assert [row["user"] for row in left(core, what="last-values")] == ["alice"]


def test_long_answer_is_sent_in_parts() -> None:
    core = Bench(policies=BrokerPolicies())
    actor = core.actor()
    for number in range(MAX_LOOKED + 10):
        actor.sends(f"/topic/{number}", retain="set")
    for number in range(2 * MAX_ROWS + 1):
        actor.sends(Q, str(number), **LATER)
    core.turn()
    assert len(left(core, what="last-values")) == MAX_LOOKED + 10
    assert len(left(core)) == 2 * MAX_ROWS + 1
    assert left(core, what="last-values", user="nobody") == []


@pytest.mark.parametrize(
    "question",
    ["x", "[]", '{"what":"x"}', '{"user":7}', '{"after":-1}', '{"after":true}', '"' + "x" * 5000],
)
def test_malformed_question_is_refused(question: str) -> None:
    actor = bench().actor()
    actor.sends("DIAG/left", question)
    assert actor.error().get("code") == "invalid-question"


def test_the_answer_goes_to_the_reply_to_destination() -> None:
    core = bench()
    actor = core.actor()
    actor.subscribes("/queue/answers")
    actor.sends("DIAG/left", "", reply_to="/queue/answers", correlation_id="7")
    (answer,) = actor.reads()
    assert json.loads(answer.text) == {"what": "schedules", "left": []}
    assert answer.get("correlation-id") == "7"


def test_one_needs_monitor_to_see_it() -> None:
    core = made()
    allow = Rule(True, frozenset({Action.SEND, Action.RECEIVE}), ("**",), location="r1")
    judged(core, AccessRules((allow,)))
    actor = enters(core, ALICE)
    actor.sends("DIAG/left", "")
    assert actor.error().get("code") == "not-authorized"


def test_one_schedule_of_a_run_in_memory_is_ended() -> None:
    core = bench()
    last = schedules(core.actor(), *"abc", **LATER)
    before = core.memory.kept_bytes
    assert removes(core.actor(), last - 1) == 1
    assert before - core.memory.kept_bytes == OVERHEAD + 1
    core.passes(6)
    assert core.waiting(Q) == ["a", "c"]
    core.ends()


def test_cancelling_a_scheduled_message_allows_another() -> None:
    core = made()
    judged(core, rules("alice"))
    alice = enters(core, ALICE)
    alice.client.quota = core.broker.quotas.left_by(ALICE)
    last = schedules(alice, *"abc")
    (item,) = core.broker.scheduler.jobs.beginning_at(0)
    assert item.quota is not None
    assert item.quota.scheduled == 3
    assert removes(alice, last) == 1
    assert item.quota.scheduled == 2
    assert removes_all(alice) == 2
    assert item.quota.scheduled == item.quota.kept_bytes == 0


def test_largest_users_of_shared_resources_are_listed_with_refusals() -> None:
    core = made()
    judged(core, rules("alice"))
    alice = enters(core, ALICE)
    alice.client.quota = core.broker.quotas.left_by(ALICE)
    schedules(alice, *"ab")
    core.broker.quotas.note_refused(alice.client, beyond_quota("quota-exceeded", "too much"))
    reader = reads_all(core)  # type: ignore[arg-type]
    reader.subscribes("DIAG/left")
    reader.sends("DIAG/left", '{"what": "quotas"}')
    record = json.loads(reader.reads()[0].text)
    (row,) = [each for each in record["left"] if each["owner"] == "alice"]
    assert (row["kind"], row["scheduled"], row["refused_total"]) == ("user", 2, 1)
    assert record["refused_total"] == 1
