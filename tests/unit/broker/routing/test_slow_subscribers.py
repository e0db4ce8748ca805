"""A large message for slow subscribers that drop their oldest messages: they do so in pieces."""

from attrs import define, field

from tests.support.core import Actor, OutboxFake
from tests.support.durable_fakes import DurableBench
from tests.support.share_fakes import MOST, Clocked, looks
from trio_stomp.broker import BrokerPolicies, DestinationPolicy
from trio_stomp.broker.queues import Queue

DROPPED_BYTES = 256 * 1024

MANY = 20_000
DROPS = BrokerPolicies(slow_consumer="drop-oldest", max_backlog_bytes=MANY)
TOPIC, WORK = "/topic/t", "#work"
LARGE = "y" * (MANY - 100)
FEW = {"prefetch-count": "1"}


@define(eq=False, repr=False)
class Recording(OutboxFake):
    """An outbox that records the bytes to drop in each step."""

    steps: list[int] = field(factory=list)

    def drop_oldest(self, size: int) -> int:
        """The port's."""
        self.steps.append(size)
        return super().drop_oldest(size)


def _turn(desk: Clocked | DurableBench) -> int:
    """End a turn, and return the pieces of work that were done in it."""
    before = looks(desk)
    desk.turn()
    return looks(desk) - before - 1


def _settles(desk: Clocked | DurableBench) -> tuple[int, int]:
    """Return the pieces of the longest turn, and how many turns there were."""
    longest = turns = 0
    while turns == 0 or desk.broker.has_more:
        longest = max(longest, _turn(desk))
        turns += 1
    return longest, turns


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
