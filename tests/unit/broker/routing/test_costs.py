"""Bounds on the cost of a message at its subscribers, of all users and of one."""

import pytest

from tests.support.core import Actor, Bench
from tests.support.quota_fakes import ALL, user
from trio_stomp.base import MemoryBudget
from trio_stomp.broker.delivery import DEAR_S, LIMIT_S
from trio_stomp.frames import FrameRun, Head
from trio_stomp.protocol import Acked, Committed

T = "/topic/t"
DEAR = "a = 1 OR a = 2 OR a = 3"
"""A selector that is as dear here as one of 1,000 words: 0.6 ms with what ``selector`` adds."""
MOST = int(LIMIT_S / 0.6e-3)


@pytest.fixture(autouse=True)
def dear_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trio_stomp.broker.selectors._selector.WORD_S", 40e-6)


def selector(number: int) -> str:
    return f"{DEAR} OR b = {number}"


def filled(
    bench: Bench, destination: str, count: int, name: str = "", first: int = 0
) -> list[Actor]:
    """Return clients with dear subscriptions, some of each."""
    found = []
    for start in range(0, count, 50):
        actor = actor_of(bench, name)
        for number in range(start, min(count, start + 50)):
            actor.subscribes(destination, id=f"{number}", selector=selector(first + number))
        found.append(actor)
    return found


def actor_of(bench: Bench, name: str = "") -> Actor:
    return user(bench, name) if name else bench.actor()


def bodies(actor: Actor) -> list[str]:
    return [frame.text for frame in actor.writes() if frame.command == "MESSAGE"]


def acknowledging(bench: Bench, destination: str, count: int) -> None:
    """Subscribe with acknowledgements, each of which costs 6 us for each message of a run."""
    reader = bench.actor()
    for number in range(count):
        reader.subscribes(destination, f"{number}", "client")


def test_a_topic_takes_subscribers_up_to_the_limit_and_names_it() -> None:
    bench = Bench()
    filled(bench, T, MOST - 20)
    late = bench.actor()
    for number in range(100):
        late.subscribes(T, id=f"late {number}", selector=selector(10_000 + number))
        if late.client.is_refused:
            break
    error = late.error()
    assert error.get("code") == "too-many-subscriptions"
    assert "of 100 that are allowed" in (error.get("message") or "")
    sender, reader = bench.actor(), bench.actor()
    reader.subscribes("/topic/other")
    sender.sends(T, "x")
    bench.settles()
    assert not sender.client.is_refused
    reader.subscribes("/topic/more", id="more")
    assert not reader.client.is_refused


def test_equal_selectors_count_once_for_a_message() -> None:
    bench = Bench()
    readers = [bench.actor() for _ in range(4)]
    for reader in readers:
        for number in range(MOST):
            reader.subscribes(T, id=f"{number}", selector=DEAR)
        assert not reader.client.is_refused
    bench.actor().sends(T, "x", a="3")
    bench.settles()
    assert [len(bodies(reader)) for reader in readers] == [MOST] * 4


def test_where_wildcards_exceed_the_limit_together_the_send_is_refused() -> None:
    bench = Bench()
    filled(bench, "/topic/>", MOST + 20)
    sender = bench.actor()
    sender.sends(T, "x")
    bench.settles()
    assert sender.error().get("code") == "too-many-subscriptions"


def test_a_dear_message_waits_until_everything_cheap_is_done() -> None:
    bench = Bench()
    filled(bench, T, int(DEAR_S / 0.6e-3) + 20)
    first, second, cheap = bench.actor(), bench.actor(), bench.actor()
    reader = bench.actor()
    reader.subscribes("/topic/>", id="all")
    bench.settles()
    first.sends(T, "dear 1")
    second.sends(T, "dear 2")
    cheap.sends("/topic/cheap", "cheap")
    assert bodies(reader) == ["cheap"]
    bench.turn()
    assert bodies(reader) == ["dear 1"]
    bench.turn()
    assert bodies(reader) == ["dear 2"]


def test_a_run_is_cut_between_messages_and_keeps_its_order_and_receipts() -> None:
    bench = Bench()
    acknowledging(bench, T, 550)  # 3.3 ms each
    reader, sender = bench.actor(), bench.actor()
    reader.subscribes(T)
    run = FrameRun(
        Head("SEND", (("destination", T),), -1, T), [b"%d" % n for n in range(9)], [(9, b"last")]
    )
    sender.does(run)
    taken = [len(bodies(reader))]
    while bench.broker.has_more:
        bench.turn()
        taken.append(len(bodies(reader)))
    assert sum(taken) == 9
    assert max(taken) <= 3
    assert sender.writes()[-1].get("receipt-id") == "last"


