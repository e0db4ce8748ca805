"""A COMMIT of very much that is to survive: written, and seen, in pieces; and as a whole."""

from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.core import Actor, run_of, texts
from tests.support.durable_fakes import DurableBench
from tests.support.quota_fakes import ALL as EVERYTHING
from tests.support.quota_fakes import user
from tests.support.share_fakes import MOST, ClockedDurable
from tests.support.stores import KINDS, make_place
from tests.support.stores import numbers as numbers
from tests.support.stores import postgres as postgres
from trio_stomp.broker import BrokerPolicies
from trio_stomp.broker.queues._storage import ArrivalEffect, Storage
from trio_stomp.frames import FrameRun
from trio_stomp.protocol import Committed, Subscribed
from trio_stomp.store import Atomic

MANY = 500
ALL = [f"{n}" for n in range(MANY)]
KEPT = (("persistent", "true"),)
TOPIC = "/topic/t"


def puts(*names: str, count: int = MANY) -> list[FrameRun]:
    return [run_of(names[n % len(names)], [f"{n}"], (*KEPT, ("n", f"{n}"))) for n in range(count)]


def settles(desk: ClockedDurable) -> None:
    while desk.broker.has_more or desk.turns:
        desk.answers()


def durables(desk: ClockedDurable, count: int) -> list[Actor]:
    """Subscribers to TOPIC, each with a durable subscription."""
    actors = [desk.actor() for _ in range(count)]
    for n, actor in enumerate(actors):
        headers = (("durable-subscription-name", f"d{n}"),)
        actor.does(Subscribed("d", TOPIC, "client", headers, None))
    settles(desk)
    return actors


def begun(desk: ClockedDurable, *events: Committed) -> Actor:
    """Some of it is written, and not all."""
    actor = desk.actor()
    actor.does(*events)
    while not desk.log.is_writing:
        desk.turn()
    desk.turn()
    assert desk.log.is_writing
    return actor


def written(desk: ClockedDurable) -> None:
    while not desk.turns or desk.broker.has_more:
        desk.turn()


def held(again: DurableBench, name: str) -> list[str]:
    """Return the messages in a queue after a restart."""
    taker = again.actor()
    taker.subscribes(name)
    found: list[str] = []
    while more := taker.bodies():
        found += more
    return found


@pytest.mark.parametrize("name", ["/queue/q", TOPIC])
def test_records_and_deliveries_of_a_commit_are_bounded_per_turn(
    name: str, monkeypatch: pytest.MonkeyPatch
):
    arrived, arrive = 0, Storage.arrive

    def counted(self: Storage, arrival: ArrivalEffect, now: float) -> None:
        nonlocal arrived
        arrived += 1
        arrive(self, arrival, now)

    monkeypatch.setattr(Storage, "arrive", counted)
    desk = ClockedDurable(is_prompt=False)
    recipients = durables(desk, 3)
    copies = len(recipients) if name == TOPIC else 1
    taker = desk.actor()
    taker.subscribes("/queue/q")
    busy, light = desk.actor(), desk.actor()
    first = desk.log.next_id
    busy.does(Committed(puts(name), b"done"))
    ids, turns = [first], 0
    while not desk.turns:
        desk.turn()
        ids.append(desk.log.next_id)
        turns += 1
        light.sends("/queue/light", "x")
        assert len(desk.waiting("/queue/light")) == turns, "whoever else sends does not wait"
        assert turns < MANY
    assert ids[-1] >= first + copies * MANY
    assert max(b - a for a, b in pairwise(ids)) <= (MOST + 1) * copies
    assert len(desk.turns) == 1, "all of it comes to the store at once"
    ((record,),) = [[r for r in t.records if isinstance(r, Atomic)] for t in desk.turns]
    assert len(record.records) == copies * MANY
    there = [arrived]
    while desk.turns or len(desk.broker.turns) or desk.broker.durability.has_more:
        desk.answers()
        there.append(arrived)
    assert max(b - a for a, b in pairwise(there)) <= MOST + 1
    settles(desk)
    if name == TOPIC:
        for actor in recipients:
            given = actor.bodies()
            assert given == ALL[: len(given)] != []
    else:
        assert taker.bodies() == ALL
    assert [frame.get("receipt-id") for frame in busy.writes()] == ["done"]


