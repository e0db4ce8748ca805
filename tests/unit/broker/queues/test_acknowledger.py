"""ACK and NACK, and messages that come back."""

from collections.abc import Iterator

import pytest

from tests.support.core import Actor, Bench, Core, bench, numbered
from trio_stomp.broker import BrokerPolicies, DestinationPolicy
from trio_stomp.broker.queues import DeadLetterReason

Q = "/queue/q"


@pytest.fixture
def desk() -> Iterator[Bench]:
    """Yield a core that must be empty at the end of the test."""
    desk = bench()
    yield desk
    desk.ends()


def test_a_cumulative_ack_covers_earlier_messages_of_its_subscription_only(bench: Bench):
    actor = bench.actor()
    for number, name in enumerate(("/queue/a", "/queue/b")):
        actor.subscribes(name, f"{number}", ack="client")
        actor.sends(name, *numbered(f"{number}.", 4))
    frames = {frame.text: frame for frame in actor.reads()}
    actor.acks(frames["0.2"])
    assert [each.body for each in actor.consumer("0").unacked.values()] == [b"0.3"]
    assert len(actor.consumer("1").unacked) == 4
    assert bench.broker.acknowledger.counters.acked == 3
    assert bench.queue("/queue/a").dequeued == 3
    actor.is_gone()
    assert bench.waiting("/queue/a") == ["0.3"]
    assert bench.waiting("/queue/b") == numbered("1.", 4)


def test_an_individual_ack_covers_one(desk: Bench):
    actor = desk.actor()
    actor.subscribes(Q, ack="client-individual")
    actor.sends(Q, *numbered("", 4))
    frames = actor.reads()
    actor.acks(frames[2], frames[0])
    actor.unsubscribes()
    assert desk.waiting(Q) == ["1", "3"]
    assert desk.broker.acknowledger.counters.redelivered == desk.queue(Q).redelivered == 2


def test_a_cumulative_nack_gives_back_in_order(desk: Bench):
    actor = desk.actor()
    actor.subscribes(Q, ack="client")
    actor.sends(Q, *numbered("", 4))
    actor.nacks(actor.reads()[2])
    assert actor.bodies() == ["0", "1", "2"]
    assert desk.broker.acknowledger.counters.nacked == desk.queue(Q).nacked == 3


def test_a_nack_without_requeue_is_the_end(desk: Bench):
    actor = desk.actor()
    actor.subscribes(Q, ack="client")
    actor.sends(Q, *numbered("", 3))
    actor.nacks(actor.reads()[1], requeue=False)
    assert actor.reads() == []
    assert desk.waiting("/queue/DLQ.q") == ["0", "1"]
    assert desk.broker.queues.dead_letter_counts.failed[DeadLetterReason.REJECTED] == 2
    assert desk.queue(Q).unacked == 1


def test_returned_message_is_offered_to_another_consumer(desk: Bench):
    first, second = desk.actor(), desk.actor()
    first.subscribes(Q, ack="client", prefetch_count="1")
    second.subscribes(Q, ack="client", prefetch_count="1")
    first.sends(Q, "a")
    first.nacks(*first.reads())
    [frame] = second.reads()
    assert (frame.text, frame.get("redelivered")) == ("a", "true")
    assert first.reads() == []


@pytest.mark.parametrize(
    ("version", "header", "source"),
    [
        ("1.0", "message-id", "message-id"),
        ("1.1", "message-id", "message-id"),
        ("1.2", "id", "ack"),
    ],
)
def test_a_wrong_id_is_an_error_that_names_the_header_expected(version, header, source):
    desk = bench()
    actor = desk.actor(version)
    actor.subscribes(Q, ack="client")
    actor.sends(Q, "a")
    [frame] = actor.reads()
    actor.acks(frame)
    actor.acks(frame)
    error = actor.error()
    assert error.get("code") == "unknown-ack"
    message = error.get("message") or ""
    assert f"needs the header {header} with" in message
    assert f"MESSAGE's {source} header" in message


