"""Messages for other partitions: stored with the rest of a transaction, and kept."""

from collections.abc import Iterator

import pytest

from tests.support.core import Actor, run_of
from tests.support.owners import ALICE, Q, enters, rules
from tests.support.part_bench import FarPlacement, PartBench
from trio_stomp.base import MemoryBudget, ProtocolError
from trio_stomp.broker import DestinationPolicy, PolicyBook
from trio_stomp.cluster.routing import Placement

FAR, FARTHER = "/queue/far", "/topic/far"
STORED = (("persistent", "true"),)


def kept(core: PartBench) -> list[tuple[list[bytes], str]]:
    """Return the bodies and destinations of what is to be sent on."""
    return [(list(item.bodies), item.destination) for item in core.forwards.waiting]


def finished(core: PartBench) -> None:
    """The others have all; nothing is left."""
    forwards = core.forwards
    for item in list(forwards.waiting):
        forwards.finish(item)
    core.turn()
    assert core.memory.kept_bytes == core.store.statistics().live_messages == 0
    core.ends()


@pytest.fixture
def core() -> Iterator[PartBench]:
    core = PartBench()
    yield core
    finished(core)


def commands(actor: Actor) -> list[str]:
    return [frame.command for frame in actor.frames()]


def test_messages_of_a_transaction_for_others_are_kept_until_these_have_them(
    core: PartBench,
) -> None:
    new: list[str] = []
    core.forwards.on_new = lambda item: new.append(item.head.destination or "")
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
    core = PartBench()
    sender = enters(core, ALICE)
    sender.commits(run_of(FAR, ["a", "b"], STORED), run_of(FAR, ["c"]))
    sender.frames()
    (first, second) = core.forwards.waiting
    again = core.restarts()
    assert kept(again) == [([b"a", b"b"], FAR), ([b"c"], FAR)]
    assert again.memory.kept_bytes > 0
    for before, after in zip((first, second), again.forwards.waiting, strict=True):
        assert list(before.ids) == list(after.ids)
        assert (before.head.headers, before.owner) == (after.head.headers, after.owner)
    finished(again)
    assert not again.restarts().forwards.waiting


@pytest.mark.parametrize("works", [True, False])
def test_they_are_kept_with_the_rest_or_not_at_all(works: bool) -> None:
    core = PartBench()
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


def test_a_composite_reaches_the_queues_of_this_broker_at_once(core: PartBench) -> None:
    """Else a later SEND of the same client to one of them overtakes it."""
    sender, reader = core.actor(), core.reader(Q)
    sender.sends(f"{FAR},{Q},{FARTHER}", "a", "b", receipts=[(2, b"r")])
    sender.sends(Q, "c")
    sender.commits(run_of(f"{Q},{FAR}", ["d"]))
    core.turn()
    assert commands(sender) == ["RECEIPT", "RECEIPT"]
    assert kept(core) == [([b"a", b"b"], FAR), ([b"a", b"b"], FARTHER), ([b"d"], FAR)]
    assert reader.bodies() == ["a", "b", "c", "d"]


def test_a_transaction_sends_composites_by_their_public_names() -> None:
    """ANYCAST makes a queue of a temporary topic, and another broker may have its public name."""
    core = PartBench(placement=FarPlacement(1, is_far=lambda name: "/reply-topic/" in name))
    sender, reader = core.actor(), core.reader(Q)
    anycast = (("destination-type", "ANYCAST"),)
    sender.commits(run_of(Q, ["a"]), run_of(f"/temp-topic/u,{Q}", ["b"], anycast))
    assert commands(sender) == ["RECEIPT"]
    assert reader.bodies() == ["a", "b"]
    ((bodies, name),) = kept(core)
    assert (bodies, name.startswith("/queue/reply-topic/")) == ([b"b"], True)
    finished(core)


def test_of_a_composite_all_is_stored_or_nothing(core: PartBench) -> None:
    core.is_prompt = False
    sender = core.actor()
    sender.sends(f"{Q},{FAR}", "a", receipts=[(1, b"r")])
    core.turn()
    core.fails()
    core.is_prompt = True
    assert commands(sender) == ["ERROR"]
    assert (kept(core), core.waiting(Q)) == ([], [])


