"""Messages for other brokers of a cluster: stored with the rest of a transaction, and kept."""

from collections.abc import Iterator

import pytest

from tests.support.core import Actor, counted_turns, run_of
from tests.support.durable_fakes import DurableBench
from tests.support.owners import ALICE, Q, enters, rules
from trio_stomp.base import MemoryBudget, ProtocolError
from trio_stomp.broker import OtherPartitions, Setup, assemble
from trio_stomp.broker.forwarding import check_none
from trio_stomp.store import PlaceState, StoreError

FAR, FARTHER = "/queue/far", "/topic/far"
STORED = (("persistent", "true"),)


def spread(core: DurableBench) -> DurableBench:
    """Have other brokers have the destinations whose names end in ``far``."""
    core.broker.forwards.is_elsewhere = lambda name: name.endswith("far")
    return core


def kept(core: DurableBench) -> list[tuple[list[bytes], str]]:
    """Return the bodies and destinations of what is to be sent on."""
    return [(list(item.bodies), item.destination) for item in core.broker.forwards.waiting]


def finished(core: DurableBench) -> None:
    """The others have all; nothing is left."""
    forwards = core.broker.forwards
    for item in list(forwards.waiting):
        forwards.finish(item)
    core.turn()
    assert core.memory.kept_bytes == core.store.statistics().live_messages == 0
    core.ends()


@pytest.fixture
def core() -> Iterator[DurableBench]:
    core = spread(DurableBench())
    yield core
    finished(core)


def commands(actor: Actor) -> list[str]:
    return [frame.command for frame in actor.frames()]


def test_messages_of_a_transaction_for_others_are_kept_until_these_have_them(
    core: DurableBench,
) -> None:
    new: list[str] = []
    core.broker.forwards.on_new = lambda item: new.append(item.head.destination or "")
    sender, reader = core.actor(), core.reader(Q)
    sender.commits(run_of(FAR, ["a"]), run_of(Q, ["b"]), run_of(FARTHER, ["c"], STORED))
    (receipt,) = sender.frames()
    assert (receipt.command, receipt.get("stored")) == ("RECEIPT", "memory")
    assert reader.bodies() == ["b"]
    assert new == [FAR, FARTHER]
    assert kept(core) == [([b"a"], FAR), ([b"c"], FARTHER)]
    names = [each.name for each in core.broker.destinations]
    assert not {FAR, FARTHER, "forwards:"} & set(names)  # no list and no wildcard knows them
    assert core.reader("/queue/>").bodies() == []


def test_they_are_there_after_a_restart() -> None:
    core = spread(DurableBench())
    sender = enters(core, ALICE)
    sender.commits(run_of(FAR, ["a", "b"], STORED), run_of(FAR, ["c"]))
    sender.frames()
    (first, second) = core.broker.forwards.waiting
    again = spread(core.restarts())
    assert kept(again) == [([b"a", b"b"], FAR), ([b"c"], FAR)]
    assert again.memory.kept_bytes > 0
    for before, after in zip((first, second), again.broker.forwards.waiting, strict=True):
        assert list(before.ids) == list(after.ids)
        assert (before.head.headers, before.owner) == (after.head.headers, after.owner)
    finished(again)
    assert not again.restarts().broker.forwards.waiting


@pytest.mark.parametrize("works", [True, False])
def test_they_are_kept_with_the_rest_or_not_at_all(works: bool) -> None:
    core = spread(DurableBench())
    reader = core.actor()
    reader.subscribes(Q, ack="client")
    core.actor().sends(Q, "job", persistent="true")
    (job,) = reader.reads()
    core.is_prompt = False
    reader.commits(reader.acked(job), run_of(FAR, ["made of job"]))
    assert reader.reads() == []
    assert kept(core) == []
    core.answers() if works else core.fails()
    core.is_prompt = True
    assert kept(core) == ([([b"made of job"], FAR)] if works else [])
    assert commands(reader) == (["RECEIPT"] if works else ["ERROR"])
    if works:
        finished(core)
    else:
        assert core.reader(Q).bodies() == ["job"]


def test_a_composite_reaches_the_queues_of_this_broker_at_once(core: DurableBench) -> None:
    """Else a later SEND of the same client to one of them overtakes it."""
    sender, reader = core.actor(), core.reader(Q)
    sender.sends(f"{FAR},{Q},{FARTHER}", "a", "b", receipts=[(2, b"r")])
    sender.sends(Q, "c")
    sender.commits(run_of(f"{Q},{FAR}", ["d"]))
    core.turn()
    assert commands(sender) == ["RECEIPT", "RECEIPT"]
    assert kept(core) == [([b"a", b"b"], FAR), ([b"a", b"b"], FARTHER), ([b"d"], FAR)]
    assert reader.bodies() == ["a", "b", "c", "d"]


