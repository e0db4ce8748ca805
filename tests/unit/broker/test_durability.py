"""Waits of clients for the store, errors after a failure, and other clients, which never wait."""

from collections.abc import Iterator

import pytest

from tests.support.core import Actor, Received, bench, texts
from tests.support.durable_fakes import DurableBench
from trio_stomp.base import CloseReason, ProtocolError
from trio_stomp.broker import BrokerPolicies, DestinationPolicy, MemoryBudget
from trio_stomp.protocol import Disconnected, Subscribed, Unsubscribed

PENDING = 32 * 1024 * 1024
"""Bytes on their way to the store, at which senders wait."""

Q = "/queue/q"


def slow(**fields: object) -> DurableBench:
    """Return a bench whose store answers on request."""
    book = {Q: DestinationPolicy(**fields)} if fields else {}  # type: ignore[arg-type]
    return DurableBench(book=book, is_prompt=False)


def stores(actor: Actor, *bodies: str, to: str = Q, receipt: bytes | None = None) -> None:
    receipts = [] if receipt is None else [(len(bodies), receipt)]
    actor.sends(to, *bodies, persistent="true", receipts=receipts)


def summary(frames: list[Received]) -> list[str]:
    """Return short forms of frames: the body, or the answer."""
    return [
        frame.text if frame.command == "MESSAGE" else f"{frame.command} {frame.get('receipt-id')}"
        for frame in frames
    ]


def ends(core: DurableBench) -> None:
    """Check that nothing is in progress or charged."""
    while core.turns:
        core.answers()
    core.ends()
    core.turn()  # messages lost with their consumer have failed once more, which is stored too
    while core.turns:
        core.answers()
    assert core.memory.kept_bytes == core.log.pending_bytes == 0
    assert [*core.log.waiting, *core.log.leaving] == []


@pytest.fixture
def core() -> Iterator[DurableBench]:
    """Yield a core whose store answers on request. It must be empty at the end."""
    core = slow()
    yield core
    ends(core)


def test_nothing_is_seen_nor_receipted_before_the_store_has_it(core: DurableBench) -> None:
    sender, reader = core.actor(), core.actor()
    reader.subscribes(Q)
    stores(sender, "a", receipt=b"1")
    assert reader.frames() == sender.frames() == []
    core.answers()
    assert summary(reader.frames()) == ["a"]
    (receipt,) = sender.frames()
    assert (receipt.get("receipt-id"), receipt.get("stored")) == ("1", "memory")


def test_withdrawn_send_is_never_visible_and_reported_once(core: DurableBench) -> None:
    sender, reader = core.actor(), core.actor()
    reader.subscribes(Q)
    stores(sender, "a")
    stores(sender, "b", receipt=b"1")
    stores(sender, "c", receipt=b"2")
    core.turn()
    core.fails("the disk is full")
    error = sender.error()
    assert (error.get("code"), error.get("receipt-id")) == ("storage", "1")
    assert error.get("message") == "the disk is full"
    while core.turns:
        core.answers()
    assert reader.frames() == []
    assert core.restarts().waiting(Q) == []


def test_receipts_of_stored_messages_precede_the_error(core: DurableBench) -> None:
    sender = core.actor()
    stores(sender, "a", receipt=b"1")
    core.appends()
    stores(sender, "b", receipt=b"2")
    core.turn()
    core.fails()
    assert summary(sender.frames()) == ["RECEIPT 1", "ERROR 2"]


@pytest.mark.parametrize("survives", [True, False])
def test_error_follows_pending_receipts(core: DurableBench, survives: bool) -> None:
    sender = core.actor()
    stores(sender, "a", receipt=b"1")
    sender.sends("a*", "x")
    assert sender.frames() == []
    core.answers() if survives else core.fails()
    frames = sender.frames()
    assert summary(frames) == (["RECEIPT 1", "ERROR None"] if survives else ["ERROR 1"])
    assert frames[-1].get("code") == ("wildcard-in-send" if survives else "storage")


