"""A large message for slow subscribers that drop their oldest messages: they do so in pieces."""

from collections.abc import Callable

import pytest
from attrs import define, evolve, field

from tests.support.core import Actor, OutboxFake, Peer, run_of
from tests.support.share_fakes import MOST, STEP_S, Clocked, ClockedDurable
from trio_stomp.broker import BrokerPolicies, DestinationPolicy
from trio_stomp.broker.queues import Queue
from trio_stomp.broker.routing._fanout import DROPPED_BYTES

MANY = 20_000
DROPS = BrokerPolicies(slow_consumer="drop-oldest", max_backlog_bytes=MANY)
TOPIC, WORK = "/topic/t", "#work"
LARGEST = 12_000_000
LARGE = "y" * (MANY - 100)
FEW = {"prefetch-count": "1"}
DURABLE = {"durable": "true", "activemq.subscriptionName": "d"}

Send = Callable[[Actor, str, str], None]


@define(eq=False, repr=False)
class Recording(OutboxFake):
    """An outbox that records the bytes to drop in each step."""

    steps: list[int] = field(factory=list)

    def drop_oldest(self, size: int) -> int:
        """The port's."""
        self.steps.append(size)
        return super().drop_oldest(size)


def _send(sender: Actor, destination: str, body: str) -> None:
    sender.sends(destination, body, persistent="true")


def _commit(sender: Actor, destination: str, body: str) -> None:
    sender.commits(run_of(destination, [body], (("persistent", "true"),)))


