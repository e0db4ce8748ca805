"""Topics consumed like queues: acknowledgements, durable subscriptions, work that comes back."""

import pytest

from tests.support.core import AMPLE, Bench, Core, Pairs, Peer, numbered, queue_head, ttl_core
from tests.support.durable_fakes import DurableBench
from tests.support.limits import MAX_DURABLES
from trio_stomp.base import CloseReason
from trio_stomp.broker import BrokerPolicies, DestinationPolicy, MemoryBudget, PolicyBook
from trio_stomp.broker.queues import MESSAGE_OVERHEAD_BYTES
from trio_stomp.broker.topics import _durables as durables_module

INDIVIDUAL = "client-individual"
DURABLE: Pairs = (("durable-subscription-name", "d"),)
NO_LOCAL: Pairs = (("no-local", "true"),)


def prefetch(count: int) -> Pairs:
    return (("prefetch-count", str(count)),)


def deliveries(peer: Peer) -> list[tuple[str, str | None]]:
    """Bodies, and which delivery each is, if not the first."""
    return [(frame.text, frame.get("delivery-count")) for frame in peer.messages()]


# --- topics with acknowledgements -----------------------------------------------------------------


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_a_topic_subscription_with_acks_gets_as_much_as_its_prefetch(core: Core, version: str):
    publisher, reader, other = core.peer(), core.peer(version), core.peer()
    reader.subscribes("a", ack="client", headers=prefetch(2))
    other.subscribes("a")
    publisher.sends("a", *numbered("m", 5))
    assert other.bodies() == list(numbered("m", 5))
    assert reader.bodies() == ["m0", "m1"]
    reader.acks(reader.messages()[1])
    assert reader.bodies() == ["m0", "m1", "m2", "m3"]
    reader.nacks(reader.messages()[2])
    assert deliveries(reader)[4:] == [("m2", "2")]
    reader.is_gone()
    assert len(core.broker.subscriptions) == 1
    assert core.memory.used_bytes == 0  # nobody else had a claim on them
    publisher.sends("a", "later")
    assert other.bodies()[-1] == "later"


def test_a_feed_is_matched_counted_and_closed_with_its_wildcard(core: Core):
    publisher, reader = core.peer(), core.peer()
    reader.subscribes("a.*,b", ack=INDIVIDUAL, headers=(("selector", "n > 1"), *NO_LOCAL))
    publisher.sends("a.x", "one", headers=(("n", "1"),), receipts=[(1, b"r")])
    assert publisher.frames("RECEIPT")[0].get("matched") == "0"
    publisher.sends("a.x", "two", headers=(("n", "2"),), receipts=[(1, b"r")])
    assert publisher.frames("RECEIPT")[1].get("matched") == "1"
    publisher.sends("b", "three", headers=(("n", "3"),))
    reader.sends("b", "own", headers=(("n", "3"),))
    assert reader.bodies() == ["two", "three"]
    reader.unsubscribes()
    assert core.broker.destinations.wildcards == 0
    publisher.sends("b", "four", headers=(("n", "4"),))
    assert reader.bodies() == ["two", "three"]


def test_a_subscription_queue_gets_the_backlog_and_the_last_value():
    core = ttl_core()
    publisher, reader = core.peer(), core.peer()
    publisher.sends("a", "p0", "p1")
    publisher.sends("a", "unwanted", headers=(("n", "0"),))
    publisher.sends("a", "v", headers=(("retain", "set"), ("n", "2")))
    selector = (("selector", "n IS NULL OR n > 1"),)
    reader.subscribes("a", ack="client", headers=selector, receipt=b"r")
    assert [frame.get("receipt-id") or frame.text for frame in reader.frames()] == [
        *("r", "v", "p0", "p1")
    ]
    assert core.broker.fan_out.drops.no_subscriber == 1
    reader.acks(reader.messages()[-1])
    publisher.sends("a", "x", headers=(("retain", "remove"),))
    core.ends()


