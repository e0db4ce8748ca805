"""Dead letters by a policy's ``dead_letter``, whatever that names, alone and in a COMMIT."""

import pytest

from tests.support.core import Bench, run_of
from tests.support.durable_fakes import DurableBench
from trio_stomp.broker import DestinationPolicy

Q, GRAVE = "/queue/q", "/topic/dead"


@pytest.mark.parametrize("is_committed", [False, True], ids=["alone", "in a COMMIT"])
@pytest.mark.parametrize("bench", [Bench, DurableBench])
@pytest.mark.parametrize("persistent", ["true", "false"])
@pytest.mark.parametrize("grave", [GRAVE, "/queue/grave", "#dead"])
def test_what_is_rejected_comes_to_whom_the_policy_names(
    bench: type[Bench], persistent: str, grave: str, is_committed: bool
) -> None:
    desk = bench(book={Q: DestinationPolicy(dead_letter=grave)})
    heir, actor = desk.actor(), desk.actor()
    heir.subscribes(grave)
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
    [dead] = heir.reads()
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
    desk = DurableBench(book={Q: DestinationPolicy(dead_letter=GRAVE)})
    heir, actor = desk.actor(), desk.actor()
    heir.subscribes(GRAVE, durable_subscription_name="d")
    heir.leaves()
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
    heir = again.actor()
    heir.subscribes(Q, "q")
    heir.subscribes(GRAVE, "d", durable_subscription_name="d")
    again.turn()
    found = {each.get("subscription"): each.text for each in heir.reads()}
    assert found == ({"d": "bad"} if is_stored else {"q": "bad"})


def test_dead_letters_can_be_a_stream() -> None:
    desk = DurableBench(
        book={Q: DestinationPolicy(dead_letter=GRAVE), GRAVE: DestinationPolicy(stream=True)}
    )
    actor = desk.actor()
    actor.subscribes(Q, ack="client-individual")
    actor.sends(Q, "bad", "worse", persistent="true")
    actor.nacks(*actor.reads(), requeue=False)
    desk.turn()
    assert desk.broker.queues.deaths.lost == 0
    late = desk.restarts().actor()
    late.subscribes(GRAVE, x_stream_offset="first")
    found = late.reads()
    assert [each.text for each in found] == ["bad", "worse"]
    assert {each.get("x-death-reason") for each in found} == {"rejected"}


@pytest.mark.parametrize("grave", [GRAVE, "/stream/orders"])
def test_a_dead_letter_that_nobody_gets_is_counted_as_lost(grave: str) -> None:
    desk = Bench(book={Q: DestinationPolicy(dead_letter=grave)})
    actor = desk.actor()
    actor.subscribes(Q, ack="client-individual")
    actor.sends(Q, "bad")
    actor.nacks(*actor.reads(), requeue=False)
    desk.turn()
    deaths = desk.broker.queues.deaths
    assert (deaths.lost, sum(deaths.kept.values())) == (1, 0)
    assert desk.memory.used_bytes == 0


def test_a_late_subscriber_gets_dead_letters_that_have_a_lifetime() -> None:
    desk = Bench(
        book={Q: DestinationPolicy(dead_letter=GRAVE), GRAVE: DestinationPolicy(ttl_ms=1000)}
    )
    actor = desk.actor()
    actor.subscribes(Q, ack="client-individual")
    actor.sends(Q, "bad")
    actor.nacks(*actor.reads(), requeue=False)
    desk.turn()
    assert desk.broker.queues.deaths.lost == 0
    actor.subscribes(GRAVE, "late")
    assert actor.bodies("late") == ["bad"]


def test_what_a_commit_pushes_out_of_a_full_queue_comes_to_its_topic() -> None:
    """The selectors that were asked before it are asked anew about the dead letter."""
    policy = DestinationPolicy(max_messages=1, overflow="dead-letter", dead_letter=GRAVE)
    desk = Bench(book={Q: policy})
    heir, actor = desk.actor(), desk.actor()
    heir.subscribes(GRAVE, selector="kind = 'old'")
    for number in range(20):
        heir.subscribes(GRAVE, f"other-{number}", selector=f"kind = '{number}'")
    actor.sends(Q, "first", kind="old")
    actor.commits(run_of(Q, ("second",), (("kind", "new"),)))
    desk.turn()
    assert heir.bodies() == ["first"]
    assert desk.waiting(Q) == ["second"]
