"""Queues that operators create and delete."""

import pytest

from tests.support.core import Bench
from tests.support.durable_fakes import DurableBench
from tests.support.managing import drive
from trio_stomp.base import ProtocolError
from trio_stomp.broker import BrokerPolicies, Client
from trio_stomp.broker.managing import Deletion, Step

Q = "/queue/q"


@pytest.fixture(params=["memory", "store"])
def core(request: pytest.FixtureRequest) -> Bench:
    return DurableBench() if request.param == "store" else Bench()


def again(core: Bench) -> Bench:
    return core.restarts() if isinstance(core, DurableBench) else core


def test_several_queues_are_created_or_none(core: Bench) -> None:
    manager = core.broker.manager
    with pytest.raises(ProtocolError, match="is no queue"):
        manager.create("/queue/a", "/topic/b")
    assert core.broker.queues.find("/queue/a") is None
    drive(core, manager.create("/queue/a"))
    task = manager.create("/queue/a", "/queue/b")
    drive(core, task)
    assert (task.done, again(core).queue("/queue/b").is_declared) == (1, True)


def delete(core: Bench, *, force: bool = False, closed: list[Client] | None = None) -> Deletion:
    clients: list[Client] = [] if closed is None else closed
    deletion = core.broker.manager.delete(Q, clients.append, by="ann", force=force)
    drive(core, deletion)
    return deletion


def test_a_created_queue_stays_until_it_is_deleted(core: Bench) -> None:
    created, twice = core.broker.manager.create(Q), core.broker.manager.create(Q, user="ann")
    drive(core, created)
    drive(core, twice)
    assert (created.done, twice.done) == (1, 0)
    core.reader(Q).is_gone()
    core.turn()
    core = again(core)
    assert core.queue(Q).is_declared
    assert not core.queue(Q).is_idle
    deletion = delete(core)
    assert (deletion.done, deletion.seen, deletion.problem) == (1, 0, None)
    assert again(core).broker.queues.find(Q) is None


def test_idle_queues_make_room_but_created_ones_do_not() -> None:
    core = Bench(policies=BrokerPolicies(max_destinations=20))
    drive(core, core.broker.manager.create("/queue/kept"))
    for number in range(30):
        core.actor().sends(f"/queue/{number}", "x")
        reader = core.reader(f"/queue/{number}")
        reader.reads()
        reader.is_gone()
    assert core.broker.queues.find("/queue/kept") is not None
    assert core.broker.queues.find("/queue/0") is None


@pytest.mark.parametrize("name", ["/topic/t", "/queue/monitor", "/reply-queue/1", "#work"])
def test_only_queues_are_created(bench: Bench, name: str) -> None:
    with pytest.raises(ProtocolError, match="is no queue"):
        bench.broker.manager.create(name)


def test_a_queue_in_use_is_deleted_by_force_only(core: Bench) -> None:
    drive(core, core.broker.manager.create(Q))
    core.actor().sends(Q, *map(str, range(5)), persistent="true")
    core.turn()
    with pytest.raises(ProtocolError, match="has 5 messages; purge it, or give force=1"):
        delete(core)
    reader = core.reader(Q, ack="client", prefetch_count="2")
    wild = core.reader("/queue/*", ack="client", prefetch_count="1")
    core.turn()
    reader.reads()
    (held,) = wild.reads()
    closed: list[Client] = []
    deletion = delete(core, force=True, closed=closed)
    assert (deletion.done, deletion.seen, closed) == (1, 2, [reader.client])
    assert deletion.total == 5, "two wait, and three are unacknowledged"
    reader.is_gone()
    core.turn()
    wild.acks(held)
    core.turn()
    assert again(core).broker.queues.find(Q) is None


def test_a_queue_with_consumers_is_deleted_by_force_only(bench: Bench) -> None:
    bench.reader(Q)
    with pytest.raises(ProtocolError, match="has 1 consumers"):
        delete(bench)


def test_a_queue_with_consumers_by_wildcard_only_is_deleted(bench: Bench) -> None:
    drive(bench, bench.broker.manager.create(Q))
    bench.reader("/queue/*")
    assert delete(bench).done == 1


def test_a_message_that_comes_before_the_deletion_is_kept(bench: Bench) -> None:
    drive(bench, bench.broker.manager.create(Q))
    deletion = bench.broker.manager.delete(Q, lambda _client: None, by="", force=False)
    bench.actor().sends(Q, "late")
    drive(bench, deletion)
    assert deletion.problem is not None
    assert (deletion.problem.code, deletion.done) == ("queue-not-empty", 0)
    assert bench.queue(Q).is_declared


def test_a_deletion_waits_for_messages_on_their_way_to_the_store() -> None:
    core = DurableBench()
    drive(core, core.broker.manager.create(Q))
    core.is_prompt = False
    core.actor().sends(Q, "late", persistent="true")
    core.turn()
    deletion = core.broker.manager.delete(Q, lambda _client: None, by="", force=True)
    assert deletion.step(core.now) is Step.LATER
    core.is_prompt = True
    core.answers()
    drive(core, deletion)
    assert deletion.seen == 1
    assert core.restarts().broker.queues.find(Q) is None


def test_a_deletion_ends_with_its_client() -> None:
    core = DurableBench()
    core.actor().sends(Q, *map(str, range(100)), persistent="true")
    core.turn()
    core = core.restarts()
    for has_begun in (False, True):
        deletion = core.broker.manager.delete(Q, lambda _client: None, by="", force=True)
        assert not has_begun or deletion.step(core.now) is Step.WAIT
        deletion.end(core.now)
        assert deletion.step(core.now) is Step.DONE
        assert deletion.done == 0
    core.turn()
    assert core.queue(Q).depth == 100


def test_a_name_that_is_refused_ends_the_operation_with_the_reason(core: Bench) -> None:
    task = core.broker.manager.create("/queue/a", "/queue/" + "x" * 2000)
    drive(core, task)
    assert task.problem is not None
    assert (task.done, task.problem.code) == (1, "destination-too-long")
