"""COMMIT: atomic."""

from typing import TYPE_CHECKING

import pytest

from tests.support.core import HEAD, OVERHEAD, Actor, Bench, bench, numbered, queue_head, run_of
from tests.support.durable_fakes import DurableBench
from trio_stomp.broker import BrokerPolicies, DestinationPolicy

if TYPE_CHECKING:
    from trio_stomp.protocol import Event

Q, R = "/queue/q", "/queue/r"


def test_all_is_done_in_order_and_answered_once(bench: Bench):
    actor = bench.actor()
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
    answers = [(frame.command, frame.get("receipt-id")) for frame in frames]
    assert answers == [("RECEIPT", "done"), ("MESSAGE", None)]
    assert frames[1].text == "2"
    assert bench.waiting(Q) == ["a", "b", "c"]
    assert bench.waiting("/queue/DLQ.r") == ["1"]
    assert bench.broker.acknowledger.counters.acked == 1
    assert bench.broker.acknowledger.counters.nacked == 2


def test_no_receipt_asked_none_given(bench: Bench):
    actor = bench.actor()
    actor.commits(run_of(Q, "a"), receipt=None)
    assert actor.frames() == []
    assert bench.waiting(Q) == ["a"]


@pytest.mark.parametrize(
    ("overflow", "body"),
    [("reject", "345"), ("block", "345"), ("drop-oldest", "34567"), ("dead-letter", "34567")],
)
def test_a_queue_that_is_full_in_the_middle_undoes_all(overflow, body):
    book = {Q: DestinationPolicy(max_bytes=4, overflow=overflow)}
    desk = Bench(book=book)
    actor, other = desk.actor(), desk.actor()
    actor.subscribes(R, "r", ack="client")
    other.subscribes(Q, "q", ack="client")
    actor.sends(R, "0")
    actor.sends(Q, "12")
    [zero] = actor.reads()
    assert len(other.reads()) == 1
    used = desk.memory.used_bytes
    actor.commits(run_of(R, "a"), actor.acked(zero), run_of(Q, [body]), run_of(R, "b"))
    error = actor.error()
    assert (error.get("code"), error.get("receipt-id")) == ("queue-full", "done")
    assert desk.broker.acknowledger.counters.acked == 0
    # Its unacknowledged messages returned when it left; nothing of the transaction is there.
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


def test_the_memory_must_be_enough_for_all_of_it(bench: Bench):
    bench.memory.limit_bytes = 3 * (OVERHEAD + 1) + HEAD + queue_head(R)
    actor = bench.actor()
    actor.commits(run_of(Q, "ab"), run_of(R, "cd"))
    assert actor.error().get("code") == "queue-full"
    assert bench.memory.used_bytes == 0
    actor = bench.actor()
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
    desk.memory.limit_bytes = desk.memory.used_bytes + OVERHEAD + 1 + queue_head(R)
    actor.commits(run_of(R, "e"), run_of("/topic/t", "f", later))
    actor.error()
    assert desk.waiting(R) == ["b"]
    assert desk.broker.scheduler.waiting == 2


@pytest.mark.parametrize("place", [0, 1, 2])
def test_an_unknown_ack_undoes_all(bench: Bench, place):
    actor = bench.actor()
    actor.subscribes(R, "r", ack="client-individual")
    actor.sends(R, "0")
    [zero] = actor.reads()
    actions: list[Event] = [run_of(Q, "a"), actor.acked(zero)]
    actions.insert(place, actor.acked("b.1-99"))
    actor.commits(*actions)
    error = actor.error()
    assert (error.get("code"), error.get("receipt-id")) == ("unknown-ack", "done")
    assert bench.waiting(Q) == []
    assert bench.waiting(R) == ["0"]
    assert bench.broker.acknowledger.counters.acked == 0


@pytest.mark.parametrize("name", ["/queue/*", "/queue/monitor"])
def test_a_destination_that_takes_no_send_undoes_all(bench: Bench, name):
    actor = bench.actor()
    actor.commits(run_of(Q, "a"), run_of(name, "b"))
    actor.error()
    assert bench.waiting(Q) == []


