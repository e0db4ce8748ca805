"""A large client leaves in slices, which no other client can distinguish from leaving at once."""

from collections.abc import Iterator
from itertools import pairwise

import pytest
from attrs import define, field
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from tests.support.core import AMPLE, LOOK_S, Core, OutboxFake, Peer
from tests.support.durable_fakes import DurableBench
from tests.support.fakes import MEMORY, TCP, open_dial, until
from tests.support.share_fakes import Clocked
from trio_stomp.base import CloseReason
from trio_stomp.broker import BrokerPolicies, DestinationPolicy
from trio_stomp.broker import Client as BrokerClient
from trio_stomp.broker.subscribing._leaving import LEAVING_S, MAX_ENDED, SUBSCRIPTION_COST
from trio_stomp.protocol import Subscribed
from trio_stomp.server.io import Control

FILLERS = 6
SLICE = 2 * SUBSCRIPTION_COST
DURABLE = (("durable-subscription-name", "d"),)
QUIET = {"diag_interval_s": 0.0, "websocket_ping_s": 0.0}


@define(eq=False, repr=False)
class Sliced(Core):
    """A core where two subscriptions end in a turn."""

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.broker.leaving.slice_size = SLICE

    def loaded(
        self, name: str = "fill", *, capacity: int = AMPLE, room: int = AMPLE, client_id: str = ""
    ) -> Peer:
        """A client that takes FILLERS / 2 turns to leave, and then ends what a test adds."""
        peer = self.peer(capacity=capacity, room=room, client_id=client_id)
        for number in range(FILLERS):
            peer.subscribes(f"{name}.{number}", f"{name}{number}")
        return peer

    def slice(self) -> None:
        """Do a slice, if a client is leaving, and end the turn."""
        self.passes(0)

    def settles(self) -> int:
        """Turns until everybody has left."""
        turns = 0
        while not self.broker.leaving.is_over:
            self.slice()
            turns += 1
        return turns


def depth(core: Core, name: str) -> int:
    queue = core.broker.queues.open(name)
    return queue.waiting.count


@pytest.fixture
def core() -> Iterator[Sliced]:
    """Yield a core that must be empty at the end of the test."""
    core = Sliced()
    yield core
    core.ends()