def test_a_transaction_sends_composites_by_their_public_names(core: DurableBench) -> None:
    """ANYCAST makes a queue of a temporary topic, and another broker may have its public name."""
    core.broker.forwards.is_elsewhere = lambda name: "/reply-topic/" in name
    sender, reader = core.actor(), core.reader(Q)
    anycast = (("destination-type", "ANYCAST"),)
    sender.commits(run_of(Q, ["a"]), run_of(f"/temp-topic/u,{Q}", ["b"], anycast))
    assert commands(sender) == ["RECEIPT"]
    assert reader.bodies() == ["a", "b"]
    ((bodies, name),) = kept(core)
    assert (bodies, name.startswith("/queue/reply-topic/")) == ([b"b"], True)


def test_of_a_composite_all_is_stored_or_nothing(core: DurableBench) -> None:
    core.is_prompt = False
    sender = core.actor()
    sender.sends(f"{Q},{FAR}", "a", receipts=[(1, b"r")])
    core.turn()
    core.fails()
    core.is_prompt = True
    assert commands(sender) == ["ERROR"]
    assert (kept(core), core.waiting(Q)) == ([], [])


def test_a_large_transaction_is_written_in_pieces() -> None:
    core = spread(DurableBench())
    sender = core.actor()
    runs = [run_of(FAR, ["a"]), *(run_of(Q, [f"{n}"]) for n in range(200))]
    sender.commits(*runs)
    core.settles()
    assert commands(sender) == ["RECEIPT"]
    assert kept(core) == [([b"a"], FAR)]
    assert len(core.waiting(Q)) == 200


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("/stream/far", "partitions-apart"),
        (f"/queue/{'x' * 2000}far", "destination-too-long"),
        (f"{Q},/stream/far", "partitions-apart"),
    ],
)
def test_a_commit_with_sends_that_no_partition_accepts_is_refused(
    core: DurableBench, name: str, code: str
) -> None:
    sender = core.actor()
    sender.commits(run_of(Q, ["a"]), run_of(name, ["b"]))
    assert sender.error().get("code") == code
    assert core.waiting(Q) == []


def test_without_memory_nothing_is_kept() -> None:
    core = DurableBench(memory=MemoryBudget(20_000))
    spread(core)
    sender = core.actor()
    sender.commits(run_of(Q, ["a"]), run_of(FAR, ["b" * 30_000]))
    assert sender.error().get("code") == "memory-limit"
    other = core.actor()
    other.sends(f"{Q},{FAR}", "c" * 30_000)
    assert other.error().get("code") == "memory-limit"
    with pytest.raises(ProtocolError, match="memory"):
        core.broker.publisher.send_for(run_of(FAR, ["d" * 30_000]), None, core.now)
    assert kept(core) == []
    core.ends()


def test_while_the_store_is_away_nothing_is_kept(core: DurableBench) -> None:
    core.broker.refuse_durable("no answer", "in doubt", core.now)
    for send in (
        lambda sender: sender.sends(f"{Q},{FAR}", "a"),
        lambda sender: sender.commits(run_of(FAR, ["b"])),
    ):
        sender = core.actor()
        send(sender)
        assert sender.error().get("code") == "storage"
    core.log.refusal = ""


def test_an_empty_commit_waits_until_others_have_what_its_client_sent(core: DurableBench) -> None:
    sender, other = core.actor(), core.actor()
    sender.commits(run_of(FAR, ["a"]), run_of(FARTHER, ["b"]))
    other.commits(run_of(FAR, ["c"]))
    assert commands(sender) == commands(other) == ["RECEIPT"]
    first, second, _ = core.broker.forwards.waiting
    sender.commits(receipt=b"sent")
    for each in (second, first):
        assert commands(sender) == []
        core.broker.forwards.finish(each)
        core.turn()
    (receipt,) = sender.frames()
    assert receipt.get("receipt-id") == "sent"
    sender.commits(receipt=b"again")
    assert commands(sender) == ["RECEIPT"]


def test_it_is_refused_if_they_do_not_accept_it_for_long(core: DurableBench) -> None:
    sender = core.actor()
    sender.commits(run_of(FAR, ["a"]))
    assert commands(sender) == ["RECEIPT"]
    sender.commits(receipt=None)
    core.passes(9)
    assert commands(sender) == []
    core.passes(1)
    error = sender.error()
    assert error.get("code") == "partition-behind"
    assert f"the partition of {FAR} has not accepted" in (error.get("message") or "")