def test_a_plain_subscriber_with_a_selector_ends_unselected_messages():
    core = ttl_core()
    publisher, reader = core.peer(), core.peer()
    publisher.sends("a", "no", headers=(("n", "0"),))
    publisher.sends("a", "yes", headers=(("n", "2"),))
    reader.subscribes("a", headers=(("selector", "n > 1"),))
    assert reader.bodies() == ["yes"]
    assert core.broker.destinations.open("a").dropped == 1
    assert core.broker.stale.size == 0
    core.ends()


@pytest.mark.parametrize("policy", ["drop-oldest", "drop-newest", "disconnect"])
def test_a_full_feed_loses_messages_of_its_own_or_its_client(policy: str):
    core = Core(BrokerPolicies(slow_consumer=policy, max_backlog_bytes=1024), dialect="native")
    publisher, slow, other = core.peer(), core.peer(), core.peer()
    slow.subscribes("a", ack=INDIVIDUAL, headers=prefetch(1))
    other.subscribes("a")
    bodies = [f"{number}" * 400 for number in range(4)]
    for body in bodies:
        publisher.sends("a", body)
    assert other.bodies() == bodies
    overflow = core.broker.overflow
    if policy == "disconnect":
        assert slow.error().get("code") == "slow-consumer"
        assert slow.outbox.closed is CloseReason.SLOW_CONSUMER
        assert len(core.broker.subscriptions) == 1
        assert core.memory.used_bytes == 0
        assert (overflow.backlog_dropped, core.broker.destinations.open("a").dropped) == (1, 1)
    else:
        # 0 is unacknowledged; of the others one fits beside it.
        kept = bodies[3] if policy == "drop-oldest" else bodies[1]
        slow.acks(slow.messages()[0])
        assert slow.bodies() == [bodies[0], kept]
        assert (overflow.backlog_dropped, core.broker.destinations.open("a").dropped) == (2, 2)
    core.ends()


def test_a_feed_whose_bound_is_smaller_than_a_message_takes_none():
    core = Core(BrokerPolicies(slow_consumer="drop-oldest", max_backlog_bytes=1024))
    publisher, slow = core.peer(), core.peer()
    slow.subscribes("a", ack="client")
    publisher.sends("a", "x" * 2000, "ok")
    assert slow.bodies() == ["ok"]
    assert core.broker.overflow.backlog_dropped == 1
    core.ends()


def test_a_feed_that_loses_several_of_one_run_is_cut_off_once():
    core = Core(BrokerPolicies(max_backlog_bytes=1024))
    publisher, slow = core.peer(), core.peer()
    slow.subscribes("a", ack="client", headers=prefetch(1))
    publisher.sends("a", *("x" * 900 for _ in range(4)))
    assert slow.error().get("code") == "slow-consumer"
    assert core.broker.overflow.backlog_dropped == 3
    core.ends()


# --- durable subscriptions ------------------------------------------------------------------------


@pytest.mark.parametrize("ack", ["auto", "client"])
def test_a_durable_subscription_keeps_messages_while_its_client_is_away(core: Core, ack: str):
    publisher, first = core.peer(), core.peer(client_id="me")
    first.subscribes("a", ack=ack, headers=DURABLE)
    publisher.sends("a", "seen")
    if ack == "client":
        first.acks(*first.messages())
    first.is_gone()
    publisher.sends("a", *numbered("m", 3))
    assert core.memory.kept_bytes == 3 * MESSAGE_OVERHEAD_BYTES + 6 + queue_head("a")
    stranger = core.reader("a", headers=DURABLE, client_id="other")
    assert stranger.bodies() == []  # its own, of the same name
    again = core.reader("a", "9", ack=ack, headers=DURABLE, client_id="me")
    publisher.sends("a", "live")
    assert again.bodies() == ["m0", "m1", "m2", "live"]
    assert stranger.bodies() == ["live"]
    if ack == "client":
        again.acks(again.messages()[-1])
    again.unsubscribes("9", headers=DURABLE)
    stranger.unsubscribes(headers=DURABLE)
    assert len(core.broker.bindings.durables) == 0
    publisher.sends("a", "nobody")