def test_a_transient_send_does_not_overtake_a_stored_one(core: DurableBench) -> None:
    sender, other, reader = core.actor(), core.actor(), core.actor()
    reader.subscribes(Q)
    stores(sender, "a")
    sender.sends(Q, "b", receipts=[(1, b"1")])
    other.sends(Q, "other's")
    assert texts(reader.frames()) == ["other's"]
    assert sender.outbox.is_paused
    core.answers()
    assert texts(reader.frames()) == ["a", "b"]
    assert summary(sender.frames()) == ["RECEIPT 1"]
    assert not sender.outbox.is_paused


def test_stored_sends_and_acks_are_not_held(core: DurableBench) -> None:
    actor = core.reader(Q, ack="client")
    stores(actor, "a")
    core.appends()
    (got,) = actor.reads()
    stores(actor, "b")
    actor.sends(Q, "c", persistent="true", unique="headers")
    actor.acks(got)
    assert not actor.outbox.is_paused
    assert core.queue(Q).unacked == 0
    core.appends()
    assert actor.bodies() == ["b", "c"]


@pytest.mark.parametrize(
    "event",
    [
        Subscribed("1", "/topic/t", "auto", (("destination", "/topic/t"),), b"2"),
        Unsubscribed("0", None, b"2"),
        Disconnected(b"2"),
    ],
)
def test_later_frames_of_a_client_wait_for_its_sends(core: DurableBench, event: object) -> None:
    actor = core.reader("/topic/other")
    stores(actor, "a", receipt=b"1")
    actor.does(event)  # type: ignore[arg-type]
    assert actor.frames() == []
    core.answers()
    assert summary(actor.frames()) == ["RECEIPT 1", "RECEIPT 2"]


def test_the_receipt_of_disconnect_waits_for_acks(core: DurableBench) -> None:
    reader, (got,) = core.unacknowledged(Q, "a")
    reader.acks(got)
    reader.does(Disconnected(b"1"))
    assert reader.frames() == []
    core.answers()
    assert summary(reader.frames()) == ["RECEIPT 1"]


def test_disconnect_does_not_wait_for_acks_of_transient_messages(
    core: DurableBench,
) -> None:
    sender, reader = core.actor(), core.actor()
    reader.subscribes(Q, ack="client")
    sender.sends(Q, "a")
    (got,) = reader.reads()
    reader.acks(got)
    reader.does(Disconnected(b"1"))
    assert summary(reader.frames()) == ["RECEIPT 1"]


def test_disconnect_after_an_ack_survives_failures_before_and_after(core: DurableBench) -> None:
    reader, (first, second) = core.unacknowledged(Q, "a", "b")
    for _ in range(3):
        stores(core.actor(), "x")
        core.turn()
    reader.acks(first)
    core.turn()
    core.fails()
    core.answers()
    reader.acks(second)
    reader.does(Disconnected(b"1"))
    core.turn()
    core.fails()
    assert reader.frames() == []
    core.answers()
    assert summary(reader.frames()) == ["RECEIPT 1"]
    assert core.restarts().queue is not None
    assert not core.restarts().broker.queues.largest(1)


def test_the_receipt_of_an_ack_waits_for_the_store_and_outlives_a_failure(
    core: DurableBench,
) -> None:
    reader, (got,) = core.unacknowledged(Q, "a")
    reader.does(reader.acked(got, receipts=[(1, b"1")]))
    assert reader.frames() == []
    core.fails()
    assert reader.frames() == []
    core.answers()
    assert summary(reader.frames()) == ["RECEIPT 1"]


def test_other_clients_do_not_wait(core: DurableBench) -> None:
    sender, other = core.actor(), core.actor()
    other.subscribes("/topic/t", ack="client")
    other.sends("/topic/t", "x")
    (got,) = other.reads()
    stores(sender, "a")
    other.sends("/topic/t", "y", receipts=[(1, b"1")])
    other.does(Unsubscribed("0", None, b"2"), Disconnected(b"3"))
    assert summary(other.frames())[-3:] == ["RECEIPT 1", "RECEIPT 2", "RECEIPT 3"]
    assert got.text == "x"


def test_lost_client_is_removed_when_its_sends_are_done(core: DurableBench) -> None:
    sender = core.actor()
    stores(sender, "a", receipt=b"1")
    sender.sends("/queue/other", "b")
    seen: list[list[str]] = []
    core.broker.forget(
        sender.client,
        CloseReason.CONNECTION_LOST,
        core.now,
        lambda: seen.append(summary(sender.writes())),
    )
    core.turn()
    assert seen == []
    assert sender.client in core.broker.clients
    core.answers()
    assert seen == [["RECEIPT 1"]]
    assert sender.client not in core.broker.clients
    assert core.waiting("/queue/other") == ["b"]