def test_an_id_covered_by_a_cumulative_ack_before_it_is_no_error(bench: Bench):
    actor = bench.actor()
    actor.subscribes(R, "r", ack="client")
    actor.sends(R, *numbered("", 3))
    zero, one, two = actor.reads()
    actor.commits(actor.acked(one), actor.acked(zero), actor.acked(two))
    assert [frame.command for frame in actor.frames()] == ["RECEIPT"]
    assert (
        bench.broker.acknowledger.counters.acked,
        bench.broker.acknowledger.counters.ignored,
    ) == (3, 1)


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
    assert all(queue.message_count == 0 for queue in desk.broker.queues)


BRIEF = DestinationPolicy(ack_timeout_ms=1000, backoff_s=(), max_redeliveries=100)


def under_way(*, ack: str = "client-individual") -> tuple[DurableBench, Actor]:
    """Return a core whose store has not answered a transaction yet that acknowledges ``a``."""
    core = DurableBench(book={"/queue/q": BRIEF})
    reader = core.actor()
    reader.subscribes("/queue/q", ack=ack)
    core.actor().sends("/queue/q", "a", "b", persistent="true")
    first, _ = reader.reads()
    core.is_prompt = False
    reader.commits(reader.acked(first), run_of("/queue/out", ["done"]))
    core.turn()
    return core, reader


def left(core: DurableBench, name: str = "/queue/q") -> list[str]:
    core.is_prompt = True
    for actor in core.peers:
        actor.is_gone()
    reader = core.actor()
    reader.subscribes(name)
    return reader.bodies()


@pytest.mark.parametrize("ack", ["client", "client-individual"])
def test_message_acknowledged_in_an_open_transaction_is_not_redelivered(ack: str) -> None:
    core, reader = under_way(ack=ack)
    core.passes(5)
    assert [frame.text for frame in reader.reads()] == ["b"]
    core.answers()
    assert [frame.command for frame in reader.frames()] == ["RECEIPT"]
    assert left(core) == ["b"]
    assert left(core, "/queue/out") == ["done"]
    assert left(core.restarts()) == []


def test_message_acknowledged_in_a_failed_transaction_is_redelivered() -> None:
    core, reader = under_way()
    core.passes(5)
    reader.reads()
    core.fails()
    assert reader.error().get("code") == "storage"
    assert left(core) == ["a", "b"]
    assert left(core, "/queue/out") == []
    core.ends()


@pytest.mark.parametrize("is_negative", [True, False])
def test_message_acknowledged_in_an_open_transaction_cannot_be_acknowledged_again(
    is_negative: bool,
) -> None:
    core, reader = under_way()
    reader.does(reader.acked("b.1-1", negative=is_negative))
    core.turn()
    core.answers()
    assert reader.error().get("code") == "unknown-ack"
    assert left(core) == ["b"]


def test_a_nack_in_a_transaction_is_done_with_the_rest() -> None:
    core = DurableBench(book={"/queue/q": BRIEF})
    reader = core.actor()
    reader.subscribes("/queue/q", ack="client-individual")
    core.actor().sends("/queue/q", "a", "b", persistent="true")
    first, second = reader.reads()
    core.is_prompt = False
    reader.commits(
        reader.acked(first, negative=True, requeue=False), reader.acked(second, negative=True)
    )
    assert reader.reads() == []
    core.answers()
    assert [frame.text for frame in reader.frames()] == ["b"]
    core.turn()
    core.answers()  # now the dead letter is stored, too
    core.is_prompt = True
    assert [frame.command for frame in reader.frames()] == ["RECEIPT"]
    assert left(core, "/queue/DLQ.q") == ["a"]


def test_transient_messages_are_acknowledged_with_stored_ones() -> None:
    core = DurableBench(book={"/queue/q": BRIEF})
    reader, sender = core.actor(), core.actor()
    reader.subscribes("/queue/q", ack="client")
    sender.sends("/queue/q", "transient")
    sender.sends("/queue/q", "stored", persistent="true")
    frames = reader.reads()
    core.is_prompt = False
    reader.commits(reader.acked(frames[-1]))
    assert reader.frames() == []
    core.answers()
    assert [frame.command for frame in reader.frames()] == ["RECEIPT"]
    core.answers()
    core.ends()


