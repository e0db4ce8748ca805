"""Deadlines of very many messages at the same time are processed in pieces."""

from collections.abc import Callable

import pytest

from tests.support.core import Actor
from tests.support.share_fakes import MOST, Clocked
from trio_stomp.broker import DestinationPolicy

Q = "/queue/q"
MANY = 16_000
BOOK = {Q: DestinationPolicy(ttl_ms=50_000, ack_timeout_ms=10_000)}


def filled(sender: Actor, count: int = MANY, destination: str = Q) -> None:
    for _ in range(count // 100):
        sender.sends(destination, *["x"] * 100)


def steps(desk: Clocked, done: Callable[[], int], seconds: float = 0.0) -> list[int]:
    """Let time pass, and return how much was done in each turn."""
    desk.now += seconds
    before, found = done(), []
    desk.broker.tick(desk.now)
    while True:
        desk.turn()
        found.append((now := done()) - before)
        before = now
        if not desk.broker.has_more and desk.broker.timers.next_due > desk.now:
            return found
        desk.broker.tick(desk.now)
        assert len(found) < MANY


@pytest.mark.parametrize("dead_letters", [{}, {"dead_letter_expired": True}])
def test_messages_of_a_queue_expire_in_pieces(dead_letters: dict[str, bool]):
    desk = Clocked(book={Q: DestinationPolicy(ttl_ms=50_000, **dead_letters)})  # type: ignore[arg-type]
    sender = desk.actor()
    filled(sender)
    desk.now += 1
    sender.sends(Q, "lives")
    done = steps(desk, lambda: desk.broker.destinations.open(Q).expired, 49.5)
    assert sum(done) == MANY
    assert max(done) <= MOST * 16
    assert desk.waiting(Q) == ["lives"]
    assert len(desk.waiting("/queue/DLQ.q")) == (MANY if dead_letters else 0)


def test_a_consumer_that_comes_before_the_sweep_gets_only_unexpired_messages():
    desk = Clocked(book=BOOK)
    sender, reader = desk.actor(), desk.actor()
    filled(sender)
    desk.now += 1
    sender.sends(Q, "lives")
    desk.settles()
    desk.now += 49.5
    reader.subscribes(Q)
    expired = desk.broker.destinations.open(Q)
    most = 0
    while desk.broker.has_more:
        before = expired.expired
        desk.turn()
        most = max(most, expired.expired - before)
    assert 0 < most <= MOST * 64
    assert expired.expired == MANY
    assert [each.text for each in reader.writes()] == ["lives"]


def test_acknowledgements_time_out_in_pieces():
    desk = Clocked(book={Q: DestinationPolicy(ack_timeout_ms=10_000)})
    sender, reader = desk.actor(), desk.actor()
    reader.subscribes(Q, ack="client-individual", **{"prefetch-count": f"{MANY}"})
    filled(sender)
    desk.settles()
    reader.writes()
    consumer = reader.consumer()
    reader.outbox.room = 0
    done = steps(desk, lambda: MANY - len(consumer.unacked), 11.0)
    assert sum(done) == MANY
    assert max(done) <= MANY / 2
    assert len(desk.waiting(Q)) == MANY


@pytest.mark.parametrize("leaves", [False, True])
def test_a_durable_subscription_with_much_unacknowledged_is_taken_over_in_pieces(leaves: bool):
    desk = Clocked()
    headers = (("activemq.subscriptionName", "d"), ("prefetch-count", f"{2 * MANY}"))
    old, new = (desk.peer(client_id="c") for _ in range(2))
    sender = desk.actor()
    old.subscribes("/topic/t", ack="client-individual", headers=headers)
    filled(sender, destination="/topic/t")
    desk.settles()
    assert len(old.messages()) == MANY
    desk.pieces.clear()
    new.subscribes("/topic/t", ack="client-individual", headers=headers)
    desk.turn()
    assert not desk.broker.leaving.is_over
    assert new.messages() == []
    sender.sends("/topic/t", "last")
    if leaves:
        old.is_gone()
    while desk.broker.has_more or not desk.broker.leaving.is_over:
        desk.passes(0)
    assert max(desk.pieces) <= MOST
    assert old.error().get("code") == "taken-over"
    assert [each.get("redelivered") for each in new.messages()] == ["true"] * MANY + [None]
    assert new.bodies()[-1] == "last"


def test_scheduled_messages_that_are_due_at_once_are_sent_in_pieces(desk: Clocked):
    sender = desk.actor()
    for _ in range(100):
        sender.sends(Q, *["x"] * 100, AMQ_SCHEDULED_DELAY="5000")
        desk.settles()
    done = steps(desk, lambda: len(desk.waiting(Q)), 6.0)
    assert sum(done) == 10_000
    assert max(done) <= MOST * 100 / 2
