"""One user cannot fill the disk (F9): each has a share of the store."""

import shutil
from pathlib import Path

import pytest

from tests.support.core import Actor, run_of
from tests.support.durable_fakes import DurableBench
from tests.support.quota_fakes import ALL, KIB, MIB, user
from tests.support.small_queues import keep_few
from trio_stomp.base import MemoryBudget, Quota
from trio_stomp.broker import DestinationPolicy
from trio_stomp.frames import FrameRun
from trio_stomp.store import JournalStore

FIXTURE = Path(__file__).parents[3] / "data" / "store_format_1"

BODY = "x" * 10 * KIB
Q = "/queue/q"
DURABLE = "durable_subscription_name"


def made(
    disk: int = MIB, memory: int = 1024 * MIB, policy: DestinationPolicy | None = None
) -> DurableBench:
    core = DurableBench(book={Q: policy} if policy else {}, memory=MemoryBudget(memory, 0.8))
    begins(core, disk)
    return core


def begins(core: DurableBench, disk: int = MIB) -> None:
    core.broker.use_rules(ALL, lambda _: True, core.now)
    core.broker.note_capacity(disk)


def run(to: str, **headers: str) -> FrameRun:
    return run_of(to, [BODY], tuple(headers.items()))


def quota_of(actor: Actor) -> Quota:
    assert actor.client.quota is not None
    return actor.client.quota


def stores(actor: Actor, to: str = Q, body: str = BODY, **headers: str) -> bool:
    """Send a durable message. Return whether it was accepted."""
    actor.sends(to, body, persistent="true", **headers)  # type: ignore[arg-type]
    actor.core.turn()
    return not actor.client.is_refused


def fills(core: DurableBench, name: str, to: str = Q) -> tuple[int, Actor]:
    """Send until a message is refused. Return the number, and the refused client."""
    actor = user(core, name)
    for count in range(1000):
        if not stores(actor, to):
            return count, actor
    raise AssertionError("nothing was refused")


def empties(core: DurableBench, name: str = Q) -> list[str]:
    reader = user(core, "reader")
    reader.subscribes(name, ack="client-individual")
    got: list[str] = []
    while True:
        core.turn()
        found = reader.reads()
        if not found:
            reader.is_gone()
            core.turn()
            return got
        got += [each.text for each in found]
        reader.acks(*found)


def test_one_user_leaves_room_on_the_disk_for_the_next() -> None:
    """Before, whoever came first took all of it: the next was told \"storage\"."""
    core = made()
    first, mallory = fills(core, "mallory")
    assert 40 < first < 55
    error = mallory.error()
    assert error.get("code") == "quota-exceeded"
    assert "mallory take" in (error.get("message") or "")
    assert "max_share_per_user" in (error.get("message") or "")
    assert core.broker.quotas.refused == quota_of(mallory).refused == 1
    second, _ = fills(core, "victim", "/queue/of-victim")
    assert first // 4 < second < first
    again = user(core, "mallory")
    again.sends(Q, BODY)  # in memory it has room
    assert not again.client.is_refused
    assert len(empties(core)) == first + 1
    assert quota_of(mallory).stored_bytes == 0
    assert stores(user(core, "mallory"))


def test_user_with_a_full_quota_may_fill_the_store() -> None:
    core = made()
    core.memory.quota_percent = 100
    count, _ = fills(core, "alice")
    assert 80 < count < 110


def test_no_shares_apply_while_the_capacity_of_the_store_is_unknown() -> None:
    core = made(disk=0)
    alice = user(core, "alice")
    for _ in range(150):
        assert stores(alice)
    assert quota_of(alice).stored_bytes > MIB


def test_stored_messages_are_charged_to_their_users_after_a_restart() -> None:
    core = made()
    first, _ = fills(core, "mallory")
    far = core.actor()
    far.client.quota = core.broker.quotas._named("network", "192.0.2.1")
    stores(far, "/queue/far")
    after = core.restarts()
    begins(after)
    mallory = user(after, "mallory")
    assert not stores(mallory)
    assert mallory.error().get("code") == "quota-exceeded"
    assert stores(user(after, "victim"), "/queue/other")
    owner = after.broker.quotas._named("network", "192.0.2.1")
    assert 10 * KIB < owner.stored_bytes < 11 * KIB
    (message, *_) = empties(after, "/queue/far")
    assert message == BODY
    assert owner.stored_bytes == 0
    assert len(empties(after)) == first
    assert quota_of(mallory).stored_bytes == 0


