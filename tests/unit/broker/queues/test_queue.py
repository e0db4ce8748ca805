"""Queues: order, turns, priorities, groups, selectors, wildcards, and dead letters."""

import random
from collections.abc import Iterator

import pytest

from tests.support.core import OVERHEAD, Actor, Bench, Received, bench, numbered, run_of, texts
from tests.support.limits import MAX_GROUPS
from trio_stomp.broker import BrokerPolicies, DestinationPolicy
from trio_stomp.broker.queues import DeadLetterReason

Q = "/queue/q"


# Order and turns.


@pytest.fixture
def desk() -> Iterator[Bench]:
    """Yield a core that must be empty at the end of the test."""
    desk = bench()
    yield desk
    desk.ends()


def test_messages_wait_for_a_consumer_and_come_in_order(desk: Bench):
    sender, reader = desk.actor(), desk.actor()
    sender.sends(Q, "a", "b")
    sender.sends(Q, "c", receipts=[(1, b"r")])
    assert [frame.command for frame in sender.frames()] == ["RECEIPT"]
    assert desk.waiting(Q) == ["a", "b", "c"]
    reader.subscribes(Q)
    assert reader.bodies() == ["a", "b", "c"]
    assert desk.queue(Q).dequeued == 3
    assert desk.memory.used_bytes == 0


def test_the_age_of_a_queue_is_that_of_its_oldest_message(desk: Bench):
    sender, reader = desk.actor(), desk.actor()
    sender.sends(Q, "a")
    desk.passes(20)
    sender.sends(Q, "b")
    queue = desk.queue(Q)
    assert queue.oldest_waiting_age_s(desk.now) == 20
    desk.passes(10)
    assert queue.oldest_waiting_age_s(desk.now) == 30
    reader.subscribes(Q, ack="client", prefetch_count="1")
    assert reader.bodies() == ["a"]
    assert queue.oldest_waiting_age_s(desk.now) == 10
    assert queue.oldest_waiting_age_s(desk.now - 100) == 0.0, "a clock that was set back"
    reader.is_gone()
    assert queue.oldest_waiting_age_s(desk.now) == 30
    other = desk.actor()
    other.subscribes(Q)
    assert other.bodies() == ["a", "b"]
    assert queue.oldest_waiting_age_s(desk.now) == 0.0


def test_each_message_goes_to_one_consumer_in_turn(desk: Bench):
    readers = [desk.actor() for _ in range(3)]
    for reader in readers:
        reader.subscribes(Q)
    readers[0].sends(Q, *numbered("", 6))
    desk.turn()
    readers[0].sends(Q, "6", "7")
    assert [reader.bodies() for reader in readers] == [["0", "3", "6"], ["1", "4", "7"], ["2", "5"]]


def test_a_broker_that_may_not_own_its_queues_now_hands_nothing_out(desk: Bench):
    """It delivers nothing while its lease in a cluster has expired, and then continues, without a
    busy wait."""
    may = False
    desk.broker.queues.may_hand_out = lambda: may
    reader = desk.reader(Q)
    desk.actor().sends(Q, "a")
    assert reader.bodies() == []
    assert not desk.broker.has_more
    may = True
    desk.turn()
    assert reader.bodies() == ["a"]


def test_single_messages_take_turns_too(desk: Bench):
    readers = [desk.actor() for _ in range(2)]
    for reader in readers:
        reader.subscribes(Q, ack="client-individual")
    for body in numbered("", 5):
        readers[0].sends(Q, body)
        desk.turn()
    assert [reader.bodies() for reader in readers] == [["0", "2", "4"], ["1", "3"]]


