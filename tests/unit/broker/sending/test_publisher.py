"""SEND: lifetimes, last values, duplicates, composites, schedules, and headers of a RECEIPT."""

import pytest

from tests.support.core import Core, Pairs, Peer, queue_head, run_of, ttl_core
from tests.support.durable_fakes import DurableBench
from trio_stomp.base import CloseReason
from trio_stomp.broker import BrokerPolicies, DestinationPolicy, MemoryBudget
from trio_stomp.broker.queues import MESSAGE_OVERHEAD_BYTES
from trio_stomp.protocol import Committed

RETAIN: Pairs = (("retain", "set"),)
REMOVE: Pairs = (("retain", "remove"),)
ASKED = [(1, b"r")]


def evidence(peer: Peer) -> Pairs:
    """Return the headers of the last RECEIPT except its id."""
    return peer.frames("RECEIPT")[-1].headers[1:]


def small(**policy: object) -> dict[str, DestinationPolicy]:
    return {"/queue/>": DestinationPolicy(**policy)}  # type: ignore[arg-type]


# --- lifetimes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "lifetime"),
    [
        ((("expiration", "3000"),), 3.0),
        ((("ttl", "3000"),), 3.0),
        ((("expires", "1003000"),), 3.0),  # wall time 1000 s is the broker's 100 s
        ((("expires", "1003000"), ("ttl", "2000")), 2.0),
        ((("ttl", "99000"),), 10.0),  # the destination's own is the longest
        ((("ttl", "0"), ("expires", "0")), 10.0),
    ],
)
@pytest.mark.parametrize("name", ["/topic/a", "/queue/a"])
def test_a_message_lives_as_long_as_its_headers_and_its_destination_allow(
    name: str, headers: Pairs, lifetime: float
):
    policies = {name: DestinationPolicy(ttl_ms=10_000)}
    core = Core(book=policies, wall_offset_s=900.0)
    publisher, reader = core.peer(), core.peer()
    reader.subscribes(name)
    publisher.sends(name, "x", headers=headers)
    core.now += lifetime - 0.1
    assert reader.bodies() == ["x"]
    (staged,) = reader.outbox.staged
    assert staged[1] is not None
    assert staged[1].publication.ends_at == pytest.approx(100.0 + lifetime)
    reader.drains()
    core.ends()


def test_expired_message_is_dropped_and_counted():
    core = Core(wall_offset_s=900.0)
    publisher, reader = core.peer(), core.peer()
    reader.subscribes("a")
    publisher.sends("a", "x", "y", headers=(("expires", "999000"),), receipts=ASKED)
    assert reader.bodies() == []
    assert evidence(publisher) == (("matched", "0"),)
    assert core.broker.destinations.open("a").expired == core.broker.fan_out.drops.expired == 2
    core.ends()


def test_message_that_expires_in_a_queue_is_not_delivered():
    core = ttl_core()
    publisher, reader = core.peer(), core.peer()
    for name in ("/queue/a", "a"):
        publisher.sends(name, "old", headers=(("ttl", "1000"),))
        publisher.sends(name, "new")
    core.passes(2)
    reader.subscribes("/queue/a", "0")
    reader.subscribes("a", "1")
    assert reader.bodies("0") == reader.bodies("1") == ["new"]
    reader.drains()
    core.ends()


# --- receipts -------------------------------------------------------------------------------------


def test_a_receipt_reports_the_outcome_of_the_message():
    core = ttl_core()
    peer = core.peer()
    peer.subscribes("a", "0")
    peer.subscribes("a", "1")
    peer.subscribes("#w", "2")
    peer.subscribes("DIAG/x", "3")
    reported = {}
    for name in ("a", "b", "#w", "#v", "DIAG/x", "DIAG/y", "/queue/q"):
        peer.sends(name, "x", receipts=ASKED)
        reported[name] = dict(evidence(peer))
    assert reported == {
        "a": {"matched": "2"},
        "b": {"matched": "0", "stored": "memory"},
        "#w": {"matched": "1"},
        "#v": {"matched": "0", "stored": "memory"},
        "DIAG/x": {"matched": "1"},
        "DIAG/y": {"matched": "0"},
        "/queue/q": {"stored": "memory"},
    }


# --- last values ----------------------------------------------------------------------------------


