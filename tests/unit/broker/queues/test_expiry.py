"""Messages that expire wherever they are, and policies that hold wherever they are."""

import pytest

from tests.support.core import Bench, Core, Pairs, bench, numbered, run_of, texts
from tests.support.durable_fakes import DurableBench
from trio_stomp.broker import DestinationPolicy
from trio_stomp.broker.routing import PolicyBook

Q, DEAD, OTHER, T = "/queue/q", "/queue/DLQ.q", "/queue/other", "/topic/t"
EXPIRING = DestinationPolicy(dead_letter_expired=True, backoff_s=(60.0,))


def dead(desk: Bench) -> list[str]:
    return desk.waiting(DEAD)


@pytest.mark.parametrize("count", [1, 15, 16, 17, 600])
def test_messages_expire_behind_others_that_stay(count: int) -> None:
    desk = bench(EXPIRING)
    actor = desk.actor()
    for level in ("9", "4"):
        actor.sends(Q, "stays", priority=level)
        actor.sends(Q, *numbered(level, count), ttl="1000", priority=level)
        actor.sends(Q, "later", ttl="5000", priority=level)
    desk.passes(1.0)
    desk.settles()
    assert sorted(dead(desk)) == sorted([*numbered("9", count), *numbered("4", count)])
    assert desk.waiting(Q) == ["stays", "later"] * 2
    desk.passes(4.0)
    desk.settles()
    assert desk.waiting(Q) == ["stays"] * 2


def test_a_sweep_rests_the_longer_the_more_there_is_to_look_at() -> None:
    desk = bench()
    actor = desk.actor()
    actor.sends(Q, *numbered("", 200_000), ttl="100000")
    actor.sends(Q, "x", ttl="1000")
    actor.sends(Q, "y", ttl="1100")
    desk.passes(1.0)
    desk.settles()
    desk.passes(1.9)
    desk.settles()
    assert desk.queue(Q).depth == 200_001
    desk.passes(0.2)
    desk.settles()
    assert desk.queue(Q).depth == 200_000


def test_what_expires_at_once_makes_a_long_queue_sweep_no_more_often() -> None:
    desk = bench()
    actor = desk.actor()
    actor.sends(Q, *numbered("", 200_000))
    for _ in range(50):
        actor.sends(Q, "short", ttl="1")
        desk.passes(0.002)
        desk.settles()
    assert desk.queue(Q).depth == 200_000 + 49  # the first sweep was at once
    assert len(desk.broker.timers) <= 2
    desk.passes(2.1)
    desk.settles()
    assert desk.queue(Q).depth == 200_000


def test_messages_expire_at_their_times_of_day() -> None:
    desk = bench()
    actor = desk.actor()
    began_ms = desk.broker.timers.wall.ms(desk.now)
    for text, after_ms in (("late", 20_000), ("soon", 1_000), ("stays", 30_000)):
        actor.sends(Q, text, expires=f"{began_ms + after_ms}")
    desk.passes(1.0)
    desk.settles()
    assert desk.waiting(Q) == ["late", "stays"]
    desk.passes(19.0)
    desk.settles()
    assert desk.waiting(Q) == ["stays"]
    desk.passes(10.0)
    desk.settles()
    assert desk.waiting(Q) == []


def test_a_message_expires_in_back_off() -> None:
    desk = bench(EXPIRING)
    actor = desk.actor()
    actor.subscribes(Q, ack="client-individual")
    actor.sends(Q, "x", ttl="1000")
    actor.nacks(*actor.reads())
    assert desk.queue(Q).depth == 1
    desk.passes(1.0)
    desk.settles()
    assert (dead(desk), desk.queue(Q).depth) == (["x"], 0)


# One active consumer.


def test_an_exclusive_consumer_stays_whatever_comes() -> None:
    desk = bench()
    first, later = desk.actor(), desk.actor()
    first.subscribes(Q, exclusive="true")
    later.subscribes(Q, exclusive="true", x_priority="9")
    first.sends(Q, "a")
    assert (first.bodies(), later.bodies()) == (["a"], [])
    first.unsubscribes()
    first.sends(Q, "b")
    assert later.bodies() == ["b"]