def test_lost_client_may_have_to_wait_again(core: DurableBench) -> None:
    sender = core.actor()
    stores(sender, "a")
    sender.sends(Q, "b")
    stores(sender, "c")
    sender.is_gone()
    core.appends()
    assert core.waiting(Q) == ["a", "b"]
    assert sender.client in core.broker.clients
    core.answers()
    assert core.waiting(Q) == ["a", "b", "c"]
    assert sender.client not in core.broker.clients


def test_lost_client_is_removed_after_a_failure_too(core: DurableBench) -> None:
    sender = core.actor()
    stores(sender, "a")
    sender.is_gone()
    core.turn()
    core.fails()
    assert sender.client not in core.broker.clients


def test_a_producer_that_waited_for_room_continues_in_order() -> None:
    core = slow(max_messages=2, overflow="block")
    sender, reader = core.actor(), core.actor()
    stores(sender, "a", "b", "c", receipt=b"1")
    sender.sends(Q, "d")
    core.appends()
    assert sender.outbox.is_paused
    reader.subscribes(Q)
    got: list[str] = []
    while core.turns or not got or got[-1] != "d":
        got += texts(reader.frames())
        core.answers()
    assert got == ["a", "b", "c", "d"]
    assert summary(sender.frames()) == ["RECEIPT 1"]
    assert not sender.outbox.is_paused
    ends(core)


def test_blocked_producer_gets_an_error_when_the_store_fails() -> None:
    core = slow(max_messages=1, overflow="block")
    sender = core.actor()
    stores(sender, "a", "b", receipt=b"1")
    core.turn()
    core.fails()
    assert sender.error().get("code") == "storage"
    core.turn()
    assert core.waiting(Q) == []
    ends(core)


def test_sender_over_the_limit_of_pending_sends_is_paused() -> None:
    core = slow()
    sender = core.actor()
    bodies = ["a" * PENDING, "b"]
    for body in bodies:
        stores(sender, body)
    assert sender.outbox.is_paused
    core.appends()
    assert core.queue(Q).arriving == 1
    assert core.waiting(Q) == bodies[:1]
    core.answers()
    assert core.waiting(Q) == bodies
    ends(core)


def test_an_id_whose_message_is_withdrawn_is_no_duplicate(core: DurableBench) -> None:
    sender = core.actor()
    sender.sends(Q, "a", persistent="true", x_dedup_id="1")
    core.turn()
    core.fails()
    again = core.actor()
    again.sends(Q, "a", persistent="true", x_dedup_id="1", receipts=[(1, b"1")])
    core.appends()
    (receipt,) = again.frames()
    assert receipt.get("duplicate") is None
    assert core.waiting(Q) == ["a"]


def test_a_duplicate_is_receipted_when_the_first_is_safe(core: DurableBench) -> None:
    one, other, third = core.actor(), core.actor(), core.actor()
    one.sends(Q, "a", persistent="true", x_dedup_id="1")
    other.sends(Q, "a", persistent="true", x_dedup_id="1", receipts=[(1, b"1")])
    assert other.frames() == []
    core.answers()
    assert [frame.get("duplicate") for frame in other.frames()] == ["true"]
    third.sends(Q, "a", persistent="true", x_dedup_id="1", receipts=[(1, b"1")])
    assert [frame.get("duplicate") for frame in third.frames()] == ["true"]


def test_a_duplicate_of_a_withdrawn_message_is_withdrawn(core: DurableBench) -> None:
    one, other = core.actor(), core.actor()
    one.sends(Q, "a", persistent="true", x_dedup_id="1")
    other.sends(Q, "a", persistent="true", x_dedup_id="1", receipts=[(1, b"1")])
    core.turn()
    core.fails()
    assert other.error().get("receipt-id") == "1"


