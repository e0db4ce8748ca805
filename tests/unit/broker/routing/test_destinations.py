"""Destinations in use: recipients, generations, and the bound on their number."""

from collections.abc import Callable
from random import Random

import pytest

from tests.support.core import (
    Actor,
    Bench,
    Core,
    OutboxFake,
    Pairs,
    Received,
    counted_turns,
    run_of,
)
from tests.support.durable_fakes import DurableBench
from trio_stomp.base import CloseReason, ProtocolError, Quota
from trio_stomp.broker import BrokerPolicies, Client, Destination, Subscription
from trio_stomp.broker.names import Kind, check_sendable, classify, compile_pattern, is_reserved
from trio_stomp.broker.routing import Destinations

MAX_FORGOTTEN, MAX_LOOKED = 64, 512


def subscription(destination: str, number: int) -> Subscription:
    places = [(destination, compile_pattern(destination, "native"))]
    client = Client("s", OutboxFake())
    return Subscription(client, str(number), str(number), destination, places, number, "t", b"")


def add(destinations: Destinations, member: Subscription) -> None:
    for name, pattern in member.targets:
        destinations.add(member, name, pattern)


def remove(destinations: Destinations, member: Subscription) -> None:
    for name, pattern in member.targets:
        destinations.remove(member, name, pattern)


def table(max_destinations: int = 16) -> Destinations:
    policies = BrokerPolicies(max_destinations=max_destinations, max_destination_bytes=16)
    return Destinations(policies, counted_turns())


def numbers(destination: Destination) -> list[int]:
    return [each.number for each in destination.subscribers]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("/topic/a", Kind.TOPIC),
        ("bare", Kind.TOPIC),
        ("/queuefoo", Kind.TOPIC),
        ("/temp-queue", Kind.TOPIC),
        ("#", Kind.TOPIC),
        ("#work", Kind.WORK),
        ("#*", Kind.WORK),
        ("DIAG", Kind.DIAG),
        ("DIAG/0.1", Kind.DIAG),
        ("DIAGNOSE", Kind.DIAG),
        ("diag/x", Kind.TOPIC),
        ("/queue", Kind.QUEUE),
        ("/queue/a", Kind.QUEUE),
        ("/queue/*", Kind.QUEUE),
        ("/queue/monitor", Kind.TOPIC),
        ("/reply-queue/a", Kind.QUEUE),
        ("/reply-topic/a", Kind.TOPIC),
    ],
)
def test_the_first_characters_say_the_kind(name: str, kind: Kind):
    assert classify(name) is kind


@pytest.mark.parametrize(
    "name",
    ["DIAG/session", "DIAG/connections", "DIAG/event/", "DIAG/event/connect", "/queue/monitor"],
)
def test_the_brokers_own_topics_are_not_to_be_sent_to(name: str):
    assert is_reserved(name)
    with pytest.raises(ProtocolError, match="published by the broker only") as caught:
        check_sendable(name, "native")
    assert caught.value.code == "reserved-destination"
    assert name in caught.value.message


@pytest.mark.parametrize("name", ["DIAG", "DIAG/mine", "DIAG/sessions", "DIAG/event", "x/session"])
def test_other_diag_names_are_free(name: str):
    assert not is_reserved(name)
    check_sendable(name, "native")


@pytest.mark.parametrize("name", ["a*b", "*", "a.>", ">", "a/#", "#", "a.**"])
def test_no_message_goes_to_a_wildcard(name: str):
    with pytest.raises(
        ProtocolError, match=r"^Can not have wildcard in message destination!"
    ) as caught:
        check_sendable(name, "native")
    assert caught.value.code == "wildcard-in-send"
    assert f"destination:{name};" in caught.value.message


def test_the_seed_refuses_only_the_star():
    check_sendable("a.>", "seed")
    check_sendable("a/#", "seed")
    with pytest.raises(ProtocolError):
        check_sendable("a*b", "seed")


def test_a_destination_looks_up_its_subscribers_at_its_next_use():
    destinations = table()
    destination = destinations.open("a")
    assert numbers(destination) == []
    first, second = subscription("a", 1), subscription("a", 2)
    add(destinations, first)
    add(destinations, second)
    assert destination.subscribers == ()  # not looked up before it is used
    assert destinations.find_current("a") is destination
    assert numbers(destination) == [1, 2]
    remove(destinations, first)
    assert (
        destination.subscribers == destination.plain == destination.filtered == ()
    )  # no client is kept alive, either
    assert numbers(destinations.open("a")) == [2]
    assert destinations.find_current("b") is None


