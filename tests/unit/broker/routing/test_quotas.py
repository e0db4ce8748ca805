"""One user cannot exhaust shared resources (F9): names, subscriptions, messages, schedules."""

from collections.abc import Callable

import pytest

from tests.support.core import Actor, Bench, OutboxFake, run_of
from tests.support.durable_fakes import DurableBench
from tests.support.quota_fakes import ALL, KIB, MIB, user
from trio_stomp.base import MemoryBudget, Quota
from trio_stomp.broker import BrokerPolicies, Client, DestinationPolicy, PolicyBook
from trio_stomp.broker.delivery import NullOutbox
from trio_stomp.broker.routing import beyond_quota
from trio_stomp.protocol import Subscribed

DURABLE = "durable_subscription_name"


def bench_of(limit: int = MIB, policy: DestinationPolicy | None = None, **options: object) -> Bench:
    """A broker of which everybody may do everything, but must log in."""
    book = {"/queue/**": policy} if policy is not None else {}
    policies = BrokerPolicies(**options)  # type: ignore[arg-type]
    core = Bench(policies=policies, book=book, memory=MemoryBudget(limit, 0.8))
    core.broker.use_rules(ALL, lambda _: True, core.now)
    return core


@pytest.fixture
def core() -> Bench:
    return bench_of()


def until_refused(
    core: Bench, name: str, act: Callable[[Actor, int], None], most: int = 5000
) -> tuple[int, Actor]:
    """Let connections of one user continue until each is refused. Return the progress of the last
    one."""
    done = 0
    while True:
        actor = user(core, name)
        before = done
        while not actor.client.is_refused and done < most:
            act(actor, done)
            done += not actor.client.is_refused
        core.turn()
        if done in (before, most):
            return done, actor


def quota_of(actor: Actor) -> Quota:
    assert actor.client.quota is not None
    return actor.client.quota


def sends_name(actor: Actor, number: int) -> None:
    actor.sends(f"/queue/{actor.client.user}{number}")


def sends_much(actor: Actor, number: int) -> None:
    actor.sends(f"/queue/of{actor.client.user}", "x" * 10 * KIB)


def schedules_much(actor: Actor, number: int) -> None:
    actor.sends("/queue/later", "x" * 10 * KIB, AMQ_SCHEDULED_DELAY="999999999")


def retains_much(actor: Actor, number: int) -> None:
    actor.sends(f"/topic/{actor.client.user}.{number % 7}.{number}", "x" * 9999, retain="set")


def parks_much(actor: Actor, number: int) -> None:
    actor.sends(f"/topic/{actor.client.user}", "x" * 10 * KIB)


def tells_ids(actor: Actor, number: int) -> None:
    actor.sends("/topic/ids", x_dedup_id=f"{number}{'i' * 900}")


def subscribes_much(actor: Actor, number: int) -> None:
    actor.does(Subscribed(f"{number}{'i' * 900}", "/topic/a", "auto", (), None))


def selects_much(actor: Actor, number: int) -> None:
    words = ",".join(f"'{each}'" for each in range(20))
    headers = (("selector", f"a = {number} AND b IN ({words})"),)
    actor.does(Subscribed(f"{number}", "/topic/a", "auto", headers, None))


def reaches_much(actor: Actor, number: int) -> None:
    actor.does(Subscribed(f"{number}", "/queue/>", "client", (), None))


@pytest.mark.parametrize("act", [sends_name, sends_much, schedules_much, tells_ids])
def test_one_user_leaves_room_for_the_next(core: Bench, act: Callable[[Actor, int], None]) -> None:
    """Regression: the first user took everything, and the next was refused immediately."""
    first, refused = until_refused(core, "mallory", act)
    assert 5 < first < 5000
    assert "max_share_per_user" in (refused.error().get("message") or "")
    second, _ = until_refused(core, "victim", act)
    assert second > first // 4
    third, _ = until_refused(core, "third", act)
    assert third > first // 8