def test_stored_messages_without_an_owner_are_not_charged() -> None:
    """The same for messages stored by an older broker, and for an invalid line."""
    core = made()
    assert stores(core.actor())  # its exemption from quotas was lost, and that is reported
    core.peers.clear()
    plain = DurableBench(memory=MemoryBudget(MIB), store=core.store, now=core.now)
    nobody = plain.actor()
    for _ in range(3):
        assert stores(nobody)
    after = plain.restarts()
    begins(after)
    assert after.memory.stored_bytes > 3 * 10 * KIB
    for line in (b"x-trio-stomp-charged:robot alice\n", b"x-trio-stomp-charged:\\x\n", b""):
        assert after.broker.quotas.charged(line) is None
    quotas = after.broker.quotas
    for name in ("alice", "a: b\\\n", "\u00e4"):
        assert quotas.charged(quotas.of_user(name).line) is quotas.of_user(name)
    assert len(empties(after)) == 4
    assert after.memory.stored_bytes == 0


def test_a_data_directory_without_charges_loses_nothing(tmp_path: Path) -> None:
    for part in ("journal", "streams"):
        shutil.copytree(FIXTURE / part, tmp_path / part)
    core = DurableBench(store=JournalStore(str(tmp_path)), now=1.0, memory=MemoryBudget(MIB))
    begins(core, 100 * MIB)
    found = {queue.name: queue.message_count for queue in core.broker.queues if queue.message_count}
    assert core.failures == []
    assert sum(found.values()) > 10
    before = core.memory.stored_bytes
    assert before > 64 * sum(found.values())
    assert not any(quota.stored_bytes for quota in core.broker.quotas.largest(100))
    assert stores(user(core, "alice"))
    core.store.close()
    after = DurableBench(store=JournalStore(str(tmp_path)), now=1.0, memory=MemoryBudget(MIB))
    begins(after, 100 * MIB)
    assert {
        queue.name: queue.message_count for queue in after.broker.queues if queue.message_count
    } == found | {Q: 1}
    alice = after.broker.quotas.of_user("alice")
    assert after.memory.stored_bytes - before == alice.stored_bytes > 10 * KIB
    after.store.close()


def test_charged_user_is_not_shown() -> None:
    core = made()
    stores(user(core, "alice"))
    after = core.restarts()
    begins(after)
    reader, browser = user(after, "reader"), user(after, "browser")
    browser.subscribes(Q, browser="true")
    reader.subscribes(Q, ack="client")
    after.turn()
    for frame in (*reader.reads(), *browser.reads()):
        assert not [name for name, _ in frame.headers if name.startswith("x-trio-stomp")]


def test_charge_is_released_when_the_store_refuses() -> None:
    core = made()
    core.is_prompt = False
    alice = user(core, "alice")
    alice.sends(Q, BODY, persistent="true")
    core.turn()
    assert quota_of(alice).stored_bytes > 10 * KIB
    core.fails()
    assert quota_of(alice).stored_bytes == core.memory.stored_bytes == 0


def test_a_queue_that_ends_releases_the_charges_of_all_its_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keep_few(monkeypatch, 5)
    core = made(disk=100 * MIB)
    alice, bob = user(core, "alice"), user(core, "bob")
    for _ in range(10):
        assert stores(alice)
        assert stores(bob)
    assert core.queue(Q).waiting.paged == 15
    core.is_prompt = False
    alice.sends(Q, BODY, persistent="true")
    core.turn()
    assert quota_of(alice).stored_bytes > 11 * 10 * KIB
    core.broker.queues.end(Q, core.now)
    assert 10 * KIB < quota_of(alice).stored_bytes < 11 * KIB
    assert quota_of(bob).stored_bytes == 0
    core.answers()
    assert quota_of(alice).stored_bytes == core.memory.stored_bytes == 0


def test_a_dead_letter_is_charged_to_its_sender() -> None:
    core = made()
    alice = user(core, "alice")
    assert stores(alice)
    after = core.restarts()
    begins(after)
    alice, reader = user(after, "alice"), user(after, "reader")
    reader.subscribes(Q, ack="client-individual")
    after.turn()
    reader.nacks(*reader.reads(), requeue=False)
    after.turn()
    assert [queue.name for queue in after.broker.queues if queue.message_count] != [Q]
    assert 10 * KIB < quota_of(alice).stored_bytes < 11 * KIB
    assert quota_of(alice).kept_bytes > 10 * KIB
    assert quota_of(reader).stored_bytes == 0


def test_a_durable_subscription_is_charged_to_its_subscriber_and_drops_the_excess() -> None:
    core = made()
    mallory, victim = user(core, "mallory", client_id="m"), user(core, "victim")
    mallory.subscribes("/topic/a", **{DURABLE: "d"})
    mallory.is_gone()
    for _ in range(100):
        assert stores(victim, "/topic/a")
    (binding,) = core.broker.bindings.durables
    assert binding.quota is not None
    assert 300 * KIB < binding.quota.stored_bytes <= 512 * KIB
    assert quota_of(victim).stored_bytes == 0
    assert core.broker.overflow.backlog_dropped > 40
    core.broker.bindings.end_durable(binding, core.now)
    core.settles()
    assert binding.quota.stored_bytes == 0