def test_the_last_value_is_delivered_to_later_subscribers(core: Core):
    publisher, early, late, wild = (core.peer() for _ in range(4))
    early.subscribes("a.b")
    publisher.sends("a.b", "1", headers=RETAIN)
    publisher.sends("a.b", "2", "3", headers=RETAIN)
    publisher.sends("a.b", "4")
    late.subscribes("a.b")
    wild.subscribes("a.*")
    assert early.bodies() == ["1", "2", "3", "4"]
    assert late.bodies() == wild.bodies() == ["3"]
    assert late.messages()[0].get("destination") == "a.b"
    publisher.sends("a.b", "5", headers=REMOVE)
    assert early.bodies()[-1] == late.bodies()[-1] == "5"
    after = core.peer()
    after.subscribes("a.b", "0")
    after.subscribes("a.*", "1")
    assert after.bodies() == []
    assert core.memory.used_bytes == 0
    publisher.sends("a.b", "6", headers=REMOVE)  # there is none: no matter


def test_a_last_value_is_sent_until_it_expires_to_subscribers_that_select_it(core: Core):
    publisher = core.peer()
    publisher.sends("a", "x", headers=(*RETAIN, ("ttl", "1000"), ("color", "red")))
    blue, red = core.peer(), core.peer()
    blue.subscribes("a", headers=(("selector", "color = 'blue'"),))
    red.subscribes("a", headers=(("selector", "color = 'red'"),))
    assert (blue.bodies(), red.bodies()) == ([], ["x"])
    core.passes(1)
    late = core.peer()
    late.subscribes("a")
    assert late.bodies() == []
    publisher.sends("a", "y", headers=REMOVE)


def test_a_last_value_is_charged_and_replaced_and_without_memory_there_is_none():
    each = MESSAGE_OVERHEAD_BYTES + queue_head("a", *RETAIN)
    core = Core(memory=MemoryBudget(each + 10))
    publisher = core.peer()
    publisher.sends("a", "0123456789", headers=RETAIN)
    assert core.memory.kept_bytes == each + 10
    publisher.sends("a", "1", headers=RETAIN)
    assert core.memory.kept_bytes == each + 1
    publisher.sends("a", "0123456789*", headers=RETAIN, receipts=ASKED)
    assert evidence(publisher) == (("matched", "0"),)
    assert core.memory.used_bytes == 0
    assert core.broker.fan_out.drops.no_subscriber == 1
    late = core.peer()
    late.subscribes("a")
    assert late.bodies() == []
    core.ends()


def test_a_last_value_under_a_ttl_is_not_parked_as_well():
    core = ttl_core()
    publisher, late = core.peer(), core.peer()
    publisher.sends("a", "value", headers=RETAIN, receipts=ASKED)
    assert evidence(publisher) == (("matched", "0"), ("stored", "memory"))
    publisher.sends("a", "plain")
    late.subscribes("a")
    assert late.bodies() == ["value", "plain"]
    publisher.sends("a", "x", headers=REMOVE)
    core.ends()


@pytest.mark.parametrize("name", ["#w", "/queue/q", "DIAG/x"])
def test_only_topics_have_a_last_value(core: Core, name: str):
    publisher, one, two = core.peer(), core.peer(), core.peer()
    one.subscribes(name)
    publisher.sends(name, "x", headers=RETAIN)
    two.subscribes(name)
    assert (one.bodies(), two.bodies()) == (["x"], [])
    one.drains()


def test_a_route_with_a_last_value_is_not_forgotten():
    core = Core(BrokerPolicies(max_destinations=16))
    publisher, late = core.peer(), core.peer()
    publisher.sends("kept", "v", headers=RETAIN)
    for number in range(40):
        publisher.sends(f"other{number}", "x")
    late.subscribes("kept")
    assert late.bodies() == ["v"]
    publisher.sends("kept", "x", headers=REMOVE)
    core.ends()


# --- duplicates -----------------------------------------------------------------------------------


