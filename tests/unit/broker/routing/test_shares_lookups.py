"""Very many subscribers are looked up in pieces, and the memory of their lists is bounded."""

import random

import pytest

from tests.support.core import Actor, Bench, run_of
from tests.support.share_fakes import MOST, Clocked, ClockedDurable, new_bodies
from trio_stomp.base import MemoryBudget
from trio_stomp.broker import DestinationPolicy
from trio_stomp.broker.delivery import MANY_RECIPIENTS, Member, Work
from trio_stomp.broker.routing import _destinations
from trio_stomp.broker.routing._recipients import Recipients, recipients_of, sorting
from trio_stomp.broker.routing._shared_recipients import MAX_ENTRIES, SharedRecipients
from trio_stomp.diag._records import destination_record
from trio_stomp.protocol import Committed, Subscribed

MANY = MANY_RECIPIENTS + 300
TOPIC = "/topic/a.b"


@pytest.fixture(autouse=True)
def _few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if very many are sorted in one step, and have pieces be many."""

    def checked(found: list[Member], **how: bool) -> Recipients:
        assert len(found) <= MANY_RECIPIENTS, "in one step"
        return recipients_of(found, **how)

    monkeypatch.setattr(_destinations, "recipients_of", checked)
    monkeypatch.setattr("trio_stomp.broker.routing._recipients.STEP", 8)


def crowd(desk: Clocked | ClockedDurable, count: int = MANY, *places: str) -> Actor:
    """A client with ``count`` subscriptions to each of some places."""
    reader = desk.actor()
    for place in places or ("/topic/a.*",):
        for number in range(count):
            reader.subscribes(place, f"{place}-{number}")
    settle(desk)
    return reader


def settle(desk: Clocked | ClockedDurable) -> None:
    while desk.broker.has_more:
        desk.turn()


def store(desk: ClockedDurable) -> None:
    """Let the store answer, and process its effects."""
    for _ in range(3):
        settle(desk)
        desk.turn()
        desk.answers()


def test_a_topic_of_very_many(desk: Clocked):
    reader, sender, other = crowd(desk), desk.actor(), desk.actor()
    desk.pieces.clear()
    sender.sends(TOPIC, "a", receipts=[(1, b"r")])
    sender.sends("/queue/q", "behind it")
    other.sends("/queue/q", "beside it")
    assert desk.waiting("/queue/q") == ["beside it"]
    desk.settles()
    assert max(desk.pieces) <= MOST
    assert new_bodies(reader) == ["a"] * MANY
    assert [each.get("matched") for each in sender.writes()] == [f"{MANY}"]
    assert desk.waiting("/queue/q") == ["beside it", "behind it"]


def test_a_composite_of_topics_of_very_many(desk: Clocked):
    reader, sender = crowd(desk), desk.actor()
    desk.pieces.clear()
    sender.sends(f"{TOPIC},/topic/a.c,/topic/x", "a")
    desk.settles()
    assert max(desk.pieces) <= MOST
    assert new_bodies(reader) == ["a"] * 2 * MANY


def test_a_commit_delivers_in_order_to_a_crowd(desk: Clocked):
    reader, sender = crowd(desk), desk.actor()
    sender.does(Committed([run_of(TOPIC, [f"{n}"]) for n in range(2)], b"r"))
    settle(desk)
    assert new_bodies(reader)[::MANY] == ["0", "1"]


def test_due_message_reaches_all_subscribers(desk: Clocked):
    reader, sender = crowd(desk), desk.actor()
    sender.sends(TOPIC, "due", AMQ_SCHEDULED_DELAY="1000")
    desk.passes(2)
    settle(desk)
    assert new_bodies(reader) == ["due"] * MANY


def test_stored_messages_reach_all_subscribers():
    policy = DestinationPolicy(persistent="always", retain="always")
    desk = ClockedDurable(book={"/topic/a.*": policy}, is_prompt=False)
    reader, sender = crowd(desk), desk.actor()
    sender.sends(TOPIC, "first")
    store(desk)
    assert new_bodies(reader) == ["first"] * MANY
    sender.sends(TOPIC, "stored")
    desk.actor().subscribes("/topic/other.*")  # makes all lists out of date
    store(desk)
    assert new_bodies(reader) == ["stored"] * MANY


def test_statistics_count_subscribers_without_a_look_up(desk: Clocked):
    crowd(desk)
    destination = desk.broker.destinations.ensure(TOPIC)
    assert destination_record(destination, desk.broker.statistics())["subscribers"] == MANY
    assert desk.broker.destinations.recipients_count(destination) == MANY


def test_work_queues_of_very_many(desk: Clocked):
    reader, sender = crowd(desk, MANY, "#w.*"), desk.actor()
    sender.sends("#w.a", "1", "2")
    desk.settles()
    assert new_bodies(reader) == ["1", "2"]


# --- meanwhile --------------------------------------------------------------------------------


def looked_at(desk: Clocked, sender: Actor) -> None:
    """Do the first pieces of a SEND whose recipients are looked up."""
    sender.sends(TOPIC, "a")
    assert desk.broker.destinations._is_looking


def test_leaving_subscriber_gets_nothing_and_a_new_one_waits(desk: Clocked):
    reader, sender, late, brief = crowd(desk), desk.actor(), desk.actor(), desk.actor()
    brief.subscribes(TOPIC, "exact")
    brief.subscribes("/topic/a.**", "wild")
    desk.settles()
    looked_at(desk, sender)
    late.does(Subscribed("1", TOPIC, "auto", (), b"r"))
    assert late.writes() == [], "it waits until there is no line"
    brief.unsubscribes("exact")
    brief.unsubscribes("wild")
    reader.unsubscribes("/topic/a.*-7")
    desk.settles()
    assert new_bodies(reader) == ["a"] * (MANY - 1)
    assert new_bodies(brief) == []
    assert [each.command for each in late.writes()] == ["RECEIPT"]
    sender.sends(TOPIC, "b")
    desk.settles()
    assert new_bodies(late) == ["b"]
    assert new_bodies(reader) == ["b"] * (MANY - 1)


def test_one_looks_up_at_a_time(desk: Clocked):
    reader, one, two = crowd(desk), desk.actor(), desk.actor()
    looked_at(desk, one)
    two.sends("/topic/a.c", "c")
    desk.settles()
    assert sorted(new_bodies(reader)) == ["a"] * MANY + ["c"] * MANY


def test_immediate_lookup_meanwhile_is_used(desk: Clocked, monkeypatch: pytest.MonkeyPatch):
    reader, sender = crowd(desk), desk.actor()
    looked_at(desk, sender)
    monkeypatch.setattr(_destinations, "recipients_of", recipients_of)
    destination = desk.broker.destinations.find_current(TOPIC)
    assert destination is not None
    before = destination.subscribers
    assert len(before) == MANY
    desk.settles()
    assert destination.subscribers is before
    assert new_bodies(reader) == ["a"] * MANY


def test_a_destination_may_be_forgotten_meanwhile(bench: Bench):
    routes = bench.broker.destinations
    for number in range(MANY):
        bench.actor().subscribes("/topic/a.*", f"{number}")
    destination = routes.ensure(TOPIC)
    work = routes.refreshing(destination)
    next(work)
    routes.forget_new()
    assert not routes.has(destination)
    assert list(work)
    assert destination.subscribers == ()
    assert len(routes.lent) == 0


def test_leaving_clients_are_skipped(desk: Clocked):
    reader, leaver, sender = crowd(desk), crowd(desk, 600), desk.actor()
    leaver.is_gone()
    assert leaver.client in desk.broker.destinations.leaving
    sender.sends(TOPIC, "a")
    desk.settles()
    assert new_bodies(reader) == ["a"] * MANY
    assert new_bodies(leaver) == []


def run(work: Work) -> Recipients:
    while True:
        try:
            next(work)
        except StopIteration as end:
            recipients: Recipients = end.value
            return recipients


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("is_topic", [True, False])
def test_the_same_are_found_as_at_once(seed: int, is_topic: bool):
    chance = random.Random(seed)
    desk = Bench()
    actor = desk.actor()
    for number in range(90):
        ack = chance.choice(["auto", "client"])
        selector = {"selector": "a = 1"} if chance.random() < 0.2 else {}
        durable = {"activemq_subscriptionName": f"d{number}"} if chance.random() < 0.2 else {}
        actor.subscribes(TOPIC, f"{number}", ack, **selector, **durable)
    members: list[Member] = list(desk.broker.destinations.ensure(TOPIC).exact)
    assert len({type(each) for each in members}) == 2
    tables: list[list[Member]] = [[], members[:70]]
    tables += [chance.sample(members, 40) for _ in range(seed)]  # twice, and in no order
    found = [each for table in tables for each in table]
    wanted = recipients_of(found, is_topic=is_topic, has_wild=True, leaves=seed % 2 > 0)
    calls: list[int] = []

    def collect() -> None:
        calls.append(len(calls))

    got = run(
        sorting(tables, is_topic=is_topic, leaves=seed % 2 > 0, like=None, collect_young=collect)
    )
    assert list(got.subscribers) == list(wanted.subscribers)
    assert list(got.plain) == list(wanted.plain)
    assert list(got.filtered) == list(wanted.filtered)
    assert list(got.durables) == list(wanted.durables)
    assert got.bindings == wanted.bindings
    assert got.is_crowded == is_topic
    assert calls
    same = sorting(tables, is_topic=is_topic, leaves=False, like=got, collect_young=collect)
    assert run(same) is got


# --- memory of lists --------------------------------------------------------------------------


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
    monkeypatch.setattr("trio_stomp.broker.routing._shared_recipients.MAX_ENTRIES", most)
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
    monkeypatch.setattr("trio_stomp.broker.routing._shared_recipients.MAX_ENTRIES", 1000)
    monkeypatch.setattr("trio_stomp.broker.routing._shared_recipients.MOST_GIVEN_UP", 3)
    desk = Bench()
    topics(desk, 50, 100, alike=False)
    lent = desk.broker.destinations.lent
    before = len(lent)
    desk.turn()
    assert len(lent) == before - 3


def test_the_bound_follows_the_memory():
    assert SharedRecipients(MemoryBudget(1024 << 20)).max_size == MAX_ENTRIES
    assert SharedRecipients(MemoryBudget(64 << 20)).max_size * 8 == 2 << 20


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


def test_a_list_that_is_in_use_is_not_given_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("trio_stomp.broker.routing._shared_recipients.MAX_ENTRIES", 400)
    desk = Bench()
    routes = desk.broker.destinations
    reader = desk.actor()
    for number in range(150):
        reader.subscribes("/topic/a.*", f"{number}")
        reader.subscribes("/topic/b.*", f"b{number}")
    one, two = routes.open("/topic/a.1"), routes.open("/topic/b.1")
    desk.broker.lines.open([one])
    desk.turn()
    assert len(one.subscribers) == 150
    assert two.subscribers == ()
    desk.broker.lines.close([one])
    routes.refresh(two)
    desk.turn()
    assert len(two.subscribers) == 150
    assert one.subscribers == ()