def test_consumer_without_credit_or_room_is_skipped(desk: Bench):
    busy, full, free = (desk.actor() for _ in range(3))
    busy.subscribes(Q, ack="client", prefetch_count="1")
    full.subscribes(Q)
    free.subscribes(Q)
    full.outbox.room = 0
    busy.sends(Q, *numbered("", 5))
    [first] = busy.reads()
    assert first.text == "0"
    assert free.bodies() == ["1", "2", "3", "4"]
    free.unsubscribes()
    free.sends(Q, "5", "6")
    assert free.bodies() == []
    assert desk.waiting(Q) == ["5", "6"]
    full.opens_up()
    assert full.bodies() == ["5", "6"]
    busy.acks(first)
    busy.sends(Q, "7")
    assert (busy.bodies(), full.bodies()) == (["7"], [])


def test_consumers_of_higher_priority_come_first_while_they_have_credit(desk: Bench):
    low, high, higher = (desk.actor() for _ in range(3))
    low.subscribes(Q)
    high.subscribes(Q, ack="client", prefetch_count="2", x_priority="5")
    higher.subscribes(Q, ack="client", prefetch_count="1", x_priority="6")
    low.sends(Q, *numbered("", 5))
    assert (higher.bodies(), high.bodies(), low.bodies()) == (["0"], ["1", "2"], ["3", "4"])


def test_priority_holds_while_its_consumer_searches_other_queues(desk: Bench):
    """A COMMIT's ACK gives credit to a wildcard consumer, and its SENDs go to queues of it."""
    low, high = desk.actor(), desk.actor()
    for name in "abc":
        low.subscribes(f"/queue/{name}", name)
    high.subscribes("/queue/*", ack="client", prefetch_count="2", x_priority="1")
    low.sends("/queue/a", "0", "1")
    _, second = high.reads()
    runs = [run_of(f"/queue/{name}", [f"{name}0", f"{name}1"]) for name in "abc"]
    high.commits(high.acked(second), *runs)
    got = [frame for frame in high.frames() if frame.command == "MESSAGE"]
    assert len(got) == 2, "all of its credit is used"
    assert len(low.bodies()) == 4


def test_a_consumer_left_with_one_queue_in_the_middle_of_its_search_is_served(desk: Bench):
    reader = desk.actor()
    reader.subscribes("/queue/a,/queue/b", ack="client", prefetch_count="1")
    reader.sends("/queue/a", "0", "1")
    [first] = reader.reads()
    reader.acks(first)
    desk.actor().sends("/queue/a", "2")
    desk.broker.queues.end("/queue/b", desk.now)
    assert reader.bodies() == ["1"]


def test_a_lower_priority_gets_messages_that_the_higher_one_does_not_select(desk: Bench):
    low, high = desk.actor(), desk.actor()
    low.subscribes(Q)
    high.subscribes(Q, x_priority="5", selector="colour = 'red'")
    low.sends(Q, "a", colour="blue")
    low.sends(Q, "b", colour="red")
    low.sends(Q, "c", colour="blue")
    assert high.bodies() == ["b"]
    assert low.bodies() == ["a", "c"]


def test_the_first_that_asks_for_it_is_the_only_active_consumer_until_it_goes(desk: Bench):
    plain, first, second = (desk.actor() for _ in range(3))
    plain.subscribes(Q)
    plain.sends(Q, "0")
    assert plain.bodies() == ["0"]
    for reader in (first, second):
        reader.subscribes(Q, ack="client", exclusive="true", prefetch_count="2")
    plain.sends(Q, "1", "2", "3")
    assert (plain.bodies(), second.bodies(), first.bodies()) == ([], [], ["1", "2"])
    first.is_gone()
    assert second.bodies() == ["1", "2"]
    second.unsubscribes()
    assert plain.bodies() == ["1", "2", "3"]


def test_a_policy_may_make_a_queue_exclusive():
    desk = bench(exclusive=True)
    first, second = desk.actor(), desk.actor()
    first.subscribes(Q)
    second.subscribes(Q)
    first.sends(Q, "0", "1")
    assert (first.bodies(), second.bodies()) == (["0", "1"], [])
    first.leaves()
    second.sends(Q, "2")
    assert second.bodies() == ["2"]