@pytest.mark.parametrize("header", ["x-dedup-id", "_AMQ_DUPL_ID"])
def test_message_sent_twice_with_one_id_is_accepted_once(header: str):
    core = Core(book={"a": DestinationPolicy(dedup_window=2)})
    publisher, reader = core.peer(), core.peer()
    window = ("dedup-window", "2")
    reader.subscribes("a")

    def send(id: str, *bodies: str) -> Pairs:
        publisher.sends("a", *bodies, headers=((header, id),), receipts=[(len(bodies), b"r")])
        return evidence(publisher)

    assert send("1", "one") == (("matched", "1"), window)
    assert send("1", "again", "and again") == (("duplicate", "true"), window)
    assert send("2", "two", "again in the same read") == (("duplicate", "true"), window)
    assert core.broker.publisher.duplicates.found == 3
    assert send("3", "three") == (("matched", "1"), window)
    assert send("1", "forgotten") == (("matched", "1"), window)  # the window holds two
    assert reader.bodies() == ["one", "two", "three", "forgotten"]
    core.ends()


def test_without_a_window_nothing_is_a_duplicate():
    core = Core(book={"a": DestinationPolicy(dedup_window=0)})
    peer = core.peer()
    peer.subscribes("a")
    peer.sends("a", "x", headers=(("x-dedup-id", "1"),))
    peer.sends("a", "y", headers=(("x-dedup-id", "1"),), receipts=ASKED)
    assert evidence(peer) == (("matched", "1"), ("dedup-window", "0"))
    assert peer.bodies() == ["x", "y"]


def test_an_id_whose_message_was_refused_may_be_sent_again():
    core = Core(book=small(max_messages=1))
    filler, publisher, again, reader = (core.peer() for _ in range(4))
    filler.sends("/queue/q", "0")
    publisher.sends("/queue/q", "1", headers=(("x-dedup-id", "1"),))
    assert publisher.error().get("code") == "queue-full"
    reader.subscribes("/queue/q")
    again.sends("/queue/q", "1", headers=(("x-dedup-id", "1"),), receipts=ASKED)
    assert evidence(again) == (("dedup-window", "10000"), ("stored", "memory"))
    assert reader.bodies() == ["0", "1"]
    core.ends()


def test_an_id_whose_message_waits_for_room_is_no_duplicate_of_itself():
    core = Core(book=small(max_messages=1, overflow="block"))
    publisher, reader = core.peer(), core.peer()
    publisher.sends("/queue/q", "0")
    publisher.sends("/queue/q", "1", headers=(("x-dedup-id", "1"),), receipts=ASKED)
    assert publisher.outbox.is_paused
    assert publisher.frames("RECEIPT") == []
    reader.subscribes("/queue/q")
    assert not publisher.outbox.is_paused
    assert evidence(publisher) == (("dedup-window", "10000"), ("stored", "memory"))
    assert reader.bodies() == ["0", "1"]
    core.ends()


# --- composites and aliases -----------------------------------------------------------------------


def test_a_composite_send_goes_everywhere_once(core: Core):
    publisher, topic, queue = core.peer(), core.peer(), core.peer()
    topic.subscribes("/topic/a")
    queue.subscribes("/queue/b")
    publisher.sends("/topic/a,/queue/b,/topic/a", "x", "y")
    assert topic.bodies() == queue.bodies() == ["x", "y"]
    assert core.broker.publisher.received == 4


def test_the_dialect_rabbitmq_says_redelivered_false_on_topics_too() -> None:
    """And on exchanges, in every version's encoding (S9)."""
    core = Core(dialect="rabbitmq")
    reader, old, sender = core.peer(), core.peer(version="1.0"), core.peer()
    for peer in (reader, old):
        peer.subscribes("/exchange/e/k")
    sender.sends("/exchange/e/k", "x", headers=(("a", "b:c"),))
    for peer in (reader, old):
        (message,) = peer.frames("MESSAGE")
        assert message.get("redelivered") == "false"


def test_subscribers_get_their_own_spelling_of_the_destination(
    core: Core,
) -> None:
    """As in RabbitMQ and ActiveMQ (S10): clients name neither /exchange/amq.topic/k nor a,b."""
    reader, sender = core.peer(), core.peer()
    for place in ("/topic/k", "/queue/a", "/topic/b"):
        reader.subscribes(place, id=place)
    for name in ("/exchange/amq.topic/k", "/amq/queue/a", "/queue/a,/topic/b"):
        sender.sends(name, "x")
    fields = [frame.headers for frame in reader.frames("MESSAGE")]
    names = [dict(headers)["destination"] for headers in fields]
    assert sorted(names) == ["/queue/a", "/queue/a", "/topic/b", "/topic/k"]