@pytest.mark.parametrize(
    "name", ["", "-", "1", "b.1-", "b.1-2", "b.9-1", "b.1-1x", "b.1--1", "b.1-" + "1" * 5000]
)
@pytest.mark.parametrize("negative", [False, True])
@pytest.mark.parametrize("ack", ["client", "client-individual"])
def test_ids_that_are_none_are_errors(desk: Bench, name, negative, ack):
    actor = desk.actor()
    actor.subscribes(Q, ack=ack)
    actor.sends(Q, "a")
    [frame] = actor.reads()
    assert frame.get("ack") == "b.1-1"
    if negative:
        actor.nacks(name)
    else:
        actor.acks(name)
    error = actor.error()
    assert error.get("code") == "unknown-ack"
    assert (error.get("message") or "").startswith("NACK" if negative else "ACK")
    assert len(error.get("message") or "") < 400
    assert desk.waiting(Q) == ["a"]


WRONG = ["b.1-9", "b.1-", "b.1-x", "b.1-1", "-1", "x", "b.9-1", "b.2-1", "b.1-" + "1" * 30]


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_acks_of_a_run_before_the_faulty_one_count(desk: Bench, wrong: str, place: int):
    actor = desk.actor()
    actor.subscribes(Q, "1", ack="client-individual")
    actor.subscribes("/queue/other", "2", ack="client-individual")
    actor.sends(Q, *numbered("", 4))
    first, *rest = actor.reads()
    actor.acks(first)  # so that b.1-1 becomes unknown
    names = [frame.get("ack") or "" for frame in rest[:2]]
    names.insert(place, wrong)
    actor.acks(*names)
    assert actor.error().get("code") == "unknown-ack"
    assert desk.broker.acknowledger.counters.acked == 1 + place
    assert desk.waiting(Q) == numbered("", 4)[1 + place :]


def test_a_run_of_acks_may_name_none_twice(desk: Bench):
    actor = desk.actor()
    actor.subscribes(Q, ack="client-individual")
    actor.sends(Q, *numbered("", 3))
    first, second, _ = actor.reads()
    actor.acks(first, second, first)
    assert actor.error().get("code") == "unknown-ack"
    assert desk.waiting(Q) == ["2"]


@pytest.mark.parametrize("destination", ["/queue/*", "/queue/a,/queue/b"])
def test_a_run_of_acks_is_of_several_queues_if_its_subscription_is(desk: Bench, destination: str):
    actor = desk.actor()
    actor.subscribes(destination, ack="client-individual", prefetch_count="4")
    for name in ("/queue/a", "/queue/b"):
        actor.sends(name, *numbered(name[-1], 4))
    frames = actor.reads()
    actor.acks(*frames)
    assert len(frames) == 4
    assert len(actor.reads()) == 4  # as many as there is credit for
    done = [desk.queue(name).dequeued for name in ("/queue/a", "/queue/b")]
    assert sum(done) == desk.broker.acknowledger.counters.acked == 4
    left = [desk.queue(name).message_count for name in ("/queue/a", "/queue/b")]
    assert left == [4 - n for n in done]
    assert desk.broker.memory.kept_bytes > 0


def test_a_late_ack_is_ignored_but_an_error_in_a_transaction(desk: Bench):
    actor = desk.actor()
    actor.subscribes(Q, ack="client")
    actor.acks("0abc123-5")
    assert actor.reads() == []
    assert desk.broker.acknowledger.counters.ignored == 1
    actor.commits(actor.acked("0abc123-5"))
    assert actor.error().get("code") == "unknown-ack"


