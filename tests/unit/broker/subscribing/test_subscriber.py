"""SUBSCRIBE and UNSUBSCRIBE: ids, receipts, limits."""

import pytest

from tests.support.core import Core, numbered, ttl_core
from trio_stomp.base import CloseReason
from trio_stomp.broker import BrokerPolicies
from trio_stomp.broker.delivery import base36
from trio_stomp.broker.queues import Consumer, Queue


def test_the_receipt_of_a_subscribe_precedes_its_first_message():
    core = ttl_core()
    core.peer().sends("a", "parked")
    late = core.peer()
    late.subscribes("a", receipt=b"r1")
    core.peer().sends("a", "new")
    assert [frame.get("receipt-id") or frame.text for frame in late.frames()] == [
        *("r1", "parked", "new")
    ]


@pytest.mark.covers("S07")
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_an_id_is_used_once_at_a_time(core: Core, version: str):
    peer, other = core.peer(version), core.peer(version)
    peer.subscribes("a", "same")
    other.subscribes("a", "same")  # ids of other connections are no concern
    peer.subscribes("b", "same")
    error = peer.error()
    assert error.get("code") == "duplicate-subscription"
    assert "id:same" in (error.get("message") or "")
    assert "subscription of this connection to a;" in (error.get("message") or "")
    assert other.outbox.closed is None


@pytest.mark.covers("S14")
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_the_end_of_no_subscription_ends_none(version: str):
    peer = Core().peer(version)
    peer.subscribes("a", "0")
    peer.unsubscribes("1", receipt=b"r")
    (receipt,) = peer.frames()
    assert (receipt.command, receipt.get("ignored")) == ("RECEIPT", "id")
    peer.sends("a", "x")
    assert peer.bodies() == ["x"]


def test_a_destination_beside_the_id_must_fit(core: Core):
    good, bad = core.peer(), core.peer()
    for peer in (good, bad):
        peer.subscribes("a.*", "0")
    good.unsubscribes("0", "a.*", receipt=b"r")
    assert good.frames("RECEIPT") != []
    bad.unsubscribes("0", "a.b")
    message = bad.error().get("message") or ""
    assert all(word in message for word in ("id:0", "a.*", "a.b"))
    assert bad.error().get("code") == "destination-mismatch"


def test_an_id_of_a_client_is_never_taken_for_one_of_ours():
    peer = Core().peer("1.0")
    for number in range(1, 4):
        peer.subscribes("a", f"{number}")
        peer.subscribes("a", None)
    assert len(peer.client.subscriptions) == 6
    assert peer.outbox.closed is None


@pytest.mark.covers("S15")
def test_no_message_after_the_receipt_of_an_unsubscribe():
    core = ttl_core()
    publisher, peer = core.peer(), core.peer(room=1)
    publisher.sends("a", "p0")
    publisher.sends("a", "p1")
    peer.subscribes("a", "0")
    publisher.sends("a", "live")  # waits behind parked messages
    peer.unsubscribes("0", receipt=b"r")
    publisher.sends("a", "after")
    peer.drains()
    assert [frame.get("receipt-id") or frame.text for frame in peer.frames()] == ["p0", "r"]


def test_subscriptions_of_a_connection_are_bounded():
    core = Core(BrokerPolicies(max_subscriptions_per_connection=3))
    peer, other = core.peer(), core.peer()
    for number in range(3):
        peer.subscribes("a", str(number))
        other.subscribes("a", str(number))
    peer.unsubscribes("1")
    peer.subscribes("a", "1")
    assert peer.outbox.closed is None
    peer.subscribes("a", "3")
    error = peer.error()
    assert error.get("code") == "too-many-subscriptions"
    assert "max_subscriptions_per_connection" in (error.get("message") or "")
    assert peer.outbox.closed is CloseReason.LIMIT_EXCEEDED
    assert len(core.broker.subscriptions) == 3


def test_ten_thousand_subscriptions_are_taken_and_ended(core: Core):
    publisher, peer = core.peer(), core.peer()
    for number in range(10_000):
        peer.subscribes(f"a.{number}" if number % 2 else f"b.{number}.*", str(number))
    publisher.sends("a.9999", "x")
    publisher.sends("b.9998.y", "y")
    assert peer.bodies() == ["x", "y"]
    peer.is_gone()


def test_destinations_stand_in_order_of_subscription(core: Core):
    one, two = core.peer(), core.peer()
    one.subscribes("b", "0")
    two.subscribes("a*", "0")
    one.subscribes("b", "1")
    assert core.broker.subscriptions.destination_names() == ["b", "a*", "b"]
    one.unsubscribes("0")
    assert core.broker.subscriptions.destination_names() == ["a*", "b"]