def test_wildcards_reach_routes_that_exist_already_and_leave_them_again():
    destinations = table()
    one, other = destinations.open("a.b"), destinations.open("c")
    wild = subscription("a.*", 1)
    add(destinations, wild)
    assert destinations.wildcards == 1
    assert one.subscribers == ()  # not looked up before it is used
    assert destinations.find_current("a.b") is one
    assert numbers(one) == [1]
    assert destinations.open("c") is other
    assert numbers(other) == []
    remove(destinations, wild)
    assert numbers(destinations.open("a.b")) == []
    assert destinations.wildcards == 0


def test_a_wildcard_that_came_between_two_uses_is_not_hidden_by_an_exact_one():
    destinations = table()
    destinations.open("a.b")
    add(destinations, subscription("a.*", 1))
    add(destinations, subscription("a.b", 2))
    assert numbers(destinations.open("a.b")) == [1, 2]


def test_subscribers_stand_in_order_of_subscription_whatever_their_kind():
    destinations = table()
    for number, destination in enumerate(["a.b", "a.*", "a.b", ">", "a.b"]):
        add(destinations, subscription(destination, number))
    assert numbers(destinations.open("a.b")) == [0, 1, 2, 3, 4]
    assert numbers(destinations.open("a.c")) == [1, 3]


def test_names_have_a_longest_length_in_bytes():
    destinations = table()
    destinations.open("é" * 8)
    for name in ("a" * 17, "é" * 8 + "a"):
        with pytest.raises(ProtocolError, match="more than 16 bytes") as caught:
            destinations.open(name)
        assert caught.value.code == "destination-too-long"
        assert caught.value.reason is CloseReason.LIMIT_EXCEEDED
        with pytest.raises(ProtocolError):
            destinations.check(name + "*", compile_pattern(name + "*", "native"))
    assert [destination.name for destination in destinations] == ["é" * 8]


def test_a_full_table_forgets_the_oldest_tenth_of_unsubscribed_destinations():
    destinations = table(20)
    add(destinations, subscription("0", 1))
    for number in range(1, 20):
        destinations.open(str(number))
    assert len(destinations) == 20
    destinations.open("new")
    assert [destination.name for destination in destinations] == [
        "0",
        *map(str, range(3, 20)),
        "new",
    ]


def test_a_large_full_table_forgets_a_few_for_a_new_name() -> None:
    destinations = table(5_000)
    for number in range(5_001):
        destinations.open(str(number))
    assert len(destinations) == 5_001 - MAX_FORGOTTEN
    assert destinations.find_current("0") is None


@pytest.mark.parametrize("of_one", [False, True])
def test_while_very_many_are_in_use_again_a_full_table_takes_some_names_more(of_one: bool) -> None:
    destinations = table(2_000)
    quota = Quota("alice") if of_one else None
    for number in range(2_000):
        destinations.ensure(str(number), quota)
    for number in range(2 * MAX_LOOKED):  # those idle longest
        add(destinations, subscription(str(number), number))
    for number in range(2):
        destinations.ensure(f"new {number}", quota)
        assert len(destinations) == 2_001 + number, "none of those checked so far is idle"
    destinations.ensure("new 2", quota)
    assert len(destinations) == 2_003 - MAX_FORGOTTEN
    assert destinations.find_current(str(2 * MAX_LOOKED)) is None


def test_a_table_full_of_subscriptions_takes_no_other_name():
    destinations = table()
    held = [subscription(str(number), number) for number in range(16)]
    for each in held:
        add(destinations, each)
    for refused in (lambda: destinations.open("new"), lambda: destinations.check("new", None)):
        with pytest.raises(ProtocolError, match="max_destinations") as caught:
            refused()
        assert caught.value.code == "too-many-destinations"
        assert caught.value.reason is CloseReason.LIMIT_EXCEEDED
    assert len(destinations) == 16
    add(destinations, subscription("new.*", 99))  # a wildcard takes no place among the names
    remove(destinations, held[3])
    assert numbers(destinations.open("new.x")) == [99]
    assert destinations.find_current("3") is None


