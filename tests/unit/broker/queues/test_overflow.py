"""A full queue: exactly at its bound, by its policy."""

from typing import TYPE_CHECKING

import pytest

from tests.support.core import (
    HEAD,
    OVERHEAD,
    Bench,
    Core,
    Received,
    bench,
    numbered,
    queue_head,
    run_of,
)
from trio_stomp.base import CloseReason, ProtocolError
from trio_stomp.broker import BrokerPolicies, DestinationPolicy, MemoryBudget
from trio_stomp.broker.queues import DeadLetterReason, QueueFull
from trio_stomp.protocol import Committed, Refused

if TYPE_CHECKING:
    from trio_stomp.broker.sending import Publisher

Q = "/queue/q"


@pytest.mark.parametrize("bound", [{"max_messages": 3}, {"max_bytes": 6}])
def test_reject_accepts_messages_that_fit_and_reports_their_number(bound):
    desk = bench(**bound)
    sender = desk.actor()
    sender.sends(
        Q, "a1", "b2", "c3", "d4", "e5", receipts=[(1, b"r1"), (3, b"r3"), (4, b"r4"), (5, b"r5")]
    )
    frames = sender.frames()
    answers = [(frame.command, frame.get("receipt-id")) for frame in frames]
    assert answers == [("RECEIPT", "r1"), ("RECEIPT", "r3"), ("ERROR", "r4")]
    assert frames[-1].get("code") == "queue-full"
    assert f"{Q} has 3 messages of 6 bytes" in (frames[-1].get("message") or "")
    assert desk.waiting(Q) == ["a1", "b2", "c3"]
    assert desk.queue(Q).enqueued == 3
    desk.ends()


@pytest.mark.parametrize("bound", [{"max_messages": 3}, {"max_bytes": 6}])
@pytest.mark.parametrize(
    "overflow", ["reject", "drop-oldest", "drop-newest", "dead-letter", "block"]
)
def test_nothing_happens_as_long_as_the_bound_is_not_passed(overflow, bound):
    desk = bench(overflow=overflow, **bound)
    actor = desk.actor()
    actor.sends(Q, "a1", "b2")
    actor.sends(Q, "c3", receipts=[(1, b"r")])
    assert [frame.command for frame in actor.frames()] == ["RECEIPT"]
    assert desk.waiting(Q) == ["a1", "b2", "c3"]
    assert desk.broker.overflow.dropped == 0
    assert not actor.outbox.pauses


@pytest.mark.parametrize("bound", [{"max_messages": 2}, {"max_bytes": 5}])
def test_drop_oldest_makes_room_at_the_head(bound):
    desk = bench(overflow="drop-oldest", **bound)
    actor = desk.actor()
    actor.sends(Q, "a1", "b2", "c3", receipts=[(3, b"r")])
    actor.sends(Q, "d4")
    assert [frame.command for frame in actor.frames()] == ["RECEIPT"]
    assert desk.waiting(Q) == ["c3", "d4"]
    assert (desk.broker.overflow.dropped, desk.queue(Q).destination.dropped) == (2, 2)
    assert desk.memory.used_bytes == desk.memory.kept_bytes == 2 * (OVERHEAD + 2) + 2 * HEAD
    desk.ends()


@pytest.mark.parametrize("explain_events", [100, 0])
def test_message_dropped_to_make_room_can_be_explained(explain_events):
    policy = DestinationPolicy(overflow="drop-oldest", max_messages=2)
    core = Core(BrokerPolicies(explain_events=explain_events), book={Q: policy})
    sender = core.peer()
    sender.sends("/queue/other", "x")
    sender.sends(Q, "a", "b")
    sender.sends(Q, "c", "d", "e")
    rule = "overflow = 'drop-oldest'"
    dropped = [("queue-full", Q, 1, (at, 1), rule) for at in (2, 3, 4)] if explain_events else []
    assert dropped == [
        (each.reason, each.destination, each.count, each.numbers, each.rule)
        for each in core.broker.event_history.trouble
    ]
    assert core.broker.overflow.dropped == 3


def test_a_dead_letter_is_no_drop():
    core = Core(book={Q: DestinationPolicy(overflow="dead-letter", max_messages=1)})
    core.peer().sends(Q, "a", "b")
    (event,) = core.broker.event_history.trouble
    assert event.reason == DeadLetterReason.OVERFLOW.value