def test_unacknowledged_messages_come_first_and_marked(core: Core):
    publisher, first = core.peer(), core.peer(client_id="me")
    first.subscribes("a", ack=INDIVIDUAL, headers=(*DURABLE, *prefetch(2)))
    publisher.sends("a", *numbered("m", 4))
    first.acks(first.messages()[1])
    assert first.bodies() == ["m0", "m1", "m2"]
    first.is_gone()
    again = core.reader("a", ack=INDIVIDUAL, headers=DURABLE, client_id="me")
    assert deliveries(again) == [("m0", "2"), ("m2", "2"), ("m3", None)]
    assert [frame.get("redelivered") for frame in again.messages()] == ["true", "true", None]
    again.acks(*again.messages())
    again.unsubscribes(headers=DURABLE)


def test_unsubscribe_leaves_it_and_unsubscribe_by_name_ends_it(core: Core):
    publisher, peer = core.peer(), core.peer(client_id="me")
    peer.subscribes("a", headers=DURABLE)
    peer.unsubscribes()
    publisher.sends("a", "kept")
    peer.subscribes("a", headers=DURABLE)
    assert peer.bodies() == ["kept"]
    peer.unsubscribes()
    publisher.sends("a", "lost")
    peer.unsubscribes("whatever", headers=DURABLE, receipt=b"r")
    assert peer.frames("RECEIPT")[0].get("receipt-id") == "r"
    assert core.memory.used_bytes == 0
    peer.subscribes("a", headers=DURABLE)
    assert peer.bodies() == ["kept"]
    peer.unsubscribes(headers=DURABLE)
    peer.unsubscribes("whatever", headers=DURABLE)
    assert peer.error().get("code") == "unknown-subscription"


@pytest.mark.parametrize("ack", ["auto", "client"])
def test_a_newcomer_takes_a_durable_subscription_over(core: Core, ack: str):
    publisher, old, new = core.peer(), core.peer(client_id="me"), core.peer(client_id="me")
    old.subscribes("a", ack=ack, headers=DURABLE)
    publisher.sends("a", "m0", "m1")
    new.subscribes("a", ack=ack, headers=DURABLE)
    assert old.error().get("code") == "taken-over"
    assert old.outbox.closed is CloseReason.UNSUPPORTED
    publisher.sends("a", "m2")
    old.sends("a", "ghost")  # it is not heard any more
    old.is_gone()
    publisher.sends("a", "m3")
    expected: list[tuple[str, str | None]] = [("m2", None), ("m3", None)]
    if ack == "client":
        expected = [("m0", "2"), ("m1", "2"), *expected]
        new.acks(new.messages()[-1])
    assert deliveries(new) == expected
    new.unsubscribes(headers=DURABLE)


@pytest.mark.parametrize("dialect", ["native", "artemis"])
@pytest.mark.parametrize(
    ("destination", "headers"), [("b", DURABLE), ("a", (*DURABLE, ("selector", "n = 1")))]
)
def test_another_destination_or_selector_begins_it_anew(
    dialect: str, destination: str, headers: Pairs
):
    core = Core(dialect=dialect)
    publisher, old, new = core.peer(), core.peer(client_id="me"), core.peer(client_id="me")
    old.subscribes("a", ack="client", headers=DURABLE)
    publisher.sends("a", "old")
    new.subscribes(destination, headers=headers)
    assert old.error().get("code") == "taken-over"
    publisher.sends(destination, "new", headers=(("n", "1"),))
    assert new.bodies() == ["new"]
    old.is_gone()
    assert core.memory.used_bytes == 0
    assert len(core.broker.bindings.durables) == 1
    new.unsubscribes(headers=DURABLE)
    core.ends()


