"""A subscription to queues: the headers of its MESSAGEs, and its credit."""

from collections.abc import Iterator

import pytest

from tests.support.core import Bench, bench, numbered, texts
from trio_stomp.broker.delivery import NEVER
from trio_stomp.broker.queues import AUTO_BATCH_BYTES, DeadLetterReason

Q = "/queue/q"


@pytest.fixture
def desk() -> Iterator[Bench]:
    """Yield a core that must be empty at the end of the test."""
    desk = bench()
    yield desk
    desk.ends()


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize("ack", ["auto", "client", "client-individual"])
def test_only_version_1_2_has_an_ack_header_and_it_names_the_delivery(desk: Bench, version, ack):
    actor = desk.actor(version)
    actor.subscribes(Q, ack=ack)
    actor.sends(Q, "a", "b")
    frames = actor.reads()
    ids = [frame.get("message-id") for frame in frames]
    assert len(set(ids)) == 2
    if version == "1.2" and ack != "auto":
        assert ids == ["b-1", "b-2"]
        assert [frame.get("ack") for frame in frames] == ["b.1-1", "b.1-2"]
    else:
        assert [frame.get("ack") for frame in frames] == [None, None]
    assert [frame.get("redelivered") for frame in frames] == [None, None]
    assert [frame.get("delivery-count") for frame in frames] == [None, None]
    assert {frame.get("subscription") for frame in frames} == {"0"}


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_a_message_keeps_its_id_and_every_delivery_has_its_number(version):
    desk = bench(max_redeliveries=9)
    actor = desk.actor(version)
    actor.subscribes(Q, ack="client")
    actor.sends(Q, "a")
    ids, acks = set(), set()
    for count in range(1, 5):
        [frame] = actor.reads()
        ids.add(frame.get("message-id"))
        acks.add(frame.get("ack"))
        assert frame.get("redelivered") == ("true" if count > 1 else None)
        assert frame.get("delivery-count") == (f"{count}" if count > 1 else None)
        actor.nacks(frame)
        desk.passes(9.0)
    assert ids == {"b-1"}
    assert len(acks) == (4 if version == "1.2" else 1)


def test_a_dialect_may_want_to_hear_redelivered_false_too(desk: Bench):
    actor = desk.actor()
    actor.subscribes(Q, ack="client")
    actor.consumer().always_sends_redelivered = True
    actor.sends(Q, "a")
    [frame] = actor.reads()
    assert frame.get("redelivered") == "false"
    actor.nacks(frame)
    [frame] = actor.reads()
    assert frame.get("redelivered") == "true"


def test_body_sizes_are_staged_with_and_without_content_length(desk: Bench):
    actor = desk.actor()
    actor.subscribes(Q)
    actor.sends(Q, "abc", "", "\0")
    found = [(frame.body, frame.get("content-length")) for frame in actor.reads()]
    assert found == [(b"abc", "3"), (b"", None), (b"\0", "1")]
    actor.subscribes("/queue/r", "r", ack="client")
    actor.sends("/queue/r", "bad")
    actor.nacks(*actor.reads(), requeue=False)
    actor.subscribes("/queue/DLQ.r", "d")
    [dead] = actor.reads()
    assert dead.get("content-length") == "3"


def test_runs_of_different_headers_each_keep_their_own(desk: Bench):
    actor = desk.actor()
    for body, colour in (("0", "red"), ("1", "red"), ("2", "blue"), ("3", "red")):
        actor.sends(Q, body, colour=colour)
    actor.subscribes(Q)
    got = [(frame.text, frame.get("colour")) for frame in actor.reads()]
    assert got == [("0", "red"), ("1", "red"), ("2", "blue"), ("3", "red")]


@pytest.mark.parametrize("ack", ["client", "client-individual"])
def test_no_more_than_the_prefetch_is_unacknowledged(desk: Bench, ack):
    actor = desk.actor()
    actor.subscribes(Q, ack=ack, prefetch_count="3")
    actor.sends(Q, *numbered("", 9))
    frames = actor.reads()
    assert texts(frames) == ["0", "1", "2"]
    actor.acks(frames[1])
    freed = 2 if ack == "client" else 1
    assert actor.bodies() == ["3", "4"][:freed]
    assert len(actor.consumer().unacked) == 3