@pytest.mark.parametrize("overflow", ["reject", "block"])
def test_of_a_composite_nothing_is_kept_if_a_queue_is_full(overflow: str) -> None:
    core = PartBench(book={Q: DestinationPolicy(max_messages=1, overflow=overflow)})
    sender, reader = core.actor(), core.actor()
    core.actor().sends(Q, "first")
    sender.sends(f"{FAR},{Q}", "a", receipts=[(1, b"r")])
    error = sender.error()
    assert (error.get("code"), error.get("receipt-id")) == ("queue-full", "r")
    reader.subscribes(Q)
    assert (kept(core), reader.bodies()) == ([], ["first"])
    finished(core)


def test_a_large_transaction_is_written_in_pieces() -> None:
    core = PartBench()
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
    core: PartBench, name: str, code: str
) -> None:
    sender = core.actor()
    sender.commits(run_of(Q, ["a"]), run_of(name, ["b"]))
    assert sender.error().get("code") == code
    assert core.waiting(Q) == []


def test_without_memory_nothing_is_kept() -> None:
    core = PartBench(memory=MemoryBudget(20_000))
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


def test_while_the_store_is_away_nothing_is_kept(core: PartBench) -> None:
    core.broker.refuse_durable("no answer", "in doubt", core.now)
    for send in (
        lambda sender: sender.sends(f"{Q},{FAR}", "a"),
        lambda sender: sender.commits(run_of(FAR, ["b"])),
    ):
        sender = core.actor()
        send(sender)
        assert sender.error().get("code") == "storage"
    core.log.refusal = ""


def test_an_empty_commit_waits_until_others_have_what_its_client_sent(core: PartBench) -> None:
    sender, other = core.actor(), core.actor()
    sender.commits(run_of(FAR, ["a"]), run_of(FARTHER, ["b"]))
    other.commits(run_of(FAR, ["c"]))
    assert commands(sender) == commands(other) == ["RECEIPT"]
    first, second, _ = core.forwards.waiting
    sender.commits(receipt=b"sent")
    for each in (second, first):
        assert commands(sender) == []
        core.forwards.finish(each)
        core.turn()
    (receipt,) = sender.frames()
    assert receipt.get("receipt-id") == "sent"
    sender.commits(receipt=b"again")
    assert commands(sender) == ["RECEIPT"]


def test_it_is_refused_if_they_do_not_accept_it_for_long(core: PartBench) -> None:
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


def test_a_client_that_leaves_meanwhile_is_forgotten(core: PartBench) -> None:
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


def test_the_brokers_own_answers_are_sent_on(core: PartBench) -> None:
    core.broker.publisher.send_for(run_of(FAR, ["answer"]), None, core.now)
    core.turn()
    ((bodies, name),) = kept(core)
    (item,) = core.forwards.waiting
    assert (bodies, name, item.owner) == ([b"answer"], FAR, None)
    assert [each.owner for each in core.restarts().forwards.waiting] == [None]


def test_the_brokers_own_answers_reach_several_partitions_or_none(core: PartBench) -> None:
    reader = core.reader(Q)
    asker = core.actor()
    ask = (("reply-to", f"{Q},{FAR}"),)
    asker.does(run_of("DIAG/explain", ['{"destination": "/queue/x"}'], ask, [(1, b"r")]))
    core.turn()
    ((body, name),) = kept(core)
    assert (reader.bodies(), name) == ([body[0].decode()], FAR)
    core.is_prompt = False
    core.broker.publisher.send_for(run_of(f"{Q},{FARTHER}", ["b"]), None, core.now)
    core.turn()
    assert (reader.bodies(), len(kept(core))) == ([], 1)
    core.is_prompt = True
    core.answers()
    core.turn()
    assert (reader.bodies(), kept(core)[1:]) == (["b"], [([b"b"], FARTHER)])


def test_the_coordinator_checks_the_right_to_send_but_not_to_create() -> None:
    core = PartBench(rules=rules("alice"))
    alice = enters(core, ALICE)
    alice.commits(run_of(FAR, ["a"]))
    assert commands(alice) == ["RECEIPT"]
    stranger = core.actor()
    core.broker.authorizer.admit(stranger.client)
    stranger.commits(run_of(FAR, ["b"]))
    assert stranger.error().get("code") == "not-authorized"
    assert len(kept(core)) == 1