def test_an_exclusive_newcomer_takes_the_groups_over(desk: Bench):
    first, second = desk.actor(), desk.actor()
    first.subscribes(Q)
    first.sends(Q, "0", message_group="g")
    assert first.bodies() == ["0"]
    second.subscribes(Q, exclusive="true")
    first.sends(Q, "1", message_group="g")
    assert second.bodies() == ["1"]


# Priority of messages.


def test_messages_of_higher_priority_come_first(desk: Bench):
    actor = desk.actor()
    for body, priority in (("a", "0"), ("b", "9"), ("c", "4"), ("d", "9"), ("e", "200")):
        actor.sends(Q, body, priority=priority)
    actor.sends(Q, "f")
    actor.subscribes(Q)
    assert actor.bodies() == ["b", "d", "e", "c", "f", "a"]


def test_a_policy_may_ignore_priorities_of_returned_messages_too():
    desk = bench(priority=False, overflow="drop-oldest", max_messages=3)
    actor = desk.actor()
    actor.sends(Q, "a", priority="0")
    actor.sends(Q, "b", priority="9")
    actor.sends(Q, "c", "d", priority="5")  # one by one: the queue is full
    actor.subscribes(Q, ack="client")
    assert actor.bodies() == ["b", "c", "d"]
    actor.unsubscribes()
    assert desk.waiting(Q) == ["b", "c", "d"]
    actor.subscribes(Q)
    assert actor.bodies() == ["b", "c", "d"]


# Selectors.


def test_selectors_choose_and_others_overtake(desk: Bench):
    red, rest = desk.actor(), desk.actor()
    red.subscribes(Q, selector="colour = 'red'")
    for body, colour in (("0", "blue"), ("1", "red"), ("2", "blue"), ("3", "red")):
        red.sends(Q, body, colour=colour)
    assert red.bodies() == ["1", "3"]
    assert desk.waiting(Q) == ["0", "2"]
    rest.subscribes(Q)
    assert rest.bodies() == ["0", "2"]
    red.unsubscribes()
    assert not desk.queue(Q).has_selectors


def test_turns_alternate_among_consumers_that_select_a_message(desk: Bench):
    readers = [desk.actor() for _ in range(3)]
    readers[0].subscribes(Q, selector="colour = 'red'")
    readers[1].subscribes(Q)
    readers[2].subscribes(Q, selector="colour = 'blue'")
    readers[0].sends(Q, *numbered("r", 4), colour="red")
    readers[0].sends(Q, *numbered("b", 4), colour="blue")
    got = [reader.bodies() for reader in readers]
    assert got == [["r0", "r2"], ["r1", "r3", "b1", "b3"], ["b0", "b2"]]


def test_the_search_past_unwanted_messages_has_no_bound(desk: Bench):
    actor = desk.actor()
    actor.subscribes(Q, selector="colour = 'red'")
    actor.sends(Q, *numbered("b", 3_000), colour="blue")
    actor.sends(Q, "seen", colour="red")
    desk.settles()
    assert actor.bodies() == ["seen"]
    actor.sends(Q, "last", colour="blue")
    actor.sends(Q, "too", colour="red")
    assert actor.bodies() == ["too"]
    waiting = desk.waiting(Q)
    assert (waiting[:2], waiting[-1], len(waiting)) == (["b0", "b1"], "last", 3_001)


# Groups.


def test_a_group_stays_with_its_consumer_and_keeps_its_order(desk: Bench):
    first, second = desk.actor(), desk.actor()
    first.subscribes(Q, ack="client", prefetch_count="1")
    second.subscribes(Q, ack="client", prefetch_count="9")
    first.sends(Q, "a0", JMSXGroupID="a")
    first.sends(Q, "b0", message_group="b")
    desk.turn()
    first.sends(Q, "a1", "a2", message_group="a")
    first.sends(Q, "b1", message_group="b")
    first.sends(Q, "x")
    [a0] = first.reads()
    assert second.bodies() == ["b0", "b1", "x"]
    assert desk.waiting(Q) == ["a1", "a2"]
    first.acks(a0)
    assert first.bodies() == ["a1"]
    first.is_gone()
    assert second.bodies() == ["a1", "a2"]


