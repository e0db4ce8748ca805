"""Recovery of the core's state from a store: everything is there, and nothing twice."""

import pytest

from tests.support.core import Actor, numbered, texts
from tests.support.durable_fakes import DurableBench
from trio_stomp.broker import BrokerPolicies, DestinationPolicy, check_none
from trio_stomp.store import Keep, MemoryStore, PlaceState, Put, Record, StoreError, Turn

Q = "/queue/q"
DURABLE = {"durable_subscription_name": "d"}


def stores(actor: Actor, *bodies: str, to: str = Q, **headers: str) -> None:
    actor.sends(to, *bodies, persistent="true", **headers)  # type: ignore[arg-type]
    actor.core.turn()


def emptied(core: DurableBench) -> None:
    """Check that nothing is left."""
    core.turn()
    assert core.store.statistics().live_messages == 0
    assert core.memory.kept_bytes == 0
    for queue in core.broker.queues:
        assert queue.message_count == queue.size == 0


@pytest.fixture
def core() -> DurableBench:
    return DurableBench()


def test_queues_stay_in_the_store_until_somebody_consumes(core: DurableBench) -> None:
    stores(core.actor(), *numbered("", 10))
    core = core.restarts()
    core.turn()
    queue = core.queue(Q)
    assert (queue.depth, queue.message_count, queue.size) == (10, 10, 10)
    assert queue.waiting.count == core.memory.kept_bytes == 0
    reader = core.reader(Q)
    assert reader.bodies() == numbered("", 10)
    emptied(core)


def test_new_messages_follow_recovered_ones(core: DurableBench) -> None:
    stores(core.actor(), "a", "b")
    core = core.restarts()
    stores(core.actor(), "c")
    core.actor().sends(Q, "transient")
    core = core.restarts()
    stores(core.actor(), "d")
    reader = core.reader(Q)
    assert reader.bodies() == ["a", "b", "c", "d"]
    emptied(core)


def test_priorities_are_recovered_each_in_order(core: DurableBench) -> None:
    sender = core.actor()
    for number, priority in enumerate("471947"):
        stores(sender, f"{number}", priority=priority)
    core = core.restarts()
    reader = core.reader(Q, ack="client", prefetch_count="1")
    got = []
    while found := reader.reads():
        got += texts(found)
        reader.acks(*found)
    assert got == ["3", "1", "5", "0", "4", "2"]
    emptied(core)


def test_unacknowledged_messages_return_in_order(core: DurableBench) -> None:
    reader = core.reader(Q, ack="client-individual")
    stores(core.actor(), *numbered("", 6))
    frames = reader.reads()
    reader.acks(frames[1], frames[4])
    core.turn()
    core = core.restarts()
    reader = core.reader(Q, ack="client")
    frames = reader.reads()
    assert texts(frames) == ["0", "2", "3", "5"]
    assert {frame.get("redelivered") for frame in frames} == {"true"}
    assert [frame.get("delivery-count") for frame in frames] == ["2"] * 4
    reader.acks(frames[-1])
    emptied(core)


def test_a_wildcard_consumer_gets_recovered_messages(core: DurableBench) -> None:
    stores(core.actor(), "a", to="/queue/x.a")
    stores(core.actor(), "b", to="/queue/x.b")
    core = core.restarts()
    reader = core.reader("/queue/x.*")
    assert sorted(reader.bodies()) == ["a", "b"]
    emptied(core)


@pytest.mark.parametrize("exclusive", [True, False])
def test_consumers_share_recovered_messages_unless_one_is_exclusive(exclusive: bool) -> None:
    core = DurableBench(book={Q: DestinationPolicy(exclusive=exclusive)})
    stores(core.actor(), *numbered("", 10))
    core = core.restarts()
    one, other = core.actor(), core.actor()
    one.subscribes(Q, ack="client")
    other.subscribes(Q, ack="client")
    got, rest = one.bodies(), other.bodies()
    assert sorted([*got, *rest]) == numbered("", 10)
    assert (rest == []) == exclusive


def test_a_selector_and_groups_apply_to_recovered_messages(core: DurableBench) -> None:
    sender = core.actor()
    for number in range(8):
        color = "red" if number % 2 else "blue"
        stores(sender, f"{number}", color=color, JMSXGroupID=color)
    core = core.restarts()
    red, blue = core.actor(), core.actor()
    red.subscribes(Q, selector="color = 'red'")
    blue.subscribes(Q, selector="color = 'blue'")
    assert red.bodies() == ["1", "3", "5", "7"]
    assert blue.bodies() == ["0", "2", "4", "6"]
    emptied(core)


