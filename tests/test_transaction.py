"""COMMIT: all of it or nothing."""

from typing import TYPE_CHECKING

import pytest

from tests._core_fakes import run_of
from tests._queue_fakes import OVERHEAD, Bench, bench, numbered
from trio_stomp.broker import BrokerPolicies, DestinationPolicy

if TYPE_CHECKING:
    from trio_stomp.protocol import Event

Q, R = "/queue/q", "/queue/r"


def test_all_is_done_in_order_and_answered_once():
    desk = Bench()
    actor = desk.actor()
    actor.subscribes(R, "r", ack="client-individual")
    actor.sends(R, "0", "1", "2")
    zero, one, two = actor.reads()
    actor.commits(
        run_of(Q, "ab"),
        actor.acked(zero),
        run_of("/topic/t", "lost"),
        actor.acked(one, negative=True, requeue=False),
        run_of(Q, "c"),
        actor.acked(two, negative=True),
    )
    frames = actor.frames()
    told = [(frame.command, frame.get("receipt-id")) for frame in frames]
    assert told == [("RECEIPT", "done"), ("MESSAGE", None)]
    assert frames[1].text == "2"
    assert desk.waiting(Q) == ["a", "b", "c"]
    assert desk.waiting("/queue/DLQ.r") == ["1"]
    assert desk.broker.acks.acked == 1
    assert desk.broker.acks.nacked == 2
    desk.ends()


def test_no_receipt_asked_none_given():
    desk = Bench()
    actor = desk.actor()
    actor.commits(run_of(Q, "a"), receipt=None)
    assert actor.frames() == []
    assert desk.waiting(Q) == ["a"]


@pytest.mark.parametrize("overflow", ["reject", "block", "drop-oldest", "dead-letter"])
def test_a_queue_that_is_full_in_the_middle_undoes_all(overflow):
    book = {Q: DestinationPolicy(max_bytes=4, overflow=overflow)}
    desk = Bench(book)
    actor, other = desk.actor(), desk.actor()
    actor.subscribes(R, "r", ack="client")
    other.subscribes(Q, "q", ack="client")
    actor.sends(R, "0")
    actor.sends(Q, "12")
    [zero] = actor.reads()
    assert len(other.reads()) == 1
    used = desk.memory.used_bytes
    actor.commits(run_of(R, "a"), actor.acked(zero), run_of(Q, ["345"]), run_of(R, "b"))
    error = actor.error()
    assert (error.get("code"), error.get("receipt-id")) == ("queue-full", "done")
    assert desk.broker.acks.acked == 0
    # What it had not acknowledged went back as it left; of the transaction nothing is there.
    assert desk.waiting(R) == ["0"]
    assert desk.waiting(Q) == []
    assert other.reads() == []
    assert desk.memory.used_bytes == used


@pytest.mark.parametrize("overflow", ["drop-oldest", "dead-letter"])
def test_a_transaction_may_push_older_messages_out(overflow):
    desk = bench(max_messages=2, overflow=overflow)
    actor = desk.actor()
    actor.sends(Q, "a", "b")
    actor.commits(run_of(Q, "cde"))
    assert [frame.command for frame in actor.frames()] == ["RECEIPT"]
    assert desk.waiting(Q) == ["d", "e"]


def test_a_transaction_may_lose_the_newest():
    desk = bench(max_messages=2, overflow="drop-newest")
    actor = desk.actor()
    actor.commits(run_of(Q, "abc"))
    assert [frame.command for frame in actor.frames()] == ["RECEIPT"]
    assert desk.waiting(Q) == ["a", "b"]


@pytest.mark.parametrize("overflow", ["reject", "block"])
def test_the_sends_of_a_transaction_count_together(overflow):
    desk = bench(max_messages=3, overflow=overflow)
    actor, other = desk.actor(), desk.actor()
    other.commits(run_of(Q, "a"), run_of(R, "x"), run_of(Q, "bc"))
    assert [frame.command for frame in other.frames()] == ["RECEIPT"]
    actor.sends(R, "y")
    actor.commits(run_of(R, "z"), run_of(Q, "d"))
    assert actor.error().get("code") == "queue-full"
    assert desk.waiting(Q) == ["a", "b", "c"]
    assert desk.waiting(R) == ["x", "y"]


