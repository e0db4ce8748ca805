"""A refused frame leaves no destination."""

import pytest

from tests.support.core import Actor, Bench, pairs, run_of
from trio_stomp.broker import BrokerPolicies, DestinationPolicy

MAX_FORGOTTEN = 64

SUBSCRIBES: list[tuple[str, dict[str, str]]] = [
    ("/topic/a", {"x_stream_offset": "first"}),
    ("/topic/a", {"x_stream_offset": "soon"}),
    ("/stream/topic/a", {}),
    ("/topic/a", {"selector": "type = "}),
    ("/queue/a", {"selector": "type = "}),
    ("/topic/a", {"prefetch_count": "many"}),
    ("/queue/a,/topic/b", {}),
    ("/topic/a,/topic/b", {"x_stream_offset": "first"}),
    ("/reply-queue/1.a", {}),
    ("/topic/" + "a" * 5000, {}),
]
SENDS: list[tuple[str, dict[str, str]]] = [
    ("/stream/topic/a", {}),
    ("/stream/topic/a", {"reply_to": "/queue/answers"}),
    ("/queue/full", {}),
    ("/queue/a,/queue/full", {}),
    ("/queue/a", {"AMQ_SCHEDULED_DELAY": "soon"}),
    ("/topic/a/*", {}),
]


def bench() -> tuple[Bench, Actor, list[str]]:
    """Return a bench with a destination in use, a client, and the names of its destinations."""
    full = DestinationPolicy(overflow="reject", max_messages=1)
    made = Bench(
        book={"/queue/full": full}, policies=BrokerPolicies(max_subscriptions_per_connection=2)
    )
    sender, actor = made.actor(), made.actor()
    sender.sends("/queue/full", "x")
    actor.subscribes("/topic/used", "used")
    return made, actor, names(made)


def names(made: Bench) -> list[str]:
    return [
        destination.name for destination in made.broker.destinations if not destination.reserved
    ]


def of_the_broker(made: Bench) -> int:
    return sum(destination.cost for destination in made.broker.destinations if destination.reserved)


@pytest.mark.parametrize(("destination", "headers"), SUBSCRIBES)
def test_a_refused_subscribe_leaves_no_destination(
    destination: str, headers: dict[str, str]
) -> None:
    made, actor, before = bench()
    actor.subscribes(destination, "a", **headers)
    assert actor.client.is_refused
    assert names(made) == before


@pytest.mark.parametrize(("destination", "headers"), SENDS)
def test_a_refused_send_leaves_no_destination(destination: str, headers: dict[str, str]) -> None:
    made, actor, before = bench()
    actor.does(run_of(destination, ("x",), pairs(headers)))
    assert actor.client.is_refused
    assert names(made) == before


@pytest.mark.parametrize("id", ["used", "third"])
def test_a_subscribe_that_is_one_too_many_leaves_no_destination(id: str) -> None:
    made, actor, _ = bench()
    actor.subscribes("/topic/second", "second")
    before = names(made)
    actor.subscribes("/topic/a", id)
    assert actor.client.is_refused
    assert names(made) == before


def test_send_refused_for_memory_creates_no_destination() -> None:
    made, _, _ = bench()
    actor, memory = made.actor(), made.memory
    made.broker.destinations.make_room(memory.tables_room + 1, None)  # none is idle now
    before = names(made)
    cost = bench()[0].broker.destinations.open("/topic/a").cost
    memory.force_table(memory.tables_room - cost)
    used = memory.tables_bytes - of_the_broker(made)
    actor.subscribes("/topic/a", "a")
    assert actor.client.is_refused
    assert names(made) == before
    assert memory.tables_bytes - of_the_broker(made) == used


def test_existing_destination_stays_after_a_refusal() -> None:
    made, actor, _ = bench()
    sender = made.actor()
    sender.sends("/topic/silent", "nobody heard it")
    before = names(made)
    actor.subscribes("/topic/silent", "a", x_stream_offset="first")
    assert actor.client.is_refused
    assert names(made) == before


def test_no_more_is_looked_at_than_a_frame_can_name() -> None:
    made, actor, before = bench()
    for number in range(2 * MAX_FORGOTTEN):
        made.broker.destinations.open(f"/topic/{number}")
    actor.subscribes("/queue/a", "a", selector="type = ")
    left = len(names(made)) - len(before)
    assert MAX_FORGOTTEN <= left <= MAX_FORGOTTEN + 2, "the broker's own topics count"
