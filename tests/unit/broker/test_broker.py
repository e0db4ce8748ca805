"""The core as the dispatcher sees it: sessions, events, receipts, atomic calls."""

import sys

import pytest
import trio.testing

from tests.support.core import AMPLE, VERSIONS, Core, run_of, ttl_core
from tests.support.limits import MAX_PENDING
from trio_stomp.base import CloseReason, ProtocolError
from trio_stomp.broker import BrokerEvent, BrokerPolicies, Delivery, DestinationPolicy, PolicyBook
from trio_stomp.broker.delivery import NEVER, Publication
from trio_stomp.protocol import (
    NO_HEARTBEATS,
    Acked,
    Committed,
    Disconnected,
    HeartbeatPlan,
    Opened,
    Queried,
    Received,
    Refused,
    Subscribed,
    Unsubscribed,
)

# --- CONNECT --------------------------------------------------------------------------------------


@pytest.mark.covers("C03", "C06", "C09", "C10", "C16", "F22")
@pytest.mark.parametrize("version", VERSIONS)
def test_connected_tells_version_session_and_heartbeats(version: str):
    core = Core(server_name="trio_stomp/1:2 \\x")
    peer = core.peer(version, opens=False)
    peer.opens((("login", "me"),), HeartbeatPlan(1.5, 0.25, 1.0))
    (frame,) = peer.frames()
    assert frame.command == "CONNECTED"
    assert frame.headers == (
        ("version", version),
        ("session", "s1"),
        ("heart-beat", "1500,250"),
        ("server", "trio_stomp/1:2 \\x"),
        ("user-name", "me"),
    )
    assert frame.body == b""
    assert peer.client.user == "me"
    assert peer.client.version is VERSIONS[version]


@pytest.mark.covers("C10")
def test_the_servers_name_may_be_hidden():
    peer = Core().peer(opens=False)
    peer.opens()
    assert peer.frames()[0].names == ["version", "session", "heart-beat"]
    assert peer.frames()[0].get("heart-beat") == "0,0"
    assert peer.client.user == ""


def test_an_open_session_is_counted_until_it_is_forgotten(core: Core):
    one, two = core.peer(), core.peer()
    core.peer(opens=False)
    assert len(core.broker.clients) == 2
    one.is_gone()
    one.is_gone()
    assert list(core.broker.clients) == [two.client]


@pytest.mark.parametrize("header", ["request-id", "receipt"])
@pytest.mark.parametrize("dialect", ["native", "activemq", "artemis"])
def test_connected_answers_a_receipt_where_the_dialect_has_it(dialect: str, header: str):
    peer = Core(dialect=dialect).peer(opens=False)
    peer.opens(((header, "c1"),))
    values = (peer.frames()[0].get("receipt-id"), peer.frames()[0].get("response-id"))
    artemis = (None, "c1" if header == "request-id" else None)
    expected = {"native": (None, None), "activemq": ("c1", "c1"), "artemis": artemis}
    assert values == expected[dialect]
    silent = Core(dialect="activemq").peer(opens=False)
    silent.opens()
    assert silent.frames()[0].names == ["version", "session", "heart-beat"]


# --- DISCONNECT -----------------------------------------------------------------------------------


@pytest.mark.covers("R10", "R11")
def test_disconnect_is_answered_last_and_later_frames_are_ignored(core: Core):
    peer, other = core.peer(), core.peer()
    other.subscribes("a")
    peer.subscribes("a")
    peer.does(
        run_of("a", ["before"], receipts=[(1, b"r1")]),
        Disconnected(b"r2"),
        run_of("a", ["after"]),
    )
    peer.sends("a", "later")
    other.sends("a", "last")
    assert [frame.get("receipt-id") or frame.text for frame in peer.frames()] == [
        *("before", "r1", "r2")
    ]
    assert peer.outbox.closed is CloseReason.CLIENT_DISCONNECT
    assert other.bodies() == ["before", "last"]
    assert peer.client.subscriptions == {}


def test_disconnect_without_receipt_is_silent():
    peer = Core().peer()
    peer.leaves()
    assert peer.frames() == []
    assert peer.outbox.closed is CloseReason.CLIENT_DISCONNECT


# --- receipts and errors --------------------------------------------------------------------------


@pytest.mark.covers("R05", "R06")
@pytest.mark.parametrize(("asker", "expected"), [(1, "r"), (2, None)])
def test_a_refused_run_leaves_no_trace(core: Core, asker: int, expected: str | None):
    peer = core.peer()
    peer.sends("a*", "x", "y", receipts=[(asker, b"r")])
    assert peer.frames("RECEIPT") == []
    assert peer.error().get("receipt-id") == expected  # the first frame is the one at fault
    assert core.broker.publisher.received == core.broker.fan_out.messages == 0
    assert len(core.broker.destinations) <= 1  # at most the topic of an event