def test_a_group_whose_owner_has_a_lower_priority_is_served_all_the_same(desk: Bench):
    low, high = desk.actor(), desk.actor()
    low.subscribes(Q)
    low.sends(Q, "0", message_group="g")
    assert low.bodies() == ["0"]
    high.subscribes(Q, x_priority="5")
    low.sends(Q, "1", message_group="g")
    low.sends(Q, "2")
    assert (low.bodies(), high.bodies()) == (["1"], ["2"])


def test_the_oldest_group_is_forgotten_when_there_are_too_many(desk: Bench):
    actor = desk.actor()
    actor.subscribes(Q)
    for number in range(MAX_GROUPS + 1):
        actor.sends(Q, "x", message_group=f"g{number}")
    desk.settles()
    assert len(actor.reads()) == MAX_GROUPS + 1
    queue = desk.queue(Q)
    assert len(queue.groups.owners) == MAX_GROUPS
    assert "g0" not in queue.groups.owners
    actor.unsubscribes()
    assert not queue.groups.owners


def test_a_group_waits_for_an_owner_that_does_not_want_the_message(desk: Bench):
    first, second = desk.actor(), desk.actor()
    first.subscribes(Q, selector="colour = 'red'")
    first.sends(Q, "0", message_group="g", colour="red")
    assert first.bodies() == ["0"]
    second.subscribes(Q)
    second.sends(Q, "1", message_group="g", colour="blue")
    assert (first.bodies(), second.bodies()) == ([], [])
    first.is_gone()
    assert second.bodies() == ["1"]


# Wildcards and composites.


def test_a_wildcard_takes_from_queues_made_before_and_later(bench: Bench):
    sender, reader = bench.actor(), bench.actor()
    sender.sends("/queue/a.1", "0")
    reader.subscribes("/queue/a.*")
    sender.sends("/queue/a.2", "1")
    sender.sends("/queue/b.1", "2")
    frames = reader.reads()
    assert texts(frames) == ["0", "1"]
    assert [frame.get("destination") for frame in frames] == ["/queue/a.1", "/queue/a.2"]
    assert {frame.get("subscription") for frame in frames} == {"0"}
    reader.unsubscribes()
    sender.sends("/queue/a.1", "3")
    sender.sends("/queue/a.3", "4")
    assert reader.bodies() == []
    assert bench.waiting("/queue/a.3") == ["4"]


def test_a_wildcard_finds_a_queue_that_joined_since_its_last_search(bench: Bench) -> None:
    reader, other, sender = bench.actor(), bench.actor(), bench.actor()
    reader.subscribes("/queue/w.*", ack="client-individual", prefetch_count="1")
    sender.sends("/queue/w.d", "1", JMSXGroupID="g")
    sender.sends("/queue/w.c", "2", JMSXGroupID="h")
    other.subscribes("/queue/w.a", ack="client-individual", prefetch_count="1")
    (first,) = reader.reads()
    reader.acks(first)
    (second,) = reader.reads()
    sender.sends("/queue/w.b", "3", JMSXGroupID="h")
    reader.acks(second)
    assert reader.bodies() == ["3"]


@pytest.mark.parametrize("seed", range(100))
def test_no_ready_consumer_waits_for_a_message_that_it_may_get(bench: Bench, seed: int) -> None:
    dice, sender = random.Random(seed), bench.actor()
    held: dict[Actor, list[Received]] = {}
    for step in range(40):
        act = dice.choice(["subscribe", "send", "send", "ack"])
        owing = [reader for reader in held if held[reader]]
        if act == "subscribe" and len(held) < 4:
            name = dice.choice(["/queue/w.*", "/queue/w.*", "/queue/w.a", "/queue/w.b"])
            one = {"ack": "client-individual", "prefetch_count": "1"}
            held[bench.reader(name, **one)] = []
        elif act == "send":
            queue, group = f"/queue/w.{dice.choice('aabbcde')}", dice.choice(["h", "g", ""])
            if group:
                sender.sends(queue, f"{step}", JMSXGroupID=group)
            else:
                sender.sends(queue, f"{step}")
        elif owing:
            reader = dice.choice(owing)
            reader.acks(held[reader].pop(0))
        bench.settles()
        for reader in held:
            held[reader] += reader.reads()
        assert list(starving(bench)) == []