def test_a_composite_subscribe_gets_one_copy_of_each_message(core: Core):
    publisher, reader = core.peer(), core.peer()
    reader.subscribes("/topic/a.b,/topic/a.*,/topic/*")
    publisher.sends("/topic/a.b", "x")
    publisher.sends("/topic/a.c,/topic/c", "y")
    assert reader.bodies() == ["x", "y", "y"]
    reader.unsubscribes()
    publisher.sends("/topic/a.b", "z")
    assert len(reader.messages()) == 3
    assert core.broker.destinations.wildcards == 0


def test_a_composite_send_that_does_not_fit_everywhere_is_nowhere():
    for overflow in ("reject", "block"):
        core = Core(book=small(max_messages=1, overflow=overflow))
        publisher, filler, reader = core.peer(), core.peer(), core.peer()
        filler.sends("/queue/full", "0")
        publisher.sends("/queue/a,/queue/full", "x", headers=(("k", "v"),))
        assert publisher.error().get("code") == "queue-full"
        reader.subscribes("/queue/a")
        assert reader.bodies() == []
        publisher.is_gone()
        reader.subscribes("/queue/full", "1")
        assert reader.bodies() == ["0"]
        core.ends()


def test_a_producer_waits_for_the_queue_that_an_alias_means():
    core = Core(book=small(max_messages=1, overflow="block"))
    publisher, reader = core.peer(), core.peer()
    publisher.sends("/amq/queue/q", "0", "1", receipts=[(1, b"r0"), (2, b"r1")])
    publisher.sends("b", "later", receipts=[(1, b"r2")])
    core.passes(1)
    assert publisher.outbox.is_paused
    assert [frame.get("receipt-id") for frame in publisher.frames()] == ["r0"]
    assert core.broker.destinations.find_current("/amq/queue/q") is None
    reader.subscribes("/queue/q")
    assert [frame.get("receipt-id") for frame in publisher.frames()] == ["r0", "r1", "r2"]
    assert reader.bodies() == ["0", "1"]
    core.ends()


def test_a_producer_waits_as_often_as_the_queue_is_full():
    core = Core(book=small(max_messages=1, overflow="block"))
    publisher, reader = core.peer(), core.peer()
    reader.subscribes("/queue/q", ack="client", headers=(("prefetch-count", "1"),))
    publisher.sends("/queue/q", *"0123", receipts=[(2, b"r1"), (4, b"r3")])
    publisher.sends("/queue/q", "4")
    for number in range(5):
        assert reader.bodies() == [f"{each}" for each in range(number + 1)]
        assert publisher.outbox.is_paused is (number < 4)
        reader.acks(reader.messages()[-1])
    assert [frame.get("receipt-id") for frame in publisher.frames()] == ["r1", "r3"]
    core.ends()


def test_a_producer_that_is_lost_while_it_waits_gets_no_receipts_and_sends_nothing_more():
    core = Core(book=small(max_messages=1, overflow="block"))
    publisher, reader = core.peer(), core.peer()
    publisher.sends("/queue/q", "0", "1", receipts=[(1, b"r0"), (2, b"r1")])
    publisher.sends("/topic/t", "after", receipts=[(1, b"later")])
    reader.subscribes("/topic/t", "t")
    publisher.is_gone()
    assert [frame.get("receipt-id") for frame in publisher.frames()] == ["r0", "r1"]
    assert publisher.error().get("code") == "queue-full"
    reader.subscribes("/queue/q")
    assert reader.bodies() == ["0"]
    core.ends()


def test_a_full_queue_confirms_the_messages_it_took_and_refuses_the_next():
    core = Core(book=small(max_messages=2))
    publisher, reader = core.peer(), core.peer()
    publisher.sends("/queue/q", *"abcd", receipts=[(1, b"ra"), (3, b"rc"), (4, b"rd")])
    assert [frame.get("receipt-id") for frame in publisher.frames()] == ["ra", "rc"]
    assert publisher.error().get("code") == "queue-full"
    reader.subscribes("/queue/q")
    assert reader.bodies() == ["a", "b"]
    core.ends()


# --- schedules ------------------------------------------------------------------------------------


def scheduled(**what: int) -> Pairs:
    return tuple((f"AMQ_SCHEDULED_{name.upper()}", str(value)) for name, value in what.items())