def test_an_error_closes_with_the_reason_of_its_rule():
    peer = Core().peer()
    peer.does(Refused(ProtocolError("x", "y", reason=CloseReason.UNSUPPORTED)))
    assert peer.outbox.closed is CloseReason.UNSUPPORTED
    peer.does(Refused(ProtocolError("again", "z")), Queried("session"), Disconnected(b"r"))
    assert peer.error().get("code") == "x"


def test_an_unknown_event_is_ignored():
    peer = Core().peer()
    peer.does(None)  # type: ignore[arg-type]
    assert peer.frames() == []


def test_a_fault_in_the_middle_of_a_backlog_releases_its_claims():
    core = ttl_core()
    publisher = core.peer()
    for number in range(3):
        publisher.sends("a", f"p{number}")
    culprit = core.peer(room=1)
    culprit.does(Subscribed("0", "a", "auto", (), None), run_of("a*", ["x"]))
    assert culprit.error().get("code") == "wildcard-in-send"
    reader = core.reader("a")
    assert reader.bodies() == ["p1", "p2"]


@pytest.mark.covers("R05", "A13")
@pytest.mark.parametrize("negative", [False, True])
@pytest.mark.parametrize("receipts", [[(1, b"r")], []])
def test_a_wrong_ack_is_quoted_and_answered_by_an_error(
    negative: bool, receipts: list[tuple[int, bytes]]
):
    peer = Core().peer()
    peer.does(Acked((b"b7.1-9",), "id", None, negative, True, receipts))
    error = peer.error()
    assert error.get("code") == "unknown-ack"
    assert error.get("receipt-id") == ("r" if receipts else None)
    assert f"{'NACK' if negative else 'ACK'}\nid:b7.1-9\n" in error.text


@pytest.mark.covers("T04", "T08", "R06")
def test_receipts_of_a_transaction_are_answered_whatever_it_holds(core: Core):
    peer = core.peer()
    peer.does(Received([(1, b"r1"), (2, b"r2")]), Committed([run_of("a")], b"r3"))
    peer.does(Committed([run_of("a")], None))
    assert [frame.get("receipt-id") for frame in peer.frames()] == ["r1", "r2", "r3"]
    assert core.broker.publisher.received == 2
    peer.does(Committed([run_of("b"), run_of("a*")], b"r4"))
    assert peer.error().get("receipt-id") == "r4"
    assert core.broker.publisher.received == 2


def test_receipts_within_a_transaction_follow_that_of_its_commit(core: Core):
    peer = core.peer()
    sends = run_of("a", ("1", "2"), (), [(1, b"r1"), (2, b"r2")])
    peer.does(Committed([sends, Acked((), "id", None, False, True, ())], b"r3"))
    assert [frame.get("receipt-id") for frame in peer.frames()] == ["r3", "r1", "r2"]
    peer.does(Committed([sends, run_of("a*")], b"r4"))
    assert [frame.get("receipt-id") for frame in peer.frames("RECEIPT")] == ["r3", "r1", "r2"]
    assert peer.error().get("receipt-id") == "r4"


# --- messages of the broker's own -----------------------------------------------------------------


def test_the_broker_publishes_to_whoever_listens_and_parks_nothing():
    core = ttl_core()
    broker = core.broker
    assert not broker.has_subscribers("DIAG/stale")
    broker.publish("DIAG/stale", b"early", (), core.now)
    reader, wild = core.peer(), core.peer("1.0")
    reader.subscribes("DIAG/stale")
    wild.subscribes("DIAG*", None)
    assert broker.has_subscribers("DIAG/stale")
    broker.publish("DIAG/stale", b"\0{}", (("n", "a:b"),), core.now)
    core.now += 1e6  # and they have no lifetime
    for peer in (reader, wild):
        peer.outbox.write(core.now)
        (frame,) = peer.messages()
        assert frame.body == b"\0{}"
        assert frame.get("destination") == "DIAG/stale"
        assert frame.get("n") == "a:b"
        assert frame.get("content-length") == "3"
    assert broker.stale.size == 0
    assert broker.fan_out.drops.no_subscriber == 0