@pytest.mark.parametrize("overflow", ["drop-oldest", "drop-newest", "dead-letter"])
def test_a_queue_whose_policy_drops_does_so_for_want_of_room_in_a_share(overflow: str) -> None:
    core = made(policy=DestinationPolicy(overflow=overflow))
    alice = user(core, "alice")
    taken = 0
    for number in range(60):
        taken += stores(alice, body=f"{number:03}{BODY}")
    assert quota_of(alice).stored_bytes <= 512 * KIB
    if overflow == "dead-letter":
        assert taken < 60
        assert alice.error().get("code") == "quota-exceeded"
        return
    assert taken == 60
    found = [int(each[:3]) for each in empties(core)]
    first = 0 if overflow == "drop-newest" else 60 - len(found)
    assert found == list(range(first, first + len(found)))


def test_other_users_messages_are_not_dropped_for_a_user_without_room() -> None:
    core = made(policy=DestinationPolicy(overflow="drop-oldest"))
    assert stores(user(core, "victim"), body="first")
    fills(core, "mallory", "/queue/else")
    mallory = user(core, "mallory")
    assert not stores(mallory)
    assert mallory.error().get("code") == "quota-exceeded"
    assert core.waiting(Q) == ["first"]


def test_a_queue_whose_policy_blocks_makes_its_producer_wait_for_room_in_his_share() -> None:
    core = made(policy=DestinationPolicy(overflow="block"))
    fills(core, "mallory", "/queue/else")
    mallory = user(core, "mallory")
    assert stores(mallory)  # the client is paused
    assert core.waiting(Q) == []
    other = user(core, "mallory")
    other.sends(Q, BODY)  # for memory alone there is room
    core.turn()
    assert core.waiting(Q) == [BODY]
    assert len(empties(core, "/queue/else")) > 40
    core.turn()
    assert core.waiting(Q) == [BODY, BODY]


def test_a_composite_send_and_a_transaction_are_refused_as_a_whole() -> None:
    core = made()
    fills(core, "mallory", "/queue/else")
    mallory = user(core, "mallory")
    mallory.sends("/queue/a,/queue/b", BODY, persistent="true")
    core.turn()
    assert mallory.error().get("code") == "quota-exceeded"
    mallory = user(core, "mallory")
    mallory.commits(run(Q, persistent="true"), run("/queue/c"))
    core.turn()
    assert mallory.error().get("code") == "quota-exceeded"
    assert [queue.name for queue in core.broker.queues if queue.message_count] == ["/queue/else"]
    mallory = user(core, "mallory")
    mallory.sends("/queue/a,/queue/b", BODY)
    mallory.commits(run("/queue/a"), run("/queue/b"))
    core.turn()
    assert not mallory.client.is_refused
    victim = user(core, "victim")
    victim.sends("/queue/a,/queue/b", BODY, persistent="true")
    victim.commits(run("/queue/a", persistent="true"), run("/queue/b"))
    core.turn()
    assert not victim.client.is_refused
    assert 40 * KIB < quota_of(victim).stored_bytes < 45 * KIB
    for name in ("/queue/a", "/queue/b"):
        assert len(empties(core, name)) == 4
    assert quota_of(victim).stored_bytes == 0


def test_messages_paged_out_for_lack_of_memory_are_charged_to_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keep_few(monkeypatch, 5)
    core = made()
    alice = user(core, "alice")
    for _ in range(10):
        assert stores(alice)
    assert core.queue(Q).waiting.paged == 5
    before, count = quota_of(alice).stored_bytes, 0
    while not alice.client.is_refused:
        alice.sends(Q, BODY)  # not persistent, but behind messages in the store alone
        core.turn()
        count += 1
    assert alice.error().get("code") == "quota-exceeded"
    assert 25 < count < 50
    assert quota_of(alice).stored_bytes > 2 * before
    empties(core)
    assert core.memory.stored_bytes == 0


# Readers of paged messages.


def backlog(names: int, each: int = 3, memory: int = 2 * MIB) -> DurableBench:
    """Queues that a victim filled before a restart."""
    core = made(disk=0)
    victim = user(core, "victim")
    for number in range(names):
        for _ in range(each):
            assert stores(victim, f"/queue/{number}")
    after = DurableBench(store=core.store, now=core.now, memory=MemoryBudget(memory, 0.8))
    begins(after, 0)
    return after


