"""Stored messages that enter a full queue: it makes room for them then, by its policy."""

import pytest

from tests.support.core import bench
from tests.support.durable_fakes import DurableBench
from trio_stomp.broker import DestinationPolicy

Q, DEAD, T = "/queue/q", "/queue/dead", "/topic/t"


def desk_of(**fields: object) -> DurableBench:
    """Return a bench whose store answers when the test says so."""
    policy = DestinationPolicy(dead_letter=DEAD, **fields)  # type: ignore[arg-type]
    return DurableBench(book={Q: policy}, is_prompt=False)


@pytest.mark.parametrize("bound", [{"max_messages": 3}, {"max_bytes": 6}])
@pytest.mark.parametrize("overflow", ["drop-oldest", "dead-letter"])
def test_old_messages_leave_when_new_ones_are_stored(overflow, bound):
    desk = desk_of(overflow=overflow, **bound)
    desk.actor().sends(Q, "a1", "b2", persistent="true")
    desk.actor().sends(Q, "c3", "d4", "e5", persistent="true")
    assert (desk.queue(Q).arriving, desk.queue(Q).arriving_bytes) == (5, 10)
    desk.appends()
    assert desk.waiting(Q) == ["c3", "d4", "e5"]
    assert (desk.queue(Q).arriving, desk.queue(Q).arriving_bytes) == (0, 0)
    assert desk.broker.overflow.dropped == 2
    desk.answers()
    assert desk.waiting(DEAD) == ["a1", "b2"] * (overflow == "dead-letter")


def test_others_count_messages_on_their_way():
    desk = desk_of(overflow="reject", max_messages=3)
    desk.actor().sends(Q, "a", "b", "c", persistent="true")
    late = desk.actor()
    late.sends(Q, "d", persistent="true")
    assert late.error().get("code") == "queue-full"
    desk.appends()
    assert desk.waiting(Q) == ["a", "b", "c"]


def test_new_messages_enter_though_consumers_took_the_old_ones():
    desk = desk_of(overflow="drop-oldest", max_messages=2)
    reader = desk.reader(Q, ack="client-individual")
    desk.actor().sends(Q, "a", "b", persistent="true")
    desk.turn()
    first, desk.turns = desk.turns, []
    sender = desk.actor()
    sender.sends(Q, "c", receipts=[(1, b"r")], persistent="true")
    desk.turn()
    second, desk.turns = desk.turns, first
    desk.answers()
    assert reader.bodies() == ["a", "b"]
    desk.queue(Q).is_paused = True
    desk.turns = second + desk.turns
    desk.answers()
    assert [frame.command for frame in sender.frames()] == ["RECEIPT"]
    assert desk.waiting(Q) == ["c"]


def test_a_commit_that_has_begun_is_not_refused():
    desk = bench(overflow="drop-oldest", max_messages=1)
    reader = desk.reader(Q, ack="client-individual")
    sender = desk.actor()
    sender.sends(Q, "a")
    assert [frame.text for frame in reader.reads()] == ["a"]
    desk.broker.memory.is_promised = True
    sender.sends(Q, "b", receipts=[(1, b"r")])
    desk.broker.memory.is_promised = False
    assert [frame.command for frame in sender.frames()] == ["RECEIPT"]


@pytest.mark.parametrize(("policy", "kept"), [("drop-oldest", b"bc"), ("drop-newest", b"ab")])
def test_a_durable_subscription_makes_room_by_its_own_policy(policy, kept):
    book = {T: DestinationPolicy(max_messages=2, slow_consumer=policy)}
    desk = DurableBench(book=book, is_prompt=False)
    reader = desk.actor()
    reader.subscribes(T, "0", "client-individual", **{"activemq.subscriptionName": "s"})
    desk.appends()
    (binding,) = desk.broker.bindings.durables
    binding.queue.is_paused = True
    desk.actor().sends(T, "a", "b", "c", persistent="true")
    desk.appends()
    desk.appends()
    assert b"".join(each.body for each in binding.queue.waiting.in_order()) == kept