@pytest.mark.parametrize(
    ("dialect", "client_id"), [("native", ""), ("artemis", "me")], ids=["no-id", "artemis"]
)
def test_a_durable_subscription_is_shared(dialect: str, client_id: str):
    """Without a client id; in the dialect artemis by all connections of one."""
    core = Core(dialect=dialect)
    publisher = core.peer()
    one, two = (core.peer(client_id=client_id) for _ in range(2))
    one.subscribes("a", ack="client", headers=DURABLE)
    two.subscribes("a", ack="client", headers=DURABLE)
    publisher.sends("a", *numbered("m", 4))
    assert (one.bodies(), two.bodies()) == (["m0", "m2"], ["m1", "m3"])
    assert one.outbox.closed is two.outbox.closed is None
    one.is_gone()
    assert deliveries(two)[2:] == [("m0", "2"), ("m2", "2")]
    two.acks(two.messages()[-1])
    two.unsubscribes(headers=DURABLE)
    core.ends()


def test_a_shared_subscription_that_was_ended_lives_until_its_last_consumer_goes(core: Core):
    publisher, one, two, three = (core.peer() for _ in range(4))
    one.subscribes("a", headers=DURABLE)
    two.subscribes("a", headers=DURABLE)
    three.subscribes("a", headers=DURABLE)
    publisher.sends("a", "m0", "m1", "m2")
    three.unsubscribes(headers=DURABLE)  # for good, and for all
    one.is_gone()
    publisher.sends("a", "m3")
    assert (one.bodies(), two.bodies()) == (["m0"], ["m1", "m3"])
    two.unsubscribes()
    publisher.sends("a", "m4")
    three.subscribes("a", headers=DURABLE)
    assert three.bodies() == ["m2"]
    three.unsubscribes(headers=DURABLE)


def test_one_name_is_shared_for_each_destination_apart(core: Core):
    """Clients number their subscriptions: two applications must not end each other's."""
    publisher, one, two = (core.peer() for _ in range(3))
    one.subscribes("a", headers=DURABLE)
    one.is_gone()
    two.subscribes("b", headers=DURABLE)
    publisher.sends("a", "for a")
    publisher.sends("b", "for b")
    assert two.bodies() == ["for b"]
    again = core.reader("a", headers=DURABLE)
    assert again.bodies() == ["for a"]
    for peer in (again, two):
        peer.unsubscribes(headers=DURABLE)


def test_a_durable_subscription_is_joined_by_its_name_alone(core: Core):
    publisher, maker, joiner = (core.peer() for _ in range(3))
    by_id = (("id", "d1"), ("durable", "true"))
    maker.subscribes("a", "d1", headers=by_id)
    maker.is_gone()
    publisher.sends("a", "kept")
    joiner.subscribes("/dsub/d1", "x", ack="client")
    assert joiner.bodies() == ["kept"]
    joiner.is_gone()
    again = core.reader("/dsub/d1", "y")
    assert [(each.text, each.get("redelivered")) for each in again.messages()] == [("kept", "true")]
    again.subscribes("a", "d1", headers=by_id)
    again.unsubscribes("d1", headers=by_id)


def test_a_name_of_no_durable_subscription_is_an_error(core: Core):
    peer = core.reader("/dsub/nobody")
    error = peer.error()
    assert error.get("code") == "unknown-subscription"
    assert "/dsub/nobody" in (error.get("message") or "")


def test_work_that_a_member_refuses_goes_to_another(core: Core):
    publisher, one, two = (core.peer() for _ in range(3))
    one.subscribes("#w", ack="client-individual")
    publisher.sends("#w", "job")
    one.nacks(one.messages()[0])
    assert one.bodies() == ["job", "job"]  # there is nobody else
    two.subscribes("#w", ack="client-individual")
    one.nacks(one.messages()[1])
    assert one.bodies() == ["job", "job"]
    [job] = two.messages()
    assert (job.get("redelivered"), job.get("delivery-count")) == ("true", "3")
    two.acks(job)


def test_a_policy_may_be_kinder_to_slow_subscribers_than_the_option():
    policies = {"a": DestinationPolicy(slow_consumer="drop-newest")}
    core = Core(BrokerPolicies(max_backlog_bytes=1024), book=policies)
    publisher, slow = core.peer(), core.peer()
    slow.subscribes("a", ack="client", headers=(("prefetch-count", "1"),))
    publisher.sends("a", *("x" * 300 for _ in range(9)))
    assert slow.outbox.closed is None
    assert core.broker.overflow.backlog_dropped > 0
    core.ends()