@pytest.mark.parametrize(
    ("count", "temporary"), [(20, 1), (2 * MAX_ENDED // SUBSCRIPTION_COST, 1), (0, 30)]
)
def test_they_end_by_time_too_where_each_takes_long(desk: Clocked, count: int, temporary: int):
    """For instance 8,191 patterns of one client, at 30 µs each: a slice took 7.6 ms."""
    reader = desk.actor()
    for number in range(count):
        reader.does(Subscribed(str(number), f"/topic/t{number}.*", "auto", (), None))
        desk.turn()
    for number in range(temporary):
        reader.subscribes(f"/temp-queue/{number}", "temporary")
        reader.unsubscribes("temporary")
        desk.settles()
    assert len(reader.client.temporary) == temporary

    def there() -> int:
        return len(desk.broker.subscriptions) + len(reader.client.temporary)

    left, most = [there()], round(LEAVING_S / LOOK_S) + 1
    desk.broker.forget(reader.client, CloseReason.CONNECTION_LOST, desk.now)
    left.append(there())
    while not desk.broker.leaving.is_over:
        desk.passes(0)
        left.append(there())
    assert max(before - after for before, after in pairwise(left)) <= most
    assert left[-1] == 0
    assert reader.client not in desk.broker.clients


# --- visibility to others
# ------------------------------------------------------------------------------


@pytest.mark.parametrize("destination", ["t", "t.*", "*", "t,u"])
def test_nothing_is_for_it_from_the_turn_on_in_which_it_leaves(destination: str):
    core = Sliced(dialect="apollo") if "," in destination else Sliced()
    publisher, peer = core.peer(), core.loaded()
    peer.subscribes(destination)
    name = "t.x" if destination == "t.*" else "t"
    publisher.sends(name, "before")
    assert peer.bodies("0") == ["before"]
    peer.is_gone()
    assert not core.broker.leaving.is_over
    delivered = core.broker.fan_out.delivered
    publisher.sends(name, "after")
    assert core.broker.fan_out.delivered == delivered
    assert core.broker.fan_out.drops.no_subscriber == 1
    assert peer.outbox.swallowed == 0
    core.settles()
    publisher.sends(name, "at last")
    assert core.broker.fan_out.delivered == delivered
    assert core.broker.destinations.open(name).delivered == 1
    core.ends()


def test_ends_of_subscriptions_are_reported_in_order_and_then_the_disconnect(core: Sliced):
    core.broker.events.are_stored = True
    peer = core.loaded()
    peer.subscribes("t")
    core.events()
    reported: list[list[str]] = []
    forgotten: list[bool] = []
    core.broker.forget(
        peer.client, CloseReason.CONNECTION_LOST, core.now, lambda: forgotten.append(True)
    )
    core.broker.end_turn(core.now)
    assert core.events() == []
    while not core.broker.leaving.is_over:
        assert not forgotten
        assert peer.client in core.broker.clients
        core.slice()
        reported.append([f"{name} {destination}" for name, _, destination in core.events()])
    assert forgotten == [True]
    names = [f"unsubscribe {name}" for name in [*(f"fill.{n}" for n in range(FILLERS)), "t"]]
    assert reported == [names[0:2], names[2:4], names[4:6], [names[6], "disconnect "]]


def test_small_client_leaves_immediately_during_other_departures(core: Sliced):
    big, small = core.loaded(), core.peer()
    small.subscribes("t")
    big.is_gone()
    small.is_gone()
    assert small.client not in core.broker.clients
    assert big.client in core.broker.clients


def test_leaving_clients_share_the_turns(core: Sliced):
    peers = [core.loaded(f"f{number}") for number in range(3)]
    for peer in peers:
        peer.is_gone()
    sizes = []
    while not core.broker.leaving.is_over:
        core.slice()
        sizes.append([len(peer.client.subscriptions) for peer in peers])
    assert sizes[:3] == [[4, 6, 6], [4, 4, 6], [4, 4, 4]]
    assert len(sizes) == 9


def test_the_slice_of_a_turn_is_no_more_than_was_measured(monkeypatch: pytest.MonkeyPatch):
    """With the real size: 250 subscriptions at a time, and 250 clients at once."""
    monkeypatch.setattr("tests.support.core.LOOK_S", 1e-6)  # the size limits it, not the time
    core = Core()
    most = MAX_ENDED // SUBSCRIPTION_COST
    peers = [core.peer(), core.peer()]
    for peer, many in zip(peers, (most, 3 * most), strict=True):
        for number in range(many):
            peer.subscribes(f"t.{number}", str(number))
    peers[0].is_gone()
    assert core.broker.leaving.is_over
    peers[1].is_gone()
    left: list[int] = []
    while not core.broker.leaving.is_over:
        core.passes(0)
        left.append(len(peers[1].client.subscriptions))
    assert left[:3] == [2 * most, most, 0]
    core.ends()


# --- queues ---------------------------------------------------------------------------------------


def test_messages_of_a_leaving_consumer_come_first_for_the_next(core: Sliced):
    producer, peer, successor = core.peer(), core.loaded(), core.peer()
    peer.subscribes("/queue/q", ack="client-individual")
    producer.sends("/queue/q", "1", "2", "3")
    assert peer.bodies("0") == ["1", "2", "3"]
    peer.is_gone()
    successor.subscribes("/queue/q")
    producer.sends("/queue/q", "4", "5")
    assert successor.bodies() == []  # or they would come before 1
    core.slice()
    # It is the last of its subscriptions, but another client waits for it.
    assert successor.bodies() == ["1", "2", "3", "4", "5"]
    assert [each.get("redelivered") for each in successor.messages()] == ["true"] * 3 + [None] * 2
    assert not core.broker.leaving.is_over
    core.settles()
    assert successor.bodies() == ["1", "2", "3", "4", "5"]
    assert not core.broker.queues.urgent


def test_a_queue_whose_departing_consumer_had_nothing_is_not_urgent(core: Sliced):
    peer, other = core.loaded(), core.peer()
    peer.subscribes("/queue/q")
    peer.is_gone()
    other.subscribes("/queue/q")
    assert not core.broker.queues.urgent
    assert core.settles() == 4


def test_a_departing_sole_consumer_takes_no_more_messages(core: Sliced):
    producer, peer = core.peer(), core.loaded()
    peer.subscribes("/queue/q", "a")
    peer.subscribes("/queue/q.*", "b")
    peer.is_gone()
    core.broker.writable(peer.client, core.now)
    assert not core.broker.queues.open("/queue/q").is_marked
    producer.sends("/queue/q", "1")
    producer.sends("/queue/q.x", "2")
    core.settles()
    assert peer.messages() == []
    assert peer.outbox.swallowed == 0
    assert depth(core, "/queue/q") == depth(core, "/queue/q.x") == 1
    successor = core.reader("/queue/q", "a")
    successor.subscribes("/queue/q.x", "b")
    assert sorted(successor.bodies()) == ["1", "2"]


@pytest.mark.parametrize("header", [("activemq.exclusive", "true"), ("activemq.priority", "5")])
def test_other_consumer_continues_in_order(header: tuple[str, str]):
    core = Sliced(dialect="activemq")
    producer, peer, standby = core.peer(), core.loaded(), core.peer()
    prefetch = ("activemq.prefetchSize", "2")
    peer.subscribes("/queue/q", ack="client-individual", headers=(header, prefetch))
    standby.subscribes("/queue/q", headers=(header,) if header[1] == "true" else ())
    producer.sends("/queue/q", "1", "2")
    assert peer.bodies("0") == ["1", "2"]
    peer.is_gone()
    producer.sends("/queue/q", "3")
    core.settles()
    assert standby.bodies() == ["1", "2", "3"]
    core.ends()


def test_groups_pass_on_in_order(core: Sliced):
    producer, peer, other = core.peer(), core.loaded(), core.peer()
    peer.subscribes("/queue/q", ack="client-individual")
    group = (("message_group", "g"),)
    producer.sends("/queue/q", "1", headers=group)
    other.subscribes("/queue/q")
    peer.is_gone()
    producer.sends("/queue/q", "2", headers=group)
    core.settles()
    assert other.bodies() == ["1", "2"]


def test_much_that_was_not_acknowledged_goes_back_in_slices_and_in_order(core: Sliced):
    producer, peer, successor = core.peer(), core.peer(), core.peer()
    peer.subscribes("/queue/q", ack="client-individual")
    bodies = [f"{number}" for number in range(5 * SLICE)]
    producer.sends("/queue/q", *bodies)
    peer.is_gone()
    assert not core.broker.leaving.is_over
    successor.subscribes("/queue/q")
    queue = core.broker.queues.open("/queue/q")
    seen = []
    while not core.broker.leaving.is_over:
        seen.append(queue.unacked)
        core.slice()
        if queue.unacked:
            assert successor.bodies() == []
    assert seen == [5 * SLICE, 4 * SLICE, 3 * SLICE, 2 * SLICE, SLICE, 0][: len(seen)]
    assert len(seen) >= 5
    assert successor.bodies() == bodies


def test_message_that_failed_too_often_becomes_a_dead_letter():
    core = Sliced(book={"/queue/q": DestinationPolicy(max_redeliveries=0)})
    producer, peer = core.peer(), core.loaded()
    peer.subscribes("/queue/q", ack="client")
    producer.sends("/queue/q", *map(str, range(3 * SLICE)))
    peer.is_gone()
    core.settles()
    # Only the first can have been in work, in however many slices the others go back.
    assert depth(core, "/queue/q") == 3 * SLICE - 1
    assert depth(core, "/queue/DLQ.q") == 1


def test_its_temporary_destinations_go_with_it(core: Sliced):
    peer, other = core.loaded(), core.peer()
    for number in range(FILLERS):
        peer.sends("/queue/q", headers=(("reply-to", f"/temp-queue/r{number}"),))
    other.subscribes("/queue/q")
    names = [message.get("reply-to") or "" for message in other.messages()]
    other.sends(names[0], "in time")
    assert peer.bodies("/temp-queue/r0") == ["in time"]
    peer.is_gone()
    other.sends(names[1], "too late")
    core.settles()
    assert peer.bodies("/temp-queue/r1") == []
    assert not peer.client.temporary
    destinations = [core.broker.destinations.find_current(name) for name in names]
    assert [destination.queue for destination in destinations if destination is not None] == [
        None
    ] * FILLERS
    small = core.peer()
    small.sends("/queue/q", headers=(("reply-to", "/temp-topic/r"),))
    small.is_gone()
    assert not small.client.temporary


# --- work queues, parked messages -----------------------------------------------------------------


@pytest.mark.parametrize("ack", ["auto", "client-individual"])
def test_work_goes_to_the_other_members(core: Sliced, ack: str):
    producer, peer, other = core.peer(), core.loaded(), core.peer()
    peer.subscribes("#w", ack=ack)
    other.subscribes("#w")
    peer.is_gone()
    producer.sends("#w", "1", "2", "3")
    assert other.bodies() == ["1", "2", "3"]
    core.settles()
    assert other.bodies() == ["1", "2", "3"]


def test_work_that_it_had_is_handed_on_in_order(core: Sliced):
    producer, peer, other = core.peer(), core.loaded(), core.peer()
    peer.subscribes("#w", ack="client-individual", headers=(("prefetch-count", "2"),))
    producer.sends("#w", "1", "2", "3")
    other.subscribes("#w")
    peer.is_gone()
    core.settles()
    assert other.bodies() == ["1", "2", "3"]


def test_a_newcomer_that_acknowledges_is_found_while_others_leave(core: Sliced):
    """A feed stands among the subscribers before its consumer does."""
    producer, peer, other = core.peer(), core.loaded(), core.peer()
    peer.is_gone()
    other.subscribes("t", ack="client")
    other.subscribes("#w", "1", ack="client")
    producer.sends("t", "1")
    producer.sends("#w", "2")
    assert other.bodies() == ["1", "2"]


def test_message_sent_during_the_departure_is_parked_for_the_next():
    core = Sliced(BrokerPolicies(ttl_ms=10_000))
    producer, peer = core.peer(), core.loaded()
    peer.subscribes("t")
    peer.is_gone()
    producer.sends("t", "1")
    successor = core.reader("t")
    producer.sends("t", "2")
    assert successor.bodies() == ["1", "2"]
    core.ends()


def test_parked_messages_go_to_the_next_subscriber():
    core = Sliced(BrokerPolicies(ttl_ms=10_000))
    producer, peer = core.peer(), core.loaded(room=0)
    producer.sends("t", "1", "2")
    peer.subscribes("t")
    assert peer.bodies("0") == []  # its outbox has no room
    peer.is_gone()
    assert not core.broker.leaving.is_over
    core.broker.writable(peer.client, core.now)
    successor = core.reader("t")
    assert successor.bodies() == ["1", "2"]
    assert peer.client.catching_up == 0
    core.ends()


def test_a_subscription_queue_without_its_creator_serves_the_others(core: Sliced):
    """An ended durable subscription continues for its consumers, even without its creator."""
    producer, other, peer, third = core.peer(), core.peer(), core.loaded(), core.peer()
    for each in (other, peer, third):
        each.subscribes("t", headers=DURABLE)
    third.unsubscribes(headers=DURABLE)  # for good, and for all
    peer.is_gone()
    producer.sends("t", "1", "2")
    core.slice()
    core.slice()
    assert other.bodies() == ["1", "2"]


# --- ways to leave --------------------------------------------------------------------------------


def test_disconnect_is_answered_immediately_and_reported_once(core: Sliced):
    core.broker.events.are_stored = True
    peer, other = core.loaded(), core.peer()
    peer.subscribes("t")
    peer.leaves(b"bye")
    assert peer.frames()[-1].get("receipt-id") == "bye"
    assert peer.outbox.closed is CloseReason.CLIENT_DISCONNECT
    core.slice()
    calls: list[str] = []
    for name in ("once", "twice"):
        core.broker.forget(
            peer.client,
            CloseReason.CLIENT_DISCONNECT,
            core.now,
            lambda name=name: calls.append(name),  # type: ignore[misc]
        )
    assert calls == []
    other.sends("t", "1")
    core.settles()
    assert calls == ["once", "twice"]
    events = core.events()
    assert [name for name, _, _ in events].count("disconnect") == 1
    assert [name for name, _, _ in events].count("unsubscribe") == FILLERS + 1


def test_a_disconnect_that_is_over_is_followed_by_the_end(core: Sliced):
    peer = core.loaded()
    peer.leaves()
    core.settles()
    assert peer.client in core.broker.clients
    peer.is_gone()
    assert peer.client not in core.broker.clients


def test_client_that_gets_an_error_is_removed_in_pieces(core: Sliced):
    producer, peer, other = core.peer(), core.loaded(), core.peer()
    peer.subscribes("#w")
    other.subscribes("#w")
    peer.sends("a*", "x")
    assert peer.error().get("code") == "wildcard-in-send"
    assert not core.broker.leaving.is_over
    producer.sends("#w", "1", "2")
    assert other.bodies() == ["1", "2"]
    peer.is_gone()
    core.settles()
    assert peer.client not in core.broker.clients


def test_slow_consumer_is_removed_in_pieces():
    core = Sliced(BrokerPolicies(slow_consumer="disconnect"))
    producer, other = core.peer(), core.peer()
    peer = core.loaded(capacity=1)
    peer.subscribes("#w")
    producer.sends("#w", "1")
    producer.sends("#w", "2", "3")
    assert peer.client.is_refused
    assert not core.broker.leaving.is_over
    other.subscribes("#w")
    producer.sends("#w", "4")
    assert other.bodies() == ["4"]
    core.ends()


def test_changed_rules_do_not_apply_to_a_departing_client(core: Sliced):
    peer = core.loaded()
    peer.is_gone()
    core.broker.use_rules(None, lambda identity: False, core.now)
    assert "ERROR" not in [frame.command for frame in peer.frames()]
    core.settles()
    assert peer.client not in core.broker.clients


def test_the_end_of_the_broker_completes_every_departure(core: Sliced):
    calls: list[int] = []
    for number in range(3):
        peer = core.loaded(f"f{number}")
        core.broker.forget(
            peer.client,
            CloseReason.SHUTTING_DOWN,
            core.now,
            lambda number=number: calls.append(number),  # type: ignore[misc]
        )
    core.broker.finish(core.now)
    assert sorted(calls) == [0, 1, 2]
    assert core.broker.leaving.is_over


def test_a_bug_ends_one_subscription_and_not_the_leaving(core: Sliced):
    peer = core.loaded()
    forgotten: list[bool] = []

    def fail(event: object) -> None:
        raise ZeroDivisionError

    core.broker.forget(
        peer.client, CloseReason.CONNECTION_LOST, core.now, lambda: forgotten.append(True)
    )
    core.broker.events.listener = fail
    for _ in range(FILLERS):
        assert core.broker.timers.next_due <= core.now  # it is continued nevertheless
        with pytest.raises(ZeroDivisionError):
            core.broker.tick(core.now)
    assert not forgotten
    with pytest.raises(ZeroDivisionError):
        core.broker.tick(core.now)  # the disconnect
    assert forgotten
    assert core.broker.leaving.is_over
    core.broker.events.listener = None


def test_streams_are_read_no_more():
    core = Sliced(book={"s": DestinationPolicy(stream=True)})
    producer, peer, other = core.peer(), core.loaded(), core.peer()
    producer.sends("s", "1")
    for each in (peer, other):
        each.subscribes("/stream/s", ack="client", headers=(("x-stream-offset", "first"),))
    assert peer.bodies("0") == other.bodies() == ["1"]
    peer.is_gone()
    producer.sends("s", "2")
    core.settles()
    assert peer.bodies("0") == ["1"]
    assert other.bodies() == ["1", "2"]
    assert peer.outbox.swallowed == 0
    core.ends()


# --- durable subscriptions ------------------------------------------------------------------------


def test_a_durable_subscription_keeps_messages_from_its_creation_on(core: Sliced):
    producer, peer = core.peer(), core.loaded(client_id="me")
    peer.subscribes("t", "d", ack="client-individual", headers=DURABLE)
    producer.sends("t", "1")
    peer.is_gone()
    producer.sends("t", "2")
    core.slice()
    producer.sends("t", "3")
    core.settles()
    successor = core.reader("t", "d", headers=DURABLE, client_id="me")
    assert successor.bodies() == ["1", "2", "3"]
    assert peer.outbox.swallowed == 0


def test_client_that_returns_meanwhile_takes_over_in_order(core: Sliced):
    producer, peer = core.peer(), core.loaded(client_id="me")
    peer.subscribes("t", "d", ack="client-individual", headers=DURABLE)
    producer.sends("t", "1")
    peer.is_gone()
    producer.sends("t", "2")
    successor = core.loaded(client_id="me")
    successor.subscribes("t", "d", ack="client-individual", headers=DURABLE)
    producer.sends("t", "3")
    assert successor.bodies("d") == [], "nothing before what the other one had"
    core.settles()
    assert successor.bodies("d") == ["1", "2", "3"]
    assert peer.bodies("d") == ["1"]
    assert "ERROR" not in [frame.command for frame in peer.frames()]
    successor.acks(*[each for each in successor.messages() if each.get("subscription") == "d"])
    assert len(core.broker.bindings.durables) == 1


def test_one_that_is_not_safe_yet_does_not_begin_for_a_dead_client():
    bench = DurableBench(policies=BrokerPolicies(ttl_ms=60_000), is_prompt=False)
    bench.broker.leaving.slice_size = SLICE
    producer, actor = bench.actor(), bench.actor()
    producer.sends("t", "parked")
    for number in range(FILLERS):
        actor.subscribes(f"fill.{number}", f"f{number}")
    actor.subscribes("t", "d", "client", durable_subscription_name="d")
    bench.turn()
    bench.broker.use_rules(None, lambda identity: False, bench.now)
    assert actor.client.is_leaving
    bench.answers()
    bench.broker.authorizer.is_known = lambda identity: True
    successor = bench.reader("t")
    assert successor.bodies() == ["parked"]
    bench.broker.finish(bench.now)
    bench.turn()
    assert not actor.client.subscriptions


def test_temporary_destinations_alone_go_in_slices_too(core: Sliced):
    peer = core.peer()
    for number in range(5):
        peer.sends("t", headers=(("reply-to", f"/temp-topic/r{number}"),))
    assert not peer.client.subscriptions
    peer.is_gone()
    left = [len(peer.client.temporary)]
    while not core.broker.leaving.is_over:
        core.slice()
        left.append(len(peer.client.temporary))
    assert left == [5, 3, 1, 0]


# --- whatever happens between the slices ----------------------------------------------------------

PLACES = ("t", "u", "t.*", "#w", "/queue/q", "/queue/r")
SENT = ("t", "u", "t.x", "#w", "/queue/q", "/queue/r")
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("subscribe"),
            st.integers(0, 3),
            st.sampled_from(PLACES),
            st.sampled_from(["auto", "client-individual"]),
        ),
        st.tuples(st.just("send"), st.sampled_from(SENT)),
        st.tuples(st.just("leave"), st.integers(0, 3), st.sampled_from(["gone", "left", "error"])),
        st.tuples(st.just("ack"), st.integers(0, 3)),
        st.just(("slice",)),
    ),
    max_size=40,
)