def test_no_subscriber_sees_a_part_of_a_commit():
    desk = ClockedDurable(is_prompt=False)
    names = ("/queue/a", "/queue/b", TOPIC)
    recipients = [desk.actor() for _ in names]
    for taker, name in zip(recipients, names, strict=True):
        taker.subscribes(name)
    busy, other = desk.actor(), desk.actor()
    busy.does(Committed(puts(*names), b"done"))
    written(desk)
    seen = [0, 0, 0]
    while desk.turns or desk.broker.has_more:
        desk.answers()
        if not any(seen):
            other.sends(TOPIC, "other")
        before, seen = seen, [len(taker.outbox.log) for taker in recipients]
        if desk.broker.durability.has_more:
            assert not any(seen)
        assert not any(before) or seen >= before
    assert [texts(taker.writes()) for taker in recipients[:2]] == [ALL[0::3], ALL[1::3]]
    mine = texts(recipients[2].writes())
    assert mine[: len(ALL[2::3])] == ALL[2::3] or mine[-len(ALL[2::3]) :] == ALL[2::3]


@pytest.mark.parametrize("kind", KINDS)
def test_messages_sent_meanwhile_keep_their_position_after_a_restart(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
):
    place = make_place(kind, tmp_path, request)
    store = place.make()
    desk = ClockedDurable(is_prompt=False, store=store)
    other = desk.actor()
    begun(desk, Committed(puts("/queue/q"), b"done"))
    sent = 0
    while desk.log.is_writing:
        other.sends("/queue/q", f"other {sent}", persistent="true")
        sent += 1
        desk.turn()
    settles(desk)
    there = desk.waiting("/queue/q")
    assert [body for body in there if "other" not in body] == ALL
    assert [body for body in there if "other" in body] == [f"other {n}" for n in range(sent)]
    assert there[:MANY] != ALL
    assert len(desk.turns) == 0 < sent
    store.close()
    again = DurableBench(store=place.make())
    assert again.failures == []
    assert held(again, "/queue/q") == there
    again.store.close()


def test_two_of_them_do_not_hold_back_the_store_together():
    desk = ClockedDurable(is_prompt=False)
    first = begun(desk, Committed(puts("/queue/a"), b"first"))
    second = desk.actor()
    second.does(Committed(puts("/queue/b"), b"second"))
    while not desk.turns:
        desk.turn()
    assert [len(turn.records) for turn in desk.turns] == [2], "the second waits"
    settles(desk)
    assert desk.waiting("/queue/a") == desk.waiting("/queue/b") == ALL
    assert [f.get("receipt-id") for f in first.writes()] == ["first"]
    assert [f.get("receipt-id") for f in second.writes()] == ["second"]


def test_a_store_that_fails_meanwhile_has_nothing_of_it():
    desk = ClockedDurable(is_prompt=False)
    other, taker = desk.actor(), desk.actor()
    other.sends("/queue/in", *ALL[:5], persistent="true")
    settles(desk)
    taker.subscribes("/queue/in", ack="client-individual")
    settles(desk)
    taken = taker.writes()
    before = desk.memory.kept_bytes
    other.sends("/queue/x", "lost", persistent="true")
    desk.turn()
    taker.does(Committed([taker.acked(taken[0]), *puts("/queue/q"), taker.acked(taken[1])], b"c"))
    while not desk.log.is_writing:
        desk.turn()
    desk.turn()
    assert desk.log.is_writing
    desk.fails()
    settles(desk)
    (error,) = taker.writes()
    assert (error.command, error.get("code"), error.get("receipt-id")) == ("ERROR", "storage", "c")
    assert not desk.log.is_writing
    assert desk.broker.turns.first is None
    assert desk.waiting("/queue/q") == desk.waiting("/queue/x") == []
    assert desk.waiting("/queue/in") == ALL[:5], "what it would have acknowledged is there again"
    assert desk.memory.kept_bytes == before
    again = desk.restarts()
    assert held(again, "/queue/in") == ALL[:5]
    assert held(again, "/queue/q") == []