def test_durable_subscriptions_are_bounded(monkeypatch: pytest.MonkeyPatch):
    assert durables_module.MAX_DURABLES == MAX_DURABLES
    monkeypatch.setattr(durables_module, "MAX_DURABLES", 1)
    core = Core()
    one, two = core.peer(client_id="me"), core.peer(client_id="you")
    one.subscribes("a", headers=DURABLE)
    two.subscribes("a", headers=DURABLE)
    assert two.error().get("code") == "too-many-durable-subscriptions"
    assert two.outbox.closed is CloseReason.LIMIT_EXCEEDED
    assert len(core.broker.subscriptions) == 1
    one.unsubscribes(headers=DURABLE)
    core.ends()


def test_a_durable_subscription_that_there_is_no_memory_for_is_none(core: Core):
    first, peer, again = (core.peer(client_id=name) for name in ("it", "me", "me"))
    pairs = (*DURABLE, ("selector", "n > 1"))
    first.subscribes("a", headers=pairs)
    first.unsubscribes(headers=DURABLE)  # the names of events are known from now on
    before = core.memory.tables_bytes
    first.subscribes("a", headers=pairs)
    whole = core.memory.tables_bytes - before
    first.unsubscribes(headers=DURABLE)
    known = core.broker.destinations.find_current("a")
    assert known is not None
    name_cost = known.cost
    filler = core.memory.tables_room - whole + 1
    core.memory.force_table(filler)
    peer.subscribes("a", receipt=b"r", headers=pairs)
    error = peer.error()
    assert error.get("code") == "memory-limit"
    assert "a durable subscription to a:" in error.text
    assert peer.outbox.closed is CloseReason.MEMORY_LIMIT
    assert peer.frames("RECEIPT") == []
    # Nor does a name stay at which nothing ever happened.
    assert core.memory.tables_bytes == before + filler - name_cost
    assert (len(core.broker.bindings.durables), len(core.broker.subscriptions)) == (0, 0)
    core.memory.give_table(1)
    again.subscribes("a", receipt=b"r", headers=pairs)
    assert [frame.command for frame in again.frames()] == ["RECEIPT"]
    assert core.memory.tables_room == 0
    core.memory.give_table(filler - 1)
    again.unsubscribes(headers=DURABLE)


@pytest.mark.parametrize("name", ["a", "a.*"])
def test_a_changed_policy_reaches_a_durable_subscription(name: str):
    core = Core(book={name: DestinationPolicy(max_messages=3)})
    publisher, peer = core.peer(), core.peer(client_id="me")
    peer.subscribes(name, headers=DURABLE)
    peer.is_gone()
    to = name.replace("*", "x")
    publisher.sends(to, *numbered("m", 4))
    core.broker.use_policies(PolicyBook([(name, DestinationPolicy(max_messages=1))]))
    publisher.sends(to, "no room")
    again = core.reader(name, headers=DURABLE, client_id="me")
    # Waiting messages stay, although they exceed the new bound.
    assert again.bodies() == ["m0", "m1", "m2"]
    again.is_gone()
    publisher.sends(to, "one", "two")
    last = core.reader(name, headers=DURABLE, client_id="me")
    assert last.bodies() == ["one"]
    assert core.broker.overflow.backlog_dropped == 3
    last.unsubscribes(headers=DURABLE)
    core.ends()


# --- work that comes back -------------------------------------------------------------------------


def test_work_of_a_member_that_leaves_goes_to_the_others(core: Core):
    publisher, gone, filtered, plain = (core.peer() for _ in range(4))
    gone.subscribes("#w", ack=INDIVIDUAL)
    publisher.sends("#w", *numbered("m", 4))
    filtered.subscribes("#w", ack=INDIVIDUAL)
    plain.subscribes("#w")
    gone.acks(gone.messages()[0])
    gone.is_gone()
    assert sorted(deliveries(filtered) + deliveries(plain)) == [
        *(("m1", "2"), ("m2", "2"), ("m3", "2"))
    ]
    assert {len(filtered.bodies()), len(plain.bodies())} == {1, 2}
    assert all(frame.get("redelivered") == "true" for frame in plain.messages())
    filtered.acks(*filtered.messages())
    assert core.memory.used_bytes == 0