@pytest.mark.parametrize("act", [subscribes_much, selects_much, reaches_much])
def test_subscriptions_of_one_user_leave_room_for_the_next(
    core: Bench,
    act: Callable[[Actor, int], None],
) -> None:
    for number in range(50):
        core.actor().sends(f"/queue/{number}")

    def takes_all_but_one(name: str) -> int:
        actor, done = user(core, name), 0
        while not actor.client.is_refused:
            act(actor, done)
            done += not actor.client.is_refused
        core.turn()
        assert "max_share_per_user" in (actor.error().get("message") or "")
        core.broker.leaving.finish(core.now)
        actor = user(core, name)
        for number in range(done):
            act(actor, number)
        assert not actor.client.is_refused
        return done

    first = takes_all_but_one("mallory")
    assert first > 5
    assert takes_all_but_one("victim") > first // 4


@pytest.mark.parametrize("act", [retains_much, parks_much])
def test_dropped_messages_free_quota_too(
    act: Callable[[Actor, int], None],
) -> None:
    core = bench_of(8 * MIB, ttl_ms=60_000)
    mallory, victim = user(core, "mallory"), user(core, "victim")
    for number in range(1000):
        act(mallory, number)
    used = core.memory.kept_bytes
    assert MIB < used < 8 * MIB * 0.8 * 0.5 + 1
    for number in range(1000):
        act(victim, number)
    assert core.memory.kept_bytes - used > used // 4


@pytest.mark.parametrize("act", [sends_name, sends_much, schedules_much, tells_ids])
def test_quota_refusals_are_counted_per_owner_and_in_total(
    act: Callable[[Actor, int], None],
) -> None:
    core = bench_of(max_schedules_per_user=20)
    _, refused = until_refused(core, "mallory", act)
    quotas, quota = core.broker.quotas, quota_of(refused)
    assert quotas.refused == quota.refused > 0
    before = quotas.refused
    mallory = user(core, "mallory")
    act(mallory, 9999)
    assert mallory.client.is_refused
    assert quotas.refused == quota.refused == before + 1
    other = user(core, "victim")
    other.sends("/topic/a", "x", AMQ_SCHEDULED_DELAY="nonsense")
    assert other.client.is_refused
    assert quotas.refused == before + 1  # for another reason
    (found,) = [each for each in quotas.figures() if each["owner"] == "mallory"]
    assert found["refused_total"] == before + 1


def test_refusals_are_counted_for_subscriptions_and_for_users_without_a_quota() -> None:
    core = DurableBench(policies=BrokerPolicies(max_durables_per_user=1))
    core.broker.use_rules(ALL, lambda _: True, core.now)
    alice = user(core, "alice")
    alice.subscribes("/topic/a", "a", **{DURABLE: "a"})
    alice.subscribes("/topic/a", "b", **{DURABLE: "b"})
    assert alice.error().get("code") == "too-many-durable-subscriptions"
    assert core.broker.quotas.refused == 1
    nobody = Client("1", NullOutbox())
    core.broker.quotas.note_refused(nobody, beyond_quota("quota-exceeded", "held, and told later"))
    assert core.broker.quotas.refused == 2
    assert core.broker.statistics().refusals == {
        "too-many-durable-subscriptions": 1,
        "quota-exceeded": 1,
    }
    assert nobody.refusal == "quota-exceeded: held, and told later"


# The user who is charged.


def stranger(core: Bench, network: str) -> Actor:
    """Return a client of another machine, where no login is required."""
    outbox = OutboxFake()
    actor = Actor(core, Client("s", outbox, network=network), outbox)
    core.peers.append(actor)
    actor.opens()
    actor.outbox.staged.clear()
    return actor


def test_without_logins_quotas_are_per_address_except_for_loopback() -> None:
    core = Bench(memory=MemoryBudget(MIB, 0.8))
    one, two, same = [stranger(core, each) for each in ("192.0.2.1", "192.0.2.2", "192.0.2.1")]
    assert one.client.quota is same.client.quota is not two.client.quota
    while not one.client.is_refused:
        sends_much(one, 0)
    sends_much(same, 0)
    assert "192.0.2.1" in (same.error().get("message") or "")
    sends_much(two, 0)
    assert not two.client.is_refused
    local = core.actor()
    assert local.client.quota is None
    while not local.client.is_refused:
        sends_much(local, 0)
    assert core.memory.kept_room < 20 * KIB
    assert "max_share_per_user" not in (local.error().get("message") or "")