def test_commit_of_a_client_lost_meanwhile_is_completed():
    desk = ClockedDurable(is_prompt=False)
    busy = begun(desk, Committed(puts("/queue/q"), b"done"))
    busy.is_gone()
    settles(desk)
    assert desk.waiting("/queue/q") == ALL
    assert held(desk.restarts(), "/queue/q") == ALL
    assert busy.client not in desk.broker.clients


def test_subscribers_and_senders_of_its_topics_wait_until_a_commit_is_written():
    desk = ClockedDurable(is_prompt=False)
    (keeper,) = durables(desk, 1)
    begun(desk, Committed(puts(TOPIC), b"done"))
    late, other = desk.actor(), desk.actor()
    late.does(Subscribed("d", TOPIC, "client", (("durable-subscription-name", "late"),), None))
    other.sends(TOPIC, "other")
    while desk.log.is_writing:
        assert not late.client.subscriptions
        desk.turn()
    settles(desk)
    assert set(late.bodies()) <= {"other"}, "of what was written before it came it gets nothing"
    given = [each for each in keeper.bodies() if each != "other"]
    assert given == ALL[: len(given)] != []


def test_two_large_commits_both_continue_in_each_turn():
    desk = ClockedDurable(is_prompt=False)
    begun(desk, Committed(puts("/queue/q"), b"done"))
    light = [run_of("/queue/m", ["x"], (("n", f"{n}"),)) for n in range(MANY)]
    desk.actor().does(Committed(light, None))
    both = 0
    while desk.log.is_writing:
        before, other = desk.log.next_id, len(desk.broker.turns)
        desk.turn()
        both += other > 1
        assert desk.log.next_id > before, "it goes on in each turn"
    assert both
    settles(desk)
    assert desk.waiting("/queue/q") == ALL
    assert len(desk.waiting("/queue/m")) == MANY


def test_messages_without_recipients_are_not_stored():
    desk = ClockedDurable(is_prompt=False)
    busy = begun(desk, Committed(puts(TOPIC), b"done"))
    settles(desk)
    assert desk.store.statistics().live_messages == 0
    assert [frame.get("receipt-id") for frame in busy.writes()] == ["done"]


@pytest.mark.parametrize("works", [True, False])
def test_schedules_are_written_in_pieces_too_and_counted_for_their_user(works: bool):
    policies = BrokerPolicies(max_schedules_per_user=MANY)
    desk = ClockedDurable(book={}, policies=policies, is_prompt=False)
    desk.broker.use_rules(EVERYTHING, lambda _: True, desk.now)
    busy = user(desk, "ann")
    quota = busy.client.quota
    assert quota is not None
    headers = (*KEPT, ("AMQ_SCHEDULED_DELAY", "500"))
    user(desk, "bob").sends("/queue/x", persistent="true")
    desk.turn()
    busy.does(Committed([run_of("/queue/q", [each], headers) for each in ALL], b"done"))
    numbers = [desk.log.next_id]
    while not desk.log.is_writing:
        desk.turn()
    if works:
        while len(desk.turns) < 2:
            desk.turn()
            numbers.append(desk.log.next_id)
        assert max(b - a for a, b in pairwise(numbers)) <= MOST
    else:
        desk.fails()
    settles(desk)
    assert quota.scheduled == (MANY if works else 0)
    for _ in range(MANY):
        desk.passes(0.1)
        settles(desk)
    assert len(desk.waiting("/queue/q")) == (MANY if works else 0)


def test_a_composite_is_seen_at_once_though_the_time_is_up():
    desk = ClockedDurable(is_prompt=False)
    taker, busy = desk.actor(), desk.actor()
    taker.subscribes("/queue/a")
    for n in range(60):
        busy.sends("/queue/a,/queue/b", f"{n}", persistent="true", n=f"{n}")
    desk.turn()
    settles(desk)
    assert taker.bodies() == desk.waiting("/queue/b") == ALL[:60]