def test_work_that_was_waiting_for_a_member_is_not_redelivered(core: Core):
    publisher, gone, plain = (core.peer() for _ in range(3))
    gone.subscribes("#w", ack=INDIVIDUAL, headers=prefetch(1))
    publisher.sends("#w", "m0", "m1")
    plain.subscribes("#w")
    gone.unsubscribes()
    assert sorted(deliveries(plain)) == [("m0", "2"), ("m1", None)]


@pytest.mark.parametrize("ttl_ms", [0, 10_000])
def test_work_of_a_departed_sole_member_is_parked_under_a_ttl_or_lost(ttl_ms: int):
    core = Core(BrokerPolicies(ttl_ms=ttl_ms))
    publisher, gone, late = (core.peer() for _ in range(3))
    gone.subscribes("#w", ack="client", headers=prefetch(1))
    publisher.sends("#w", "m0", "m1")
    gone.is_gone()
    assert core.broker.stale.size == (2 if ttl_ms else 0)
    assert core.broker.destinations.open("#w").dropped == (0 if ttl_ms else 2)
    late.subscribes("#w")
    assert late.bodies() == (["m0", "m1"] if ttl_ms else [])
    core.ends()


@pytest.mark.parametrize("has_memory", [True, False])
def test_work_that_is_retried_later_is_lost_with_its_member_only_without_memory(has_memory: bool):
    core = Core(book={"#w": DestinationPolicy(backoff_s=(5.0,))})
    publisher, gone, other = (core.peer() for _ in range(3))
    gone.subscribes("#w", ack=INDIVIDUAL)
    publisher.sends("#w", "m0")
    gone.nacks(gone.messages()[0])
    gone.is_gone()
    other.subscribes("#w", ack="auto" if has_memory else INDIVIDUAL)
    core.passes(4)
    assert other.bodies() == []
    if not has_memory:
        core.memory.limit_bytes = 1
    core.passes(2)
    core.memory.limit_bytes = AMPLE
    assert deliveries(other) == [("m0", "2")] * has_memory
    assert core.broker.overflow.backlog_dropped == (not has_memory)
    assert core.memory.used_bytes == 0
    core.ends()


def test_a_topics_message_that_is_retried_later_ends_with_its_subscriber():
    core = Core(book={"a": DestinationPolicy(backoff_s=(5.0,))})
    publisher, gone, other = (core.peer() for _ in range(3))
    gone.subscribes("a", ack=INDIVIDUAL)
    other.subscribes("a", ack=INDIVIDUAL)
    publisher.sends("a", "m0")
    gone.nacks(gone.messages()[0])
    gone.is_gone()
    # The two have one header block, as they were one SEND.
    assert core.memory.kept_bytes == 2 * (MESSAGE_OVERHEAD_BYTES + 2) + queue_head("a")
    core.passes(6)
    assert core.memory.kept_bytes == MESSAGE_OVERHEAD_BYTES + 2 + queue_head("a")
    assert deliveries(other) == [("m0", None)]
    core.ends()


def test_work_for_a_member_that_wants_it(core: Core):
    publisher, gone, red, own = (core.peer() for _ in range(4))
    gone.subscribes("#w", ack=INDIVIDUAL)
    own.sends("#w", "blue", headers=(("color", "blue"),))
    publisher.sends("#w", "red", headers=(("color", "red"),))
    red.subscribes("#w", ack=INDIVIDUAL, headers=(("selector", "color = 'red'"),))
    own.subscribes("#w", headers=NO_LOCAL)
    own.sends("#w", "red too", headers=(("color", "red"),))
    gone.is_gone()
    assert "blue" not in red.bodies() + own.bodies()
    assert core.broker.destinations.open("#w").dropped == 1
    assert "red" in red.bodies() + own.bodies()


