"""One run of SENDs to all its recipients: topics, work queues, versions, slow consumers."""

from itertools import chain

import pytest

from tests.support.core import BOOT, VERSIONS, Core, Pairs, Peer, numbered, run_of
from trio_stomp.base import CloseReason
from trio_stomp.broker import BrokerPolicies

DROPPING = ("drop-oldest", "drop-newest")


def slow_core(policy: str) -> Core:
    return Core(BrokerPolicies(slow_consumer=policy))


# --- topics -----------------------------------------------------------------------------------


@pytest.mark.covers("A01", "A02", "A03", "S04", "S17", "F38", "F39", "F37")
def test_every_subscription_gets_each_message_with_its_headers_in_order(core: Core):
    publisher, reader = core.peer(), core.peer()
    reader.subscribes("/topic/a", "x")
    reader.subscribes("/topic/a", "y")
    headers = (
        ("zeta", "1"),
        ("content-type", "text/plain"),
        ("receipt", "r"),
        ("transaction", ""),
        ("message-id", "forged"),
        ("subscription", "forged"),
        ("ack", "forged"),
        ("alpha", "2"),
        ("content-length", "5"),
    )
    publisher.does(run_of("/topic/a", ["hello", "olleh"], headers, length=5))
    first, second, third, fourth = reader.messages()
    assert first.names == [
        *("subscription", "message-id", "destination"),
        *("zeta", "content-type", "alpha", "content-length"),
    ]
    assert [first.get("subscription"), first.get("destination")] == ["x", "/topic/a"]
    assert [first.get("zeta"), first.get("alpha")] == ["1", "2"]
    assert [frame.text for frame in reader.messages()] == ["hello", "olleh"] * 2
    assert third.get("subscription") == fourth.get("subscription") == "y"
    assert first.headers[2:] == third.headers[2:]
    assert second.get(
        "message-id",
    ) != first.get("message-id")
    assert (first.get("message-id") or "").startswith(BOOT + ".1-")


@pytest.mark.covers("F27", "F33", "F34", "F35")
def test_a_body_is_passed_on_octet_by_octet_with_its_length(core: Core):
    publisher, reader = core.peer(), core.peer()
    reader.subscribes("a")
    bodies = [b"\0\xff\n\0", "é".encode(), b""]
    publisher.sends("a", *bodies)
    publisher.does(run_of("a", [b"\0\0"], (("content-length", "2"),), length=2))
    publisher.does(run_of("a", [b""], (("content-length", "0"),), length=0))
    frames = reader.messages()
    assert [frame.body for frame in frames] == [*bodies, b"\0\0", b""]
    assert [frame.get("content-length") for frame in frames] == ["4", "2", None, "2", None]
    assert frames[0].get("content-type") is None


@pytest.mark.covers("A03")
def test_wildcard_subscriber_gets_the_destination_as_the_sender_spelled_it(core: Core):
    publisher, reader = core.peer(), core.peer()
    reader.subscribes("/topic/*")
    for name in ("/topic/a:b", "/topic//x", "/topic/Ä"):
        publisher.sends(name)
    assert [frame.get("destination") for frame in reader.messages()] == [
        *("/topic/a:b", "/topic//x", "/topic/Ä")
    ]


AWKWARD: Pairs = (
    ("plain", "x"),
    ("colon", "a:b"),
    ("back\\slash", "\\n \\"),
    ("na:me", "v"),
    ("lf", "1\n2\n\nMESSAGE"),
    ("cr", "1\r2"),
    ("empty", ""),
    ("space", " x "),
    ("last", "é"),
)


