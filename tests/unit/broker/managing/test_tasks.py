"""Redelivery, the end of schedules and of durable subscriptions."""

import pytest

from tests.support.core import Actor, Bench
from tests.support.durable_fakes import DurableBench
from tests.support.managing import drive
from tests.support.owners import ALICE, BOB, OPS, T, enters, judged
from trio_stomp.base import ANONYMOUS, ProtocolError
from trio_stomp.broker import AccessRules, Action, Rule
from trio_stomp.broker.managing import Step, Task

Q = "/queue/q"


@pytest.fixture(params=["memory", "store"])
def core(request: pytest.FixtureRequest) -> Bench:
    return DurableBench() if request.param == "store" else Bench()


def test_unacknowledged_messages_of_a_session_go_to_others(core: Bench) -> None:
    stuck, other = (core.reader(Q, ack="client-individual", prefetch_count="2") for _ in range(2))
    core.actor().sends(Q, "a", "b", "c", "d", persistent="true")
    core.turn()
    assert len(stuck.reads()) == len(other.reads()) == 2
    third = core.reader(Q, ack="client-individual")
    core.broker.manager.pause(Q)
    task = core.broker.manager.redeliver(Q, stuck.client.session_id)
    drive(core, task)
    assert (task.done, task.total, core.queue(Q).depth) == (2, 4, 2)
    stuck.is_gone()
    core.broker.manager.resume(Q)
    core.turn()
    assert len(third.reads()) == 2
    assert not core.broker.statistics().messages.nacked


def test_redelivery_returns_messages_that_are_still_unacknowledged(core: Bench) -> None:
    reader = core.reader(f"{Q},/queue/other", ack="client-individual")
    core.actor().sends(Q, "a", "b", persistent="true")
    core.actor().sends("/queue/other", "c", persistent="true")
    core.turn()
    first, *_ = reader.reads()
    core.broker.manager.pause(Q)
    task = core.broker.manager.redeliver(Q, "")
    reader.acks(first)
    drive(core, task)
    assert (task.done, core.queue(Q).depth, core.queue("/queue/other").unacked) == (1, 1, 1)


def test_a_task_ends_with_its_client(bench: Bench) -> None:
    reader = bench.reader(Q, ack="client-individual")
    bench.actor().sends(Q, "a")
    (message,) = reader.reads()
    task = bench.broker.manager.redeliver(Q, "")
    task.end(bench.now)
    assert task.step(bench.now) is Step.DONE
    assert (task.done, bench.queue(Q).unacked) == (0, 1)
    with pytest.raises(ProtocolError, match="does not consume from"):
        bench.broker.manager.redeliver(Q, "nobody")
    reader.acks(message)


def test_a_task_takes_a_share_of_a_turn(bench: Bench) -> None:
    reader = bench.reader(Q, ack="client-individual", prefetch_count="1000")
    bench.actor().sends(Q, *map(str, range(100)))
    assert len(reader.reads()) == 100
    ticks = iter(range(100_000))
    bench.broker.turns.clock = lambda: next(ticks) / 2000
    bench.broker.manager.pause(Q)
    assert drive(bench, bench.broker.manager.redeliver(Q, "")) > 5
    bench.broker.manager.resume(Q)
    bench.broker.turns.clock = lambda: 0.0
    reader.reads()


def test_scheduled_messages_are_cancelled(core: Bench) -> None:
    for body in ("a", "b", "c"):
        core.actor().sends(Q, body, persistent="true", AMQ_SCHEDULED_DELAY="1000")
        core.turn()
    manager = core.broker.manager
    ids = [manager.left.requests.schedule(each)["id"] for each in manager.left.schedules()]
    assert len(ids) == 3
    task = manager.left.cancel([f"{ids[0]}", f"{ids[2]}-{ids[2]}", "99999"], ANONYMOUS)
    drive(core, task)
    assert task.done == 2
    again = core.restarts() if isinstance(core, DurableBench) else core
    left = again.broker.manager.left.schedules()
    assert [each.bodies for each in left] == [[b"b"]]
    with pytest.raises(ProtocolError, match="must be the number"):
        manager.left.cancel(["first"], ANONYMOUS)
    drive(again, again.broker.manager.left.cancel([f"{ids[1]}"], ANONYMOUS))


def durable(core: Bench, destination: str, user: str = "") -> Actor:
    actor = core.actor()
    actor.subscribes(destination, durable_subscription_name="d", ack="client")
    return actor


def end(core: Bench, name: str = "d", *, owner: str = "", destination: str = "") -> Task:
    return core.broker.manager.left.end_durable(
        name, "", owner=owner, destination=destination, identity=ANONYMOUS
    )


def problem(core: Bench, task: Task) -> str:
    """Return why a task fails."""
    drive(core, task)
    return f"{task.problem}"