def test_the_brokers_own_topics_are_never_refused_and_make_no_room():
    destinations = table()
    for number in range(16):
        add(destinations, subscription(str(number), number))
    assert destinations.own("DIAG/event/connect").subscribers == ()
    assert destinations.own("DIAG/event/connect").reserved
    for attempt in range(3):
        with pytest.raises(ProtocolError):
            destinations.open(f"new{attempt}")
        destinations.own("DIAG/event/connect")
    assert len(destinations) == 17


def test_a_table_that_holds_the_brokers_own_topics_still_makes_room():
    destinations = table()
    for number in range(16):
        destinations.open(str(number))
    for number in range(5):
        destinations.own(f"DIAG/event/{number}")
    destinations.open("new")
    assert len(destinations) <= 16
    assert destinations.find_current("new") is not None


def test_eviction_of_a_destination_keeps_its_parked_messages():
    core = Core(BrokerPolicies(ttl_ms=10_000, max_destinations=16))
    publisher = core.peer()
    publisher.sends("kept", "first")
    for number in range(40):
        publisher.sends(f"other{number}", "x")
    assert core.broker.destinations.find_current("kept") is None
    publisher.sends("kept", "second")
    late = core.reader("kept")
    publisher.sends("kept", "third")
    assert late.bodies() == ["first", "second", "third"]
    core.ends()


def test_a_route_observes_latency_from_the_first_message_on():
    destination = table().open("a")
    assert destination.ingress is destination.delivery is None
    destination.observe_delivery(0.5, 3)
    destination.observe_delivery(0.25, 1)
    destination.observe_ingress(1.0, 2)
    assert destination.delivery is not None
    assert destination.ingress is not None
    assert (destination.delivery.count, destination.delivery.sum_s, destination.delivery.max_s) == (
        4,
        1.75,
        0.5,
    )
    assert (destination.ingress.count, destination.ingress.sum_s) == (2, 2.0)


def test_totals_include_removed_destinations():
    destinations = table(16)
    for name, seconds, wait in (("a", 0.5, 1.0), ("b", 0.25, 2.0)):
        destination = destinations.open(name)
        destination.observe_delivery(seconds, 3)
        destination.observe_ingress(wait, 2)
        destination.enqueued, destination.delivered, destination.bytes_in, destination.bytes_out = (
            2,
            3,
            20,
            30,
        )
        destination.dropped, destination.expired = 4, 5
    for number in range(17):  # and the first of these, which has no state, is removed, too
        destinations.open(f"silent{number}")
    assert [destination.name for destination in destinations] == [
        f"silent{number}" for number in range(1, 17)
    ]
    past = destinations.past
    assert past.delivery is not None
    assert past.ingress is not None
    assert (past.delivery.count, past.delivery.sum_s, past.delivery.max_s) == (6, 2.25, 0.5)
    assert (past.ingress.count, past.ingress.sum_s, past.ingress.max_s) == (4, 6.0, 2.0)
    assert (past.enqueued, past.delivered, past.dropped, past.expired) == (4, 6, 8, 10)
    assert (past.bytes_in, past.bytes_out) == (40, 60)


# Candidates for removal from a full table.


def _take_all_idle(core: Core) -> None:
    """Take all idle destinations, so that later ones can be told from them."""
    while core.broker.destinations._idle.take() is not None:
        pass


def used_and_left(core: Core) -> None:
    reader = core.reader("/queue/a")
    _take_all_idle(core)
    reader.unsubscribes()


def consumed_and_left(core: Core) -> None:
    reader = core.peer()
    core.peer().sends("/queue/a", "x")
    reader.subscribes("/queue/a", ack="client")
    _take_all_idle(core)
    reader.acks(*reader.messages())
    reader.is_gone()


def expired(core: Core) -> None:
    core.peer().sends("/queue/a", "x", headers=(("ttl", "1000"),))
    _take_all_idle(core)
    core.passes(2)


def left_with_a_topic(core: Core) -> None:
    reader = core.reader("/queue/a", "q")
    _take_all_idle(core)
    reader.is_gone()


@pytest.mark.parametrize("act", [used_and_left, consumed_and_left, expired, left_with_a_topic])
def test_a_queue_that_is_idle_again_can_be_forgotten(act: Callable[[Core], None]) -> None:
    core = Core(BrokerPolicies(max_destinations=40))
    act(core)
    destination = core.broker.destinations.find_current("/queue/a")
    assert destination is not None
    assert destination.is_idle
    assert destination in core.broker.destinations._idle._all