@pytest.mark.covers("F14", "F21", "F23", "F24", "F25", "F38")
@pytest.mark.parametrize("order", [("1.0", "1.1", "1.2"), ("1.2", "1.1", "1.0")])
def test_each_version_reads_the_same_text_or_nothing(core: Core, order: tuple[str, ...]):
    publisher = core.peer()
    readers = {version: core.peer(version) for version in order}
    for reader in readers.values():
        reader.subscribes("a:b", "i:d" if reader is not readers["1.0"] else "id")
        reader.subscribes("a:b", "plain")
    publisher.sends("a:b", "one", "two", headers=AWKWARD)
    for version in ("1.1", "1.2"):
        frames = readers[version].messages()
        assert [frame.text for frame in frames] == ["one", "two"] * 2
        assert [frame.get("subscription") for frame in frames] == ["i:d", "i:d", "plain", "plain"]
        for frame in frames:
            assert frame.get("destination") == "a:b"
            assert [pair for pair in frame.headers if pair in AWKWARD] == list(AWKWARD)
    carried = [
        (name, text)
        for name, text in AWKWARD
        if text and ":" not in name and not {"\n", "\r"} & set(name + text)
    ]
    old = readers["1.0"].messages()
    assert [frame.text for frame in old] == ["one", "two"] * 2
    for frame in old:
        assert frame.get("destination") == "a:b"
        assert [pair for pair in frame.headers if pair in AWKWARD] == carried


def test_message_ids_are_unique_over_copies_versions_runs_and_revivals():
    core = Core(BrokerPolicies(ttl_ms=10_000))
    publisher = core.peer()
    publisher.sends("p", *numbered("p", 3))
    readers = [core.peer(version) for version in VERSIONS]
    for reader in readers:
        for number in range(40):
            reader.subscribes(["a", "a*", "#w", "p"][number % 4], f"{number}")
    publisher.sends("a", "x", "y", headers=(("colon", ":"),))
    publisher.sends("#w", *numbered("w", 7))
    publisher.sends("DIAG/x", "session")
    publisher.sends("p", "new")
    ids = [frame.get("message-id") for reader in readers for frame in reader.messages()]
    assert len(ids) == 3 + 3 * 20 * 2 + 7 + 3 * 10
    assert len(set(ids)) == len(ids)


def test_counters_of_a_topic(core: Core):
    publisher, reader = core.peer(), core.peer()
    reader.subscribes("a", "0")
    reader.subscribes("a*", "1")
    publisher.sends("a", "12", "3456", received_at=core.now - 0.5)
    publisher.sends("b", "x")
    destination = core.broker.destinations.open("a")
    assert (destination.enqueued, destination.delivered, destination.bytes_in) == (2, 4, 6)
    assert destination.dropped == destination.expired == 0
    sizes = [delivery.size for _, delivery in reader.outbox.staged if delivery is not None]
    assert destination.bytes_out == sum(sizes)
    assert destination.ingress is not None
    assert (destination.ingress.count, destination.ingress.sum_s, destination.ingress.max_s) == (
        2,
        1.0,
        0.5,
    )
    fan_out = core.broker.fan_out
    assert (core.broker.publisher.received, fan_out.delivered, fan_out.messages) == (3, 4, 2)
    assert fan_out.drops.no_subscriber == core.broker.destinations.open("b").dropped == 1


# --- work queues ------------------------------------------------------------------------------


def members(core: Core, count: int, destination: str = "#w") -> list[Peer]:
    peers = [core.peer() for _ in range(count)]
    for peer in peers:
        peer.subscribes(destination)
    return peers


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 20])
def test_a_run_is_dealt_like_single_messages(core: Core, size: int):
    publisher = core.peer()
    team = members(core, 3)
    publisher.sends("#w", "first")
    publisher.sends("#w", *numbered("m", size))
    publisher.sends("#w", "last")
    dealt = ["first", *numbered("m", size), "last"]
    assert [peer.bodies() for peer in team] == [dealt[0::3], dealt[1::3], dealt[2::3]]
    assert core.broker.destinations.open("#w").delivered == size + 2