def starving(bench: Bench) -> Iterator[tuple[str, bytes]]:
    """Yield messages that a ready consumer may get, and their queues."""
    for queue in bench.broker.queues:
        for message in queue.waiting.in_order():
            owner = queue.groups.owners.get(message.group)
            able = queue.consumers if owner is None else [owner]
            if any(each.is_ready for each in able):
                yield queue.name, message.body


@pytest.mark.parametrize("pattern", ["/queue/>", "/queue/*", "/queue/**"])
def test_a_wildcard_leaves_the_dead_letters_alone(bench: Bench, pattern):
    sender, reader = bench.actor(), bench.actor()
    sender.sends("/queue/DLQ.a", "dead")
    reader.subscribes(pattern)
    sender.sends("/queue/DLQ.b", "dead")
    sender.sends("/queue/monitoring", "alive")
    assert reader.bodies() == ["alive"]
    reader.subscribes("/queue/DLQ.*", "d")
    sender.sends("/queue/DLQ.c", "dead too")
    assert reader.bodies("d") == ["dead", "dead", "dead too"]


def test_a_composite_of_wildcards_joins_each_queue_once(bench: Bench):
    reader = bench.actor()
    reader.subscribes("/queue/a.*,/queue/*.b,/queue/a.b,/queue/x", ack="client")
    reader.sends("/queue/a.b", "0", "1")
    reader.sends("/queue/x", "2")
    reader.sends("/queue/a.c", "3")
    assert reader.bodies() == ["0", "1", "2", "3"]
    assert len(bench.queue("/queue/a.b").consumers) == 1
    reader.unsubscribes()
    assert not any(queue.consumers for queue in bench.broker.queues)
    assert bench.waiting("/queue/a.b") == ["0", "1"]


def test_a_composite_gets_only_dead_letters_that_it_names(bench: Bench):
    sender, reader = bench.actor(), bench.actor()
    sender.sends("/queue/DLQ.other", "0")
    reader.subscribes("/queue/>,/queue/DLQ.mine.*")
    sender.sends("/queue/DLQ.another", "1")
    sender.sends("/queue/DLQ.mine.x", "2")
    assert reader.bodies() == ["2"]


# Back-off, delivery limit and dead letters.


def test_the_waits_are_0_1_2_4_seconds_and_others_overtake(bench: Bench):
    actor = bench.actor()
    actor.subscribes(Q, ack="client-individual", prefetch_count="1")
    actor.sends(Q, "bad")
    for number, wait in enumerate((0.0, 1.0, 2.0, 4.0), 1):
        [frame] = actor.reads()
        assert frame.text == "bad"
        actor.nacks(frame)
        if wait:
            actor.sends(Q, f"good{number}")
            [other] = actor.reads()
            assert other.text == f"good{number}"
            actor.acks(other)
            assert bench.queue(Q).delayed == 1
            assert bench.broker.timers.next_due == bench.now + wait
            bench.passes(wait - 0.01)
            assert actor.reads() == []
            bench.passes(0.02)
    [frame] = actor.reads()
    assert frame.get("delivery-count") == "5"
    actor.nacks(frame)
    assert actor.reads() == []
    assert bench.waiting("/queue/DLQ.q") == ["bad"]
    assert bench.broker.queues.dead_letter_counts.failed[DeadLetterReason.DELIVERY_LIMIT] == 1