def test_a_topic_whose_last_value_is_removed_can_be_forgotten() -> None:
    core = Core(BrokerPolicies(max_destinations=40))
    sender = core.peer()
    sender.sends("a", "x", headers=(("retain", "set"),))
    _take_all_idle(core)
    sender.sends("a", "", headers=(("retain", "remove"),))
    destination = core.broker.destinations.find_current("a")
    assert destination is not None
    assert destination.is_idle
    assert destination in core.broker.destinations._idle._all


def test_destination_in_use_again_is_skipped_and_not_checked_twice() -> None:
    core = Core(BrokerPolicies(max_destinations=20))
    destinations = core.broker.destinations
    holder, sender = core.peer(), core.peer()
    for number in range(8):
        sender.sends(f"/t/{number}")
        holder.subscribes(f"/t/{number}", f"{number}")
    for number in range(40):
        sender.sends(f"/new/{number}")
    assert all(destinations.find_current(f"/t/{number}") is not None for number in range(8))
    assert not any(destination.name.startswith("/t/") for destination in destinations._idle._all)
    holder.unsubscribes("3")
    assert destinations.find_current("/t/3") in destinations._idle._all
    for number in range(40, 80):
        sender.sends(f"/new/{number}")
    assert destinations.find_current("/t/3") is None
    core.ends()


def test_a_removed_destination_is_never_a_candidate_for_removal(core: Core) -> None:
    reader = core.reader("a.*", ack="client")
    reader.unsubscribes()
    quiet = core.broker.destinations._idle._all
    assert all(
        core.broker.destinations.find_current(destination.name) is destination
        for destination in quiet
    )
    for number in range(100):
        core.broker.destinations.note_idle(Destination(f"{number}", Kind.TOPIC))
    assert len(quiet) <= len(core.broker.destinations)


@pytest.mark.parametrize("is_stored", [False, True])
def test_every_idle_destination_is_a_candidate_for_removal(is_stored: bool) -> None:
    """Whatever was done before; or a full table would refuse names though it has idle ones."""
    random = Random(7)
    core = DurableBench() if is_stored else Bench()
    actors = [core.actor() for _ in range(4)]
    names = ["/queue/a", "/queue/b", "/topic/a", "#w"]
    pairs = [("persistent", "true"), ("ttl", "1000"), ("retain", "set"), ("retain", "remove")]
    found: list[Pairs] = [(), *((pair,) for pair in pairs)]
    kept: dict[str, list[Received]] = {}
    for step in range(3000):
        place = random.randrange(4)
        actor, name = actors[place], random.choice(names)
        match random.randrange(8):
            case 0 | 1:
                actor.does(run_of(name, headers=random.choice(found)))
            case 2 | 3 if name not in actor.client.subscriptions:
                actor.subscribes(name, name, ack=random.choice(["auto", "client-individual"]))
            case 4 if name in actor.client.subscriptions:
                actor.unsubscribes(name)
            case 5:
                core.passes(random.random())
            case 6:
                mine = actor.client.subscriptions
                got = [
                    each
                    for each in kept.pop(actor.client.session_id, [])
                    if each.get("subscription") in mine and each.get("ack")
                ]
                alive = [each for each in got if is_unacked(actor, each)]
                if alive:
                    actor.acks(*alive)
            case 7 if random.random() < 0.1:
                actor.is_gone()
                actors[place] = core.actor()
        for each in actors:
            kept.setdefault(each.client.session_id, []).extend(
                frame for frame in each.frames() if frame.command == "MESSAGE"
            )
        destinations = core.broker.destinations
        if step % 7 == 0:
            # As if all had been looked at: those in use are taken out.
            for destination in [
                destination for destination in destinations._idle._all if not destination.is_idle
            ]:
                destinations._idle.discard(destination)
        assert [
            destination.name
            for destination in destinations
            if destination.is_idle and destination not in destinations._idle._all
        ] == []


def is_unacked(actor: Actor, frame: Received) -> bool:
    consumer = actor.client.subscriptions[frame.get("subscription") or ""].consumer
    number = int((frame.get("ack") or "").rpartition("-")[2])
    return consumer is not None and number in consumer.unacked
