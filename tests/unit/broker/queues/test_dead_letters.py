"""Dead letters by a policy's ``dead_letter``, whatever that names, alone and in a COMMIT."""

import pytest

from tests.support.core import Bench, run_of
from tests.support.durable_fakes import DurableBench
from trio_stomp.broker import DestinationPolicy

Q, DEAD_LETTERS = "/queue/q", "/topic/dead"


@pytest.mark.parametrize("is_committed", [False, True], ids=["alone", "in a COMMIT"])
@pytest.mark.parametrize("bench", [Bench, DurableBench])
@pytest.mark.parametrize("persistent", ["true", "false"])
@pytest.mark.parametrize("dead_letters", [DEAD_LETTERS, "/queue/dead", "#dead"])
def test_rejected_message_goes_to_the_dead_letter_destination_of_the_policy(
    bench: type[Bench], persistent: str, dead_letters: str, is_committed: bool
) -> None:
    desk = bench(book={Q: DestinationPolicy(dead_letter=dead_letters)})
    consumer, actor = desk.actor(), desk.actor()
    consumer.subscribes(dead_letters)
    actor.subscribes(Q, ack="client-individual")
    actor.sends(Q, "bad", "good", persistent=persistent)
    desk.turn()
    bad, good = actor.reads()
    if is_committed:
        actor.commits(actor.acked(bad, negative=True, requeue=False), actor.acked(good))
    else:
        actor.nacks(bad, requeue=False)
        actor.acks(good)
    desk.turn()
    [dead] = consumer.reads()
    assert dead.text == "bad"
    assert dead.get("x-death-reason") == "rejected"
    assert dead.get("original-destination") == Q
    assert desk.memory.used_bytes == 0


@pytest.mark.parametrize("is_committed", [False, True], ids=["alone", "in a COMMIT"])
@pytest.mark.parametrize("is_stored", [False, True], ids=["before", "after"])
def test_a_durable_subscription_to_dead_letters_survives_with_them(
    is_stored: bool, is_committed: bool
) -> None:
    """The end of the message and its dead letter are one record: a crash finds one of them."""
    desk = DurableBench(book={Q: DestinationPolicy(dead_letter=DEAD_LETTERS)})
    consumer, actor = desk.actor(), desk.actor()
    consumer.subscribes(DEAD_LETTERS, durable_subscription_name="d")
    consumer.leaves()
    actor.subscribes(Q, ack="client-individual")
    actor.sends(Q, "bad", persistent="true")
    desk.turn()
    [bad] = actor.reads()
    desk.is_prompt = False
    rejected = actor.acked(bad, negative=True, requeue=False)
    if is_committed:
        actor.commits(rejected)
    else:
        actor.does(rejected)
    desk.turn()
    while is_stored and (desk.turns or desk.log.reads):
        desk.answers()
        desk.loads()
    again = desk.restarts()  # as after a crash
    consumer = again.actor()
    consumer.subscribes(Q, "q")
    consumer.subscribes(DEAD_LETTERS, "d", durable_subscription_name="d")
    again.turn()
    found = {each.get("subscription"): each.text for each in consumer.reads()}
    assert found == ({"d": "bad"} if is_stored else {"q": "bad"})


def test_dead_letters_can_be_a_stream() -> None:
    desk = DurableBench(
        book={
            Q: DestinationPolicy(dead_letter=DEAD_LETTERS),
            DEAD_LETTERS: DestinationPolicy(stream=True),
        }
    )
    actor = desk.actor()
    actor.subscribes(Q, ack="client-individual")
    actor.sends(Q, "bad", "worse", persistent="true")
    actor.nacks(*actor.reads(), requeue=False)
    desk.turn()
    assert desk.broker.queues.dead_letter_counts.lost == 0
    late = desk.restarts().actor()
    late.subscribes(DEAD_LETTERS, x_stream_offset="first")
    found = late.reads()
    assert [each.text for each in found] == ["bad", "worse"]
    assert {each.get("x-death-reason") for each in found} == {"rejected"}