def test_a_disconnect_counts_as_a_failure_without_back_off(bench: Bench):
    for number in range(1, 6):
        actor = bench.actor()
        actor.subscribes(Q, ack="client")
        if number == 1:
            actor.sends(Q, "bad")
        [frame] = actor.reads()
        assert frame.get("delivery-count") == (f"{number}" if number > 1 else None)
        actor.is_gone()
    assert bench.waiting("/queue/DLQ.q") == ["bad"]
    assert bench.waiting(Q) == []
    assert not len(bench.broker.timers)


def test_a_dead_letter_is_not_lost_by_looking_at_it_often():
    desk = bench(max_redeliveries=1)
    desk.actor().sends("/queue/DLQ.q", "bad")
    for _ in range(9):
        actor = desk.actor()
        actor.subscribes("/queue/DLQ.q", ack="client")
        assert actor.bodies() == ["bad"]
        actor.is_gone()
    assert desk.waiting("/queue/DLQ.q") == ["bad"]
    assert desk.broker.queues.dead_letter_counts.lost == 0


def test_a_dead_letter_sent_back_is_no_duplicate_of_itself():
    desk = bench(max_redeliveries=0)
    actor = desk.actor()
    actor.subscribes(Q, ack="client")
    actor.sends(Q, "bad", x_dedup_id="1")
    actor.nacks(*actor.reads())
    reader = desk.actor()
    reader.subscribes("/queue/DLQ.q")
    [letter] = reader.reads()
    assert letter.get("original-destination") == Q
    assert letter.get("x-dedup-id") is None


def test_no_redelivery_at_all_by_policy():
    desk = bench(max_redeliveries=0)
    actor = desk.actor()
    actor.subscribes(Q, ack="client")
    actor.sends(Q, "bad")
    actor.nacks(*actor.reads())
    assert actor.reads() == []
    assert desk.waiting("/queue/DLQ.q") == ["bad"]


def test_messages_returned_together_are_in_order_at_the_head(bench: Bench):
    first, second = bench.actor(), bench.actor()
    first.subscribes(Q, ack="client", prefetch_count="3")
    first.sends(Q, *numbered("", 6))
    assert first.bodies() == ["0", "1", "2"]
    first.leaves()
    second.subscribes(Q)
    frames = second.reads()
    assert texts(frames) == numbered("", 6)
    assert [frame.get("redelivered") for frame in frames] == ["true"] * 3 + [None] * 3


def test_a_dead_letter_tells_where_it_comes_from_and_why():
    desk = Bench()
    actor = desk.actor()
    actor.subscribes(Q, ack="client-individual")
    actor.sends(Q, "bad", colour="red", expires="9999999999999", ttl="90000", priority="7")
    actor.nacks(*actor.reads(), requeue=False)
    actor.subscribes("/queue/DLQ.q", "d", ack="client-individual")
    [dead] = actor.reads()
    fields = dict(dead.headers)
    for gone in ("subscription", "message-id", "ack", "content-length"):
        fields.pop(gone)
    assert fields == {
        "destination": "/queue/DLQ.q",
        "colour": "red",
        "priority": "7",
        "original-destination": Q,
        "x-first-death-queue": Q,
        "x-first-death-reason": "rejected",
        "x-death-reason": "rejected",
        "x-death-count": "1",
    }
    assert dead.body == b"bad"
    # Sent on from there, it ends again: headers copied by its sender do not count as the broker's.
    actor.acks(dead)
    kept = tuple((name, text) for name, text in fields.items() if name != "destination")
    actor.does(run_of("/queue/r", [dead.body], kept))
    actor.subscribes("/queue/r", "r", ack="client-individual")
    actor.nacks(*actor.reads("r"), requeue=False)
    actor.subscribes("/queue/DLQ.r", "dr")
    [again] = actor.reads()
    assert again.get("original-destination") == "/queue/r"
    assert again.get("x-first-death-queue") == "/queue/r"
    assert again.get("destination") == "/queue/DLQ.r"


FORGED = (
    ("original-destination", "/queue/secret"),
    ("x-first-death-queue", "/queue/secret"),
    ("x-first-death-reason", "expired"),
    ("x-death-reason", "expired"),
    ("x-death-count", "7"),
    ("X-Death-Time", "7"),
    ("Original-Destination ", "/queue/secret"),
    ("x-stream-offset", "9"),
    ("X-Stream-Epoch", "e"),
)