def test_headers_come_back_as_they_were(core: DurableBench) -> None:
    stores(core.actor(), "a", content_type="text/plain", odd="a:b\\c\nd")
    core = core.restarts()
    reader = core.reader(Q)
    (got,) = reader.reads()
    assert got.get("content-type") == "text/plain"
    assert got.get("odd") == "a:b\\c\nd"
    assert got.get("destination") == Q


def test_durable_subscriptions_and_their_messages_are_recovered(core: DurableBench) -> None:
    reader, sender = core.actor(), core.actor()
    reader.subscribes("/topic/t.*", ack="client", selector="color = 'red'", **DURABLE)
    core.turn()
    reader.is_gone()
    for number, color in enumerate(["red", "blue", "red"]):
        stores(sender, f"{number}", to="/topic/t.x", color=color)
    core = core.restarts()
    assert core.failures == []
    stores(core.actor(), "late", to="/topic/t.y", color="red")
    reader = core.reader("/topic/t.*", ack="client", selector="color = 'red'", **DURABLE)
    frames = reader.reads()
    assert texts(frames) == ["0", "2", "late"]
    reader.acks(frames[0])
    core.turn()
    core = core.restarts()
    (binding,) = core.broker.bindings.durables
    assert binding.queue.message_count == 2
    core.broker.bindings.end_durable(binding, core.now)
    core.turn()
    core = core.restarts()
    assert not core.broker.bindings.durables
    assert core.failures == []
    emptied(core)


def test_several_copies_of_one_message_are_each_their_own(core: DurableBench) -> None:
    for name in ("d", "e"):
        core.actor().subscribes("/topic/t", ack="client", durable_subscription_name=name)
        core.turn()
    stores(core.actor(), "a", to="/topic/t")
    core = core.restarts()
    for name in ("d", "e"):
        reader = core.reader("/topic/t", ack="client", durable_subscription_name=name)
        assert reader.bodies() == ["a"]


def test_unrecoverable_message_is_reported_and_stays() -> None:
    store = MemoryStore()
    records: list[Record] = [
        Keep("durable:bad", "{"),
        Keep("durable:odd", '{"name": 1}'),
        Put("durable:nobody", 1, b"destination:/topic/t\n", [b"x"]),
        Put("queue:" + "/queue/" + "long" * 500, 2, b"destination:/queue/q\n", [b"x"]),
        Put("retained:/topic/t", 3, b"no colon\n", [b"x"]),
        Put("queue:/queue/q", 4, b"destination:/queue/q\n", [b"good"]),
    ]
    store.recover(lambda done, total: None)
    store.append([Turn(records)], 0)
    core = DurableBench(store=store)
    assert len(core.failures) == 5
    reader = core.reader(Q)
    assert reader.bodies() == ["good"]
    assert store.statistics().live_messages == 3


def test_more_queues_than_destinations_are_allowed_stay_in_the_store(core: DurableBench) -> None:
    for name in range(18):
        stores(core.actor(), "x", to=f"/queue/{name}")
    policies = BrokerPolicies(max_destinations=16)
    core = DurableBench(policies=policies, store=core.store)
    assert len(core.failures) == 2
    assert len(list(core.broker.queues)) == 16


def test_long_places_are_read_page_by_page(core: DurableBench) -> None:
    sender = core.actor()
    for number in range(2500):
        sender.sends(
            Q, f"{number:04}", persistent="true", AMQ_SCHEDULED_DELAY="1000", number=f"{number}"
        )
    core.turn()
    core = core.restarts()
    assert core.broker.scheduler.waiting == 2500
    while core.broker.scheduler.waiting:  # in each turn some of what is due
        core.passes(1)
    reader = core.reader(Q)
    core.settles()
    assert reader.bodies() == [f"{number:04}" for number in range(2500)]
    emptied(core)


def test_ids_are_never_given_twice(core: DurableBench) -> None:
    core.reader(Q)
    stores(core.actor(), "a", "b")
    first = core.log.next_id
    assert core.restarts().log.next_id == first == 3


def test_messages_for_others_are_not_left_where_nobody_sends_them_on() -> None:
    check_none({("queue:/queue/a", 4): PlaceState(3, 3, 1)})
    with pytest.raises(StoreError, match="2 messages of transactions for other partitions"):
        check_none({("forwards:", 4): PlaceState(2, 3, 1)})