def test_with_logins_anonymous_quotas_are_per_address_too(core: Bench) -> None:
    local = user(core, "")
    far = stranger(core, "192.0.2.1")
    assert (quota_of(local).owner, quota_of(far).owner) == ("anonymous", "192.0.2.1")
    # A user may be called as an address is.
    assert user(core, "192.0.2.1").client.quota is not far.client.quota


def test_durable_subscriptions_are_shared_by_address_without_logins() -> None:
    core = DurableBench(policies=BrokerPolicies(max_durables_per_user=1))
    one, two = stranger(core, "192.0.2.1"), stranger(core, "192.0.2.2")
    one.subscribes("/topic/a", "a", **{DURABLE: "a"})
    two.subscribes("/topic/a", "b", **{DURABLE: "b"})
    one.subscribes("/topic/a", "c", **{DURABLE: "c"})
    assert one.error().get("code") == "too-many-durable-subscriptions"
    assert not two.client.is_refused


def test_unused_quotas_are_removed() -> None:
    """Thousands of addresses that come and go leave nothing; one that left state is recognized."""
    core = Bench()
    keeper, stays = stranger(core, "192.0.2.1"), stranger(core, "192.0.2.2")
    keeper.sends("/queue/kept")
    mine, his = keeper.client.quota, stays.client.quota
    keeper.is_gone()
    for number in range(5000):
        stranger(core, f"10.0.{number >> 8}.{number & 255}").is_gone()
        core.peers.pop()
    assert len(core.broker.quotas) <= 1024 + 2
    assert stranger(core, "192.0.2.1").client.quota is mine
    assert stranger(core, "192.0.2.2").client.quota is his
    assert core.broker.quotas.largest(1) == [mine]


def test_a_removed_user_finds_own_objects_charged_after_a_return(
    core: Bench,
) -> None:
    alice = user(core, "alice")
    alice.sends("/queue/a", "x" * KIB)
    quota = quota_of(alice)
    core.broker.use_rules(ALL, lambda identity: identity.name != "alice", core.now)
    assert alice.client.is_refused
    assert quota.kept_bytes > KIB
    core.broker.use_rules(ALL, lambda _: True, core.now)
    assert user(core, "alice").client.quota is quota
    core.broker.queues.end("/queue/a", core.now)
    assert quota.kept_bytes == 0


def test_user_without_a_quota_releases_earlier_charges(
    core: Bench,
) -> None:
    alice = user(core, "alice")
    alice.subscribes("/topic/a", "a")
    quota = quota_of(alice)
    core.broker.use_rules(None, lambda _: True, core.now)
    assert alice.client.quota is None
    alice.subscribes("/topic/a", "b")
    before = quota.tables_bytes
    alice.unsubscribes("b")
    assert quota.tables_bytes == before
    alice.unsubscribes("a")
    assert quota.destinations == 1
    assert quota.tables_bytes < before


def test_after_a_restart_readers_pay_in_memory_and_senders_in_the_store() -> None:
    core = DurableBench()
    core.broker.use_rules(ALL, lambda _: True, core.now)
    alice = user(core, "alice", client_id="c")
    alice.subscribes("/topic/a", **{DURABLE: "d"})
    alice.sends("/queue/a", "x" * KIB, persistent="true")
    alice.sends("/topic/a", "x" * KIB, persistent="true")
    core.turn()
    after = core.restarts()
    after.broker.use_rules(ALL, lambda _: True, after.now)
    quota = quota_of(user(after, "alice", client_id="c"))
    (binding,) = after.broker.bindings.durables
    assert binding.quota is quota
    assert (quota.kept_bytes, quota.tables_bytes) == (0, binding.cost)
    reader = user(after, "bob")
    reader.subscribes("/queue/a", ack="client")
    after.turn()
    assert len(reader.reads()) == 1
    assert after.memory.kept_bytes == quota_of(reader).kept_bytes > KIB
    assert quota.kept_bytes == 0
    assert KIB < quota.stored_bytes < 2 * KIB
    after.broker.bindings.end_durable(binding, after.now)
    assert quota.tables_bytes == quota.destinations == 0
    after.broker.queues.end("/queue/a", after.now)
    reader.is_gone()
    after.turn()
    assert quota.is_unused