@pytest.mark.parametrize("where", [Q, "/topic/t", "#w", "/queue/a,/queue/b", "/queue/later"])
def test_reserved_headers_are_removed_from_client_messages(bench: Bench, where):
    """F4, F22: for every kind of destination; immediate, transactional and scheduled."""
    actor = bench.actor()
    for number, name in enumerate(where.split(",")):
        actor.subscribes(name, str(number))
    more = (("AMQ_SCHEDULED_DELAY", "1"),) if where == "/queue/later" else ()
    actor.does(run_of(where, [b"x"], (*FORGED, ("x-mine", "1"), *more)))
    bench.passes(1)
    for frame in (found := actor.reads()):
        fields = dict(frame.headers)
        assert fields["x-mine"] == "1"
        assert not [
            n for n in fields if n.strip().lower() in {f.strip().lower() for f, _ in FORGED}
        ]
    assert len(found) == where.count(",") + 1


def test_a_dead_letter_rejected_in_its_dead_letter_queue_is_lost(bench: Bench):
    actor = bench.actor()
    actor.sends("/queue/DLQ.q", "dead")
    actor.subscribes("/queue/DLQ.q", ack="client")
    actor.nacks(*actor.reads(), requeue=False)
    assert actor.reads() == []
    assert bench.broker.queues.dead_letter_counts.lost == 1
    assert bench.memory.used_bytes == 0


def test_a_dead_letter_queue_of_the_operators_choice():
    desk = Bench(
        book={
            Q: DestinationPolicy(dead_letter="/queue/dead"),
            "/queue/dead": DestinationPolicy(max_messages=1),
        }
    )
    actor = desk.actor()
    actor.subscribes(Q, ack="client-individual")
    actor.sends(Q, "a", "b")
    actor.nacks(*actor.reads(), requeue=False)
    assert actor.reads() == []
    assert desk.waiting("/queue/dead") == ["a"]
    assert desk.broker.queues.dead_letter_counts.lost == 1
    assert desk.queue(Q).destination.dropped == 1  # of the other a dead letter was made
    assert desk.memory.used_bytes == OVERHEAD + 1 + desk.heads_bytes()


def test_no_memory_no_dead_letter(desk: Bench):
    actor = desk.actor()
    actor.subscribes(Q, ack="client-individual")
    actor.sends(Q, "a")
    frames = actor.reads()
    desk.memory.limit_bytes = 100
    actor.nacks(*frames, requeue=False)
    assert actor.reads() == []
    assert desk.broker.queues.dead_letter_counts.lost == 1
    assert desk.memory.used_bytes == desk.memory.kept_bytes == 0


def test_a_dead_letter_that_can_have_no_queue_is_lost_and_nothing_breaks():
    desk = Bench(policies=BrokerPolicies(max_destination_bytes=20))
    actor = desk.actor()
    name = "/queue/" + "n" * 13
    actor.subscribes(name, ack="client")
    actor.sends(name, "bad")
    actor.nacks(*actor.reads(), requeue=False)
    assert actor.reads() == []
    assert desk.broker.queues.dead_letter_counts.lost == 1
    assert desk.memory.used_bytes == desk.memory.kept_bytes == 0


@pytest.mark.parametrize("limit", [0, 2])
def test_max_exceptions_of_stompserver(bench: Bench, limit):
    actor = bench.actor()
    actor.subscribes(Q, ack="client")
    actor.sends(Q, "bad", max_exceptions=f"{limit}")
    for _ in range(limit + 1):
        actor.nacks(*actor.reads())
        bench.passes(9.0)
    assert actor.reads() == []
    assert bench.waiting("/queue/deadletter") == ["bad"]
    actor.subscribes("/queue/deadletter", "d")
    [dead] = actor.reads("d")
    assert dead.get("x-death-reason") == "max-exceptions"
    assert dead.get("x-death-count") == f"{limit + 1}"