def test_waiting_copies_share_one_body():
    """Its tails have the bodies. Bodies in the publication as well would double the waiting bytes,
    and a share of a work queue with all of them would hold those of others.
    """
    core = Core(BrokerPolicies(ttl_ms=10_000))
    publisher = core.peer()
    team = members(core, 2)
    readers = [core.peer(), core.peer("1.0")]
    publisher.sends("late", "parked")
    for reader in readers:
        reader.subscribes("/t", "1")
        reader.subscribes("late", "2")
    publisher.sends("#w", *numbered("m", 5))
    publisher.sends("/t", *numbered("m", 3))
    held = [
        [each for _, each in peer.outbox.staged if each is not None] for peer in (*team, *readers)
    ]
    assert [[each.count for each in found] for found in held] == [[3], [2], [1, 3], [3]]
    for each in chain(*held):
        assert each.publication.bodies == []
        assert len(each.tails) == 1 + each.count


# --- slow consumers ---------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["disconnect", *DROPPING])
def test_a_slow_consumer_does_not_stall_others(policy: str):
    core = slow_core(policy)
    publisher, slow, other = core.peer(), core.peer(capacity=3), core.peer()
    slow.subscribes("a")
    other.subscribes("a")
    for number in range(8):
        publisher.sends("a", f"m{number}")
    assert other.bodies() == list(numbered("m", 8))
    wanted = {
        "disconnect": [],
        "drop-oldest": ["m5", "m6", "m7"],
        "drop-newest": ["m0", "m1", "m2"],
    }
    assert slow.bodies() == wanted[policy]


@pytest.mark.covers("R08")
def test_disconnect_gives_the_reason_and_drops_waiting_messages():
    core = slow_core("disconnect")
    publisher, slow = core.peer(), core.peer(capacity=2)
    slow.subscribes("a")
    slow.subscribes("b", "1")
    publisher.sends("a", "m0", "m1")
    publisher.sends("a", "m2")
    error = slow.error()
    assert error.get("code") == "slow-consumer"
    assert "max_outbox_bytes" in (error.get("message") or "")
    assert slow.outbox.closed is CloseReason.SLOW_CONSUMER
    assert slow.bodies() == []
    assert slow.outbox.discarded == 2
    # It is disconnected immediately, with all its subscriptions, and its frames are ignored.
    assert len(core.broker.subscriptions) == 0
    slow.sends("c", "x")
    assert core.broker.destinations.find_current("c") is None
    publisher.sends("b", "x")
    assert slow.outbox.swallowed == 0
    assert core.broker.fan_out.drops.slow_consumer == 3
    destination = core.broker.destinations.find_current("a")
    assert destination is not None
    assert destination.dropped == 3


def test_a_slow_member_of_a_work_queue_swallows_nothing_after_its_end():
    core = slow_core("disconnect")
    publisher, slow, other = core.peer(), core.peer(capacity=1), core.peer()
    slow.subscribes("#w")
    other.subscribes("#w")
    for number in range(8):
        publisher.sends("#w", f"m{number}")
    assert slow.outbox.closed is CloseReason.SLOW_CONSUMER
    assert slow.outbox.swallowed == 0
    assert other.bodies() == ["m1", "m3", "m4", "m5", "m6", "m7"]


def test_a_publisher_that_is_its_own_slow_subscriber_is_cut_off_in_the_middle_of_a_batch():
    core = slow_core("disconnect")
    slow = core.peer(capacity=1)
    slow.subscribes("a")
    slow.does(run_of("a", ["0"]), run_of("a", ["1"]), run_of("a", ["2"]))
    assert slow.error().get("code") == "slow-consumer"
    assert core.broker.publisher.received == 2