def test_anonymous_state_is_charged_to_the_returning_client() -> None:
    core = DurableBench()
    nobody = core.actor()
    nobody.does(Subscribed("s", "/topic/a", "client", (("durable-subscription-name", "d"),), None))
    nobody.is_gone()
    (binding,) = core.broker.bindings.durables
    assert binding.quota is None
    core.broker.use_rules(ALL, lambda _: True, core.now)
    alice = user(core, "alice")
    alice.does(Subscribed("s", "/topic/a", "client", (("durable-subscription-name", "d"),), None))
    assert binding.quota is alice.client.quota
    assert binding.quota is not None
    core.turn()
    alice.is_gone()
    core.turn()
    core.broker.leaving.finish(core.now)
    before = binding.quota.tables_bytes
    core.broker.bindings.end_durable(binding, core.now)
    assert before - binding.quota.tables_bytes == binding.cost > 0


def test_an_offline_durable_subscription_is_charged_to_its_subscriber(core: Bench) -> None:
    """A publisher must not be charged for subscriptions that others created and left."""
    mallory, victim = user(core, "mallory", client_id="m"), user(core, "victim")
    mallory.subscribes("/topic/a", **{DURABLE: "d"})
    mallory.is_gone()
    for _ in range(200):
        victim.sends("/topic/a", "x" * 10 * KIB)
    core.turn()
    quotas = quota_of(mallory), quota_of(victim)
    assert quotas[0].kept_bytes > 100 * KIB
    assert quotas[1].kept_bytes == 0
    sends_much(victim, 0)
    assert not victim.client.is_refused


def test_reassigned_work_is_charged_to_its_new_member(core: Bench) -> None:
    sender, one, two = user(core, "sender"), user(core, "one"), user(core, "two")
    one.subscribes("#work", ack="client")
    sender.sends("#work", "x" * KIB)
    one.frames()
    two.subscribes("#work", ack="client")
    quotas = quota_of(one), quota_of(two)
    assert (quotas[0].kept_bytes > KIB, quotas[1].kept_bytes) == (True, 0)
    one.is_gone()
    core.turn()
    assert (quotas[0].kept_bytes, quotas[1].kept_bytes > KIB) == (0, True)
    two.acks(*two.reads())
    assert quotas[1].kept_bytes == 0
    assert quota_of(sender).kept_bytes == 0


def test_scheduled_message_is_charged_to_its_sender(core: Bench) -> None:
    mallory = user(core, "mallory")
    body = "x" * 10 * KIB
    mallory.sends("/queue/new", body, AMQ_SCHEDULED_PERIOD="100", AMQ_SCHEDULED_REPEAT="-1")
    mallory.is_gone()
    for _ in range(100):
        core.passes(0.1)
    quota = quota_of(mallory)
    assert 300 * KIB < quota.kept_bytes < 420 * KIB
    assert quota.destinations == 1
    victim = user(core, "victim")
    sends_much(victim, 0)
    assert not victim.client.is_refused


def test_answers_are_charged_to_the_requester() -> None:
    policies = {"/topic/log": DestinationPolicy(stream=True)}
    core = Bench(book=policies, memory=MemoryBudget(MIB, 0.8))
    core.broker.use_rules(ALL, lambda _: True, core.now)
    mallory = user(core, "mallory")
    mallory.sends("/topic/log", "x")
    quota = quota_of(mallory)
    mallory.sends("/stream/topic/log", "?", reply_to="/queue/answers")
    before = quota.kept_bytes
    assert before > 256
    mallory.sends("DIAG/explain", '{"destination": "/topic/log"}', reply_to="/queue/answers")
    assert quota.kept_bytes > before + 256