def test_duplicate_scheduled_message_is_detected_too(core: DurableBench) -> None:
    one, other = core.actor(), core.actor()
    told_apart = {"AMQ_SCHEDULED_DELAY": "1000", "x_dedup_id": "1", "persistent": "true"}
    one.sends(Q, "a", **told_apart)  # type: ignore[arg-type]
    other.sends(Q, "a", **told_apart, receipts=[(1, b"1")])  # type: ignore[arg-type]
    core.turn()
    core.fails()
    assert other.error().get("receipt-id") == "1"
    again = core.actor()
    again.sends(Q, "a", **told_apart)  # type: ignore[arg-type]
    core.appends()
    core.passes(1)
    core.answers()
    assert core.waiting(Q) == ["a"]


def test_a_durable_subscription_begins_when_it_is_safe(core: DurableBench) -> None:
    actor, other = core.actor(), core.actor()
    headers = (("destination", "/topic/t"), ("durable-subscription-name", "d"))
    actor.does(Subscribed("0", "/topic/t", "client", headers, b"1"))
    other.sends("/topic/t", "a")
    assert actor.frames() == []
    core.answers()
    assert summary(actor.frames()) == ["RECEIPT 1", "a"]
    ends_with_durables(core)


def test_a_durable_subscription_that_cannot_be_remembered_is_refused(core: DurableBench) -> None:
    actor = core.actor()
    headers = (("destination", "/topic/t"), ("durable-subscription-name", "d"))
    actor.does(Subscribed("0", "/topic/t", "client", headers, b"1"))
    core.turn()
    core.fails()
    error = actor.error()
    assert (error.get("code"), error.get("receipt-id")) == ("storage", "1")
    ends_with_durables(core)


def ends_with_durables(core: DurableBench) -> None:
    for binding in list(core.broker.bindings.durables):
        core.broker.bindings.end_durable(binding, core.now)
    core.turn()
    ends(core)


def test_the_end_of_a_durable_subscription_is_receipted_when_it_is_safe(core: DurableBench) -> None:
    actor = core.actor()
    headers = (("destination", "/topic/t"), ("durable-subscription-name", "d"))
    actor.does(Subscribed("0", "/topic/t", "client", headers, None))
    core.appends()
    for id in ("0", None):
        actor.does(Unsubscribed(id, None if id else "/topic/t", b"1", headers))
        if id:
            assert actor.frames() == []
            core.answers()
            assert summary(actor.frames()) == ["RECEIPT 1"]
    assert actor.error().get("code") == "unknown-subscription"
    assert not core.restarts().broker.bindings.durables


def test_without_a_store_receipts_come_at_once() -> None:
    core = bench()
    actor = core.reader(Q, ack="client")
    stores(actor, "a", receipt=b"1")
    frames = actor.frames()
    assert summary(frames) == ["RECEIPT 1", "a"]
    actor.does(actor.acked(frames[1], receipts=[(1, b"2")]), Disconnected(b"3"))
    assert summary(actor.frames()) == ["RECEIPT 2", "RECEIPT 3"]
    core.ends()


def test_a_topics_message_goes_to_the_subscribers_present_when_it_is_stored() -> None:
    core = slow(persistent="always")
    sender, durable, gone, come = (core.actor() for _ in range(4))
    headers = {"durable_subscription_name": "d"}
    durable.subscribes("/topic/t", ack="client", **headers)
    gone.subscribes("/topic/*")
    core.appends()
    stores(sender, "a", to="/topic/t")
    gone.unsubscribes()
    come.subscribes("/topic/*")
    core.turn()
    assert come.frames() == []
    core.answers()
    assert gone.frames() == []
    assert texts(come.frames()) == ["a"]
    assert texts(durable.frames()) == ["a"]
    ends_with_durables(core)


def test_memory_of_withdrawn_messages_is_released() -> None:
    core = DurableBench(book={}, memory=MemoryBudget(10_000), is_prompt=False)
    for _ in range(50):
        sender = core.actor()
        stores(sender, "x" * 1000, "y" * 1000)
        core.turn()
        assert core.memory.kept_bytes > 0
        core.fails()
        assert core.memory.kept_bytes == core.memory.used_bytes == 0
    ends(core)