def test_run_of_acks_may_be_out_of_order(desk: Bench):
    actor = desk.actor()
    actor.subscribes(Q, ack="client-individual", prefetch_count="3")
    actor.sends(Q, *numbered("", 6))
    frames = actor.reads()
    actor.acks(frames[2], frames[0])
    assert actor.bodies() == ["3", "4"]
    actor.is_gone()
    assert desk.waiting(Q) == ["1", "3", "4", "5"]


def test_ids_of_another_connection_are_unknown(desk: Bench):
    first, second = desk.actor(), desk.actor()
    first.subscribes(Q, ack="client")
    second.subscribes("/queue/r", ack="client")
    first.sends(Q, "a")
    [frame] = first.reads()
    second.acks(frame)
    assert second.error().get("code") == "unknown-ack"
    first.acks(frame)
    assert first.reads() == []
    assert desk.queue(Q).message_count == 0


def test_the_subscription_header_of_1_1_must_agree(desk: Bench):
    actor = desk.actor("1.1")
    actor.subscribes(Q, "mine", ack="client")
    actor.sends(Q, "a", "b")
    frames = actor.reads()
    actor.does(actor.acked(frames[0], subscription="mine"))
    assert actor.reads() == []
    actor.does(actor.acked(frames[1], subscription="other"))
    message = actor.error().get("message") or ""
    assert "subscription:other" in message
    assert "mine" in message
    assert desk.waiting(Q) == ["b"]


def test_an_ack_of_an_auto_acknowledged_message_is_ignored(bench: Bench):
    actor = bench.actor()
    actor.subscribes(Q)
    actor.subscribes("/topic/t", "t")
    actor.sends(Q, "a")
    actor.sends("/topic/t", "b")
    frames = actor.reads()
    ids = [frame.get("message-id") or "" for frame in frames]
    actor.acks(*ids)
    assert actor.reads() == []
    assert bench.broker.acknowledger.counters.ignored == 2


def test_a_policy_may_ignore_unknown_ids():
    desk = Bench(policies=BrokerPolicies(unknown_ack="ignore"))
    actor = desk.actor()
    actor.subscribes(Q, ack="client")
    actor.sends(Q, "a")
    [frame] = actor.reads()
    actor.acks("nonsense", frame)
    assert actor.reads() == []
    assert (desk.broker.acknowledger.counters.ignored, desk.broker.acknowledger.counters.acked) == (
        1,
        1,
    )


def test_receipts_are_answered_for_each_frame_of_a_run(desk: Bench):
    actor = desk.actor()
    actor.subscribes(Q, ack="client-individual")
    actor.sends(Q, "a", "b", "c")
    frames = actor.reads()
    actor.does(actor.acked(*frames, receipts=[(1, b"r1"), (3, b"r3")]))
    answers = [(frame.command, frame.get("receipt-id")) for frame in actor.frames()]
    assert answers == [("RECEIPT", "r1"), ("RECEIPT", "r3")]


# Time-outs.


def test_message_not_acknowledged_in_time_is_offered_again():
    desk = bench(ack_timeout_ms=5000)
    slow, other = desk.actor(), desk.actor()
    slow.subscribes(Q, ack="client", prefetch_count="2")
    slow.sends(Q, "a", "b", "c")
    first, _ = slow.reads()
    slow.acks(first)
    assert slow.bodies() == ["c"]
    desk.passes(4.9)
    other.subscribes(Q, ack="client")
    assert other.reads() == []
    desk.passes(0.2)
    [again] = other.reads()
    assert (again.text, again.get("delivery-count")) == ("b", "2")
    assert slow.bodies() == ["c"]
    # The second failure waits one second.
    desk.passes(5.0)
    assert desk.queue(Q).delayed == 2
    assert other.reads() == slow.reads() == []
    desk.passes(1.0)
    assert sorted(other.bodies() + slow.bodies()) == ["b", "c"]
    desk.ends()


