"""A new name under very many wildcards is looked up in pieces, and others come between."""

import pytest

from tests.support.core import Actor, Bench, texts
from tests.support.share_fakes import MOST, Clocked
from trio_stomp.base import CloseReason
from trio_stomp.broker.queues import FEW_QUEUES, STEP, Queue
from trio_stomp.protocol import Subscribed, Unsubscribed

MANY = 100 * STEP
"""More than fit into the pieces of one turn."""


def wild(desk: Clocked, count: int = MANY, prefix: str = "/queue/n", **headers: str) -> Actor:
    """Return a client with ``count`` wildcards that match new names."""
    reader = desk.actor()
    for number in range(count):
        reader.subscribes(f"{prefix}*", f"{number}", "client", **headers)
    desk.settles()
    desk.pieces.clear()
    return reader


def receipt_of(actor: Actor) -> list[str]:
    return [each.get("receipt-id") or "" for each in actor.writes() if each.command == "RECEIPT"]


def joined(reader: Actor) -> int:
    return sum(len(reader.consumer(id).queues) for id in reader.client.subscriptions)


# Queues.


def test_a_new_queue_is_joined_by_many_wildcards_in_pieces(desk: Clocked):
    reader = wild(desk)
    sender, other = desk.actor(), desk.actor()
    sender.sends("/queue/n1", "a", receipts=[(1, b"r")])
    sender.sends("/queue/q", "behind")
    other.sends("/queue/q", "other")
    other.sends("/queue/n1", "also")
    assert 0 < joined(reader) < MANY
    assert not reader.reads(), "before all are there who may want it, nobody has it"
    assert desk.waiting("/queue/q") == ["other"], "whoever else sends does not wait"
    assert receipt_of(sender) == []
    assert desk.settles() > 1
    assert max(desk.pieces) <= MOST
    assert joined(reader) == MANY
    assert desk.waiting("/queue/q") == ["other", "behind"]
    assert sorted(texts(reader.reads())) == ["a", "also"]
    assert receipt_of(sender) == ["r"]


def test_the_consumer_of_the_highest_priority_gets_the_messages_of_a_new_queue(desk: Clocked):
    wild(desk)
    first = desk.reader("/queue/n*", ack="client", **{"x-priority": "9"})
    desk.actor().sends("/queue/n1", "a", "b")
    desk.settles()
    assert texts(first.reads()) == ["a", "b"]


def test_a_composite_send_makes_its_queues_one_after_the_other():
    desk = Clocked(book={}, dialect="apollo")
    reader = wild(desk)
    names = [f"/queue/n{n}" for n in range(7)]
    sender = desk.actor()
    sender.sends(",".join(names), "a", receipts=[(1, b"r")])
    desk.settles()
    assert max(desk.pieces) <= MOST
    assert joined(reader) == 7 * MANY
    assert texts(reader.reads()) == ["a"] * 7
    assert receipt_of(sender) == ["r"]


def test_subscriber_of_a_new_queue_waits_for_all_its_consumers(desk: Clocked):
    reader = wild(desk)
    late = desk.actor()
    late.does(Subscribed("0", "/queue/n1", "client", (), None))
    late.sends("/queue/q", "behind")
    assert joined(reader) < MANY
    assert desk.waiting("/queue/q") == []
    desk.settles()
    assert max(desk.pieces) <= MOST
    assert len(desk.queue("/queue/n1").consumers) == MANY + 1
    assert desk.waiting("/queue/q") == ["behind"]


def test_subscribers_that_come_and_go_while_a_new_queue_is_joined(desk: Clocked):
    reader, gone = wild(desk), wild(desk, STEP)
    sender, late = desk.actor(), desk.actor()
    before = desk.memory.tables_bytes
    sender.sends("/queue/n1", "a")
    reader.does(Unsubscribed(f"{MANY - 1}", None, None))
    desk.broker.forget(gone.client, CloseReason.CONNECTION_LOST, desk.now)
    late.subscribes("/queue/n*", ack="client")
    desk.settles()
    desk.passes(0)
    assert len(desk.queue("/queue/n1").consumers) == MANY
    assert late.consumer().queues == {desk.queue("/queue/n1"): None}
    assert len({*desk.queue("/queue/n1").consumers}) == MANY
    got = [*texts(reader.reads()), *texts(late.reads())]
    assert got == ["a"]
    desk.broker.queues.end("/queue/n1", desk.now)
    for number in range(MANY - 1):
        reader.unsubscribes(f"{number}")
    late.unsubscribes()
    desk.settles()
    assert desk.memory.tables_bytes < before, "each gives back what it was charged for"


def test_a_queue_that_is_ended_while_it_is_joined_is_made_again(desk: Clocked):
    reader = wild(desk)
    sender = desk.actor()
    sender.sends("/queue/n1", "a")
    dead = desk.queue("/queue/n1")
    desk.broker.queues.end("/queue/n1", desk.now)
    desk.settles()
    assert not dead.consumers
    assert len(desk.queue("/queue/n1").consumers) == MANY
    assert texts(reader.reads()) == ["a"]


def test_message_of_a_lost_connection_reaches_a_new_queue(desk: Clocked):
    reader = wild(desk)
    sender = desk.actor()
    sender.sends("/queue/n1", "a")
    reported: list[bool] = []
    desk.broker.forget(
        sender.client, CloseReason.CONNECTION_LOST, desk.now, lambda: reported.append(True)
    )
    desk.settles()
    assert reported
    assert texts(reader.reads()) == ["a"]


def test_the_queues_that_the_broker_makes_are_joined_in_pieces(desk: Clocked):
    reader = wild(desk)
    for number in range(3):
        desk.broker.turns.begin(0)
        desk.broker.queues.open(f"/queue/n{number}")
    assert joined(reader) == 0
    desk.settles()
    assert max(desk.pieces) <= MOST
    assert joined(reader) == 3 * MANY


def test_a_bug_in_joining_does_not_delay_messages_of_others(monkeypatch: pytest.MonkeyPatch):
    desk = Clocked()
    reader = wild(desk)
    one, two = desk.actor(), desk.actor()
    one.sends("/queue/n1", "a")
    two.sends("/queue/n2", "b")
    monkeypatch.setattr(Queue, "attach", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        desk.turn()
    monkeypatch.undo()
    desk.settles()
    assert texts(reader.reads()) == ["a"], "as far as it was joined"
    one.sends("/queue/n3", "c")
    desk.settles()
    assert len(desk.queue("/queue/n3").consumers) == MANY


def test_early_subscriber_joins_a_new_queue_once(desk: Clocked):
    wild(desk)
    one, two, late = desk.actor(), desk.actor(), desk.actor()
    one.sends("/queue/n1", "a")
    two.sends("/queue/n2", "b")
    late.subscribes("/queue/n*", ack="client")
    desk.settles()
    for name in ("/queue/n1", "/queue/n2"):
        consumers = desk.queue(name).consumers
        assert len(consumers) == len({*consumers}) == MANY + 1
    assert late.consumer().joined == 2


def test_a_new_queue_is_joined_at_once_if_there_is_time(bench: Bench):
    reader = bench.actor()
    for number in range(FEW_QUEUES + 1):
        reader.subscribes("/queue/n*", f"{number}", "client")
    bench.actor().sends("/queue/n1", "a")
    assert len(bench.queue("/queue/n1").consumers) == FEW_QUEUES + 1
    assert texts(reader.reads()) == ["a"]