def test_a_reply_to_a_temporary_queue_is_seen_with_the_rest_or_not_at_all() -> None:
    for works in (True, False):
        core = DurableBench(is_prompt=False)
        asker, worker = core.actor(), core.actor()
        asker.subscribes("/temp-queue/r", "/temp-queue/r")
        asker.sends("/queue/ask", "?", reply_to="/temp-queue/r")
        worker.subscribes("/queue/ask")
        (question,) = worker.reads()
        reply_to = question.get("reply-to") or ""
        stored = run_of("/queue/done", ["x"], (("persistent", "true"),))
        worker.commits(run_of(reply_to, ["!"]), stored)
        assert asker.reads() == []
        core.answers() if works else core.fails()
        assert [frame.text for frame in asker.reads()] == (["!"] if works else [])


@pytest.mark.parametrize("overflow", ["reject", "drop-newest", "drop-oldest", "block"])
def test_a_reply_of_a_commit_has_its_place_before_later_ones(overflow: str) -> None:
    policy = DestinationPolicy(max_messages=1, overflow=overflow)
    core = DurableBench(book={"/reply-queue/**": policy}, is_prompt=False)
    asker, worker, other = core.actor(), core.actor(), core.actor()
    asker.sends("/temp-queue/r", "?")  # makes the queue
    (reply_to,) = asker.client.temporary.values()
    asker.subscribes("/temp-queue/r")
    assert asker.bodies() == ["?"]
    asker.unsubscribes("0")
    worker.commits(run_of(reply_to, ["first"]), run_of(Q, ["x"], (("persistent", "true"),)))
    core.turn()
    other.sends(reply_to, "second", receipts=[(1, b"2")])
    core.answers()
    assert [frame.command for frame in worker.frames()] == ["RECEIPT"]
    asker.subscribes("/temp-queue/r")
    answer = [(frame.command, frame.get("dropped")) for frame in other.frames()]
    if overflow == "drop-oldest":  # which was sent meanwhile, and leaves for what enters
        assert (asker.bodies(), answer) == (["first"], [("RECEIPT", None)])
    else:
        refused = {"reject": ("ERROR", None), "drop-newest": ("RECEIPT", "queue-full")}
        assert asker.bodies()[:1] == ["first"]
        assert answer == ([("RECEIPT", None)] if overflow == "block" else [refused[overflow]])
    core.answers()


def test_a_reply_that_a_full_queue_drops_is_told_by_its_sender_s_receipt() -> None:
    core = DurableBench(
        book={"/reply-queue/**": DestinationPolicy(max_messages=1, overflow="drop-newest")}
    )
    asker, worker = core.actor(), core.actor()
    asker.sends("/temp-queue/r", "?")
    (reply_to,) = asker.client.temporary.values()
    worker.commits(run_of(reply_to, ["!"]), run_of(Q, ["x"], (("persistent", "true"),)))
    (receipt,) = worker.frames()
    assert receipt.get("dropped") == "queue-full"
    assert core.waiting(reply_to) == ["?"]


def test_a_reply_for_a_client_that_has_left_is_dropped() -> None:
    core = DurableBench(is_prompt=False)
    asker, worker = core.actor(), core.actor()
    asker.subscribes("/temp-queue/r", "/temp-queue/r")
    asker.sends("/queue/ask", "?", reply_to="/temp-queue/r")
    worker.subscribes("/queue/ask")
    (question,) = worker.reads()
    reply_to = question.get("reply-to") or ""
    worker.commits(run_of(reply_to, ["!"]), run_of("/queue/x", ["x"], (("persistent", "true"),)))
    core.turn()
    asker.is_gone()
    core.answers()
    destination = core.broker.destinations.find_current(reply_to)
    assert destination is not None
    assert (destination.queue, destination.dropped) == (None, 1)