def test_drop_newest_keeps_existing_messages():
    desk = bench(overflow="drop-newest", max_messages=2)
    actor = desk.actor()
    actor.sends(Q, "a", "b", "c", receipts=[(3, b"r")])
    assert [frame.command for frame in actor.frames()] == ["RECEIPT"]
    assert desk.waiting(Q) == ["a", "b"]
    assert (desk.broker.overflow.dropped, desk.queue(Q).destination.dropped) == (1, 1)


def test_dead_letter_sends_the_oldest_to_the_dead():
    desk = bench(overflow="dead-letter", max_messages=2)
    actor = desk.actor()
    actor.sends(Q, *numbered("", 5))
    assert actor.reads() == []
    assert desk.waiting(Q) == ["3", "4"]
    actor.subscribes("/queue/DLQ.q", "d")
    frames = actor.reads()
    assert [frame.text for frame in frames] == ["0", "1", "2"]
    assert {frame.get("x-death-reason") for frame in frames} == {"overflow"}
    assert desk.broker.queues.dead_letter_counts.failed[DeadLetterReason.OVERFLOW] == 3


@pytest.mark.parametrize("overflow", ["drop-oldest", "dead-letter"])
def test_messages_in_delivery_are_not_dropped_and_new_ones_are_taken(overflow):
    desk = bench(overflow=overflow, max_messages=2)
    actor, sender = desk.actor(), desk.actor()
    actor.subscribes(Q, ack="client-individual")
    actor.sends(Q, "a", "b")
    held = actor.reads()
    actor.outbox.room = 0
    sender.sends(Q, "c")
    sender.sends(Q, "d")
    assert desk.waiting(Q) == ["d"]
    actor.outbox.room = 1000
    assert actor.bodies() == ["d"]
    actor.acks(*held)


@pytest.mark.parametrize("overflow", ["reject", "drop-oldest", "dead-letter", "block"])
def test_message_that_never_fits_is_refused_and_drops_no_others(overflow):
    desk = bench(overflow=overflow, max_bytes=5)
    actor, sender = desk.actor(), desk.actor()
    actor.sends(Q, "ab")
    sender.sends(Q, "abcdef")
    assert sender.error().get("code") == "queue-full"
    assert not sender.outbox.is_paused
    assert desk.waiting(Q) == ["ab"]


def test_unacknowledged_and_delayed_messages_count():
    desk = bench(max_messages=2)
    actor = desk.actor()
    actor.subscribes(Q, ack="client-individual", prefetch_count="1")
    actor.sends(Q, "a")
    actor.nacks(*actor.reads())
    actor.nacks(*actor.reads())
    actor.sends(Q, "b")
    assert actor.bodies() == ["b"]
    actor.sends(Q, "c")
    assert actor.error().get("code") == "queue-full"


# Memory.


@pytest.mark.parametrize("overflow", ["reject", "drop-oldest", "drop-newest"])
def test_the_memory_of_the_process_is_a_bound_too(overflow):
    desk = bench(overflow=overflow)
    desk.memory.limit_bytes = 2 * (OVERHEAD + 1) + HEAD
    actor = desk.actor()
    actor.sends(Q, "a", "b", "c")
    if overflow == "reject":
        assert actor.error().get("code") == "queue-full"
    expected = {"reject": ["a", "b"], "drop-oldest": ["b", "c"], "drop-newest": ["a", "b"]}
    assert desk.waiting(Q) == expected[overflow]
    assert desk.memory.used_bytes == desk.memory.limit_bytes
    desk.ends()


def test_blocked_messages_fill_only_their_share_of_memory():
    desk = Bench(memory=MemoryBudget(4 * (OVERHEAD + 1) + 2 * HEAD, kept_share=0.5))
    actor = desk.actor()
    actor.sends(Q, "a", "b", "c")
    actor.error()
    assert desk.waiting(Q) == ["a", "b"]


def test_a_message_that_the_memory_can_never_hold_does_not_block_its_sender():
    desk = bench(overflow="block")
    desk.memory.limit_bytes = 1000
    actor = desk.actor()
    actor.sends(Q, "x" * 1000)
    assert actor.error().get("code") == "queue-full"