def test_a_slow_member_of_a_work_queue_hands_its_work_to_the_others_at_once():
    core = Core(BrokerPolicies(max_backlog_bytes=1024), memory=MemoryBudget(1 << 20))
    publisher, slow, other = (core.peer() for _ in range(3))
    slow.subscribes("#w", ack="client", headers=prefetch(1))
    other.subscribes("#w")
    for number in range(4):
        publisher.sends("#w", f"{number}" * 600)
    assert slow.error().get("code") == "slow-consumer"
    assert sorted(body[0] for body in other.bodies()) == ["0", "1", "3"]
    assert core.broker.overflow.backlog_dropped == 1
    core.ends()


def test_messages_of_an_idle_leaving_consumer_go_to_another_in_the_same_turn(core: Core):
    publisher, jammed, other = (core.peer() for _ in range(3))
    jammed.subscribes("/queue/q", ack="client", headers=(("x-priority", "9"),))
    other.subscribes("/queue/q")
    jammed.outbox.is_jammed = True  # as when the budget of the process is spent
    publisher.sends("/queue/q", "m0", "m1")
    assert jammed.error().get("code") == "slow-consumer"
    assert deliveries(other) == [("m0", "2"), ("m1", "2")]
    other.drains()


def test_a_feed_takes_no_more_than_memory_allows():
    core = Bench(memory=MemoryBudget(4096), policies=BrokerPolicies(slow_consumer="drop-newest"))
    producer, reader = core.actor(), core.actor(room=0)
    reader.subscribes("/topic/t", ack="client")
    producer.sends("/topic/t", "x" * 2000, "y" * 2000, "z" * 100)
    core.turn()
    reader.outbox.room = AMPLE
    core.broker.writable(reader.client, core.now)
    assert [len(body) for body in reader.bodies()] == [2000, 100]


# --- which durable subscription an UNSUBSCRIBE ends -----------------------------------------------


def kept(*destinations: str, client_id: str = "") -> Core:
    """A broker with a durable subscription ``d`` to each of these, whose subscribers are away."""
    core = Core()
    for destination in destinations:
        peer = core.reader(destination, headers=DURABLE, client_id=client_id)
        peer.is_gone()
    return core


def left(core: Core) -> list[str]:
    return [",".join(name for name, _ in each.targets) for each in core.broker.bindings.durables]


@pytest.mark.parametrize(
    ("destinations", "expected", "others"),
    [
        (["/topic/a", "/topic/b", "/topic/c"], "/topic/b", ["/topic/a", "/topic/c"]),
        (["/topic/a"], "/topic/a", []),
        (["/topic/a"], None, []),
        (["/topic/a"], "/dsub/d", []),
        (["/topic/a"], "/exchange/amq.topic/a", []),
        (["/topic/a,/topic/b"], "/topic/a,/topic/b", []),
    ],
)
def test_durable_subscription_to_the_given_destination_is_ended(
    destinations: list[str], expected: str | None, others: list[str]
):
    core = kept(*destinations)
    peer = core.peer()
    peer.unsubscribes("7", expected, headers=DURABLE, receipt=b"r")
    assert [frame.command for frame in peer.frames()] == ["RECEIPT"]
    assert left(core) == others
    core.ends_with_durables()


@pytest.mark.parametrize("client_id", ["", "mine"])
@pytest.mark.parametrize(
    ("destination", "expected"), [("/topic/a", "/topic/b"), ("/topic/a,/topic/b", "/topic/a")]
)
def test_a_durable_subscription_to_another_destination_is_not_ended(
    client_id: str, destination: str, expected: str
):
    core = kept(destination, client_id=client_id)
    peer = core.peer(client_id=client_id)
    peer.unsubscribes("7", expected, headers=DURABLE, receipt=b"r")
    error = peer.error()
    assert error.get("code") == "unknown-subscription"
    assert f"no durable subscription 'd' to {expected}" in (error.get("message") or "")
    assert left(core) == [destination]
    core.ends_with_durables()