def test_the_time_is_that_of_each_delivery():
    desk = bench(ack_timeout_ms=5000)
    actor = desk.actor()
    actor.subscribes(Q, ack="client-individual")
    actor.sends(Q, "a")
    [first] = actor.reads()
    desk.passes(3.0)
    actor.sends(Q, "b")
    actor.reads()
    desk.passes(2.0)
    assert actor.bodies() == ["a"]
    desk.passes(3.0)
    assert actor.bodies() == ["b"]
    actor.acks(first.get("ack") or "")
    assert actor.error().get("code") == "unknown-ack"


def test_auto_consumers_are_not_watched_and_time_outs_end_in_the_dead_letters():
    desk = bench(ack_timeout_ms=1000, max_redeliveries=1)
    actor = desk.actor()
    actor.subscribes(Q)
    actor.sends(Q, "a")
    actor.reads()
    assert len(desk.broker.timers) == 0
    actor.unsubscribes()
    actor.subscribes(Q, ack="client")
    actor.sends(Q, "b")
    actor.reads()
    desk.passes(1.0)
    assert len(actor.reads()) == 1
    desk.passes(1.0)
    assert actor.reads() == []
    assert desk.waiting("/queue/DLQ.q") == ["b"]


def test_timers_do_not_pile_up_for_a_quick_consumer():
    desk = bench(ack_timeout_ms=60_000)
    actor = desk.actor()
    actor.subscribes(Q, ack="client-individual")
    for body in numbered("", 200):
        actor.sends(Q, body)
        actor.acks(*actor.reads())
    assert len(desk.broker.timers) <= 1
    desk.passes(60.0)
    assert actor.reads() == []
    assert len(desk.broker.timers) == 0


def test_a_shorter_time_to_acknowledge_overtakes_a_longer_one():
    timeouts = {
        f"/queue/{name}": DestinationPolicy(ack_timeout_ms=seconds * 1000, backoff_s=())
        for name, seconds in (("slow", 10), ("quick", 1))
    }
    core = Core(book=timeouts)
    sender, reader = core.peer(), core.peer()
    reader.subscribes("/queue/*", ack="client-individual")
    sender.sends("/queue/slow", "s")
    sender.sends("/queue/quick", "q")
    core.passes(1)
    assert reader.bodies() == ["s", "q", "q"]
    reader.acks(*reader.messages()[::2])
    core.passes(8)
    core.passes(1)
    assert reader.bodies() == ["s", "q", "q"]
    core.ends()


def taken(actor: Actor) -> list[str]:
    """Acknowledge all messages as they come, and return their bodies."""
    got: list[str] = []
    while frames := actor.reads():
        got += [frame.text for frame in frames]
        actor.acks(*frames)
    return got


@pytest.mark.parametrize("end", ["waits", "leaves", "times out"])
def test_delayed_messages_hold_their_group(end: str):
    timeout_ms = 1000 if end == "times out" else 0
    desk = bench(backoff_s=(5.0,), ack_timeout_ms=timeout_ms, priority=True)
    actor, sender, other = desk.actor(), desk.actor(), desk.actor()
    sender.sends(Q, "g0", "g1", "g2", message_group="g", priority="7")
    actor.subscribes(Q, ack="client-individual", prefetch_count="2")
    first, second = actor.reads()
    if end == "times out":
        desk.passes(1.1)
    else:
        actor.nacks(first, second)
    sender.sends(Q, *(f"low {n}" for n in range(20)), message_group="g")
    sender.sends(Q, "h0", message_group="h")
    sender.sends(Q, "free")
    if end == "leaves":
        actor.unsubscribes()
        actor = other
        actor.subscribes(Q, ack="client-individual", prefetch_count="2")
    assert sorted(taken(actor)) == ["free", "h0"]
    assert desk.queue(Q).groups.held == {"g": 2}
    desk.passes(5.1)
    assert taken(actor) == ["g0", "g1", "g2", *(f"low {n}" for n in range(20))]
    assert not desk.queue(Q).groups.held
    actor.unsubscribes()
