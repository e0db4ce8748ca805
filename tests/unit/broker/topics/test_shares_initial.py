"""Messages older than a subscription are delivered in pieces, in order for each destination."""

import pytest

from tests.support.core import Actor
from tests.support.durable_fakes import DurableBench
from tests.support.share_fakes import MOST, Clocked, new_bodies
from trio_stomp.broker import BrokerPolicies, DestinationPolicy

MANY = 1_000
TTL = {"/topic/>": DestinationPolicy(ttl_ms=60_000)}
KINDS = ["plain", "client-individual", "durable"]


def subscribe(actor: Actor, kind: str, destination: str = "/topic/>", **headers: str) -> None:
    """SUBSCRIBE, for more messages than there are if they must be acknowledged."""
    if kind == "durable":
        headers["durable"] = "true"
        headers["activemq.subscriptionName"] = "d"
    ack = "auto" if kind == "plain" else "client-individual"
    prefetch = str(4 * MANY)
    actor.subscribes(destination, ack=ack, **headers, **{"prefetch-count": prefetch})


def retained(desk: Clocked | DurableBench, count: int = MANY) -> Actor:
    """Return the sender of last values, named and numbered in the same order."""
    sender = desk.actor()
    for number in range(count):
        sender.sends(f"/topic/{number:04}", f"{number:04}", retain="set", n=f"{number}")
    while desk.broker.has_more:
        desk.turn()
    return sender


def parked(desk: Clocked, destinations: int) -> Actor:
    """Return the sender of MANY parked messages."""
    sender = desk.actor()
    for number in range(MANY):
        sender.sends(f"/topic/{number % destinations}", f"{number:04}", n=f"{number}")
    desk.settles()
    desk.pieces.clear()
    return sender


NUMBERED = [f"{number:04}" for number in range(MANY)]


@pytest.mark.parametrize("kind", KINDS)
def test_last_values_are_given_in_pieces_and_others_are_served_between(kind: str):
    desk = DurableBench() if kind == "durable" else Clocked()
    retained(desk)
    reader, other = desk.actor(), desk.actor()
    subscribe(reader, kind)
    other.sends("/queue/q", "beside it")
    desk.turn()
    assert desk.waiting("/queue/q") == ["beside it"]
    assert desk.broker.has_more
    got = new_bodies(reader)
    assert len(got) < MANY / 2
    while desk.broker.has_more:
        desk.turn()
        got += new_bodies(reader)
    assert got == NUMBERED
    if isinstance(desk, Clocked):
        assert max(desk.pieces) <= MOST


@pytest.mark.parametrize("kind", KINDS)
def test_each_destinations_messages_stay_in_order_while_last_values_are_given(kind: str):
    desk = DurableBench() if kind == "durable" else Clocked()
    sender = retained(desk)
    reader = desk.actor()
    subscribe(reader, kind)
    assert desk.broker.has_more
    last = f"/topic/{MANY - 1:04}"
    sender.sends(last, "behind it")
    sender.sends(f"/topic/{MANY - 2:04}", "instead", retain="set")
    sender.sends(f"/topic/{MANY - 3:04}", "", retain="remove")
    sender.sends("/topic/9999", "new", retain="set")
    got = []
    while desk.broker.has_more:
        desk.turn()
        got += new_bodies(reader)
    got += new_bodies(reader)
    assert got == [
        *NUMBERED[:-3],
        NUMBERED[-1],
        *("behind it", "instead", "", "new"),
    ]


def test_a_durable_subscription_does_not_get_messages_parked_after_its_creation():
    desk = DurableBench()
    reader = desk.actor()
    subscribe(reader, "durable")
    sender = retained(desk, 1)
    reader.is_gone()
    sender.sends("/topic/0000", "last", retain="set")
    again = desk.actor()
    subscribe(again, "durable")
    desk.turn()
    assert new_bodies(again) == ["0000", "last"]


def test_a_last_value_that_two_places_reach_is_given_once():
    desk = Clocked()
    retained(desk, 3)
    reader = desk.reader("/topic/0001,/topic/000*,/topic/*")
    desk.settles()
    assert sorted(new_bodies(reader)) == ["0000", "0001", "0002"]