def test_events_are_noted_only_while_somebody_listens(core: Core):
    watcher = core.peer()
    assert core.events() == []
    watcher.subscribes("DIAG/event/connect")
    peer = core.peer(opens=False)
    peer.client.transport = "ws"
    peer.opens((("login", "me"),))
    peer.subscribes("a")
    peer.is_gone()
    assert core.broker.events.take() == [
        BrokerEvent("connect", "s2", "me", "", "", "STOMP 1.2 over ws from 10.0.0.2")
    ]
    watcher.subscribes("DIAG/event/disconnect", "1")
    core.peer().is_gone(CloseReason.HEARTBEAT_TIMEOUT)
    core.peer(opens=False).is_gone()
    events = core.broker.events.take()
    assert [event.name for event in events] == ["connect", "disconnect"]
    assert (events[1].reason, events[1].detail) == ("heart-beat-timeout", "from 10.0.0.3")
    assert core.broker.events.take() == []


def test_events_of_a_turn_are_bounded_and_the_rest_is_counted(core: Core):
    core.peer().subscribes("DIAG/event/x")
    events = core.broker.events
    for number in range(MAX_PENDING + 5):
        events.record("x", detail=str(number))
    assert events.lost == 5
    assert [event.detail for event in events.take()] == [str(n) for n in range(MAX_PENDING)]
    events.record("x")
    assert len(events.take()) == 1
    assert events.lost == 5


def test_last_watcher_does_not_get_its_own_end(core: Core):
    watcher = core.reader("DIAG/event/*", "0")
    assert [event[0] for event in core.events()] == ["subscribe"]
    watcher.unsubscribes("0")
    assert core.events() == []


def test_the_monitor_is_published_to_its_subscribers_and_kept_nowhere(core: Core):
    peer, late = core.peer(), core.peer()
    assert not core.broker.is_monitored
    peer.subscribes("/queue/monitor")
    assert core.broker.is_monitored
    core.broker.publish_monitor(core.now)
    assert peer.bodies() == []  # there is no queue
    peer.sends("/queue/q", "x", "y")
    core.broker.publish_monitor(core.now)
    assert peer.bodies() == ["Queue: /queue/q\nsize: 2\ndequeued: 0\nenqueued: 2\n\n"]
    assert peer.messages()[0].get("destination") == "/queue/monitor"
    late.subscribes("/queue/monitor")
    assert late.bodies() == []
    late.sends("/queue/monitor", "forged")
    assert late.error().get("code") == "reserved-destination"


def test_message_that_expires_unwritten_frees_credit(core: Core):
    publisher, reader = core.peer(), core.peer()
    reader.subscribes("/queue/q", ack="client", headers=(("prefetch-count", "2"),))
    publisher.sends("/queue/q", "0", "1", headers=(("ttl", "1000"),))
    publisher.sends("/queue/q", "2")
    core.now += 2
    reader.outbox.write(core.now)
    (delivery,) = reader.outbox.unsent
    core.broker.unsent(delivery, core.now)
    core.broker.end_turn(core.now)
    assert reader.bodies() == ["2"]
    delivery.ticket = None
    core.broker.unsent(delivery, core.now)  # needs no acknowledgement: no matter
    reader.acks(reader.messages()[0])


# --- the calls ------------------------------------------------------------------------------------


async def test_no_call_is_a_checkpoint():
    core = ttl_core(
        slow_consumer="drop-oldest", stale_overflow="drop-oldest", max_stale_queue_size=5
    )
    with trio.testing.assert_no_checkpoints():
        publisher, reader = core.peer(), core.peer("1.0", capacity=3, room=1)
        for number in range(4):
            publisher.sends("a", f"{number}", f"{number}'", headers=(("k", ":"),))
        reader.does(
            Opened(VERSIONS["1.0"], NO_HEARTBEATS, ()),
            Subscribed("0", "a*", "auto", (), b"r"),
            Subscribed("1", "#w", "auto", (), None),
            Queried("stale"),
            run_of("#w", "abc"),
            run_of("DIAG/x", ["session"]),
            Unsubscribed("1", None, None),
        )
        publisher.sends("a", "x")
        reader.drains()
        core.broker.publish("DIAG/process", b"", (), core.now)
        core.broker.sessions.answers.queries().command("subs")
        core.passes(5)
        publisher.leaves(b"r")
        reader.does(run_of("no*"))
    assert reader.error().get("code") == "wildcard-in-send"
    with trio.testing.assert_no_checkpoints():
        core.ends()


def test_a_batch_is_applied_in_order_at_one_time():
    core = Core(BrokerPolicies(ttl_ms=1000))
    peer = core.peer()
    peer.does(
        run_of("a", ["parked"]),
        Subscribed("0", "a", "auto", (), b"r1"),
        run_of("a", ["live"]),
        Unsubscribed("0", "a", b"r2"),
        run_of("a", ["parked again"]),
        Subscribed("0", "a", "auto", (), None),
        received_at=core.now - 0.5,
    )
    assert [frame.get("receipt-id") or frame.text for frame in peer.frames()] == [
        *("r1", "parked", "live", "r2", "parked again")
    ]
    expiries = [
        delivery.publication.expires_at
        for _, delivery in peer.outbox.staged
        if delivery is not None
    ]
    assert expiries == [core.now + 0.5] * 3
    core.ends()