def test_schedules_of_messages_for_others_are_theirs(core: PartBench) -> None:
    sender = core.actor()
    later = (("AMQ_SCHEDULED_DELAY", "5000"),)
    sender.commits(run_of(FAR, ["a"], later), run_of(Q, ["b"], later))
    assert commands(sender) == ["RECEIPT"]
    assert kept(core) == [([b"a"], FAR)]
    assert core.broker.scheduler.waiting == 1
    core.passes(6)
    assert core.reader(Q).bodies() == ["b"]


def test_each_broker_schedules_its_part_of_a_composite(core: PartBench) -> None:
    sender = core.actor()
    sender.sends(f"{Q},{FAR}", "a", AMQ_SCHEDULED_DELAY="5000")
    core.turn()
    ((item, name),) = kept(core)
    (forward,) = core.forwards.waiting
    assert (item, name) == ([b"a"], FAR)
    assert ("AMQ_SCHEDULED_DELAY", "5000") in forward.head.headers
    core.passes(6)
    assert core.reader(Q).bodies() == ["a"]


def test_the_end_of_schedules_stays_here() -> None:
    core = PartBench(placement=FarPlacement(1, is_far=lambda _: True))
    sender = core.actor()
    sender.sends("ActiveMQ.Scheduler.Management", "", AMQ_SCHEDULER_ACTION="REMOVEALL")
    assert commands(sender) == []
    assert kept(core) == []


def test_only_a_partition_that_sends_on_gives_an_id_that_is_none_of_the_sender() -> None:
    core = PartBench()
    actor = core.actor()

    def is_duplicate(**headers: str) -> bool:
        actor.sends(Q, "a", receipts=[(1, b"r")], persistent="true", **headers)  # type: ignore[arg-type]
        return actor.frames()[-1].get("duplicate") == "true"

    found = []
    for is_forwarder in (False, True, False, True):
        actor.client.is_forwarder = is_forwarder
        found.append(is_duplicate(x_trio_stomp_forward="7"))
    assert found == [False, False, False, True]
    assert core.reader(Q).bodies() == ["a"] * 3
    assert not is_duplicate(x_dedup_id="7")


def test_a_broker_tells_what_others_have(core: PartBench) -> None:
    assert core.broker.lacks(FAR)
    assert not core.broker.lacks(Q)


def test_the_first_partition_with_a_subscription_counts_it() -> None:
    cores = [PartBench(placement=Placement(3), number=number) for number in range(3)]
    only = next(name for n in range(99) if Placement(3).of(name := f"/topic/{n}") == 1)
    assert [core.broker.counts(["/topic/*"]) for core in cores] == [True, False, False]
    assert [core.broker.counts([only]) for core in cores] == [False, True, False]


def test_new_policies_change_which_partition_counts_a_subscription() -> None:
    placement = Placement(3)
    core = PartBench(placement=placement, number=1)
    dead = next(name for n in range(99) if placement.of(name := f"/queue/d{n}") == 1)
    assert core.broker.counts([dead])
    policy = DestinationPolicy(dead_letter=dead)  # so that each partition may have dead letters
    core.broker.use_policies(PolicyBook((("/queue/jobs", policy),)))
    assert not core.broker.counts([dead])


def test_names_that_a_partition_makes_begin_with_its_number() -> None:
    core = PartBench(placement=Placement(3), number=2)
    assert core.broker.publisher.temporary.begin_name(core.actor().client).startswith("2_")
    assert core.broker.publisher.fan_out.names.boot.startswith("2_")


def test_a_send_to_several_partitions_follows_stored_ones_of_its_sender() -> None:
    core = PartBench(is_prompt=False)
    sender, reader = core.actor(), core.reader(Q)
    sender.sends(Q, "a", persistent="true")
    sender.does(run_of(f"{Q},{FAR}", ["b"], STORED))
    sender.sends(Q, "c")
    sender.does(run_of(f"{FAR},{Q}", ["d"], receipts=[(1, b"d")]))
    for _ in range(6):
        core.turn()
        core.answers()
    assert reader.bodies() == ["a", "b", "c", "d"]
    assert kept(core) == [([b"b"], FAR), ([b"d"], FAR)]
    assert commands(sender) == ["RECEIPT"]


def test_a_send_to_several_brokers_waits_for_the_senders_earlier_messages() -> None:
    core = PartBench(is_prompt=False)
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