def test_schedules_of_one_user_are_limited_in_number() -> None:
    core = bench_of(max_schedules_per_user=3)
    mallory, victim = user(core, "mallory"), user(core, "victim")
    mallory.sends("/queue/a", "1", "2", "3", AMQ_SCHEDULED_DELAY="500")
    mallory.sends("/queue/a", "4", AMQ_SCHEDULED_DELAY="500")
    error = mallory.error()
    assert error.get("code") == "too-many-schedules"
    assert "max_schedules_per_user" in (error.get("message") or "")
    victim.sends("/queue/a", "1", AMQ_SCHEDULED_DELAY="500")
    headers = (("AMQ_SCHEDULED_DELAY", "500"),)
    victim.commits(run_of("/queue/b"), *[run_of("/queue/a", ("2",), headers)] * 3)
    assert victim.error().get("code") == "too-many-schedules"
    assert core.waiting("/queue/b") == []
    core.passes(1)
    mallory = user(core, "mallory")
    mallory.sends("/queue/a", "4", AMQ_SCHEDULED_DELAY="500")
    assert not mallory.client.is_refused
    assert core.waiting("/queue/a") == ["1", "2", "3", "1"]


# Behaviour at the limit.


def full_of(core: Bench, name: str, queue: str) -> Actor:
    """Return a user with as many bytes waiting in a queue as permitted."""
    while True:
        actor = user(core, name)
        while not actor.client.is_refused:
            actor.sends(queue, "x" * 10 * KIB)
            if actor.client.is_blocked:
                return actor
        core.turn()
        return user(core, name)


def test_sender_over_its_quota_blocks_if_the_policy_says_so() -> None:
    core = bench_of(policy=DestinationPolicy(overflow="block"))
    mallory = full_of(core, "mallory", "/queue/m")
    core.turn()
    assert mallory.client.is_blocked
    victim = user(core, "victim")
    sends_much(victim, 0)
    assert not victim.client.is_blocked
    reader = user(core, "victim")
    reader.subscribes("/queue/m", ack="auto")
    core.turn()
    core.turn()
    assert not mallory.client.is_blocked


@pytest.mark.parametrize("overflow", ["drop-oldest", "dead-letter"])
def test_other_users_messages_make_no_room_for_a_user_beyond_the_quota(overflow: str) -> None:
    """Without a check of the owner, the queue would be emptied in vain."""
    core = bench_of(policy=DestinationPolicy(overflow=overflow))
    user(core, "victim").sends("/queue/shared", "mine", "mine too")
    actor = user(core, "mallory")
    while not actor.client.is_refused:
        actor.sends("/topic/a", "x" * 10 * KIB, AMQ_SCHEDULED_DELAY="9999999")
    core.turn()
    actor = user(core, "mallory")
    actor.sends("/queue/shared", "x" * 10 * KIB)
    error = actor.error()
    assert error.get("code") == "queue-full"
    assert "max_share_per_user" in (error.get("message") or "")
    assert core.waiting("/queue/shared") == ["mine", "mine too"]


def test_ones_own_oldest_make_room_where_policy_says_so() -> None:
    core = bench_of(policy=DestinationPolicy(overflow="drop-oldest"))
    mallory = user(core, "mallory")
    for number in range(100):
        mallory.sends("/queue/m", f"{number:04}" + "x" * 10 * KIB)
    assert not mallory.client.is_refused
    waiting = [int(each[:4]) for each in core.waiting("/queue/m")]
    assert waiting == list(range(100 - len(waiting), 100))
    assert 20 < len(waiting) < 45


def test_a_dead_letter_is_kept_though_others_have_taken_much_meanwhile() -> None:
    core = bench_of(policy=DestinationPolicy(max_redeliveries=0))
    alice = full_of(core, "alice", "/queue/a")
    full_of(core, "bob", "/queue/b")  # now alice has more than she might have taken
    reader = user(core, "reader")
    reader.subscribes("/queue/a", ack="client-individual")
    (first, *_) = reader.reads()
    reader.nacks(first, requeue=False)
    assert len(core.waiting("/queue/DLQ.a")) == 1
    (message,) = core.queue("/queue/DLQ.a").waiting.in_order()
    assert message.publication.quota is quota_of(alice)


