"""Destinations with the same subscribers share one list, and the memory of all lists is bounded."""

import pytest

from tests.support.core import Actor, Bench
from tests.support.share_fakes import new_bodies
from trio_stomp.base import MemoryBudget

TOPIC = "/topic/a.b"


def topics(desk: Bench, count: int, each: int, *, alike: bool) -> list[Actor]:
    """Topics that ``each`` subscribe to, by wildcards; unless they are alike one more by name."""
    reader, single = desk.actor(), desk.actor()
    for number in range(each):
        reader.subscribes("/topic/a.*", f"{number}")
    for number in range(0 if alike else count):
        single.subscribes(f"/topic/a.{number}", f"{number}")
    sender = desk.actor()
    for number in range(count):
        sender.sends(f"/topic/a.{number}", "x")
    return [reader, single, sender]


def test_topics_of_the_same_share_one_list(bench: Bench):
    topics(bench, 500, 100, alike=True)
    lists = {
        id(each.subscribers) for each in bench.broker.destinations if each.name[:8] == "/topic/a"
    }
    assert len(lists) == 1
    assert bench.broker.destinations.lent.size < 500


@pytest.mark.parametrize("alike", [True, False])
def test_all_lists_together_have_a_bound(monkeypatch: pytest.MonkeyPatch, alike: bool):
    most = 10_000
    monkeypatch.setattr("trio_stomp.broker.routing._recipients.MAX_ENTRIES", most)
    desk = Bench()
    reader, single, sender = topics(desk, 500, 100, alike=alike)
    lent = desk.broker.destinations.lent
    desk.turn()
    desk.turn()
    assert lent.size <= most
    kept = {id(each.subscribers): len(each.subscribers) for each in desk.broker.destinations}
    assert sum(kept.values()) <= most
    new_bodies(reader)
    new_bodies(single)
    sender.sends("/topic/a.0", "again")
    assert new_bodies(reader) == ["again"] * 100
    assert new_bodies(single) == ["again"] * (not alike)


def test_some_lists_are_given_up_in_each_turn(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("trio_stomp.broker.routing._recipients.MAX_ENTRIES", 1000)
    monkeypatch.setattr("trio_stomp.broker.routing._recipients.MOST_GIVEN_UP", 3)
    desk = Bench()
    topics(desk, 50, 100, alike=False)
    lent = desk.broker.destinations.lent
    before = len(lent)
    desk.turn()
    assert len(lent) == before - 3


def test_the_bound_follows_the_memory():
    for memory, most in ((1024 << 20, 16 << 20), (64 << 20, 2 << 20)):
        lent = Bench(memory=MemoryBudget(memory)).broker.destinations.lent
        assert lent.max_size * 8 == most


def test_a_destination_that_is_forgotten_has_no_list(bench: Bench):
    routes = bench.broker.destinations
    reader = bench.actor()
    for number in range(50):
        reader.subscribes("/topic/a.*", f"{number}")
    one = routes.open(TOPIC)
    assert routes.lent.size == 100
    routes.forget_new()
    assert one.subscribers == ()
    assert len(routes.lent) == routes.lent.size == 0


def test_a_shared_list_counts_until_its_last_user_has_gone():
    routes = (desk := Bench()).broker.destinations
    reader = desk.actor()
    for number in range(50):
        reader.subscribes("/topic/a.*", f"{number}")
    one, two = routes.open("/topic/a.1"), routes.open("/topic/a.2")
    assert one.subscribers is two.subscribers
    before = routes.lent.size
    routes.lent.take_back(one)
    assert routes.lent.size == before
    routes.lent.take_back(two)
    assert routes.lent.size == 0