@pytest.mark.parametrize("policy", DROPPING)
def test_every_drop_is_counted_and_reported(policy: str):
    core = slow_core(policy)
    publisher, slow, watcher = core.peer(), core.peer(capacity=3), core.peer()
    slow.subscribes("a*")
    watcher.subscribes("DIAG/event/*")
    core.events()
    publisher.sends("a", "m0", "m1", "m2")
    publisher.sends("a", "m3", "m4")
    events = core.broker.events.take()
    assert [(event.name, event.session_id, event.destination) for event in events] == [
        ("slow", "s2", "a*"),
        ("drop", "s2", "a*"),
    ]
    lost = 3 if policy == "drop-oldest" else 2  # the oldest run is dropped as a whole
    assert events[0].reason == "outbox-full"
    assert (events[1].reason, events[1].detail) == ("slow-consumer", str(lost))
    fan_out, destination = core.broker.fan_out, core.broker.destinations.open("a")
    assert fan_out.drops.slow_consumer == destination.dropped == lost
    # A message counts as delivered once an outbox accepted it.
    taken = 5 if policy == "drop-oldest" else 3
    assert fan_out.delivered == destination.delivered == taken
    assert fan_out.slow == []
    assert slow.outbox.closed is None


def test_drop_oldest_keeps_frames_of_the_brokers_own_in_their_place():
    core = slow_core("drop-oldest")
    publisher, slow = core.peer(), core.peer(capacity=2)
    slow.subscribes("a")
    publisher.sends("a", "m0")
    slow.sends("b", "x", receipts=[(1, b"r1")])
    publisher.sends("a", "m1")
    publisher.sends("a", "m2")
    assert [frame.get("receipt-id") or frame.text for frame in slow.frames()] == ["r1", "m1", "m2"]


def test_drop_oldest_drops_messages_that_never_fit():
    core = slow_core("drop-oldest")
    publisher, slow = core.peer(), core.peer(capacity=2)
    slow.subscribes("a")
    publisher.sends("a", "small")
    slow.outbox.is_jammed = True  # as when the budget of the process is spent
    publisher.sends("a", "x", "y")
    assert slow.bodies() == []
    assert core.broker.fan_out.drops.slow_consumer == 1 + 2
    assert core.broker.fan_out.delivered == 1


@pytest.mark.parametrize("policy", DROPPING)
def test_losing_events_makes_no_more_events(policy: str):
    """A slow watcher of all events must not turn each loss into two more, turn after turn."""
    core = slow_core(policy)
    publisher, slow = core.peer(), core.peer(capacity=2)
    slow.subscribes("DIAG*")
    for turn in range(20):
        publisher.sends("a", f"{turn}")
        publisher.sends("DIAG/mine", "x")
        for event in core.broker.events.take():
            core.broker.publish(f"DIAG/event/{event.name}", b"{}", (), core.now)
    assert len(core.broker.events.take()) == 0
    assert core.broker.fan_out.slow == []
    # About 18 of 20 messages were lost. Two events report each loss, and were lost as well.
    assert 18 <= core.broker.fan_out.drops.slow_consumer <= 70


def test_a_slow_reader_of_the_brokers_own_topics_is_ended_too():
    core = slow_core("disconnect")
    slow = core.peer(capacity=1)
    slow.subscribes("DIAG/process")
    for _ in range(3):
        core.broker.publish("DIAG/process", b"{}", (("k", "v"),), core.now)
    assert slow.error().get("code") == "slow-consumer"
    assert len(core.broker.subscriptions) == 0
    assert not core.broker.has_subscribers("DIAG/process")


def test_a_slow_consumer_among_readers_of_several_versions():
    core = slow_core("drop-newest")
    publisher, slow, other = core.peer(), core.peer("1.0", capacity=1), core.peer("1.1")
    slow.subscribes("a", None)
    other.subscribes("a")
    for number in range(3):
        publisher.sends("a", f"m{number}", headers=(("colon", ":"),))
    assert slow.bodies() == ["m0"]
    assert other.bodies() == ["m0", "m1", "m2"]
    assert core.broker.fan_out.drops.slow_consumer == 2