def test_the_memory_must_be_enough_for_all_of_it():
    desk = Bench()
    desk.memory.limit_bytes = 3 * (OVERHEAD + 1)
    actor = desk.actor()
    actor.commits(run_of(Q, "ab"), run_of(R, "cd"))
    assert actor.error().get("code") == "queue-full"
    assert desk.memory.used_bytes == 0
    actor = desk.actor()
    actor.commits(run_of(Q, "ab"), run_of(R, "c"))
    assert [frame.command for frame in actor.frames()] == ["RECEIPT"]


def test_scheduled_messages_need_memory_and_no_place_in_the_queue_yet():
    desk = bench(max_messages=1)
    actor = desk.actor()
    actor.sends(Q, "a")
    later = (("AMQ_SCHEDULED_DELAY", "1000"),)
    actor.commits(run_of(R, "b"), run_of(Q, "c", later), run_of("/topic/t", "d", later))
    assert [frame.command for frame in actor.frames()] == ["RECEIPT"]
    assert desk.broker.scheduler.waiting == 2
    desk.memory.limit_bytes = desk.memory.used_bytes + OVERHEAD + 1
    actor.commits(run_of(R, "e"), run_of("/topic/t", "f", later))
    actor.error()
    assert desk.waiting(R) == ["b"]
    assert desk.broker.scheduler.waiting == 2


@pytest.mark.parametrize("place", [0, 1, 2])
def test_an_unknown_ack_undoes_all(place):
    desk = Bench()
    actor = desk.actor()
    actor.subscribes(R, "r", ack="client-individual")
    actor.sends(R, "0")
    [zero] = actor.reads()
    actions: list[Event] = [run_of(Q, "a"), actor.acked(zero)]
    actions.insert(place, actor.acked("b.1-99"))
    actor.commits(*actions)
    error = actor.error()
    assert (error.get("code"), error.get("receipt-id")) == ("unknown-ack", "done")
    assert desk.waiting(Q) == []
    assert desk.waiting(R) == ["0"]
    assert desk.broker.acks.acked == 0


@pytest.mark.parametrize("name", ["/queue/*", "/queue/monitor"])
def test_a_destination_that_takes_no_send_undoes_all(name):
    desk = Bench()
    actor = desk.actor()
    actor.commits(run_of(Q, "a"), run_of(name, "b"))
    actor.error()
    assert desk.waiting(Q) == []


def test_an_id_covered_by_a_cumulative_ack_before_it_is_no_error():
    desk = Bench()
    actor = desk.actor()
    actor.subscribes(R, "r", ack="client")
    actor.sends(R, *numbered("", 3))
    zero, one, two = actor.reads()
    actor.commits(actor.acked(one), actor.acked(zero), actor.acked(two))
    assert [frame.command for frame in actor.frames()] == ["RECEIPT"]
    assert (desk.broker.acks.acked, desk.broker.acks.ignored) == (3, 1)


def test_a_composite_destination_counts_for_each_of_its_queues():
    desk = bench(max_messages=1)
    actor = desk.actor()
    actor.commits(run_of(f"{R},{Q}", "ab"))
    actor.error()
    assert desk.waiting(R) == desk.waiting(Q) == []


def test_more_destinations_than_the_broker_can_have_undo_all():
    desk = Bench(policies=BrokerPolicies(max_destinations=16))
    actor = desk.actor()
    actor.commits(*(run_of(f"/queue/{number}", "a") for number in range(17)))
    error = actor.error()
    assert error.get("code") == "too-many-destinations"
    assert desk.memory.used_bytes == 0
    assert all(queue.held == 0 for queue in desk.broker.queues)