def test_the_prefetch_in_bytes_always_allows_one_message(desk: Bench):
    actor = desk.actor()
    actor.subscribes(Q, ack="client-individual", credit="9,10")
    actor.sends(Q, "x" * 50, "a" * 6, "b" * 6, "c" * 6)
    [big] = actor.reads()
    assert len(big.body) == 50
    actor.acks(big)
    frames = actor.reads()
    # The second one begins within the 10 bytes; the third does not.
    assert texts(frames) == ["a" * 6, "b" * 6]
    actor.acks(frames[0])
    assert texts(actor.reads()) == ["c" * 6]
    assert actor.consumer().bytes_left == -2


def test_a_delivery_that_comes_back_gives_its_credit_back(desk: Bench):
    actor = desk.actor()
    actor.subscribes(Q, ack="client-individual", credit="2,100")
    actor.sends(Q, "x" * 60, "y" * 30)
    for _ in range(2):
        actor.nacks(*actor.reads())
        desk.passes(0.0)
    desk.passes(5.0)
    actor.acks(*actor.reads())
    consumer = actor.consumer()
    assert (consumer.count_left, consumer.bytes_left) == (2, 100)
    assert not consumer.unacked


@pytest.mark.parametrize("size", [0, 1, 1000, AUTO_BATCH_BYTES])
def test_an_auto_consumer_is_asked_for_room_before_each_batch(desk: Bench, size):
    actor = desk.actor()
    actor.sends(Q, *["x" * size] * (3 if size > 1000 else 3000))
    actor.outbox.asks_left = 1
    actor.subscribes(Q)
    frames = actor.reads()
    # Frames without a body take room as well.
    assert 0 < len(frames) < (2 if size > 1000 else 3000)
    assert sum(len(frame.body) for frame in frames) <= AUTO_BATCH_BYTES


def test_batches_follow_each_other_while_there_is_room(desk: Bench):
    actor = desk.actor()
    actor.sends(Q, *numbered("x" * 1000, 600))
    actor.subscribes(Q)
    assert actor.bodies() == numbered("x" * 1000, 600)


def test_lifetimes_are_staged_span_by_span(desk: Bench):
    actor = desk.actor()
    actor.sends(Q, "a", "b", ttl="1000")
    actor.sends(Q, "c")
    actor.sends(Q, "d", ttl="2000")
    actor.subscribes(Q, ack="client-individual")
    actor.subscribes("/queue/auto", "auto")
    actor.sends("/queue/auto", "e", ttl="1000")
    desk.turn()
    found = [delivery for _, delivery in actor.outbox.staged if delivery is not None]
    lines = [
        (each.count, each.publication.expires_at, each.ticket and each.ticket[1]) for each in found
    ]
    assert lines == [
        (2, desk.now + 1, 1),
        (1, NEVER, None),
        (1, desk.now + 2, 4),
        (1, desk.now + 1, None),
    ]


def test_message_that_expires_in_the_outbox_is_dropped_and_frees_its_credit():
    desk = bench(dead_letter_expired=True)
    actor = desk.actor()
    actor.subscribes(Q, ack="client", prefetch_count="2")
    actor.sends(Q, "a", "b", ttl="1000")
    actor.sends(Q, "c", ttl="9000")
    desk.turn()
    desk.passes(1.0)
    assert actor.writes() == []
    assert actor.bodies() == ["c"]
    assert desk.waiting("/queue/DLQ.q") == ["a", "b"]
    assert desk.broker.queues.dead_letter_counts.failed[DeadLetterReason.EXPIRED] == 2
    queue = desk.queue(Q)
    assert (queue.unacked, queue.message_count) == (1, 1)
    assert actor.consumer().count_left == 1
    desk.ends()