def test_a_table_full_of_subscriptions_refuses_one_client_and_spares_the_broker():
    """The broker's own topics need no place, so that nothing fails in the middle of a change."""
    core = Core(BrokerPolicies(max_destinations=16))
    holder = core.peer()
    for number in range(16):
        holder.subscribes(f"a{number}", str(number))
    core.broker.destinations.own("DIAG/event/subscribe")
    stranger = core.peer()
    assert stranger.outbox.closed is None
    stranger.subscribes("b", receipt=b"r")
    assert stranger.error().get("code") == "too-many-destinations"
    assert stranger.frames("RECEIPT") == []
    sender = core.peer()
    sender.sends("c", "x")
    assert sender.error().get("code") == "too-many-destinations"
    core.peer().is_gone()
    for peer in (stranger, sender):
        peer.is_gone()
    core.broker.publish("DIAG/event/connect", b"", (), core.now)
    assert not core.broker.has_subscribers("DIAG/event/disconnect")
    assert len(core.broker.subscriptions) == 16
    assert holder.outbox.closed is None


def test_a_selector_that_there_is_no_memory_for_is_refused_and_charged_nothing(core: Core):
    first, peer, other = core.peer(), core.peer(), core.peer()
    first.subscribes("a", "other")
    first.subscribes("a")
    first.unsubscribes("other")  # the names of events are known from now on
    before = core.memory.tables_bytes
    picky = (("selector", " or ".join(f"n = {number}" for number in range(100))),)
    peer.subscribes("a", headers=picky)
    whole = core.memory.tables_bytes - before
    peer.unsubscribes()
    assert core.memory.tables_bytes == before
    core.broker.destinations.make_room(core.memory.tables_room + 1, None)  # none is idle now
    filler = core.memory.tables_room - whole + 1
    core.memory.force_table(filler)
    full = core.memory.tables_bytes
    peer.subscribes("a", receipt=b"r", headers=picky)
    assert peer.error().get("code") == "memory-limit"
    assert peer.outbox.closed is CloseReason.MEMORY_LIMIT
    assert peer.frames("RECEIPT") == []
    assert core.memory.tables_bytes == full
    assert len(core.broker.subscriptions) == 1
    other.subscribes("a")  # it is the selector that does not fit
    assert other.outbox.closed is None
    core.memory.give_table(filler)


def test_events_tell_of_subscriptions_and_their_end(core: Core):
    watcher, peer = core.peer(), core.peer()
    watcher.subscribes("DIAG/event/*")
    core.events()
    peer.subscribes("a", "0")
    peer.subscribes("b*", "1")
    peer.unsubscribes("0")
    peer.is_gone()
    assert core.events() == [
        ("subscribe", "s2", "a"),
        ("subscribe", "s2", "b*"),
        ("unsubscribe", "s2", "a"),
        ("unsubscribe", "s2", "b*"),
        ("disconnect", "s2", ""),
    ]
    watcher.is_gone()
    core.events()
    core.peer().subscribes("a")
    assert core.events() == []  # no subscribers are left


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (35, "z"), (36, "10"), (36**3 - 1, "zzz"), (36**3, "1000")]
)
def test_tags_count_in_base_36(number: int, text: str):
    assert base36(number) == text


def test_a_late_wildcard_gets_every_kind_of_destination_it_reaches():
    core = ttl_core()
    publisher = core.peer()
    publisher.sends("#w", *numbered("w", 2))
    publisher.sends("DIAG/mine", "session")
    publisher.sends("/topic/a", "t")
    late = core.reader("*")
    assert late.bodies() == ["w0", "w1", "t"]  # DIAG is never parked
    assert core.broker.fan_out.drops.no_subscriber == 1
    late.is_gone()
    core.ends()


@pytest.mark.parametrize("to", ["/queue/*", "/topic/a"])
@pytest.mark.parametrize("is_early", [True, False])
def test_the_end_of_a_subscription_is_complete_though_a_queue_fails(
    to: str, is_early: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    core, failed = Core(), list[Queue]()
    reader, detach = core.peer(), Queue.detach

    def fails(queue: Queue, consumer: Consumer) -> None:
        if not is_early:
            detach(queue, consumer)
        if not failed:
            failed.append(queue)
            raise KeyError(queue.name)

    names = ["/queue/a", "/queue/b", "/queue/c"] if to == "/queue/*" else [to]
    reader.subscribes(to, ack="client")
    for name in names:
        core.peer().sends(name, "m")
    core.turn()
    assert len(reader.messages()) == len(names)
    consumer, cost = reader.consumer(), reader.client.subscriptions["0"].cost
    before = core.memory.tables_bytes
    monkeypatch.setattr(Queue, "detach", fails)
    with pytest.raises(KeyError):
        reader.unsubscribes()
    assert (failed[0].unacked, consumer.unacked) == (0, {})
    assert reader.client.subscriptions == {}
    if to == "/queue/*":
        assert consumer.queues == {}
        assert [core.waiting(name) for name in names] == [["m"]] * 3
    assert core.memory.tables_bytes < before - cost // 2  # the event takes some of it


def test_idle_names_make_room_for_a_subscription_to_a_queue_that_is_there(core: Core) -> None:
    """Else names that nobody uses would keep consumers from the messages that fill the memory."""
    sender, reader = core.peer(), core.peer()
    sender.sends("/queue/q", "kept")
    for number in range(100):
        sender.sends(f"/topic/{number}", "nobody gets it")
    filler = core.memory.tables_room
    core.memory.force_table(filler)
    reader.subscribes("/queue/q", receipt=b"r")
    assert reader.bodies() == ["kept"]
    assert core.broker.destinations.find("/topic/0") is None
    core.memory.give_table(filler)