@pytest.mark.parametrize("ends", ["ack", "nack", "later", "leaves"])
def test_an_exclusive_consumer_of_many_queues_waits_for_others(ends: str) -> None:
    desk = bench(EXPIRING)
    other, alone = desk.actor(), desk.actor()
    other.subscribes(Q, ack="client-individual", prefetch_count="1")
    other.sends(Q, "a", "b")
    [held] = other.reads()
    alone.subscribes("/queue/*", ack="client-individual", exclusive="true")
    other.sends(OTHER, "c")
    assert alone.bodies() == ["c"]
    if ends == "ack":
        other.acks(held)
    elif ends == "nack":
        other.nacks(held, requeue=False)
    elif ends == "later":
        other.nacks(held)
    else:
        other.unsubscribes()
    assert alone.bodies() == (["a", "b"] if ends == "leaves" else ["b"])
    other.sends(Q, "d")
    assert (alone.bodies(), other.bodies()) == (["d"], [])


def test_a_policy_makes_a_queue_exclusive_and_free_again() -> None:
    core = Core()
    first, second = core.peer(), core.peer()
    for each in (first, second):
        each.subscribes(Q)
    core.broker.use_policies(PolicyBook([(Q, DestinationPolicy(exclusive=True))]))
    first.sends(Q, "a", "b")
    assert (first.bodies(), second.bodies()) == (["a", "b"], [])
    core.broker.use_policies(PolicyBook())
    first.sends(Q, "c", "d")
    assert (first.bodies(), second.bodies()) == (["a", "b", "d"], ["c"])


# Dead letters.


def test_the_newest_dead_letters_stay() -> None:
    book = {Q: DestinationPolicy(), DEAD: DestinationPolicy(max_messages=2, overflow="drop-oldest")}
    desk = Bench(book=book)
    actor = desk.actor()
    actor.subscribes(Q, ack="client-individual")
    actor.sends(Q, *"abc")
    actor.nacks(*actor.reads(), requeue=False)
    desk.turn()
    assert dead(desk) == ["b", "c"]


def test_a_dead_letter_is_stored_by_the_policy_of_its_queue() -> None:
    desk = DurableBench(book={DEAD: DestinationPolicy(persistent="always")})
    actor = desk.actor()
    actor.subscribes(Q, ack="client-individual")
    actor.sends(Q, "x")
    actor.nacks(*actor.reads(), requeue=False)
    desk.settles()
    assert texts(desk.restarts().reader(DEAD).reads()) == ["x"]


@pytest.mark.parametrize("most", ["", "0"])
def test_private_messages_become_no_dead_letters(most: str) -> None:
    desk = bench()
    owner, other = desk.actor(), desk.actor()
    owner.subscribes("/temp-queue/box", ack="client-individual")
    owner.subscribes(Q, "q")
    owner.sends(Q, "?", reply_to="/temp-queue/box")
    [question] = owner.reads("q")
    other.sends(question["reply-to"], "secret", max_exceptions=most or "9")
    [answer] = owner.reads("0")
    owner.nacks(answer, requeue=bool(most))
    desk.passes(100.0)
    desk.settles()
    assert [queue.name for queue in desk.broker.queues if "DLQ" in queue.name] == []
    assert desk.broker.queues.find("/queue/dlq") is None


# Last values, durable subscriptions.


def test_last_values_expire() -> None:
    desk = DurableBench()
    actor = desk.actor()
    actor.sends(T, "a", retain="set", ttl="1000", persistent="true")
    actor.sends(T, "b", retain="set", ttl="2000", persistent="true")
    desk.settles()
    desk.passes(1.5)
    assert list(desk.broker.last_values.owners) == [T]
    desk.passes(0.5)
    desk.settles()
    assert not desk.broker.last_values.owners
    assert desk.store.statistics().live_messages == 0
    assert desk.memory.used_bytes == 0


def test_a_shared_durable_subscription_in_use_is_not_replaced() -> None:
    core = Core()
    shared: Pairs = (("durable-subscription-name", "d"),)
    first, other = core.peer(), core.peer()
    first.subscribes(T, headers=shared)
    other.subscribes(T, headers=(*shared, ("selector", "a = 1")))
    assert other.error().get("code") == "subscription-in-use"
    core.peer().sends(T, "x")
    assert first.bodies() == ["x"]