def test_a_run_of_which_plain_subscribers_share_all_is_not_cut() -> None:
    """A message takes 0.5 us for each subscriber, and each further one of its run a fifth."""
    bench = Bench()
    reader, sender = bench.actor(), bench.actor()
    for number in range(75):
        reader.subscribes(T, f"{number}")
    sender.sends(T, *["x"] * 1_000)
    assert len(bodies(reader)) == 75_000
    assert not bench.broker.has_more


def test_a_run_for_subscribers_with_selectors_is_not_cut_either() -> None:
    bench = Bench()
    reader, sender = bench.actor(), bench.actor()
    for number in range(75):
        reader.subscribes(T, f"{number}", selector="a IS NULL")
    sender.sends(T, *["x"] * 1_000)
    assert len(bodies(reader)) == 75_000
    assert not bench.broker.has_more


def test_a_commit_that_costs_more_than_the_limit_is_refused_by_name() -> None:
    bench = Bench()
    filled(bench, T, 8)
    sender, reader = bench.actor(), bench.actor()
    reader.subscribes(T)
    runs = [FrameRun(Head("SEND", (("destination", T),), -1, T), [b"x"], []) for _ in range(30)]
    sender.does(Committed(runs, b"r"))
    bench.settles()
    error = sender.error()
    assert (error.get("code"), error.get("receipt-id")) == ("transaction-too-large", "r")
    assert bodies(reader) == []
    bench.actor().does(Committed(runs[:10], b"r"))
    bench.settles()
    assert len(bodies(reader)) == 10


@pytest.mark.parametrize("destination", [T, "/topic/>"])
def test_a_user_leaves_half_to_others(destination: str) -> None:
    bench = Bench(memory=MemoryBudget(1 << 30, 0.8))
    bench.broker.use_rules(ALL, lambda _: True, bench.now)
    greedy = filled(bench, destination, MOST + 60, "mallory")
    sender, other = actor_of(bench, "alice"), actor_of(bench, "bob")
    other.subscribes(T, selector=selector(99_999))
    sender.sends(T, "x")
    bench.settles()
    again = actor_of(bench, "alice")
    again.sends(T, "y", b="99999")
    bench.settles()
    assert not again.client.is_refused
    assert bodies(other)[-1:] == ["y"]
    assert any(each.client.is_refused for each in greedy)


def test_a_composite_run_is_cut_as_well() -> None:
    bench = Bench()
    acknowledging(bench, T, 300)
    acknowledging(bench, "/topic/u", 300)
    reader, sender = bench.actor(), bench.actor()
    reader.subscribes(T)
    names = f"{T},/topic/u"
    sender.does(FrameRun(Head("SEND", (("destination", names),), -1, names), [b"x"] * 7, []))
    assert 0 < len(bodies(reader)) < 7
    bench.settles()
    assert not sender.client.is_refused
    assert bench.broker.destinations.ensure(T).enqueued == 7


def test_a_commit_whose_cost_is_unknown_is_refused_for_its_fault() -> None:
    bench = Bench()
    filled(bench, "/topic/>", 2)
    fault, wrong = bench.actor(), bench.actor()
    fault.does(Committed([Acked([b"none-1"], "id", None, False, True, ())], b"r"))
    assert fault.error().get("code") == "unknown-ack"
    run = FrameRun(Head("SEND", (("destination", ","),), -1, ","), [b"x"], [])
    wrong.does(Committed([run], b"r"))
    assert wrong.error().get("code") == "invalid-destination"


def test_of_many_users_one_is_ended_and_the_others_go_on() -> None:
    bench = Bench(memory=MemoryBudget(1 << 30, 0.8))
    bench.broker.use_rules(ALL, lambda _: True, bench.now)
    actors = [
        actor
        for n in range(8)
        for actor in filled(bench, "/topic/>", MOST // 7, f"user-{n}", n * 1000)
    ]
    sender = actor_of(bench, "alice")
    sender.sends(T, "x")
    bench.settles()
    assert sender.error().get("code") == "too-many-subscriptions"
    assert len({each.client.user for each in actors if each.client.is_refused}) == 1
    again = actor_of(bench, "alice")
    again.sends(T, "y")
    bench.settles()
    assert not again.client.is_refused


def test_a_work_queue_counts_its_selectors_and_one_recipient() -> None:
    bench = Bench()
    filled(bench, "#work", 5)
    sender = bench.actor()
    sender.sends("#work", "x", a="1")
    bench.settles()
    destination = bench.broker.destinations.find_current("#work")
    assert destination is not None
    assert destination.cost_s == pytest.approx(5 * 0.6e-3, rel=0.3)
