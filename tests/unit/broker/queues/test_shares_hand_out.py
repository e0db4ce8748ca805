"""Handing out is done in pieces: deep queues, thousands of consumers, selectors and groups."""

import random
from typing import Any

import pytest

from tests.support.core import Actor, bench, run_of, texts
from tests.support.durable_fakes import DurableBench
from tests.support.share_fakes import MOST, Clocked
from trio_stomp.broker import DestinationPolicy
from trio_stomp.broker.delivery import PUMP_S
from trio_stomp.broker.routing import PASSED_BYTES
from trio_stomp.broker.selectors import Selector

Q = "/queue/q"
MOST_MESSAGES, MOST_BYTES, MOST_CONSUMERS = 1_024, 1024 * 1024, 256
"""What is handed out before the clock is looked at."""
FEW_PASSED = 16
"""So many are passed again rather than remembered."""
LONG = " OR ".join(f"n = 'no{each}'" for each in range(40))
"""A selector that takes a piece of work to ask."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return the header blocks that selectors are evaluated for."""
    seen: list[object] = []
    matches = Selector.matches

    def spy(self: Selector, headers: Any) -> bool:
        seen.append(headers)
        return matches(self, headers)

    monkeypatch.setattr(Selector, "matches", spy)
    return seen


def numbers(actor: Actor) -> list[int]:
    return [int(text) for text in texts(actor.writes()) if text]


# Many messages.