def test_a_durable_subscription_is_ended_with_its_messages(core: Bench) -> None:
    durable(core, "/topic/a").is_gone()
    core.actor().sends("/topic/a", "x", persistent="true")
    core.turn()
    task = end(core)
    twice = end(core)
    drive(core, task)
    drive(core, twice)
    assert (task.done, twice.done) == (1, 0)
    again = core.restarts() if isinstance(core, DurableBench) else core
    assert len(again.broker.bindings.durables) == 0


def test_one_of_several_durable_subscriptions_must_be_named(bench: Bench) -> None:
    for destination in ("/topic/a", "/topic/b"):
        durable(bench, destination)
    assert "/topic/a of '', /topic/b of ''" in problem(bench, end(bench))
    assert "there is no durable subscription" in problem(bench, end(bench, "e"))
    assert "there is no durable subscription" in problem(bench, end(bench, owner="nobody"))
    drive(bench, end(bench, destination="/topic/b"))
    drive(bench, end(bench))


def test_a_last_value_is_cleared_without_a_message_also_in_the_store(core: Bench) -> None:
    for topic in ("/topic/a", "/topic/b"):
        core.actor().sends(topic, "x", persistent="true", retain="set")
    core.turn()
    present = core.reader("/topic/a")
    assert len(present.reads()) == 1
    left = core.broker.manager.left
    names = [name for name, _ in left.last_values()]
    assert names == ["/topic/a", "/topic/b"]
    owner = dict(left.last_values())["/topic/a"]
    assert left.requests.last_value("/topic/a", owner)["bytes"] == 1
    task, twice = left.clear("/topic/a"), left.clear("/topic/a")
    drive(core, task)
    drive(core, twice)
    assert (task.done, twice.done) == (1, 0)
    # Those of a list that is being made may have gone.
    for topic in ("/topic/a", "/topic/nobody"):
        assert left.requests.last_value(topic, owner)["bytes"] == 0
    assert present.reads() == []
    again = core.restarts() if isinstance(core, DurableBench) else core
    assert [name for name, _ in again.broker.manager.left.last_values()] == ["/topic/b"]
    assert again.reader("/topic/a").reads() == []


def test_users_end_their_own_durable_subscription_among_several_of_a_name() -> None:
    core = DurableBench()
    judged(core, AccessRules((Rule(True, frozenset(Action), ("/topic/**",), ()),)))
    for user in (ALICE, BOB):
        enters(core, user).subscribes(T, durable_subscription_name="d", ack="client")
    left = core.broker.manager.left
    judged(core, AccessRules((Rule(True, frozenset((Action.RECEIVE,)), ("/topic/**",), ()),)))

    def begin(owner: str) -> Task:
        return left.end_durable("d", "", owner=owner, destination="", identity=ALICE)

    denied = core.broker.authorizer.denied
    assert "there is no durable subscription 'd'" in problem(core, begin("bob"))
    assert core.broker.authorizer.denied == denied + 1, "the operator learns of it"
    drive(core, begin(""))
    assert [each.owner for each in left.bindings.durables] == ["bob"]


ADMIN = frozenset({Action.ADMIN})
OTHERS = tuple(f"/topic/{number}.*" for number in range(512))


@pytest.mark.parametrize("others", [(), OTHERS], ids=["one rule", "many rules"])
@pytest.mark.parametrize("place", ["/topic/a.**", "/topic/b.**"])
def test_the_list_of_durable_subscriptions_knows_who_may_end_them(
    others: tuple[str, ...], place: str
) -> None:
    core = DurableBench()
    judged(core, AccessRules((Rule(True, frozenset(Action), ("/topic/**",), ()),)))
    enters(core, BOB).subscribes("/topic/a.*", durable_subscription_name="d", ack="client")
    judged(core, AccessRules((Rule(True, ADMIN, (*others, place), ()),)))
    left = core.broker.manager.left
    (binding,) = left.bindings.durables
    may_end = left.may_end_durable(ALICE)(binding)
    is_allowed = place == "/topic/a.**"
    assert may_end == (is_allowed or bool(others))  # with many rules, it is found out when tried
    assert left.may_end_durable(BOB)(binding)
    task = left.end_durable("d", "", owner="", destination="", identity=ALICE)
    assert (problem(core, task) == "None") == is_allowed
    assert bool(left.bindings.durables) == (not is_allowed)


def test_operators_and_owners_may_end_what_is_left() -> None:
    core = DurableBench()
    owners = Rule(True, frozenset(Action), ("/topic/**",), ("bob",))
    judged(core, AccessRules((owners, Rule(True, ADMIN, ("DIAG",), ("alice",)))))
    actor = enters(core, BOB)
    actor.subscribes(T, durable_subscription_name="d", ack="client")
    actor.sends(T, "x", AMQ_SCHEDULED_DELAY="1000")
    core.turn()
    left = core.broker.manager.left
    (binding,), (job,) = left.bindings.durables, left.schedules()
    for user, is_allowed in ((ALICE, True), (BOB, True), (OPS, False)):
        assert left.may_end_durable(user)(binding) == is_allowed
        assert left.may_cancel(user)(job) == is_allowed