def test_returned_message_that_expires_unwritten_is_dead_lettered_once(desk: Bench):
    actor, other = desk.actor(), desk.actor()
    actor.subscribes(Q, ack="client")
    actor.sends(Q, "a", ttl="1000")
    actor.sends(Q, "b")
    desk.turn()
    [ticketed] = [each for _, each in actor.outbox.staged if each is not None and each.ticket]
    actor.unsubscribes()
    desk.passes(1.0)
    other.subscribes(Q, ack="client")
    desk.broker.unsent(ticketed, desk.now)
    assert other.bodies() == ["b"]
    queue = desk.queue(Q)
    assert (queue.unacked, queue.message_count, queue.destination.expired) == (1, 1, 1)


def test_an_unsent_delivery_without_a_ticket_is_nobodys(desk: Bench):
    actor = desk.actor()
    actor.subscribes(Q)
    actor.sends(Q, "a", ttl="1000")
    desk.turn()
    desk.passes(1.0)
    assert actor.reads() == []
    assert desk.memory.used_bytes == 0


def test_a_browser_sees_waiting_messages_and_consumes_none(desk: Bench):
    actor, reader = desk.actor(), desk.actor()
    reader.subscribes(Q, ack="client", prefetch_count="1")
    reader.sends(Q, "a", "b", "c")
    reader.reads()
    actor.subscribes(Q, browser="true", ack="client")
    *frames, end = actor.reads()
    assert texts(frames) == ["b", "c"]
    assert end.get("browser") == "end"
    assert desk.waiting(Q) == ["b", "c"]
    reader.is_gone()
    reader = desk.actor()
    reader.subscribes(Q, ack="client")
    # Looking is no delivery.
    assert [frame.get("delivery-count") for frame in reader.reads()] == ["2", None, None]


def test_wildcard_consumers_share_one_credit_over_all_queues(bench: Bench):
    actor = bench.actor()
    actor.subscribes("/queue/*", ack="client-individual", prefetch_count="3")
    for name in "abcd":
        actor.sends(f"/queue/{name}", name)
    frames = actor.reads()
    assert texts(frames) == ["a", "b", "c"]
    actor.acks(frames[0])
    assert actor.bodies() == ["d"]


def test_the_age_of_unacknowledged_messages_is_known_to_a_second(bench: Bench):
    producer, worker = bench.actor(), bench.actor()
    worker.subscribes("/queue/q", ack="client-individual")
    queue = bench.broker.queues.open("/queue/q")
    assert queue.oldest_unacked_age_s(bench.now) == 0.0
    for body in ("a", "b", "c"):
        producer.sends("/queue/q", body)
        bench.passes(10)
    first, second, third = worker.reads()
    assert queue.oldest_unacked_age_s(bench.now) == pytest.approx(20, abs=1)
    worker.acks(first)
    bench.turn()
    assert queue.oldest_unacked_age_s(bench.now) == pytest.approx(10, abs=1)
    worker.acks(second, third)
    bench.turn()
    assert queue.oldest_unacked_age_s(bench.now) == 0.0


def test_the_moments_of_delivery_do_not_grow_for_ever(bench: Bench):
    producer, worker = bench.actor(), bench.actor()
    worker.subscribes("/queue/q", ack="client-individual", prefetch_count="10000")
    for _ in range(2500):
        producer.sends("/queue/q", "x")
        bench.passes(2)
    consumer = worker.consumer()
    assert len(consumer._times) <= 1000
    assert consumer.oldest_age_s(bench.now) == pytest.approx(5000, abs=2)


def test_the_age_of_a_queue_is_that_of_the_consumer_that_holds_most_long(bench: Bench):
    producer, busy, idle = bench.actor(), bench.actor(), bench.actor()
    busy.subscribes("/queue/q", ack="client")
    producer.sends("/queue/q", "x")
    bench.passes(5)
    idle.subscribes("/queue/q", ack="client")
    bench.passes(5)
    assert bench.queue("/queue/q").oldest_unacked_age_s(bench.now) == pytest.approx(5)
    assert idle.consumer().oldest_age_s(bench.now) == 0.0
