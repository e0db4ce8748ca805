"""The figures of a broker, as diagnostics and pages read them."""

from typing import Any

from attrs import asdict

from tests.support.core import Bench
from trio_stomp.broker import BrokerPolicies, DestinationPolicy, Subscription


class Unlisted(dict):  # type: ignore[type-arg]
    """A collection with a length that cannot be iterated."""

    def __iter__(self) -> Any:
        raise AssertionError

    keys = values = items = __iter__


def test_nothing_is_gone_through_for_the_figures_but_for_lists() -> None:
    bench = Bench()
    bench.actor().sends("/topic/a", "1", "2")
    bench.actor().subscribes("/queue/b")
    broker = bench.broker
    broker.destinations._destinations = Unlisted(broker.destinations._destinations)
    broker.clients = Unlisted(broker.clients)
    statistics = broker.statistics()
    assert len(statistics.clients) == 2 < len(statistics.destinations)
    assert (statistics.subscriptions, statistics.messages.received) == (1, 2)


def test_figures_are_fixed_and_lists_are_live() -> None:
    bench = Bench(policies=BrokerPolicies(ttl_ms=60_000))
    actor = bench.actor()
    actor.sends("/topic/a", "1")
    before = bench.broker.statistics()
    actor.sends("/topic/b", "2", "3")
    bench.turn()
    assert asdict(before.stale)["parked"] == before.messages.received == 1
    assert [each.name for each in before.destinations][-2:] == ["/topic/a", "/topic/b"]
    assert [parked.size for parked in before.parked()] == [1, 2]
    assert (before.parked_at("/topic/b"), before.parked_at("/topic/c")) == (2, 0)
    assert before.quotas() == []
    assert asdict(bench.broker.statistics().stale) | {"bytes": 0, "capacity": 0} == {
        "destinations": 2,
        "size": 3,
        "bytes": 0,
        "capacity": 0,
        "parked": 3,
        "revived": 0,
        "expired": 0,
        "dropped": 0,
    }


def test_messages_are_counted_where_they_ended() -> None:
    bench = Bench(policies=BrokerPolicies(max_stale_queue_size=1, ttl_ms=60_000))
    sender, reader = bench.actor(), bench.actor()
    reader.subscribes("/queue/q", ack="client-individual")
    sender.sends("/queue/q", "1", "2")
    bench.turn()
    one, other = reader.messages()
    reader.acks(one)
    reader.nacks(other)
    sender.sends("/topic/t", "1", "2", "3")
    bench.turn()
    messages = bench.broker.statistics().messages
    assert (messages.received, messages.acked, messages.nacked) == (5, 1, 1)
    silent = {name: count for name, count in messages.silent_drops.items() if count}
    assert silent == {"stale-queue-full": 2}
    assert messages.drops.items() >= messages.silent_drops.items()
    assert messages.redelivered == 1
    assert set(messages.dead_letters.values()) == {0}
    assert "expired" not in messages.drops


def test_figures_of_a_destination_include_its_queue_and_all_its_subscribers(
    bench: Bench,
) -> None:
    sender, reader = bench.actor(), bench.actor()
    reader.subscribes("/queue/q", ack="client-individual", prefetch_count="2")
    sender.sends("/queue/q", *"abcd")
    bench.turn()
    reader.acks(reader.messages()[0])
    statistics = bench.broker.statistics()
    queue, topic = (bench.broker.destinations.open(name) for name in ("/queue/q", "/topic/t"))
    assert statistics.figures(queue) == (1, 2, 1, 1, 0)
    reader.subscribes("/topic/*", id="wild")
    assert statistics.figures(topic) == (1, 0, 0, 0, 0)


def test_events_that_are_kept_need_no_subscriber(bench: Bench) -> None:
    bench.broker.record_drop("test", 1)
    assert bench.broker.take_events() == []
    stream = bench.broker.keep_events(1_000_000, 60.5, 0)
    assert (stream.name, stream.max_bytes, stream.max_age_ms) == ("/stream/DIAG", 1_000_000, 60_500)
    bench.broker.record_drop("test", 1)
    assert [event.reason for event in bench.broker.take_events()] == ["test"]


def test_drop_is_reported_once(bench: Bench) -> None:
    bench.reader("DIAG/event/drop")
    bench.broker.take_events()
    bench.broker.record_drop("test", 3, "/topic/a")
    (event,) = bench.broker.take_events()
    assert (event.name, event.destination, event.reason, event.detail) == (
        *("drop", "/topic/a"),
        *("test", "3"),
    )
    assert bench.broker.take_events() == []


def test_the_place_of_most_losses_is_known_for_each_reason_since_a_time(bench: Bench) -> None:
    history = bench.broker.event_history
    for now, reason, place, count in (
        (1.0, "no-subscriber", "/topic/old", 99),
        (2.0, "no-subscriber", "/topic/a", 2),
        (2.0, "no-subscriber", "/topic/b", 3),
        (3.0, "no-subscriber", "/topic/a", 2),
        (3.0, "queue-full", "/queue/q", 1),
    ):
        history.now = now
        history.lost(reason, place, count=count)
    assert bench.broker.losing(2.0) == {"no-subscriber": "/topic/a", "queue-full": "/queue/q"}
    assert bench.broker.losing(1.0)["no-subscriber"] == "/topic/old"
    assert bench.broker.losing(4.0) == {}


def test_dead_letter_queues_are_named_by_policies_or_by_the_default() -> None:
    bench = Bench(book={"/queue/a": DestinationPolicy(dead_letter="/queue/dead")})
    figures = bench.broker.statistics()
    names = ("/queue/dead", "/queue/DLQ.b", "/queue/a", "")
    assert [figures.takes_dead_letters(name) for name in names] == [True, True, False, False]


def test_some_subscribers_of_a_destination_are_found_by_position() -> None:
    bench = Bench()
    for number in range(3):
        bench.reader("/topic/a" if number else "/topic/*")
    figures = bench.broker.statistics()
    topic = figures.find("/topic/a")
    assert topic is not None
    found = [figures.some_subscribers(topic, start, start + 2) for start in (0, 2, 3)]
    assert [len(some) for some in found] == [2, 1, 0]
    assert len({each for some in found for each in some}) == 3


def test_the_subscribers_of_a_queue_are_its_consumers(bench: Bench) -> None:
    acknowledging = bench.reader("/topic/a", ack="client")
    bench.reader("/queue/q")
    figures = bench.broker.statistics()
    for name in ("/topic/a", "/queue/q"):
        found = figures.find(name)
        assert found is not None
        (one,) = figures.some_subscribers(found, 0, 9)
        assert isinstance(one, Subscription)
        assert (one.client is acknowledging.client) == (name == "/topic/a")