@pytest.mark.parametrize("ack", ["auto", "client"])
def test_a_deep_queue_goes_to_a_consumer_without_limit_in_pieces(
    ack: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tests.support.core.LOOK_S", PUMP_S / 3)
    desk = Clocked()
    sender, reader = desk.actor(), desk.actor()
    count = 10_000
    sender.sends(Q, *[f"{n}" for n in range(count)])
    sender.sends("/queue/other", "x")
    desk.settles()
    other = desk.actor()
    reader.subscribes(Q, ack=ack, prefetch_count="0", consumer_window_size=f"{1 << 30}")
    other.subscribes("/queue/other")
    got: list[int] = []
    most = turns = 0
    while desk.broker.has_more or not turns:
        desk.turn()
        some = numbers(reader)
        got += some
        most = max(most, len(some))
        turns += 1
        if turns == 2:
            assert numbers_of(other) == ["x"], "it does not wait for the deep one"
    assert most <= 4 * MOST_MESSAGES, "a piece of work for each look at the clock"
    assert got == list(range(count))


def numbers_of(actor: Actor) -> list[str]:
    return texts(actor.writes())


def test_deliveries_of_a_turn_are_bounded_by_bytes_too():
    desk = bench()
    sender, reader = desk.actor(), desk.actor()
    sender.sends(Q, *["x" * 100_000 for _ in range(40)])
    reader.subscribes(Q, ack="client", prefetch_count="0", consumer_window_size=f"{1 << 30}")
    desk.turn()
    handed = [delivery.size for _, delivery in reader.outbox.staged if delivery is not None]
    assert len(handed) > 3
    assert max(handed) < MOST_BYTES + 101_000
    assert not desk.waiting(Q)


def test_thousands_of_consumers_are_served_in_turn():
    desk = bench()
    sender = desk.actor()
    reader = desk.actor()
    size = 3 * MOST_CONSUMERS
    for number in range(size):
        reader.subscribes(Q, f"{number}", ack="client-individual", prefetch_count="3")
    desk.turn()
    sender.sends(Q, *[f"{n}" for n in range(2 * size + 10)])
    order = [frame.get("subscription") or "" for frame in reader.reads()]
    assert sorted(order[:size]) == sorted(f"{n}" for n in range(size)), "one each"
    assert order[size : 2 * size] == order[:size]
    assert order[2 * size :] == order[:10]


def test_higher_priorities_come_first_among_thousands():
    desk = bench()
    sender, reader = desk.actor(), desk.actor()
    for number in range(2 * MOST_CONSUMERS):
        priority = "5" if number < 10 else "1"
        reader.subscribes(Q, f"{number}", ack="client", prefetch_count="2", x_priority=priority)
    sender.sends(Q, *[f"{n}" for n in range(30)])
    got = reader.reads()
    first = sorted(int(each.get("subscription") or "") for each in got[:20])
    assert first == sorted([*range(10)] * 2)
    assert all(int(each.get("subscription") or "") >= 10 for each in got[20:])
    reader.acks(*got[:20])
    sender.sends(Q, "again")
    assert int(reader.reads()[0].get("subscription") or "") < 10


def test_one_of_a_higher_priority_that_searches_elsewhere_comes_first_among_thousands():
    desk = bench()
    reader, high = desk.actor(), desk.actor()
    for number in range(2 * MOST_CONSUMERS):
        reader.subscribes(Q, f"{number}")
    high.subscribes("/queue/*", ack="client", prefetch_count="1", x_priority="5")
    high.sends("/queue/other", "0")
    high.commits(high.acked(high.reads()[0]), run_of(Q, ["1", "2"]))
    assert [each.text for each in high.frames() if each.command == "MESSAGE"] == ["1"]
    assert reader.bodies() == ["2"]


# Selectors.


def test_selectors_are_asked_in_pieces_and_others_are_served_between(
    desk: Clocked, asked: list[object]
):
    sender, reader, other = desk.actor(), desk.actor(), desk.actor()
    for number in range(50):
        sender.sends(Q, f"{number}", n=f"{number}")
    for number in range(20):
        reader.subscribes(Q, f"{number}", ack="client", selector=f"{LONG} OR n = '{number + 5}'")
    other.subscribes("/queue/other")
    desk.turn()
    most = len(asked)
    assert asked, "it was begun"
    assert desk.broker.has_more
    sender.sends("/queue/other", "x")
    desk.turn()
    desk.turn()
    assert numbers_of(other) == ["x"]
    while desk.broker.has_more:
        before = len(asked)
        desk.turn()
        most = max(most, len(asked) - before)
    assert most <= MOST
    got = {frame.get("subscription"): frame.text for frame in reader.writes()}
    assert got == {f"{number}": f"{number + 5}" for number in range(20)}
    assert len(asked) <= 50 * 20, "each about each message once"


def test_selector_is_not_evaluated_twice_for_a_message(asked: list[object]):
    desk = bench()
    sender, reader = desk.actor(), desk.actor()
    for number in range(100):
        sender.sends(Q, f"{number}", n=f"{number}")
    reader.subscribes(Q, ack="client", selector="n = 'x'")
    desk.turn()
    assert len(asked) == 100
    sender.sends(Q, "more", n="x")
    assert reader.bodies() == ["more"]
    assert len(asked) == 101
    second = desk.actor()
    second.subscribes(Q, ack="client", selector="n = '50'")
    assert second.bodies() == ["50"]
    assert len(asked) == 101 + 100


def test_returned_earlier_message_is_offered_to_consumers_that_passed_it():
    desk = bench()
    sender, first, second = desk.actor(), desk.actor(), desk.actor()
    for number in range(60):
        sender.sends(Q, f"{number}", n=f"{number}")
    first.subscribes(Q, ack="client-individual", selector="n = '20' OR n = '30'")
    taken = first.reads()
    assert texts(taken) == ["20", "30"]
    second.subscribes(Q, ack="client-individual", selector="n = '20' OR n = '55'")
    (own,) = second.reads()
    assert own.text == "55"
    first.unsubscribes()
    assert second.bodies() == ["20"]
    second.nacks(own)
    assert second.bodies() == ["55"]
    assert desk.waiting(Q) == [f"{n}" for n in range(60) if n not in (20, 55)]


def test_message_returned_after_a_delay_is_offered_too():
    desk = bench(DestinationPolicy(backoff_s=(1.0,)))
    sender, reader = desk.actor(), desk.actor()
    for number in range(60):
        sender.sends(Q, f"{number}", n=f"{number}")
    reader.subscribes(Q, ack="client-individual", selector="n = '20' OR n = '50'")
    taken = reader.reads()
    reader.nacks(*taken)
    desk.turn()
    desk.passes(5)
    assert reader.bodies() == ["20", "50"]


def test_message_that_expires_is_found_after_the_scan_passed_it():
    desk = bench()
    sender, reader = desk.actor(), desk.actor()
    for number in range(60):
        if number == 40:
            sender.sends(Q, "short", n="40", ttl="5000")
        else:
            sender.sends(Q, f"{number}", n=f"{number}")
    reader.subscribes(Q, ack="client", selector="n = 'x'")
    desk.turn()
    desk.passes(10)
    sender.sends(Q, "60", n="60")
    desk.turn()
    assert desk.waiting(Q) == [f"{n}" for n in range(61) if n != 40]
    assert desk.queue(Q).destination.expired == 1


def test_new_messages_of_every_priority_are_found_after_a_full_scan():
    desk = bench(DestinationPolicy(priority=True))
    sender, reader = desk.actor(), desk.actor()
    for number in range(60):
        sender.sends(Q, f"{number}", n=f"{number}", priority=f"{number % 10}")
    reader.subscribes(Q, ack="client", selector="n = 'x'")
    desk.turn()
    sender.sends(Q, "top", n="x", priority="9")
    sender.sends(Q, "low", n="x", priority="0")
    assert reader.bodies() == ["top", "low"]


def test_places_are_charged_and_given_back():
    desk = bench()
    sender, reader = desk.actor(), desk.actor()
    sender.sends(Q, *[f"{n}" for n in range(60)], n="no")
    reader.subscribes(Q, ack="client", selector="n = 'x'")
    before = desk.memory.tables_bytes
    desk.turn()
    assert desk.memory.tables_bytes == before + PASSED_BYTES
    reader.unsubscribes()
    assert desk.memory.tables_bytes < before
    desk.ends()


def test_no_position_is_remembered_among_few_messages():
    desk = bench()
    sender, reader = desk.actor(), desk.actor()
    sender.sends(Q, *[f"{n}" for n in range(FEW_PASSED)], n="no")
    reader.subscribes(Q, ack="client", selector="n = 'x'")
    desk.turn()
    assert desk.queue(Q).passed is None


# Groups.


def test_a_free_group_is_offered_to_a_consumer_that_has_passed_it():
    desk = bench()
    sender, first, second = desk.actor(), desk.actor(), desk.actor()
    first.subscribes(Q, ack="client-individual", prefetch_count="1")
    second.subscribes(Q, ack="client-individual", prefetch_count="9")
    desk.turn()
    sender.sends(Q, *[f"{n}" for n in range(FEW_PASSED + 9)], message_group="g")
    (taken,) = first.reads()
    assert second.bodies() == []
    first.is_gone()
    assert second.bodies() == [f"{n}" for n in range(9)]
    assert taken.text == "0"


def test_the_budget_may_end_at_a_group_message_that_its_owner_does_not_match(desk: Clocked):
    sender, reader = desk.actor(), desk.actor()
    reader.subscribes(Q, ack="client", selector=f"{LONG} OR n = 'yes'")
    desk.turn()
    sender.sends(Q, "first", n="yes", message_group="g")
    for _ in range(400):
        sender.sends(Q, "never", n="no", message_group="g")
    sender.sends(Q, "last", n="yes", message_group="g")
    desk.settles()
    assert texts(reader.writes()) == ["first", "last"]


def test_the_oldest_of_too_many_groups_is_reassigned(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("trio_stomp.broker.queues._groups.MAX_GROUPS", 2)
    desk = bench()
    sender, first, second = desk.actor(), desk.actor(), desk.actor()
    first.subscribes(Q, ack="client-individual", prefetch_count="2")
    second.subscribes(Q, ack="client-individual", prefetch_count="30")
    desk.turn()
    for number in range(30):
        sender.sends(Q, f"a{number}", message_group="a")
        desk.turn()
    texts(first.reads())
    for number in range(3):
        sender.sends(Q, f"b{number}", message_group=f"b{number}")
    seen = texts(second.reads())
    sender.sends(Q, "end")
    seen += texts(second.reads())
    assert "a2" in seen, "its group was taken from the first"


# Events between two pieces.


@pytest.mark.parametrize("seed", range(30))
def test_no_consumer_misses_a_message_between_two_pieces(seed: int):
    rng = random.Random(seed)
    policy = DestinationPolicy(
        priority=seed % 2 == 0, backoff_s=(seed % 3 * 0.5,), max_redeliveries=0
    )
    desk = Clocked(book={Q: policy})
    sender = desk.actor()
    actors = [desk.actor() for _ in range(4)]
    held: dict[int, list] = {n: [] for n in range(4)}  # type: ignore[type-arg]

    def subscribe(n: int) -> None:
        if "0" in actors[n].client.subscriptions:
            return
        headers = {"prefetch_count": f"{rng.choice([1, 3, 50])}"}
        kind = rng.randrange(4)
        if kind:
            wanted = rng.sample(range(8), kind)
            tail = " OR ".join(f"n = '{each}'" for each in wanted)
            headers["selector"] = rng.choice([tail, f"{LONG} OR {tail}"])
        headers["x_priority"] = rng.choice(["0", "0", "1"])
        actors[n].subscribes(Q, ack="client-individual", **headers)

    def send(_: int) -> None:
        headers = {"n": f"{rng.randrange(9)}", "priority": f"{rng.randrange(10)}"}
        if not rng.randrange(4):
            headers["message_group"] = rng.choice("ab")
        if not rng.randrange(6):
            headers["ttl"] = f"{rng.randrange(1, 9) * 100}"
        sender.sends(Q, *["x"] * rng.randrange(1, 12), receipts=(), **headers)

    def read(n: int) -> None:
        held[n] += [each for each in actors[n].writes() if each.command == "MESSAGE"]

    def answer(n: int) -> None:
        read(n)
        some, held[n] = held[n][:3], held[n][3:]
        if some and "0" in actors[n].client.subscriptions:
            if rng.randrange(3):
                actors[n].acks(*some)
            else:
                actors[n].nacks(*some)

    def unsubscribe(n: int) -> None:
        if "0" in actors[n].client.subscriptions:
            actors[n].unsubscribes()
            read(n)
            held[n].clear()

    def room(n: int) -> None:
        if actors[n].outbox.room:
            actors[n].outbox.room = 0
        else:
            actors[n].opens_up()

    def leave(n: int) -> None:
        actors[n].is_gone()
        actors[n] = desk.actor()
        held[n].clear()

    def turn(_: int) -> None:
        desk.turn()

    steps = [send] * 6 + [read, answer, answer, answer, room, turn, turn, turn]
    steps += [subscribe, subscribe, unsubscribe, leave]
    for _ in range(300):
        rng.choice(steps)(rng.randrange(4))
        if not rng.randrange(8):
            desk.passes(rng.random())
    desk.settles()
    desk.passes(2)
    desk.passes(2)
    desk.settles()
    queue = desk.queue(Q)
    for message in queue.waiting.in_order():
        for consumer in queue.consumers:
            owner = queue.groups.owners.get(message.group) if message.group else None
            is_free = owner is None or owner is consumer
            assert not (is_free and consumer.is_ready and consumer.wants(message)), message.number
    assert queue.unacked == sum(len(each.unacked) for each in queue.consumers)
    desk.ends()


def test_message_stored_later_is_offered_to_consumers_that_passed_it():
    desk = DurableBench(is_prompt=False)
    sender, second, reader = desk.actor(), desk.actor(), desk.actor()
    reader.subscribes(Q, ack="client", selector="n = 'x'")
    for number in range(30):
        second.sends(Q, f"{number}", n=f"{number}")
    sender.sends(Q, "late", "later", n="x", persistent="true")
    for number in range(30, 60):
        second.sends(Q, f"{number}", n=f"{number}")
    desk.turn()
    queue = desk.queue(Q)
    assert desk.waiting(Q) == [f"{n}" for n in range(60)]
    assert queue.passed is not None
    for _ in range(9):
        desk.answers()
    assert reader.bodies() == ["late", "later"]


@pytest.mark.parametrize("acknowledges", [False, True])
def test_messages_keep_the_order_of_acceptance_however_they_arrive(acknowledges: bool):
    """Taken from the middle, and back; and some before others, since the store had them later."""
    desk = DurableBench(is_prompt=False)
    sender, second, reader, third = (desk.actor() for _ in range(4))
    reader.subscribes(Q, ack="client-individual", selector="n = '7' OR n = '8'")
    for number in range(20):
        second.sends(Q, f"{number}", n=f"{number}")
    sender.sends(Q, "20", persistent="true")
    second.sends(Q, "21")
    desk.turn()
    assert reader.client.subscriptions["0"].consumer is not None
    for _ in range(9):
        desk.answers()
    taken = reader.reads()
    assert texts(taken) == ["7", "8"]
    if acknowledges:
        reader.acks(*taken)
    reader.unsubscribes()
    wanted = [f"{n}" for n in range(22) if not (acknowledges and n in (7, 8))]
    assert desk.waiting(Q) == wanted
    queue = desk.queue(Q)
    assert [m.body.decode() for m in queue.waiting.behind(4, 0, 5)] == wanted[:5]
    some = queue.waiting.behind(4, 0, 99)
    assert [m.body.decode() for m in some] == wanted
    for message in some:
        behind = [m.body for m in queue.waiting.behind(4, message.number, 99)]
        assert behind == [m.body for m in some[some.index(message) + 1 :]]
    third.subscribes(Q, ack="client", prefetch_count="100")
    desk.turn()
    assert third.bodies() == wanted