@pytest.mark.parametrize("name", ["/topic/a", "/queue/a", "#a"])
def test_a_message_is_sent_when_it_is_due_even_if_its_sender_has_gone(name: str):
    core = Core(wall_offset_s=900.0)
    publisher, reader = core.peer(), core.peer()
    reader.subscribes(name)
    headers = (*scheduled(delay=5000), ("k", "v"))
    publisher.sends(name, "12", "3", headers=headers, receipts=[(2, b"r")])
    assert evidence(publisher) == (("stored", "memory"), ("scheduledJobId", "2"))
    head = queue_head(name, *headers)
    assert core.memory.kept_bytes == 2 * MESSAGE_OVERHEAD_BYTES + 3 + head
    assert core.broker.scheduler.waiting == 2
    publisher.is_gone()
    core.passes(4.9)
    assert reader.bodies() == []
    core.passes(0.2)
    assert reader.bodies() == ["12", "3"]
    assert reader.messages()[0].get("k") == "v"
    assert reader.messages()[0].get("AMQ_SCHEDULED_DELAY") is None
    assert core.broker.scheduler.waiting == core.memory.used_bytes == 0
    core.ends()


def test_a_message_repeats_and_its_id_does_not_make_it_a_duplicate_of_itself(core: Core):
    publisher, reader = core.peer(), core.peer()
    reader.subscribes("a")
    headers = (*scheduled(delay=1000, period=2000, repeat=2), ("x-dedup-id", "1"))
    publisher.sends("a", "x", "the same id", headers=headers)
    publisher.sends("a", "x", headers=headers, receipts=ASKED)
    assert evidence(publisher) == (("duplicate", "true"), ("dedup-window", "10000"))
    seen = []
    for _ in range(7):
        core.passes(1)
        seen.append(len(reader.bodies()))
    assert seen == [1, 1, 2, 2, 3, 3, 3]
    assert core.broker.publisher.duplicates.found == 2
    assert core.memory.used_bytes == 0


def test_a_scheduled_message_without_room_in_memory_is_refused():
    core = Core(memory=MemoryBudget(100))
    publisher = core.peer()
    publisher.sends("a", "x", headers=scheduled(delay=1))
    assert publisher.error().get("code") == "memory-limit"
    assert publisher.outbox.closed is CloseReason.MEMORY_LIMIT
    assert core.broker.scheduler.waiting == 0
    core.ends()


def test_a_scheduled_message_that_finds_a_full_queue_waits():
    core = Core(book=small(max_messages=1))
    publisher, reader = core.peer(), core.peer()
    publisher.sends("/queue/q", "first", "second", headers=scheduled(delay=1000))
    core.passes(2)
    assert publisher.outbox.closed is None
    reader.subscribes("/queue/q")
    assert reader.bodies() == ["first"]
    core.passes(2)
    assert reader.bodies() == ["first", "second"]
    core.ends()


def test_a_transaction_may_send_to_a_composite_and_to_a_client_that_has_gone(core: Core):
    publisher, reader = core.peer(), core.peer()
    reader.subscribes("/queue/a")
    runs = [run_of("/queue/a,/topic/b", "x"), run_of("/reply-queue/s99.x", "y")]
    publisher.does(Committed(runs, b"r"))
    assert reader.bodies() == ["x"]
    assert evidence(publisher) == (("stored", "memory"),)


# --- work queues ----------------------------------------------------------------------------------


def test_work_goes_to_members_that_want_it():
    core = ttl_core()
    publisher, any_, red = core.peer(), core.peer(), core.peer()
    any_.subscribes("#w", headers=(("no-local", "true"),))
    red.subscribes("#w", headers=(("selector", "color = 'red'"),))
    for number in range(4):
        color = ("color", "red" if number % 2 else "blue")
        publisher.sends("#w", f"{number}", headers=(color,))
    assert sorted([*any_.bodies(), *red.bodies()]) == ["0", "1", "2", "3"]
    assert {"0", "2"} <= set(any_.bodies())
    any_.unsubscribes()
    publisher.sends("#w", "blue", headers=(("color", "blue"),), receipts=ASKED)
    assert evidence(publisher) == (("matched", "0"), ("stored", "memory"))
    any_.subscribes("#w")
    assert any_.bodies()[-1] == "blue"
    core.ends()