@pytest.mark.parametrize("send", [_send, _commit])
@pytest.mark.parametrize(
    ("destination", "headers"), [(TOPIC, FEW), (WORK, FEW), (TOPIC, FEW | DURABLE)]
)
def test_a_backlog_drops_its_oldest_in_pieces(
    send: Send, destination: str, headers: dict[str, str]
) -> None:
    kind = ClockedDurable if len(headers) > 1 else Clocked
    policy = DestinationPolicy(max_bytes=MANY, slow_consumer="drop-oldest")
    desk = kind(DROPS, book={TOPIC: policy})
    sender, other, reader = desk.actor(), desk.actor(), desk.actor()
    reader.subscribes(destination, ack="client", **headers)
    for _ in range(MANY // 100):
        sender.sends(destination, *["x"] * 100, persistent="true")
        _settles(desk)
    _settles(desk)
    queue = _queue(reader)
    waiting = queue.waiting.count
    before = queue.destination.dropped
    send(sender, destination, LARGE)
    other.sends("/queue/b", "beside it")
    _turn(desk)
    assert desk.waiting("/queue/b") == ["beside it"]
    longest, turns = _settles(desk)
    assert longest <= MOST * (1 if kind is Clocked else 3)  # a turn, and two of the store's answers
    assert turns > 2
    assert queue.waiting.count < 200 < waiting
    assert queue.size >= len(LARGE)
    assert queue.destination.dropped > before


def _turn(desk: Clocked | ClockedDurable) -> int:
    """End a turn, and return the pieces of work that were done in it."""
    before = desk.now
    desk.turn()
    return round((desk.now - before) / STEP_S)


def _settles(desk: Clocked | ClockedDurable) -> tuple[int, int]:
    """Return the pieces of the longest turn, and how many turns there were."""
    longest = turns = 0
    while turns == 0 or desk.broker.has_more:
        longest = max(longest, _turn(desk))
        turns += 1
    return longest, turns


@pytest.mark.parametrize("send", [_send, _commit])
@pytest.mark.parametrize(
    ("destination", "headers"),
    [(TOPIC, {}), (TOPIC, {"selector": "1 = 1"}), (WORK, {}), (WORK, {"selector": "1 = 1"})],
)
def test_an_outbox_drops_its_oldest_in_pieces(
    send: Send, destination: str, headers: dict[str, str]
) -> None:
    desk, sender, reader, steps = _slow_reader(destination, headers)
    send(sender, destination, "y" * LARGEST)
    longest, turns = _settles(desk)
    assert longest <= MOST
    assert turns > 1
    assert max(steps) <= DROPPED_BYTES
    assert [*map(len, reader.bodies())][-1] == LARGEST
    assert len(reader.bodies()) < 1_000


def test_unsubscribe_while_the_outbox_drops_messages_ends_deliveries() -> None:
    desk, sender, reader, _ = _slow_reader(TOPIC, {})
    sender.sends(TOPIC, "y" * LARGEST)
    desk.turn()
    reader.unsubscribes(receipt=b"gone")
    _settles(desk)
    assert reader.frames()[-1].command == "RECEIPT"
    assert LARGEST not in map(len, reader.bodies())


def _queue(reader: Actor) -> Queue:
    (queue,) = reader.consumer().queues
    assert isinstance(queue, Queue)
    return queue


def _backlog(desk: Clocked) -> tuple[Actor, Queue]:
    """Return a sender, and the full queue of a subscriber with acknowledgements."""
    sender, reader = desk.actor(), desk.actor()
    reader.subscribes(TOPIC, ack="client", **FEW)
    for _ in range(MANY // 100):
        sender.sends(TOPIC, *["x"] * 100)
        _settles(desk)
    return sender, _queue(reader)


def test_message_that_never_fits_into_a_backlog_drops_no_others() -> None:
    desk = Clocked(DROPS)
    sender, queue = _backlog(desk)
    sender.sends(TOPIC, "y" * (MANY + 1))
    _settles(desk)
    assert (queue.message_count, queue.destination.dropped) == (MANY, 1)


def test_last_of_several_messages_that_do_not_fit_stays() -> None:
    desk = Clocked(DROPS)
    sender, queue = _backlog(desk)
    sender.sends(TOPIC, LARGE, LARGE)
    longest, _ = _settles(desk)
    assert longest <= MOST
    assert (queue.waiting.count, queue.size) == (1, len(LARGE) + 1)


def test_a_large_message_follows_the_backlog_of_a_subscriber() -> None:
    policy = DestinationPolicy(ttl_ms=60_000, slow_consumer="drop-oldest")
    desk = Clocked(book={"/topic/>": policy})
    sender, reader = desk.actor(), desk.actor()
    for number in range(1_000):
        sender.sends(f"/topic/{number}", "parked")
    _settles(desk)
    reader.subscribes("/topic/>")
    desk.turn()
    sender.sends(TOPIC, "y" * (DROPPED_BYTES + 1))
    _settles(desk)
    assert reader.bodies() == ["parked"] * 1_000 + ["y" * (DROPPED_BYTES + 1)]


def test_a_large_message_that_no_member_of_a_work_queue_wants_is_parked() -> None:
    policy = DestinationPolicy(ttl_ms=60_000, slow_consumer="drop-oldest")
    desk = Clocked(DROPS, book={WORK: policy})
    sender, reader = desk.actor(), desk.actor()
    reader.subscribes(WORK, selector="n = 1")
    sender.sends(WORK, LARGE, receipts=[(1, b"r")])
    _settles(desk)
    assert desk.broker.stale.depth(WORK) == 1
    assert [frame.command for frame in sender.writes()] == ["RECEIPT"]


def _slow_reader(
    destination: str, headers: dict[str, str]
) -> tuple[Clocked, Actor, Peer, list[int]]:
    """Return a broker, a sender, a subscriber with a full outbox, and the counts of its drops."""
    # Also without a history, which makes no difference.
    policies = evolve(DROPS, explain_events=0 if headers else DROPS.explain_events)
    desk, outbox = Clocked(policies), Recording(capacity=13_000)
    sender, reader = desk.actor(), Peer(desk, desk.client(outbox), outbox)
    desk.peers.append(reader)
    reader.opens()
    reader.subscribes(destination, headers=tuple(headers.items()))
    for _ in range(130):
        sender.sends(destination, *["x" * 1_000] * 100)
        _settles(desk)
    return desk, sender, reader, outbox.steps