# Block.


def blocking(**fields: object) -> Bench:
    """Return a bench whose queue blocks producers at two messages."""
    return bench(None, overflow="block", **{"max_messages": 2, **fields})


def test_a_producer_waits_and_keeps_its_order():
    desk = blocking()
    sender, reader = desk.actor(), desk.actor()
    sender.does(run_of(Q, "abc", (), [(1, b"r1"), (3, b"r3")]), run_of(Q, "d"))
    sender.sends(Q, "e", receipts=[(1, b"r5")])
    sender.sends("/queue/other", "f")
    assert [frame.get("receipt-id") for frame in sender.frames()] == ["r1"]
    assert sender.outbox.is_paused
    assert desk.waiting(Q) == ["a", "b"]
    assert desk.waiting("/queue/other") == []
    reader.subscribes(Q, ack="client-individual")
    got: list[str] = []
    held: list[Received] = []
    for step in range(5):
        frames = reader.reads()
        got += [frame.text for frame in frames]
        assert desk.queue(Q).message_count == min(2, 5 - step)
        held += frames
        reader.acks(held.pop(0))
    assert "".join(got) == "abcde"
    assert [frame.get("receipt-id") for frame in sender.frames()] == ["r3", "r5"]
    assert not sender.outbox.is_paused
    assert not desk.broker.overflow.blocked
    assert desk.waiting("/queue/other") == ["f"]
    desk.ends()


def test_an_auto_consumer_empties_a_blocked_producer_in_one_turn():
    # Nothing else would begin another turn: an auto consumer sends no ACK.
    desk = blocking()
    sender, reader = desk.actor(), desk.actor()
    sender.sends(Q, *numbered("", 9))
    reader.subscribes(Q)
    assert reader.bodies() == numbered("", 9)
    assert not sender.outbox.is_paused
    assert sender.outbox.pauses >= 1


def test_blocked_senders_continue_in_order():
    desk = blocking()
    senders = [desk.actor() for _ in range(3)]
    reader = desk.actor()
    for number, sender in enumerate(senders):
        sender.sends(Q, f"{number}.0", f"{number}.1")
        desk.turn()
    reader.subscribes(Q, ack="client", prefetch_count="1")
    got = []
    while frames := reader.reads():
        got += [frame.text for frame in frames]
        reader.acks(*frames)
    assert got == ["0.0", "0.1", "1.0", "1.1", "2.0", "2.1"] or got[:3] == ["0.0", "0.1", "1.0"]
    assert sorted(got) == sorted(f"{n}.{m}" for n in range(3) for m in range(2))
    for number in range(3):
        mine = [body for body in got if body.startswith(f"{number}.")]
        assert mine == sorted(mine)


def test_it_waits_until_its_own_message_fits():
    desk = blocking(max_messages=9, max_bytes=10)
    sender, small, reader = desk.actor(), desk.actor(), desk.actor()
    small.sends(Q, "1234", "5678")
    sender.sends(Q, "big body")
    desk.turn()
    assert sender.outbox.pauses == 1
    small.sends(Q, "90")
    desk.turn()
    # 2 bytes have been free meanwhile, which is too little for any sender: it was not woken in
    # vain.
    assert sender.outbox.pauses == 1
    reader.subscribes(Q)
    assert reader.bodies() == ["1234", "5678", "90", "big body"]
    assert not sender.outbox.is_paused


def test_messages_of_a_lost_waiting_producer_are_refused_from_the_first_that_found_no_room():
    desk = blocking()
    sender, reader = desk.actor(), desk.actor()
    sender.sends(Q, "a", "b", "c", "d", receipts=[(2, b"rb"), (3, b"rc"), (4, b"rd")])
    sender.sends("/queue/other", "e", receipts=[(1, b"re")])
    desk.turn()
    sender.is_gone()
    desk.turn()
    answers = [(frame.command, frame.get("receipt-id")) for frame in sender.writes()]
    assert answers == [("RECEIPT", "rb"), ("ERROR", "rc")]
    assert desk.waiting(Q) == ["a", "b"]
    assert desk.waiting("/queue/other") == []
    assert not desk.broker.overflow.blocked
    reader.subscribes(Q)
    assert reader.bodies() == ["a", "b"]
    desk.ends()