def test_a_client_that_leaves_meanwhile_is_forgotten(core: DurableBench) -> None:
    sender = core.actor()
    sender.subscribes(Q, ack="client")
    core.actor().sends(Q, "job")
    assert sender.bodies() == ["job"]
    sender.commits(run_of(FAR, ["a"]))
    sender.commits()
    core.turn()
    sender.is_gone()
    core.turn()
    assert commands(sender) == ["RECEIPT"]  # that of the first transaction
    assert core.reader(Q).bodies() == ["job"]
    assert len(kept(core)) == 1


def test_the_brokers_own_answers_are_sent_on(core: DurableBench) -> None:
    core.broker.publisher.send_for(run_of(FAR, ["answer"]), None, core.now)
    core.turn()
    ((bodies, name),) = kept(core)
    (item,) = core.broker.forwards.waiting
    assert (bodies, name, item.owner) == ([b"answer"], FAR, None)
    assert [each.owner for each in spread(core.restarts()).broker.forwards.waiting] == [None]


def test_the_coordinator_checks_the_right_to_send_but_not_to_create() -> None:
    core = spread(DurableBench(rules=rules("alice")))
    alice = enters(core, ALICE)
    alice.commits(run_of(FAR, ["a"]))
    assert commands(alice) == ["RECEIPT"]
    stranger = core.actor()
    core.broker.authorizer.admit(stranger.client)
    stranger.commits(run_of(FAR, ["b"]))
    assert stranger.error().get("code") == "not-authorized"
    assert len(kept(core)) == 1


def test_schedules_of_messages_for_others_are_theirs(core: DurableBench) -> None:
    sender = core.actor()
    later = (("AMQ_SCHEDULED_DELAY", "5000"),)
    sender.commits(run_of(FAR, ["a"], later), run_of(Q, ["b"], later))
    assert commands(sender) == ["RECEIPT"]
    assert kept(core) == [([b"a"], FAR)]
    assert core.broker.scheduler.waiting == 1
    core.passes(6)
    assert core.reader(Q).bodies() == ["b"]


def test_each_broker_schedules_its_part_of_a_composite(core: DurableBench) -> None:
    sender = core.actor()
    sender.sends(f"{Q},{FAR}", "a", AMQ_SCHEDULED_DELAY="5000")
    core.turn()
    ((item, name),) = kept(core)
    (forward,) = core.broker.forwards.waiting
    assert (item, name) == ([b"a"], FAR)
    assert ("AMQ_SCHEDULED_DELAY", "5000") in forward.head.headers
    core.passes(6)
    assert core.reader(Q).bodies() == ["a"]


def test_the_end_of_schedules_stays_here(core: DurableBench) -> None:
    core.broker.forwards.is_elsewhere = lambda name: True
    sender = core.actor()
    sender.sends("ActiveMQ.Scheduler.Management", "", AMQ_SCHEDULER_ACTION="REMOVEALL")
    assert commands(sender) == []
    assert kept(core) == []


def test_a_broker_without_partitions_refuses_messages_for_others() -> None:
    check_none({("queue:/queue/a", 4): PlaceState(3, 3, 1)})
    with pytest.raises(StoreError, match="has 2 messages of transactions for other partitions"):
        check_none({("forwards:", 4): PlaceState(2, 3, 1)})


def test_a_broker_tells_what_others_have(core: DurableBench) -> None:
    spread(core)
    assert core.broker.lacks(FAR)
    assert not core.broker.lacks(Q)
    assert core.broker.counts(FAR)
    others = OtherPartitions(
        "7_", lambda _: False, lambda names, _headers, _grammar, _book: FAR in names
    )
    setup = Setup(
        policies=core.policies,
        memory=core.memory,
        server=core.server,
        turns=counted_turns(),
        boot="b",
        partition=others,
    )
    broker = assemble(setup)
    assert not broker.counts([Q, FAR])
    assert broker.counts([Q])
    assert broker.publisher.temporary.begin_name(core.actor().client).startswith("7_")


def test_a_send_to_several_brokers_waits_for_the_senders_earlier_messages() -> None:
    core = spread(DurableBench(is_prompt=False))
    sender, other = core.actor(), core.actor()
    sender.sends(Q, "a", persistent="true")
    sender.does(run_of(f"{Q},{FAR}", ["b"], STORED, [(1, b"both")]))
    other.sends(Q, "a", persistent="true")
    other.does(run_of(FAR, ["c"], STORED, [(1, b"far")]))
    assert kept(core) == []
    for _ in range(4):
        core.turn()
        core.answers()
    assert sorted(kept(core)) == [([b"b"], FAR), ([b"c"], FAR)]
    assert commands(sender) == commands(other) == ["RECEIPT"]