@define(eq=False, repr=False)
class Crowd:
    """Four clients at a time with random actions, and the model of the results."""

    core: Sliced = field(factory=Sliced)
    here: list[Peer] = field(init=False)
    acks: dict[Peer, dict[str, str]] = field(factory=dict)
    """Ack modes by subscription."""
    expected: dict[Peer, list[str]] = field(factory=dict)
    """Bodies of topics."""
    settled: list[str] = field(factory=list)
    """Bodies of queues that were acknowledged."""
    acked: dict[Peer, int] = field(factory=dict)
    gone: dict[Peer, int] = field(factory=dict)
    """The number of MESSAGEs that each client had when it left."""
    works: dict[str, set[Peer]] = field(factory=dict)
    """The possible recipients of each body sent to the work queue."""
    sent: dict[str, list[str]] = field(factory=dict)
    number: int = 0

    def __attrs_post_init__(self) -> None:
        self.here = [self.comes() for _ in range(4)]

    def comes(self) -> Peer:
        """One more, with as much as makes it leave in slices."""
        peer = self.core.loaded()
        self.acks[peer], self.expected[peer], self.acked[peer] = {}, [], 0
        return peer

    def subscribe(self, place: int, destination: str, ack: str) -> None:
        """Subscribe. Only messages from queues are acknowledged here."""
        peer, self.number = self.here[place], self.number + 1
        mode = ack if destination.startswith("/queue/") else "auto"
        key = f"{self.number} {destination}"
        self.acks[peer][key] = mode
        peer.subscribes(destination, key, ack=mode)

    def reached(self, peer: Peer, name: str) -> int:
        """Return the number of a client's subscriptions that a topic reaches."""
        found = [key.partition(" ")[2] for key in self.acks[peer]]
        return found.count(name) + (found.count("t.*") if name == "t.x" else 0)

    def send(self, name: str) -> None:
        """Send one message, whose body is its number."""
        self.number += 1
        body = f"{self.number:04}"
        if name.startswith("/queue/"):
            self.sent.setdefault(name, []).append(body)
        elif name == "#w":
            self.works[body] = {peer for peer in self.here if self.reached(peer, name)}
        else:
            for peer in self.here:
                self.expected[peer] += [body] * self.reached(peer, name)
        sender = self.core.peer()
        sender.sends(name, body)
        sender.is_gone()

    def leave(self, place: int, how: str) -> None:
        """Replace a client by another."""
        peer = self.here[place]
        if how == "left":
            peer.leaves()
        elif how == "error":
            peer.unsubscribes("nothing of that name")
        peer.is_gone()
        self.gone[peer] = len(peer.messages())
        self.here[place] = self.comes()

    def ack(self, place: int) -> None:
        """Acknowledge the oldest message for which a client's ACK is required."""
        peer = self.here[place]
        mine = [
            each
            for each in peer.messages()
            if self.acks[peer].get(each.get("subscription") or "") == "client-individual"
        ]
        if self.acked[peer] < len(mine):
            message = mine[self.acked[peer]]
            self.acked[peer] += 1
            peer.acks(message)
            self.settled.append(message.text)

    def slice(self) -> None:
        """A slice."""
        self.core.slice()

    def check(self) -> None:
        """Check the invariants."""
        for peer, expected in self.expected.items():
            topics = [
                each.text
                for each in peer.messages()
                if (each.get("destination") or "") in ("t", "u", "t.x")
            ]
            assert topics == expected
        for peer, count in self.gone.items():
            assert len(peer.messages()) == count
            assert peer.outbox.swallowed == 0
        for body, members in self.works.items():
            recipients = [peer for peer in self.expected if body in peer.bodies()]
            assert len(recipients) == bool(members)
            assert set(recipients) <= members
        total = sum(len(peer.messages()) for peer in self.expected)
        assert self.core.broker.fan_out.delivered == total

    def finish(self) -> None:
        """Let all clients leave. Check that unacknowledged messages are there once, in order."""
        for place in range(4):
            self.leave(place, "gone")
        for peer in self.here:
            peer.is_gone()
        self.core.settles()
        self.check()
        taken = [
            each.text
            for peer, acks in self.acks.items()
            for each in peer.messages()
            if (each.get("destination") or "").startswith("/queue/")
            and acks[each.get("subscription") or ""] == "auto"
        ]
        done = {*taken, *self.settled}
        assert len(done) == len(taken) + len(self.settled)
        for name, bodies in self.sent.items():
            collector = self.core.peer()
            collector.subscribes(name)
            assert collector.bodies() == [each for each in bodies if each not in done]
            collector.unsubscribes()
        self.core.ends()


