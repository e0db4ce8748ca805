"""Destinations in use: who gets what, generations, and the bound on how many are remembered."""

from collections.abc import Callable
from random import Random

import pytest

from tests._core_fakes import Core, OutboxFake, Pairs, Received, run_of
from tests._durable_fakes import DurableBench
from tests._queue_fakes import Actor, Bench
from trio_stomp._errors import CloseReason, ProtocolError
from trio_stomp.broker import BrokerPolicies, Client, Route, Subscription
from trio_stomp.broker._destination import Kind, check_sendable, classify, is_reserved
from trio_stomp.broker._quiet import Quiet
from trio_stomp.broker._route import RouteTable
from trio_stomp.broker._wildcards import compile_pattern


def subscription(destination: str, number: int) -> Subscription:
    places = [(destination, compile_pattern(destination, "native"))]
    client = Client("s", OutboxFake())
    return Subscription(client, str(number), str(number), destination, places, number, "t", b"")


def add(routes: RouteTable, member: Subscription) -> None:
    for name, pattern in member.places:
        routes.add(member, name, pattern)


def remove(routes: RouteTable, member: Subscription) -> None:
    for name, pattern in member.places:
        routes.remove(member, name, pattern)


def table(max_destinations: int = 16) -> RouteTable:
    return RouteTable(BrokerPolicies(max_destinations=max_destinations, max_destination_bytes=16))


def numbers(route: Route) -> list[int]:
    return [each.number for each in route.subscribers]


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
    with pytest.raises(ProtocolError, match="published by the broker alone") as caught:
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


def test_a_route_knows_its_exact_subscribers_when_it_is_next_used():
    routes = table()
    route = routes.open("a")
    assert numbers(route) == []
    first, second = subscription("a", 1), subscription("a", 2)
    add(routes, first)
    add(routes, second)
    assert route.subscribers == ()  # not looked up before it is used
    assert routes.known("a") is route
    assert numbers(route) == [1, 2]
    remove(routes, first)
    assert route.subscribers == route.direct == route.careful == ()  # nor is anybody kept alive
    assert numbers(routes.open("a")) == [2]
    assert routes.known("b") is None


def test_wildcards_reach_routes_that_exist_already_and_leave_them_again():
    routes = table()
    one, other = routes.open("a.b"), routes.open("c")
    wild = subscription("a.*", 1)
    add(routes, wild)
    assert routes.wildcards == 1
    assert one.subscribers == ()  # not looked up before it is used
    assert routes.known("a.b") is one
    assert numbers(one) == [1]
    assert routes.open("c") is other
    assert numbers(other) == []
    remove(routes, wild)
    assert numbers(routes.open("a.b")) == []
    assert routes.wildcards == 0


def test_a_wildcard_that_came_between_two_uses_is_not_hidden_by_an_exact_one():
    routes = table()
    routes.open("a.b")
    add(routes, subscription("a.*", 1))
    add(routes, subscription("a.b", 2))
    assert numbers(routes.open("a.b")) == [1, 2]


def test_subscribers_stand_in_order_of_subscription_whatever_their_kind():
    routes = table()
    for number, destination in enumerate(["a.b", "a.*", "a.b", ">", "a.b"]):
        add(routes, subscription(destination, number))
    assert numbers(routes.open("a.b")) == [0, 1, 2, 3, 4]
    assert numbers(routes.open("a.c")) == [1, 3]


def test_names_have_a_longest_length_in_bytes():
    routes = table()
    routes.open("é" * 8)
    for name in ("a" * 17, "é" * 8 + "a"):
        with pytest.raises(ProtocolError, match="more than 16 bytes") as caught:
            routes.open(name)
        assert caught.value.code == "destination-too-long"
        assert caught.value.reason is CloseReason.LIMIT_EXCEEDED
        with pytest.raises(ProtocolError):
            routes.check(name + "*", compile_pattern(name + "*", "native"))
    assert [route.name for route in routes] == ["é" * 8]


def test_a_full_table_forgets_the_oldest_tenth_of_what_nobody_subscribes_to():
    routes = table(20)
    add(routes, subscription("0", 1))
    for number in range(1, 20):
        routes.open(str(number))
    assert len(routes) == 20
    routes.open("new")
    assert [route.name for route in routes] == ["0", *map(str, range(3, 20)), "new"]