def test_client_with_an_error_gets_no_second_one(core: DurableBench) -> None:
    actor, other = core.actor(), core.actor()
    for each in (actor, other):
        each.client.client_id = "same"
    actor.subscribes("/topic/t", ack="client", durable_subscription_name="d")
    core.appends()
    stores(actor, "a", receipt=b"1")
    other.subscribes("/topic/t", ack="client", durable_subscription_name="d")
    core.turn()
    core.fails()
    assert actor.error().get("code") == "taken-over"
    core.turn()
    ends_with_durables(core)


def test_error_in_frames_that_do_not_wait_follows_pending_receipts(core: DurableBench) -> None:
    actor = core.actor()
    stores(actor, "a", receipt=b"1")
    actor.acks("nonsense")
    assert actor.frames() == []
    core.answers()
    frames = actor.frames()
    assert summary(frames) == ["RECEIPT 1", "ERROR None"]
    assert frames[-1].get("code") == "unknown-ack"


def test_disconnect_waits_for_no_number_that_a_failure_has_made_void(core: DurableBench) -> None:
    reader, (got,) = core.unacknowledged(Q, "a")
    for _ in range(3):
        stores(core.actor(), "x")
        core.turn()
    reader.acks(got)
    core.turn()
    core.fails()
    core.answers()
    reader.does(Disconnected(b"1"))
    assert summary(reader.frames()) == ["RECEIPT 1"]


def test_an_ack_of_a_transient_message_does_not_wait(core: DurableBench) -> None:
    sender, reader, other = core.actor(), core.actor(), core.actor()
    reader.subscribes(Q, ack="client-individual")
    sender.sends(Q, "transient")
    (frame,) = reader.reads()
    stores(other, "under way")
    core.turn()
    reader.does(reader.acked(frame, receipts=[(1, b"1")]))
    assert summary(reader.frames()) == ["RECEIPT 1"]
    core.answers()
    (frame,) = reader.reads()
    reader.does(reader.acked(frame, receipts=[(1, b"2")]))
    assert reader.frames() == []
    core.answers()
    assert summary(reader.frames()) == ["RECEIPT 2"]


def test_client_lost_while_blocked_is_refused_from_the_send_on_that_found_no_room() -> None:
    core = slow(max_messages=1, overflow="block")
    filler, producer = core.actor(), core.actor()
    filler.sends(Q, "fills it")
    stores(producer, "finds no room")
    stores(producer, "behind it", to="/queue/other")
    producer.is_gone()
    core.turn()
    assert producer.client not in core.broker.clients
    assert (core.waiting(Q), core.waiting("/queue/other")) == (["fills it"], [])


def test_statistics_are_not_stored_while_the_store_lags() -> None:
    core = slow()
    stream = core.broker.streams.open("/stream/DIAG", 0, 0)
    core.broker.publish("DIAG/session", b"{}", (), core.now, stream)
    assert stream.coming == 1
    stores(core.actor(), "a" * PENDING)
    core.broker.publish("DIAG/session", b"{}", (), core.now, stream)
    assert stream.coming == 1


def test_consumer_too_slow_for_confirmed_messages_is_disconnected() -> None:
    core = DurableBench(book={}, policies=BrokerPolicies(max_backlog_bytes=1024), is_prompt=False)
    durable, acking, producer = core.actor(), core.actor(room=0), core.actor()
    durable.subscribes("/topic/t", durable_subscription_name="d")
    core.appends()
    acking.subscribes("/topic/t", ack="client")
    stores(producer, "x" * 2000, to="/topic/t")
    core.turn()
    assert acking.outbox.closed is None
    core.answers()
    assert acking.outbox.closed is CloseReason.SLOW_CONSUMER
    assert acking.client.subscriptions == {}


def test_a_durable_subscription_whose_client_was_turned_away_meanwhile_gives_nothing(
    core: DurableBench,
) -> None:
    reader, producer = core.actor(), core.actor()
    reader.subscribes("/topic/t", durable_subscription_name="d")
    core.turn()
    error = ProtocolError("slow-consumer", "too slow", reason=CloseReason.SLOW_CONSUMER)
    core.broker.refuse(reader.client, error, core.now)
    core.answers()
    stores(producer, "kept for it", to="/topic/t")
    core.appends()
    assert [frame.command for frame in reader.frames()] == ["ERROR"]
    core.is_prompt = True
    again = core.reader("/topic/t", durable_subscription_name="d")
    assert again.bodies() == ["kept for it"]