# Expiry.


def test_expired_messages_are_never_delivered_and_are_gone(bench: Bench):
    actor = bench.actor()
    actor.sends(Q, "a", ttl="1000")
    actor.sends(Q, "b", ttl="3000")
    actor.sends(Q, "c")
    bench.passes(1.0)
    actor.subscribes(Q)
    assert actor.bodies() == ["b", "c"]
    assert bench.queue(Q).destination.expired == 1
    assert bench.waiting("/queue/DLQ.q") == []
    assert bench.memory.used_bytes == 0


def test_a_policy_keeps_the_expired_as_dead_letters():
    desk = bench(ttl_ms=2000, dead_letter_expired=True)
    actor = desk.actor()
    actor.sends(Q, "a")
    desk.passes(2.0)
    actor.subscribes(Q)
    actor.subscribes("/queue/DLQ.q", "d")
    [dead] = actor.reads()
    assert (dead.get("subscription"), dead.get("x-death-reason")) == ("d", "expired")
    assert dead.get("x-death-count") == "0"
    assert desk.queue(Q).destination.dropped == 0


def test_a_message_may_expire_while_it_waits_for_its_next_delivery(bench: Bench):
    actor = bench.actor()
    actor.subscribes(Q, ack="client")
    actor.sends(Q, "a", ttl="1500")
    for _ in range(2):
        actor.nacks(*actor.reads())
        bench.passes(0.5)
    bench.passes(2.0)
    assert actor.reads() == []
    queue = bench.queue(Q)
    assert (queue.message_count, queue.destination.expired) == (0, 1)


# The end of a queue.


def test_a_queue_that_ends_reassigns_all_messages_including_later_returns(bench: Bench):
    actor, other = bench.actor(), bench.actor()
    actor.subscribes(Q, ack="client-individual", prefetch_count="3")
    actor.sends(Q, *numbered("", 3))
    for wait in (0.0, 1.0):
        frames = actor.reads()
        if not wait:
            actor.nacks(frames[0])
        else:
            actor.nacks(frames[0])
    queue = bench.queue(Q)
    assert (queue.delayed, queue.unacked) == (1, 2)
    other.sends(Q, "3", "4")
    bench.turn()
    bench.broker.queues.end(Q, bench.now)
    assert bench.broker.destinations.find_current(Q).queue is None  # type: ignore[union-attr]
    assert queue.destination.dropped == 1  # 4; 3 went to the free place
    actor.is_gone()
    bench.passes(5.0)
    assert queue.message_count == queue.size == 0
    assert queue.destination.dropped == 5
    assert bench.memory.used_bytes == bench.memory.kept_bytes == 0


def test_the_end_of_an_unknown_queue_is_nothing(bench: Bench):
    bench.broker.queues.end("/queue/none", bench.now)
    bench.actor().subscribes("/topic/t")
    bench.broker.queues.end("/topic/t", bench.now)
    assert list(bench.broker.queues) == []


def test_a_queue_is_idle_when_nothing_would_be_lost(bench: Bench):
    actor = bench.actor()
    actor.sends(Q, "a")
    queue = bench.queue(Q)
    assert not queue.is_idle
    actor.subscribes(Q)
    actor.reads()
    assert not queue.is_idle
    actor.unsubscribes()
    assert queue.is_idle


@pytest.mark.parametrize("is_last", [True, False])
def test_the_consumer_served_last_is_forgotten_with_its_subscription(is_last: bool) -> None:
    """The others keep their place in the rotation; a removed consumer takes no memory."""
    desk = bench()
    readers = [desk.actor(), desk.actor()]
    for reader in readers:
        reader.subscribes(Q)
    desk.actor().sends(Q, "a")
    desk.turn()
    served = readers.index(next(reader for reader in readers if reader.bodies()))
    left = readers[served if is_last else 1 - served]
    left.unsubscribes()
    last = desk.queue(Q).last_served
    assert last is (None if is_last else readers[served].consumer())