def test_an_error_that_ends_a_waiting_producer_names_the_first_send_that_was_not_taken():
    desk = blocking()
    sender = desk.actor()
    sender.sends(Q, "a", "b", "c", receipts=[(3, b"rc")])
    closing = ProtocolError("closed-by-operator", "", reason=CloseReason.CLOSED_BY_OPERATOR)
    sender.does(Refused(closing))
    sender.is_gone(CloseReason.CLOSED_BY_OPERATOR)
    error = sender.error()
    assert (error.get("code"), error.get("receipt-id")) == ("closed-by-operator", "rc")
    desk.ends()


@pytest.mark.parametrize("comes", [True, False])
def test_a_producer_that_closed_its_half_waits_for_room_for_a_while(comes: bool):
    desk = blocking()
    sender, reader = desk.actor(), desk.actor()
    sender.sends(Q, "a", "b", "c", "d", receipts=[(3, b"rc"), (4, b"rd")])
    desk.turn()
    sender.is_gone(CloseReason.CLIENT_CLOSED)
    assert sender.frames() == []
    if comes:
        reader.subscribes(Q)
        assert reader.bodies() == ["a", "b", "c", "d"]
        assert [frame.get("receipt-id") for frame in sender.writes()] == ["rc", "rd"]
    desk.passes(10)
    if not comes:
        assert sender.error().get("receipt-id") == "rc"
        assert desk.waiting(Q) == ["a", "b"]
    assert sender.client not in desk.broker.clients
    desk.ends()


def test_receipts_tell_which_messages_were_dropped():
    desk = bench(overflow="drop-newest", max_bytes=4)
    actor = desk.actor()
    ids = [(n, b"%d" % n) for n in (1, 2, 3)]
    actor.sends(Q, "aa", "bbb", "cc", receipts=ids)
    actor.sends(f"/queue/other,{Q}", "dd", "e", receipts=ids[:2])
    told = [(frame.get("stored"), frame.get("dropped")) for frame in actor.frames()]
    full = "queue-full"
    assert told[:3] == [("memory", None), (None, full), ("memory", None)]
    assert told[3:] == [("memory", full), ("memory", full)]
    actor.commits(run_of(Q, ["f"]), run_of("/queue/other", ["g"]), receipt=b"c")
    actor.commits(run_of(Q, ["h"]), receipt=b"d")
    told = [(frame.get("stored"), frame.get("dropped")) for frame in actor.frames()]
    assert told == [("memory", full), (None, full)]
    assert desk.waiting(Q) == ["aa", "cc"]


def test_composite_tells_for_each_message_whether_a_queue_dropped_it():
    desk = bench(overflow="drop-newest", max_messages=1)
    actor = desk.actor()
    actor.sends(f"{Q},/queue/r", "a", "b", receipts=[(1, b"a"), (2, b"b")])
    told = [(frame.get("stored"), frame.get("dropped")) for frame in actor.frames()]
    assert told == [("memory", None), ("memory", "queue-full")]


def test_a_lost_waiting_producer_does_not_release_the_others():
    desk = blocking()
    first, second, reader = desk.actor(), desk.actor(), desk.actor()
    first.sends(Q, "a", "b", "c")
    second.sends(Q, "d")
    desk.turn()
    first.is_gone()
    reader.subscribes(Q)
    assert reader.bodies() == ["a", "b", "d"]


def test_memory_makes_producers_wait_too():
    desk = blocking(max_messages=100)
    desk.memory.limit_bytes = 3 * (OVERHEAD + 1) + HEAD
    sender, reader = desk.actor(), desk.actor()
    sender.sends(Q, *numbered("", 5))
    desk.turn()
    assert sender.outbox.is_paused
    assert desk.waiting(Q) == ["0", "1", "2"]
    reader.subscribes(Q)
    assert reader.bodies() == numbered("", 5)
    assert not sender.outbox.is_paused


