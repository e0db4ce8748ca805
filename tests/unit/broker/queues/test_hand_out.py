"""Messages handed out many at a time go where counting them out one by one would send them."""

from hypothesis import given
from hypothesis import strategies as st

from tests.support.core import Bench, bench, numbered
from trio_stomp.broker.queues import Consumer, Message, Queue
from trio_stomp.broker.queues._hand_out import hand_out

Q = "/queue/q"

credits = st.tuples(st.sampled_from(["auto", "client"]), st.integers(1, 9), st.integers(1, 3000))
runs = st.tuples(
    st.lists(st.sampled_from([0, 1, 100, 700]), min_size=1, max_size=12),
    st.sampled_from(["", "", "", "g1", "g2"]),
    st.sampled_from([0, 0, 0, 5]),
)


def _filled(
    consumers: list[tuple[str, int, int]],
    sent: list[tuple[list[int], str, int]],
) -> tuple[Bench, Queue, list[Consumer]]:
    """Return a queue with messages, and consumers without deliveries."""
    desk = bench()
    sender = desk.actor()
    readers = [desk.actor() for _ in consumers]
    for reader, (ack, count, size) in zip(readers, consumers, strict=True):
        reader.subscribes(Q, ack=ack)
        consumer = reader.consumer()
        consumer.count_left, consumer.bytes_left = count, size
        reader.outbox.room = 0
    number = 0
    for sizes, group, ttl in sent:
        headers = {"message_group": group} if group else {}
        headers |= {"ttl": f"{ttl}"} if ttl else {}
        bodies = [f"{number + n:03}" + "x" * size for n, size in enumerate(sizes)]
        sender.sends(Q, *bodies, receipts=(), **headers)
        number += len(sizes)
    return desk, desk.queue(Q), [reader.consumer() for reader in readers]


def _counted_out(queue: Queue, ready: list[Consumer], now: float) -> dict[Consumer, list[Message]]:
    """Return the expected deliveries, computed in the simplest way."""
    served: dict[Consumer, list[Message]] = {}
    passed: list[Message] = []
    place = 0
    while ready and (message := queue.waiting.pop()) is not None:
        if message.publication.is_over(now):
            queue.expire(message, now)
            continue
        owner = queue.groups.owners.get(message.group) if message.group else None
        if owner is not None and owner not in ready:
            passed.append(message)
            continue
        place = ready.index(owner) if owner is not None else place % len(ready)
        consumer = queue.last_served = ready[place]
        if message.group:
            queue.groups.assign(message.group, consumer)
        served.setdefault(consumer, []).append(message)
        if consumer.charge([message]):
            place += 1
        else:
            del ready[place]
    for message in passed:
        queue.waiting.give_back(message)
    return served


@given(st.lists(credits, min_size=1, max_size=5), st.lists(runs, min_size=1, max_size=5))
def test_dealt_is_as_counted_out(
    consumers: list[tuple[str, int, int]], sent: list[tuple[list[int], str, int]]
) -> None:
    seen = []
    for way in ("dealt", "singly"):
        desk, queue, ready = _filled(consumers, sent)
        if way == "dealt":
            served: dict[Consumer, list[Message]] = {}
            hand_out(queue, list(ready), desk.now + 1, served)
        else:
            served = _counted_out(queue, list(ready), desk.now + 1)
        given_to = [[m.body for m in served.get(consumer, [])] for consumer in ready]
        left = [(consumer.count_left, consumer.bytes_left) for consumer in ready]
        last = ready.index(queue.last_served) if queue.last_served is not None else None
        waits = [message.body for message in queue.waiting.in_order()]
        seen.append((given_to, left, last, waits, queue.waiting.count, queue.destination.expired))
    assert seen[0] == seen[1]


def test_a_run_is_dealt_in_turn() -> None:
    desk, queue, ready = _filled([("client", 9, 3000)] * 3, [([1] * 7, "", 0)])
    served: dict[Consumer, list[Message]] = {}
    hand_out(queue, list(ready), desk.now + 1, served)
    numbers = [[int(message.body[:3]) for message in served[each]] for each in ready]
    assert numbers == [[0, 3, 6], [1, 4], [2, 5]]
    assert queue.last_served is ready[0]


def test_queues_of_one_consumer_take_turns_though_one_always_has_messages():
    desk = Bench(book={})
    sender, reader = desk.actor(), desk.actor()
    sender.sends("/queue/x.a", *numbered("a", 9))
    sender.sends("/queue/x.b", "b0", "b1")
    reader.subscribes("/queue/x.*", ack="client-individual", prefetch_count="1")
    got: list[str] = []
    while frames := reader.reads():
        got += [frame.text for frame in frames]
        reader.acks(*frames)
        if len(got) < 5:
            sender.sends("/queue/x.a", "more")
    assert sorted(got.index(each) < 5 for each in ("b0", "b1")) == [True, True]
    assert len(got) == 15
    desk.ends()