# --- policies -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("retain", "headers", "kept"),
    [
        ("header", (), []),
        ("header", RETAIN, ["x"]),
        ("always", (), ["x"]),
        ("always", REMOVE, []),
        ("never", RETAIN, []),
    ],
)
def test_a_policy_decides_which_message_becomes_the_last_value(
    retain: str, headers: Pairs, kept: list[str]
) -> None:
    core = Core(book={"a": DestinationPolicy(retain=retain)})
    publisher, late = core.peer(), core.peer()
    publisher.sends("a", "x", headers=headers)
    late.subscribes("a")
    assert late.bodies() == kept
    publisher.sends("a", "end", headers=REMOVE)


def test_composite_is_reported_as_a_whole(core: Core) -> None:
    publisher, one, two = (core.peer() for _ in range(3))
    one.subscribes("/topic/b")
    two.subscribes("/topic/c")
    publisher.sends("/queue/a,/topic/b,/topic/c", receipts=[(1, b"r")])
    assert sorted(evidence(publisher)) == [("matched", "2"), ("stored", "memory")]


def test_the_option_chooses_the_grammar_of_wildcards() -> None:
    core = Core(BrokerPolicies(wildcards="seed"))
    publisher, reader = core.peer(), core.peer()
    reader.subscribes("/a*/c")
    publisher.sends("/abc/d", "prefix")
    assert reader.bodies() == ["prefix"]
    core.ends()


def test_a_transaction_needs_memory_for_its_schedules() -> None:
    core = Core(memory=MemoryBudget(2_000))
    publisher = core.peer()
    run = run_of("/queue/a", ["x" * 3_000], (("AMQ_SCHEDULED_DELAY", "1000"),))
    publisher.does(Committed([run], b"r"))
    assert publisher.error().get("code") == "memory-limit"
    core.ends()


# --- composites and the store ---------------------------------------------------------------------


@pytest.mark.parametrize("works", [True, False])
@pytest.mark.parametrize("other", ["/queue/b", "/topic/b", "/temp-queue/b"])
def test_nothing_of_a_composite_is_seen_before_all_of_it_is_safe(other: str, works: bool):
    core = DurableBench(book={"/queue/a": DestinationPolicy(persistent="always")}, is_prompt=False)
    sender, reader, another = core.actor(), core.actor(), core.actor()
    reader.subscribes("/queue/a")
    another.subscribes(other)
    result = another.client.temporary.get(other, other)
    sender.sends(f"/queue/a,{result}", "m", receipts=[(1, b"r")])
    assert sender.frames() == reader.frames() == another.frames() == []
    if works:
        core.answers()
        assert reader.bodies() == another.bodies() == ["m"]
        assert [frame.command for frame in sender.frames()] == ["RECEIPT"]
    else:
        core.fails()
        assert sender.error().get("code") == "storage"
        assert reader.bodies() == another.bodies() == []
    while core.turns:
        core.answers()
    core.ends()


def test_a_composite_that_is_scheduled_is_sent_as_a_whole():
    book = {"/queue/a": DestinationPolicy(persistent="always")}
    core = DurableBench(book=book, is_prompt=False)
    reader = core.actor()
    reader.subscribes("/queue/a,/queue/b")
    core.actor().sends("/queue/b,/queue/a", "m", AMQ_SCHEDULED_DELAY="1000")
    core.passes(1)
    assert reader.bodies() == []
    core.fails()
    core.turn()
    assert reader.bodies() == []
    core.answers()
    assert reader.bodies() == ["m", "m"]


def test_missing_durability_is_logged_once(core: Core):
    reported: list[str] = []
    core.broker.publisher.warn = reported.append
    peer = core.peer()
    for _ in range(2):
        peer.sends("/queue/q", "m", headers=(("persistent", "true"),))
    (line,) = reported
    assert "start it with --data-dir" in line
    assert core.broker.publisher.volatile == 2


def test_the_error_of_a_send_waits_for_earlier_messages_of_its_sender():
    core = DurableBench(is_prompt=False)
    sender = core.actor()
    sender.sends("/queue/q", "m", persistent="true", receipts=[(1, b"r")])
    sender.sends("/queue/*", "m", persistent="true")
    assert sender.frames() == []
    core.answers()
    assert [frame.command for frame in sender.frames()] == ["RECEIPT", "ERROR"]