def test_a_dead_letter_without_a_receiver_is_counted_as_lost() -> None:
    desk = Bench(book={Q: DestinationPolicy(dead_letter=DEAD_LETTERS)})
    actor = desk.actor()
    actor.subscribes(Q, ack="client-individual")
    actor.sends(Q, "bad")
    actor.nacks(*actor.reads(), requeue=False)
    desk.turn()
    deaths = desk.broker.queues.dead_letter_counts
    assert (deaths.lost, sum(deaths.moved.values())) == (1, 0)
    assert desk.memory.used_bytes == 0


def test_a_late_subscriber_gets_dead_letters_that_have_a_lifetime() -> None:
    desk = Bench(
        book={
            Q: DestinationPolicy(dead_letter=DEAD_LETTERS),
            DEAD_LETTERS: DestinationPolicy(ttl_ms=1000),
        }
    )
    actor = desk.actor()
    actor.subscribes(Q, ack="client-individual")
    actor.sends(Q, "bad")
    actor.nacks(*actor.reads(), requeue=False)
    desk.turn()
    assert desk.broker.queues.dead_letter_counts.lost == 0
    actor.subscribes(DEAD_LETTERS, "late")
    assert actor.bodies("late") == ["bad"]


def test_message_dropped_by_a_commit_to_a_full_queue_goes_to_its_topic() -> None:
    """Selectors that were evaluated before are evaluated again for the dead letter."""
    policy = DestinationPolicy(max_messages=1, overflow="dead-letter", dead_letter=DEAD_LETTERS)
    desk = Bench(book={Q: policy})
    consumer, actor = desk.actor(), desk.actor()
    consumer.subscribes(DEAD_LETTERS, selector="kind = 'old'")
    for number in range(20):
        consumer.subscribes(DEAD_LETTERS, f"other-{number}", selector=f"kind = '{number}'")
    actor.sends(Q, "first", kind="old")
    actor.commits(run_of(Q, ("second",), (("kind", "new"),)))
    desk.turn()
    assert consumer.bodies() == ["first"]
    assert desk.waiting(Q) == ["second"]


@pytest.mark.parametrize("other", ["/queue/b", "/topic/b"])
def test_dead_letters_that_policies_send_in_a_circle_come_to_an_end(other: str) -> None:
    book = {
        "/queue/a": DestinationPolicy(dead_letter=other, dead_letter_expired=True, ttl_ms=1000),
        other: DestinationPolicy(dead_letter="/queue/a", dead_letter_expired=True, ttl_ms=1000),
    }
    desk = Bench(book=book)
    if other.startswith("/topic"):
        consumer = desk.actor()
        consumer.subscribes(other, durable_subscription_name="d")
        consumer.leaves()
    actor = desk.actor()
    actor.sends("/queue/a", "around", "and around")
    for _ in range(64):
        desk.now += 1.0
        desk.broker.tick(desk.now)
        desk.turn()
    assert desk.broker.queues.dead_letter_counts.lost == 2
    assert desk.memory.kept_bytes == 0


def test_a_consumer_that_rejects_a_dead_letter_may_have_it_sent_around_for_ever() -> None:
    """As when redelivery is delayed by a queue without consumers."""
    desk = Bench(
        book={
            "/queue/work": DestinationPolicy(dead_letter="/queue/later"),
            "/queue/later": DestinationPolicy(
                dead_letter="/queue/work", dead_letter_expired=True, ttl_ms=1000
            ),
        }
    )
    actor = desk.actor()
    actor.subscribes("/queue/work", ack="client-individual")
    actor.sends("/queue/work", "again")
    for _ in range(32):
        desk.turn()
        [bad] = actor.reads()
        assert bad.get("x-death-hops") is None
        actor.nacks(bad, requeue=False)
        desk.turn()
        desk.now += 1.0
        desk.broker.tick(desk.now)