def test_reader_of_paged_messages_is_charged_and_leaves_room_for_others() -> None:
    """Before, 100 queues read back took all memory, and every SEND of others was refused."""
    core = backlog(100)
    mallory = user(core, "mallory")
    for number in range(100):
        mallory.subscribes(f"/queue/{number}", f"{number}", ack="client-individual")
    core.turn()
    got = mallory.reads()
    share = int(2 * MIB * 0.8) // 2
    assert share // (12 * KIB) < len(got)
    assert quota_of(mallory).kept_bytes <= share + 64 * KIB
    victim = user(core, "victim")
    for _ in range(10):
        victim.sends("/queue/new", BODY)
    assert not victim.client.is_refused
    while got:  # and by acknowledging he gets all of it
        mallory.acks(*got)
        core.settles()
        got = mallory.reads()
    assert not [
        queue for queue in core.broker.queues if queue.message_count and queue.name != "/queue/new"
    ]
    assert quota_of(mallory).kept_bytes == 0
    assert not core.broker.queues.storage.readers.held  # type: ignore[union-attr]


def test_reader_with_a_full_share_reads_one_page_at_a_time() -> None:
    core = backlog(5)
    alice = user(core, "alice")
    while not alice.client.is_refused:
        alice.sends("/queue/mine", BODY)
    alice = user(core, "alice")
    for number in range(5):
        alice.subscribes(f"/queue/{number}", f"{number}", ack="client-individual")
    core.turn()
    got = alice.reads()
    assert 0 < len(got) <= 3
    seen = 0
    while got:
        seen += len(got)
        alice.acks(*got)
        core.turn()
        got = alice.reads()
    assert seen == 15


def test_one_of_several_readers_with_room_is_charged() -> None:
    core = backlog(2)
    mallory, victim = user(core, "mallory"), user(core, "victim")
    while not mallory.client.is_refused:
        mallory.sends("/queue/mine", BODY)
    mallory = user(core, "mallory")
    mallory.subscribes("/queue/0", ack="client-individual")
    core.turn()
    assert mallory.reads()
    mallory.subscribes("/queue/1", "1", ack="client-individual")
    core.turn()
    assert mallory.reads() == []
    victim.subscribes("/queue/1", ack="client-individual")
    core.turn()
    assert len(victim.reads()) + len(mallory.reads()) == 3
    assert quota_of(victim).kept_bytes > 30 * KIB


def test_anonymous_reader_reads_without_a_share() -> None:
    core = backlog(3)
    nobody = core.actor()
    nobody.client.quota = None
    nobody.subscribes("/queue/0", ack="client-individual")
    core.turn()
    assert len(nobody.reads()) == 3


def test_users_beyond_their_share_are_forgotten_later(monkeypatch: pytest.MonkeyPatch) -> None:
    from trio_stomp.broker.queues import _readers

    monkeypatch.setattr(_readers, "MANY", 1)
    core = backlog(2, memory=64 * KIB)
    for number, name in enumerate(("alice", "bob")):
        reader = user(core, name)
        reader.subscribes(f"/queue/{number}", ack="client-individual")
        core.turn()
        while found := reader.reads():
            reader.acks(*found)
            core.turn()
        assert core.queue(f"/queue/{number}").message_count == 0
    assert core.memory.kept_bytes == 0


def due(core: DurableBench, actor: Actor, *bodies: str, to: str = Q) -> None:
    """Schedule durable messages, and let them be due."""
    actor.sends(to, *bodies, persistent="true", AMQ_SCHEDULED_DELAY="1000")
    core.turn()
    for _ in range(4):
        core.passes(1)


def test_a_scheduled_message_waits_for_its_share_and_the_log_has_the_first() -> None:
    core, told = made(), list[str]()
    core.broker.publisher.warn = told.append
    _, alice = fills(core, "alice")
    alice = user(core, "alice")
    due(core, alice, "1" * 20 * KIB, to="/queue/later")
    due(core, alice, "2", to="/queue/later")
    assert len(told) == 1
    assert "a scheduled message is due, and waits: there is no room in the store" in told[0]
    empties(core)
    for _ in range(3):
        core.passes(1)
    assert [each[0] for each in empties(core, "/queue/later")] == ["1", "2"]
    assert core.broker.scheduler.lost == 0


@pytest.mark.parametrize("dead", [Q, "/queue/dead"])
@pytest.mark.parametrize("to", [Q, f"{Q},/queue/y"])
def test_a_scheduled_message_above_the_whole_share_does_not_wait_for_ever(
    dead: str, to: str
) -> None:
    core, told = made(policy=DestinationPolicy(dead_letter=dead)), list[str]()
    core.broker.publisher.warn = told.append
    alice = user(core, "alice")
    due(core, alice, "n" * 600 * KIB, "next", to=to)
    if dead != Q:
        assert empties(core) == []  # the dead letter takes all of the share
        assert [len(each) for each in empties(core, dead)] == [600 * KIB]
        core.passes(1)
    assert empties(core) == ["next"]
    assert core.broker.scheduler.lost == (dead == Q)
    assert sum("is lost" in each for each in told) == (dead == Q)
    assert core.broker.scheduler.waiting == 0