def test_a_table_full_of_subscriptions_takes_no_other_name():
    routes = table()
    held = [subscription(str(number), number) for number in range(16)]
    for each in held:
        add(routes, each)
    for refused in (lambda: routes.open("new"), lambda: routes.check("new", None)):
        with pytest.raises(ProtocolError, match="max_destinations") as caught:
            refused()
        assert caught.value.code == "too-many-destinations"
        assert caught.value.reason is CloseReason.LIMIT_EXCEEDED
    assert len(routes) == 16
    add(routes, subscription("new.*", 99))  # a wildcard takes no place among the names
    remove(routes, held[3])
    assert numbers(routes.open("new.x")) == [99]
    assert routes.known("3") is None


def test_the_brokers_own_topics_are_never_refused_and_make_no_room():
    routes = table()
    for number in range(16):
        add(routes, subscription(str(number), number))
    assert routes.own("DIAG/event/connect").subscribers == ()
    assert routes.own("DIAG/event/connect").reserved
    for attempt in range(3):
        with pytest.raises(ProtocolError):
            routes.open(f"new{attempt}")
        routes.own("DIAG/event/connect")
    assert len(routes) == 17


def test_a_table_that_holds_the_brokers_own_topics_still_makes_room():
    routes = table()
    for number in range(16):
        routes.open(str(number))
    for number in range(5):
        routes.own(f"DIAG/event/{number}")
    routes.open("new")
    assert len(routes) <= 16
    assert routes.known("new") is not None


def test_what_an_evicted_route_had_parked_is_not_lost_with_it():
    core = Core(BrokerPolicies(ttl_ms=10_000, max_destinations=16))
    publisher = core.peer()
    publisher.sends("kept", "first")
    for number in range(40):
        publisher.sends(f"other{number}", "x")
    assert core.broker.routes.known("kept") is None
    publisher.sends("kept", "second")
    late = core.peer()
    late.subscribes("kept")
    publisher.sends("kept", "third")
    assert late.bodies() == ["first", "second", "third"]
    core.ends()


def test_a_route_observes_latency_from_the_first_message_on():
    route = table().open("a")
    assert route.ingress is route.delivery is None
    route.observe_delivery(0.5, 3)
    route.observe_delivery(0.25, 1)
    route.observe_ingress(1.0, 2)
    assert route.delivery is not None
    assert route.ingress is not None
    assert (route.delivery.count, route.delivery.sum_s, route.delivery.max_s) == (4, 1.75, 0.5)
    assert (route.ingress.count, route.ingress.sum_s) == (2, 2.0)


def test_what_a_forgotten_destination_counted_stays_in_the_totals():
    routes = table(16)
    for name, seconds, wait in (("a", 0.5, 1.0), ("b", 0.25, 2.0)):
        route = routes.open(name)
        route.observe_delivery(seconds, 3)
        route.observe_ingress(wait, 2)
        route.enqueued, route.delivered, route.bytes_in, route.bytes_out = 2, 3, 20, 30
        route.dropped, route.expired = 4, 5
    for number in range(17):  # and the first of these is forgotten, too, of which nothing is known
        routes.open(f"silent{number}")
    assert [route.name for route in routes] == [f"silent{number}" for number in range(1, 17)]
    past = routes.past
    assert past.delivery is not None
    assert past.ingress is not None
    assert (past.delivery.count, past.delivery.sum_s, past.delivery.max_s) == (6, 2.25, 0.5)
    assert (past.ingress.count, past.ingress.sum_s, past.ingress.max_s) == (4, 6.0, 2.0)
    assert (past.enqueued, past.delivered, past.dropped, past.expired) == (4, 6, 8, 10)
    assert (past.bytes_in, past.bytes_out) == (40, 60)


# Which routes are looked at to make room.


def used_and_left(core: Core) -> None:
    reader = core.peer()
    reader.subscribes("/queue/a")
    core.broker.routes._quiet = Quiet()
    reader.unsubscribes()


def consumed_and_left(core: Core) -> None:
    reader = core.peer()
    core.peer().sends("/queue/a", "x")
    reader.subscribes("/queue/a", ack="client")
    core.broker.routes._quiet = Quiet()
    reader.acks(*reader.messages())
    reader.is_gone()