@given(STEPS)
@settings(max_examples=150, deadline=None)
def test_departure_in_pieces_loses_and_duplicates_nothing(
    steps: list[tuple[str, ...]],
):
    crowd = Crowd()
    for what, *arguments in steps:
        getattr(crowd, what)(*arguments)
        crowd.check()
    crowd.finish()


# --- the server -----------------------------------------------------------------------------------


def subscribes(count: int) -> bytes:
    frames = [f"SUBSCRIBE\nid:{n}\ndestination:/t/{n}\n\n\0" for n in range(count)]
    return "".join(frames).encode()


@pytest.mark.parametrize("transport", [MEMORY, TCP])
async def test_others_are_answered_between_the_slices(transport: str) -> None:
    async with open_dial(transport, **QUIET) as dial:
        leavers = [await dial.connect() for _ in range(2)]
        other = await dial.connect()
        broker, server = dial.server.broker, dial.server
        broker.leaving.slice_size = SLICE
        for leaver in leavers:
            await leaver.send_bytes(subscribes(200))
            await leaver.fence()
        for leaver in leavers:
            await leaver.aclose()
        await until(lambda: len(broker.destinations.leaving) == 2)
        answered, left = 0, [len(broker.subscriptions)]
        while len(server.connections) > 1:
            # No fence, which would wait until all work is done.
            await other.publish("/topic/x", b"", receipt=True)
            answered += 1
            left.append(len(broker.subscriptions))
        assert answered >= 20
        # A RECEIPT takes some runs of the loop, and a slice takes as many.
        assert max(before - after for before, after in pairwise(left)) <= 100
        assert broker.leaving.is_over