@pytest.mark.parametrize("expected", [None, "/dsub/d"])
def test_without_a_destination_several_of_one_name_are_not_guessed_at(expected: str | None):
    core = kept(*(f"/topic/{number}" for number in range(7)))
    peer = core.peer()
    peer.unsubscribes("7", expected, headers=DURABLE, receipt=b"r")
    error = peer.error()
    assert error.get("code") == "ambiguous-subscription"
    message = error.get("message") or ""
    assert "'d': to /topic/0, /topic/1, /topic/2, /topic/3, /topic/4, …; send" in message
    assert not peer.frames("RECEIPT")
    assert len(left(core)) == 7
    core.ends_with_durables()


def test_two_ways_to_write_one_destination_are_two_subscriptions():
    core = kept("/topic/a", "/exchange/amq.topic/a")
    assert len(left(core)) == 2
    core.peer().unsubscribes("7", "/exchange/amq.topic/a", headers=DURABLE)
    (binding,) = core.broker.bindings.durables
    assert binding.durable == "\0d\0/topic/a"
    core.ends_with_durables()


def test_a_name_that_begins_like_another_is_not_meant():
    core = kept("/topic/a")
    peer = core.peer()
    peer.unsubscribes(
        "7", headers=(("durable-subscription-name", ""), ("durable", "true"), ("id", "dd"))
    )
    message = peer.error().get("message") or ""
    assert message.startswith("id:7 is no subscription of this connection, and there is no durable")
    assert left(core) == ["/topic/a"]
    core.ends_with_durables()


def test_work_that_is_passed_on_is_stored_no_more() -> None:
    core = DurableBench()
    member, other, sender = core.actor(), core.actor(), core.actor()
    name = {"durable": "true", "durable-subscription-name": "d"}
    member.subscribes("/topic/t,#work", "d", ack="client", **name)
    sender.sends("#work", "1", persistent="true")
    assert member.bodies()
    other.subscribes("#work", "o", ack="client")
    core.turn()
    Peer.unsubscribes(member, "d", headers=tuple(name.items()))
    assert other.bodies()
    held = other.consumer("o").unacked.values()
    assert [each.stored for each in held] == [0] * len(held)
    assert core.store.statistics().live_messages == 0


LASTING = {"x_queue_name": "d", "durable": "true", "auto_delete": "false"}


@pytest.mark.parametrize("topic", ["/topic/a.b", "/topic/a.*"])
def test_a_full_durable_subscription_drops_by_the_policy_of_its_topic_once(topic: str) -> None:
    policy = DestinationPolicy(max_messages=1, slow_consumer="drop-newest")
    core = DurableBench(book={"/topic/a.**": policy})
    actor, sender, other = core.actor(), core.actor(), core.actor()
    actor.subscribes(topic, ack="client-individual", prefetch_count="1", **LASTING)
    other.subscribes("/topic/a.b")
    for text in "abc":
        sender.sends("/topic/a.b", text, persistent="true", receipts=[(1, text.encode())])
        core.turn()
    assert core.broker.overflow.backlog_dropped == 2
    assert other.bodies() == ["a", "b", "c"]
    assert [frame.get("stored") for frame in sender.frames("RECEIPT")] == ["memory", None, None]
    assert [frame.command for frame in actor.frames()] == ["MESSAGE"]


@pytest.mark.parametrize("is_durable", [False, True])
def test_dead_letters_of_a_wildcard_are_those_of_the_topics(is_durable: bool) -> None:
    core = DurableBench()
    actor, dead = core.actor(), core.reader("/queue/DLQ.topic/a.b")
    lasting = LASTING if is_durable else {}
    actor.subscribes("/topic/a.*", ack="client-individual", **lasting)
    core.turn()
    core.actor().sends("/topic/a.b", "bad", persistent="true")
    core.turn()
    actor.nacks(*actor.reads(), requeue=False)
    core.turn()
    assert dead.bodies() == ["bad"]