def test_a_transaction_that_does_not_fit_a_quota_is_refused_whole(core: Bench) -> None:
    mallory = user(core, "mallory")
    room = core.memory.kept_room_for(mallory.client.quota)
    bodies = ["x" * 10 * KIB] * (room // 10 // KIB + 1)
    mallory.commits(*[run_of("/queue/m", (each,)) for each in bodies])
    assert "max_share_per_user" in (mallory.error().get("message") or "")
    assert core.waiting("/queue/m") == []
    mallory = user(core, "mallory")
    headers = (("AMQ_SCHEDULED_DELAY", "5000"),)
    mallory.commits(*[run_of("/queue/m", (each,), headers) for each in bodies])
    assert mallory.error().get("code") == "quota-exceeded"
    mallory = user(core, "mallory")
    mallory.sends("/queue/m,/queue/n", "x" * (room // 2 + 1))
    assert mallory.error().get("code") == "queue-full"


def test_idle_names_make_room_ones_own_first() -> None:
    core = bench_of(max_destinations=40)
    alice, bob = user(core, "alice"), user(core, "bob")
    for number in range(10):
        bob.sends(f"/topic/b{number}")
    for number in range(40):
        alice.sends(f"/topic/a{number}")
    destinations = core.broker.destinations
    assert all(destinations.find_current(f"/topic/b{number}") is not None for number in range(10))
    assert destinations.find_current("/topic/a39") is not None
    assert destinations.find_current("/topic/a0") is None
    # Destinations in use are kept. Forgetting unused ones of others may make enough room.
    for number in range(25):
        alice.subscribes(f"/topic/u{number}", f"{number}")
    error = alice.error()
    assert error.get("code") == "quota-exceeded"
    assert "alice" in (error.get("message") or "")
    bob.sends("/topic/new")
    assert not bob.client.is_refused


def test_share_can_be_changed_while_the_broker_runs(core: Bench) -> None:
    mallory = full_of(core, "mallory", "/queue/m")
    mallory.sends("/queue/m", "x" * 10 * KIB)
    assert mallory.client.is_refused
    object.__setattr__(core.policies, "max_share_per_user", 100)
    core.broker.use_policies(PolicyBook())
    full_of(core, "mallory", "/queue/m")
    assert core.memory.kept_room < 20 * KIB
    object.__setattr__(core.policies, "max_share_per_user", 250)
    core.broker.use_policies(PolicyBook())
    assert core.memory.kept_room_for(user(core, "x").client.quota) == core.memory.kept_room


def test_deep_queues_of_one_user_are_left_to_the_store_sooner() -> None:
    """Durable messages are paged out rather than refused once a quota is half full."""
    core = DurableBench(memory=MemoryBudget(32 * MIB, 0.8))
    core.broker.use_rules(ALL, lambda _: True, core.now)
    alice = user(core, "alice")
    for _ in range(3000):
        alice.sends("/queue/deep", "x" * 10 * KIB, persistent="true")
        core.turn()
    assert not alice.client.is_refused
    assert core.queue("/queue/deep").waiting.paged > 1000
    assert quota_of(alice).kept_bytes < 14 * MIB


def test_reassigned_work_needs_no_more_memory_than_it_has(core: Bench) -> None:
    """Its new member has no room for it besides that of the old one."""
    sender, one, two = user(core, "sender"), user(core, "one"), user(core, "two")
    one.subscribes("#work", ack="client")
    sender.sends("#work", "x" * 100 * KIB)
    one.frames()
    two.subscribes("#work", ack="client")
    core.memory.force_kept(core.memory.kept_room_for(None) - 120 * KIB)
    one.is_gone()
    core.turn()
    assert [len(each.body) for each in two.reads()] == [100 * KIB]


def test_ones_own_idle_names_make_room_for_a_subscription_first() -> None:
    core = bench_of()
    alice, bob = user(core, "alice"), user(core, "bob")
    bob.sends("/topic/b")
    for number in range(20):
        alice.sends(f"/topic/a{number}")
    alice.sends("/queue/q", "kept")
    filler = core.memory.tables_room_for(alice.client.quota)
    core.memory.force_table(filler, alice.client.quota)
    alice.subscribes("/queue/q")
    assert not alice.client.is_refused
    destinations = core.broker.destinations
    assert destinations.find_current("/topic/a0") is None
    assert destinations.find_current("/topic/b") is not None
    core.memory.give_table(filler, alice.client.quota)