async def test_a_stop_waits_for_leaving_clients(autojump_clock: MockClock) -> None:
    async with open_dial(**QUIET) as dial:
        leaver = await dial.connect()
        dial.server.broker.leaving.slice_size = SLICE
        await leaver.send_bytes(subscribes(200))
        await leaver.fence()
        await leaver.aclose()
        await until(lambda: not dial.server.broker.leaving.is_over)
        await dial.stop()  # and all counts are looked at behind it
        assert dial.server.broker.leaving.is_over
        assert not len(dial.server.broker.subscriptions)


async def test_unfinished_departure_ends_when_the_inbox_closes(
    autojump_clock: MockClock,
) -> None:
    """A leaving client may have waited too long: it is completed before the store closes."""
    async with open_dial(**QUIET) as dial:
        await dial.start()
        broker = dial.server.broker
        broker.leaving.slice_size = SLICE
        client = BrokerClient("nobody", OutboxFake())
        ends: list[str] = []

        def come_and_go(now: float) -> None:
            for number in range(500):
                broker.apply(client, [Subscribed(str(number), "/t", "auto", (), None)], now, now)
            broker.forget(client, CloseReason.SHUTTING_DOWN, now, lambda: ends.append("forgotten"))

        await dial.server.inbox.put(Control(come_and_go))
        dial.handle.stop()
        await dial.ended.wait()
        assert ends == ["forgotten"]
        assert broker.leaving.is_over


def test_nothing_is_left_to_a_new_session_on_the_same_socket() -> None:
    """This DISCONNECT ends a session only: the next session must not end with it."""
    core = Sliced(dialect="stompica")
    core.broker.leaving.slice_size = 1
    peer = core.loaded()
    for _ in range(3):
        peer.leaves()
        assert core.broker.leaving.is_over
        assert not peer.client.subscriptions
        peer.opens()
        peer.subscribes("t")
    peer.sends("t", "1")
    assert peer.bodies("0") == ["1"]
    core.ends()