def test_a_full_durable_subscription_keeps_the_newest_by_its_topics_policy() -> None:
    core = Core(book={T: DestinationPolicy(max_messages=2, overflow="drop-oldest")})
    shared: Pairs = (("durable-subscription-name", "d"),)
    first = core.peer()
    first.subscribes(T, headers=shared, ack="client")
    first.is_gone()
    core.peer().sends(T, *"abc")
    back = core.peer()
    back.subscribes(T, headers=shared)
    assert back.bodies() == ["b", "c"]


def test_a_full_durable_subscription_takes_what_comes_while_its_client_holds_all() -> None:
    core = Core(book={T: DestinationPolicy(max_messages=2, overflow="drop-oldest")})
    reader = core.peer()
    reader.subscribes(T, headers=(("durable-subscription-name", "d"),), ack="client-individual")
    core.peer().sends(T, "a", "b")
    core.peer().sends(T, "c")
    assert reader.bodies() == ["a", "b", "c"]


def test_a_durable_subscription_that_is_full_in_the_store_takes_what_comes() -> None:
    desk = DurableBench(book={T: DestinationPolicy(max_messages=2, overflow="drop-oldest")})
    durable = {"durable_subscription_name": "d"}
    desk.actor().subscribes(T, **durable)
    desk.turn()
    desk = desk.restarts()
    desk.actor().sends(T, "a", "b", persistent="true")
    desk.turn()
    desk = desk.restarts()
    desk.actor().sends(T, "c", persistent="true")
    desk.turn()
    assert desk.reader(T, **durable).bodies() == ["b", "c"]


def test_a_full_durable_subscription_makes_dead_letters_by_its_topics_policy() -> None:
    core = Core(book={T: DestinationPolicy(max_messages=2, overflow="dead-letter")})
    reader = core.peer()
    reader.subscribes(T, headers=(("durable-subscription-name", "d"),), ack="client")
    reader.is_gone()
    core.peer().sends(T, *"abc")
    core.turn()
    assert [core.waiting(queue.name) for queue in core.broker.queues] == [["a"]]
    assert core.broker.overflow.backlog_dropped == 1
    assert core.broker.destinations.open(T).dropped == 0


def test_a_transaction_that_an_empty_queue_does_not_take_says_so() -> None:
    desk = bench(max_messages=1)
    actor = desk.actor()
    actor.commits(run_of(Q, ["a", "b"]))
    assert "is empty, and takes less at once" in actor.error()["message"]


def test_a_queue_is_shortened_when_a_message_returns() -> None:
    desk = bench(DestinationPolicy(overflow="drop-oldest", max_messages=2))
    reader, other, sender = desk.actor(), desk.actor(), desk.actor()
    for each in (reader, other):
        each.subscribes(Q, ack="client-individual", prefetch_count="1")
    sender.sends(Q, "1", "2")
    (first,) = reader.reads()
    sender.sends(Q, "3", "4")  # all that is older is held
    assert desk.queue(Q).message_count == 3
    reader.unsubscribes()
    assert desk.waiting(Q) == ["4"]
    assert (desk.queue(Q).message_count, first.text) == (2, "1")


def test_dead_letters_stay_in_their_group() -> None:
    desk = bench(DestinationPolicy(max_redeliveries=0))
    reader, sender = desk.actor(), desk.actor()
    reader.subscribes(Q, ack="client-individual")
    sender.sends(Q, *"abcd", JMSXGroupID="g", ttl="60000")
    reader.nacks(*reader.reads())
    desk.passes(60.0)
    one, other = desk.reader(DEAD), desk.reader(DEAD)
    assert (one.bodies(), other.bodies()) == (["a", "b", "c", "d"], [])


def test_a_producer_that_waits_for_room_goes_on_by_a_new_policy() -> None:
    desk = bench(DestinationPolicy(overflow="block", max_messages=1))
    sender = desk.actor()
    sender.sends(Q, "a", "b")
    assert desk.broker.overflow.blocked
    desk.queue(Q).configure(DestinationPolicy(overflow="drop-oldest", max_messages=1))
    desk.settles()
    assert not desk.broker.overflow.blocked
    assert desk.waiting(Q) == ["b"]