@pytest.mark.parametrize("kind", ["plain", "client-individual"])
@pytest.mark.parametrize("destinations", [1, 20, MANY])
def test_parked_messages_are_given_in_pieces(kind: str, destinations: int):
    desk = Clocked(book=TTL)
    sender = parked(desk, destinations)
    reader = desk.actor()
    subscribe(reader, kind)
    for number in range(200):
        sender.sends("/topic/0", f"new {number}")
    desk.settles()
    assert max(desk.pieces) <= MOST
    assert len(desk.pieces) > 3
    assert new_bodies(reader) == [*NUMBERED, *(f"new {number}" for number in range(200))]
    assert desk.broker.stale.size == 0


@pytest.mark.parametrize("kind", ["plain", "client-individual"])
def test_parked_messages_that_no_selector_matches_are_dropped_in_pieces(kind: str):
    desk = Clocked(book=TTL)
    parked(desk, MANY)
    reader = desk.actor()
    subscribe(reader, kind, selector=f"n = '{MANY - 1}'")
    desk.settles()
    assert max(desk.pieces) <= MOST
    assert len(desk.pieces) > 3
    assert new_bodies(reader) == NUMBERED[-1:]
    assert desk.broker.fan_out.drops.no_subscriber == MANY - 1


@pytest.mark.parametrize("kind", ["plain", "client-individual"])
@pytest.mark.parametrize("destinations", [1, MANY])
def test_parked_messages_that_have_expired_are_dropped_in_pieces(kind: str, destinations: int):
    desk = Clocked(book=TTL)
    parked(desk, destinations)
    desk.now += 70
    reader = desk.actor()
    subscribe(reader, kind)
    desk.settles()
    assert max(desk.pieces) <= MOST
    assert new_bodies(reader) == []
    assert desk.broker.stale.size == 0


def test_last_values_come_as_fast_as_their_reader_takes_them():
    desk = Clocked()
    sender = retained(desk)
    reader = desk.actor()
    reader.outbox.room = 5
    reader.outbox.may_overflow = False
    subscribe(reader, "plain")
    sender.sends("/topic/0000", "behind them")
    desk.settles()
    got = new_bodies(reader)
    assert got == NUMBERED[:5]
    sender.sends("/topic/0005", "removed", retain="remove")
    while got[-1] != "removed":
        desk.broker.writable(reader.client, desk.now)
        desk.settles()
        got += (more := new_bodies(reader))
        assert 0 < len(more) <= 5
    assert got == [*NUMBERED[:5], *NUMBERED[6:], "behind them", "removed"]
    assert reader.client.catching_up == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["unsubscribe", "is_gone", "refused"])
def test_subscriber_that_leaves_meanwhile_leaves_nothing(kind: str, how: str):
    desk = DurableBench() if kind == "durable" else Clocked()
    sender = retained(desk)
    reader = desk.actor()
    subscribe(reader, kind)
    assert desk.broker.has_more
    if how == "unsubscribe":
        reader.unsubscribes(
            headers=(("activemq.subscriptionName", "d"),) if kind == "durable" else ()
        )
    elif how == "is_gone":
        reader.is_gone()
    else:
        reader.sends("no*")
    sender.sends("/topic/0000", "later")
    while desk.broker.has_more or not desk.broker.leaving.is_over:
        desk.passes(0)
    assert reader.client.catching_up == 0
    assert len(desk.broker.subscriptions) == 0
    assert not desk.broker.queues.frozen
    if kind == "durable" and how != "unsubscribe":
        again = desk.actor()
        subscribe(again, kind)
        while desk.broker.has_more:
            desk.turn()
        assert new_bodies(again) == [*NUMBERED, "later"], "it exists, and has kept them"


def test_messages_that_wait_for_parked_ones_are_dropped_in_pieces():
    policies = BrokerPolicies(slow_consumer="drop-newest")
    desk = Clocked(policies, book=TTL)
    sender = parked(desk, 1)
    reader = desk.actor()
    reader.outbox.room = 1
    subscribe(reader, "plain")
    count = 100 * MANY // 8
    for number in range(count):
        sender.sends("/topic/0", f"{number}")
    desk.settles()
    desk.pieces.clear()
    reader.unsubscribes()
    desk.settles()
    assert max(desk.pieces) <= MOST
    assert len(desk.pieces) > 1
    assert desk.broker.fan_out.drops.backlog_abandoned == count
    other = desk.actor()
    subscribe(other, "plain")
    desk.settles()
    assert new_bodies(other) == NUMBERED[1:]