def test_large_headers_make_producers_wait_until_there_is_room():
    desk = blocking(max_messages=100)
    each = OVERHEAD + 1 + queue_head(Q, ("x", "h" * 10_000))
    desk.memory.limit_bytes = 3 * each
    sender, reader = desk.actor(), desk.actor()
    for number in range(5):
        sender.sends(Q, str(number), x="h" * 10_000)
    desk.turn()
    assert sender.outbox.is_paused
    assert desk.memory.used_bytes == desk.memory.limit_bytes
    assert desk.waiting(Q) == ["0", "1", "2"]
    desk.turn()
    reader.subscribes(Q)
    assert reader.bodies() == numbered("", 5)
    assert not sender.outbox.is_paused
    assert desk.memory.used_bytes == 0


@pytest.mark.parametrize("overflow", ["reject", "block", "drop-oldest"])
def test_headers_that_the_memory_can_never_hold_are_refused(overflow):
    desk = bench(overflow=overflow)
    desk.memory.limit_bytes = 5_000
    actor = desk.actor()
    actor.sends(Q, "a")
    actor.sends(Q, "b", x="h" * 3_000)
    assert actor.error().get("code") == "queue-full"
    assert desk.memory.used_bytes == OVERHEAD + 1 + HEAD
    assert desk.waiting(Q) == ["a"]


def test_a_composite_that_fits_but_for_its_headers_is_nowhere(bench: Bench):
    actor = bench.actor()
    bench.memory.limit_bytes = 2 * (OVERHEAD + 1) + HEAD
    actor.sends("/queue/q,/queue/r", "a")
    assert actor.error().get("code") == "queue-full"
    assert bench.memory.used_bytes == 0


def test_a_producer_waits_for_the_same_queue_by_any_alias():
    desk = blocking()
    sender, reader = desk.actor(), desk.actor()
    sender.sends(Q, "a", "b")
    sender.sends("/amq/queue/q", "c")
    desk.turn()
    assert [queue.name for queue in desk.broker.queues] == [Q]
    assert sender.outbox.pauses == 1
    desk.turn()
    assert sender.outbox.pauses == 1
    reader.subscribes(Q)
    assert reader.bodies() == ["a", "b", "c"]


# Refusals without an ERROR.


def test_scheduled_messages_meet_a_full_queue_in_silence():
    for overflow in ("reject", "block"):
        desk = bench(overflow=overflow, max_messages=2)
        sender = desk.actor()
        sender.sends(Q, "a")
        before = desk.memory.used_bytes
        sender.sends(Q, "b", "c", AMQ_SCHEDULED_DELAY="1000")
        of_schedule = desk.memory.used_bytes - before
        desk.passes(1.0)
        assert sender.reads() == []
        assert desk.waiting(Q) == ["a", "b"]
        assert not desk.broker.overflow.blocked
        assert desk.broker.scheduler.waiting == 1
        of_queue = 2 * (OVERHEAD + 1) + desk.heads_bytes()
        assert desk.memory.used_bytes == of_queue + of_schedule - (OVERHEAD + 1)


def test_a_schedule_without_memory_is_refused(bench: Bench):
    bench.memory.limit_bytes = 100
    sender = bench.actor()
    sender.sends("/topic/t", "b", AMQ_SCHEDULED_DELAY="1000")
    error = sender.error()
    assert error.get("code") == "memory-limit"
    assert "/topic/t" in (error.get("message") or "")


def test_blocked_message_that_fails_later_counts_as_refused():
    desk = Bench(book={Q: DestinationPolicy(max_messages=1)})
    broker = desk.broker
    publisher: Publisher = broker.publisher

    def to(name: str) -> int:
        try:
            return publisher.send_for(run_of(name, "ab"), None, desk.now)
        except QueueFull as error:
            return error.done
        except ProtocolError:
            return 0

    assert to("/queue/r") == 2
    assert to(Q) == 1
    assert to("/queue/*") == 0


def test_a_transaction_is_taken_while_others_are_in_delivery():
    policy = DestinationPolicy(max_messages=1, overflow="drop-oldest")
    core = Core(book={Q: policy})
    reader, sender, committer = core.peer(), core.peer(), core.peer()
    reader.subscribes(Q, ack="client-individual")
    sender.sends(Q, "a")
    core.turn()
    committer.does(Committed([run_of(Q, ["b"])], b"r"))
    assert [each.command for each in committer.frames()] == ["RECEIPT"]
    assert reader.bodies() == ["a", "b"]
    reader.acks(*reader.messages())
    core.ends()