def test_without_a_ttl_nothing_ever_expires(core: Core):
    peer = core.reader("a")
    peer.sends("a")
    (staged,) = peer.outbox.staged
    assert staged[1] is not None
    assert staged[1].publication.expires_at == NEVER
    peer.outbox.write(AMPLE)
    assert peer.bodies() == ["x"]


# --- other policies, while messages wait ----------------------------------------------------------


def test_new_policies_apply_to_existing_destinations():
    core = Core(book={"/queue/q": DestinationPolicy(max_messages=2)})
    publisher = core.peer()
    publisher.sends("/queue/q", "a", "b")
    publisher.sends("/topic/t", "lost")
    book = PolicyBook(
        [
            ("/queue/q", DestinationPolicy(max_messages=1, overflow="drop-newest")),
            ("/topic/t", DestinationPolicy(ttl_ms=1000)),
        ]
    )
    core.broker.use_policies(book)
    assert core.broker.queues.policies is book
    publisher.sends("/queue/q", "c")
    publisher.sends("/topic/t", "parked")
    publisher.sends("/queue/new", "x", "y")
    reader = core.peer()
    for id, name in enumerate(("/queue/q", "/topic/t", "/queue/new")):
        reader.subscribes(name, f"{id}")
    # Waiting messages stay, although they exceed the new bound.
    assert reader.bodies() == ["a", "b", "parked", "x", "y"]
    assert core.broker.overflow.dropped == 1
    assert publisher.frames("ERROR") == []
    core.broker.use_policies(PolicyBook())
    reader.unsubscribes("0")
    publisher.sends("/queue/q", "d", "e")
    assert core.broker.overflow.dropped == 1
    core.broker.use_policies(PolicyBook([("/queue/fresh", DestinationPolicy(max_messages=1))]))
    publisher.sends("/queue/fresh", "f", "g")
    assert publisher.error().get("code") == "queue-full"


# --- the outbox of a lost client
# -------------------------------------------------------------------


def test_reference_to_a_removed_client_holds_no_state(core: Core):
    peers = [core.peer(), core.peer()]
    for peer in peers:
        peer.subscribes("/topic/t")
        peer.is_gone()
    gone, nowhere = peers[0], peers[0].client.outbox
    assert nowhere is peers[1].client.outbox, "one is enough"
    core.peer().sends("/topic/t", "x")
    assert not gone.outbox.staged
    destination = core.broker.destinations.open("/topic/t")
    publication = Publication(destination, run_of("/topic/t").head, [], core.now, NEVER)
    delivery = Delivery([b"", b"x\0"], 1, 2, publication)
    nowhere.stage_frame(b"RECEIPT\nreceipt-id:1\n\n\0")
    assert nowhere.stage(b"MESSAGE\n", delivery), "what is refused would make a slow consumer"
    assert sys.getrefcount(delivery) == 2, "this name and the call's"
    assert not nowhere.has_room(), "a source that can wait keeps its messages"
    assert nowhere.drop_oldest(AMPLE) == nowhere.discard() == 0
    nowhere.pause_reading(paused=True)
    nowhere.close(CloseReason.CONNECTION_LOST)
    assert nowhere.stage(b"", Delivery([b"", b"y\0"], 1, 2, publication))
    assert (gone.outbox.closed, gone.outbox.is_paused) == (None, False)


# --- time -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", ["parked", "stream"])
def test_time_passes_in_several_turns_if_much_has_expired(kept: str):
    """The caller of the timers calls ``tick`` again."""
    policy = DestinationPolicy(stream=True, stream_max_age_ms=1000)
    core = Core(
        BrokerPolicies(ttl_ms=1000 if kept == "parked" else 0),
        book={"/topic/s": policy} if kept == "stream" else {},
    )
    peer = core.peer()
    for number in range(3000):
        peer.sends("/topic/s", f"{number}")
    assert core.broker.timers.next_due == NEVER
    used = [core.memory.kept_bytes]
    core.now += 5.0
    core.broker.tick(core.now)
    while core.broker.timers.next_due <= core.now:
        used.append(core.memory.kept_bytes)
        core.broker.tick(core.now)
    assert len(used) > 3
    assert sorted(used, reverse=True) == used
    assert core.memory.kept_bytes == 0
    assert core.broker.timers.next_due == NEVER