def expired(core: Core) -> None:
    core.peer().sends("/queue/a", "x", headers=(("ttl", "1000"),))
    core.broker.routes._quiet = Quiet()
    core.passes(2)


def left_with_a_topic(core: Core) -> None:
    reader = core.peer()
    reader.subscribes("/queue/a", "q")
    core.broker.routes._quiet = Quiet()
    reader.is_gone()


@pytest.mark.parametrize("act", [used_and_left, consumed_and_left, expired, left_with_a_topic])
def test_a_queue_that_is_idle_again_can_be_forgotten(act: Callable[[Core], None]) -> None:
    core = Core(BrokerPolicies(max_destinations=40))
    act(core)
    route = core.broker.routes.known("/queue/a")
    assert route is not None
    assert route.is_idle
    assert route in core.broker.routes._quiet._all


def test_a_topic_whose_last_value_is_removed_can_be_forgotten() -> None:
    core = Core(BrokerPolicies(max_destinations=40))
    sender = core.peer()
    sender.sends("a", "x", headers=(("retain", "set"),))
    core.broker.routes._quiet = Quiet()
    sender.sends("a", "", headers=(("retain", "remove"),))
    route = core.broker.routes.known("a")
    assert route is not None
    assert route.is_idle
    assert route in core.broker.routes._quiet._all


def test_what_is_in_use_again_is_passed_over_and_not_looked_at_twice() -> None:
    core = Core(BrokerPolicies(max_destinations=20))
    routes = core.broker.routes
    holder, sender = core.peer(), core.peer()
    for number in range(8):
        sender.sends(f"/t/{number}")
        holder.subscribes(f"/t/{number}", f"{number}")
    for number in range(40):
        sender.sends(f"/new/{number}")
    assert all(routes.known(f"/t/{number}") is not None for number in range(8))
    assert not any(route.name.startswith("/t/") for route in routes._quiet._all)
    holder.unsubscribes("3")
    assert routes.known("/t/3") in routes._quiet._all
    for number in range(40, 80):
        sender.sends(f"/new/{number}")
    assert routes.known("/t/3") is None
    core.ends()


def test_a_route_that_is_in_no_table_is_never_entered_to_be_looked_at() -> None:
    core = Core()
    reader = core.peer()
    reader.subscribes("a.*", ack="client")
    reader.unsubscribes()
    quiet = core.broker.routes._quiet._all
    assert all(core.broker.routes.known(route.name) is route for route in quiet)
    for number in range(100):
        core.broker.routes.note_quiet(Route(f"{number}", Kind.TOPIC))
    assert len(quiet) <= len(core.broker.routes)


@pytest.mark.parametrize("is_stored", [False, True])
def test_every_idle_route_is_among_those_to_be_looked_at(is_stored: bool) -> None:
    """Whatever was done before; or a full table would refuse names though it has idle ones."""
    random = Random(7)
    core = DurableBench() if is_stored else Bench()
    actors = [core.actor() for _ in range(4)]
    names = ["/queue/a", "/queue/b", "/topic/a", "#w"]
    said = [("persistent", "true"), ("ttl", "1000"), ("retain", "set"), ("retain", "remove")]
    told: list[Pairs] = [(), *((pair,) for pair in said)]
    kept: dict[str, list[Received]] = {}
    for step in range(3000):
        place = random.randrange(4)
        actor, name = actors[place], random.choice(names)
        match random.randrange(8):
            case 0 | 1:
                actor.does(run_of(name, headers=random.choice(told)))
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
        routes = core.broker.routes
        if step % 7 == 0:
            # As if all had been looked at: those in use are taken out.
            for route in [route for route in routes._quiet._all if not route.is_idle]:
                routes._quiet.discard(route)
        assert [
            route.name for route in routes if route.is_idle and route not in routes._quiet._all
        ] == []


def is_unacked(actor: Actor, frame: Received) -> bool:
    consumer = actor.client.subscriptions[frame.get("subscription") or ""].consumer
    number = int((frame.get("ack") or "").rpartition("-")[2])
    return consumer is not None and number in consumer.unacked
