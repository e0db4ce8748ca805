"""A bug while scheduled messages are sent or cancelled: they are sent later, exactly once."""

from collections.abc import Callable

import pytest

from tests.support.bugs import plant
from tests.support.core import Bench
from tests.support.durable_fakes import DurableBench
from trio_stomp.base import FrameBug
from trio_stomp.broker import DestinationPolicy

Q = "/queue/q"
NEXT_DUE = "headers._schedule.Schedule.next_due"
KEEP, FINISH_ALL = "durability._log.Log.keep", "durability._log.Log.finish_all"
IN_MEMORY = (
    "sending._due.DueSender.send",
    "sending._due.DueSender.making_room",
    "access._authorizer.Authorizer.lets_send",
    "sending._scheduler.make_plan",
    NEXT_DUE,
)
IN_STORE = (
    *IN_MEMORY,
    "durability._log.Log.put",
    "sending._scheduler.Scheduler._note",
)
CASES = [
    *((Bench, where) for where in (*IN_MEMORY, "queues._queues.QueueBook.insert")),
    *((DurableBench, where) for where in IN_STORE),
]


def does(bench: Bench, action: Callable[[], object]) -> int:
    """Do something, and end the turn. Return how many bugs there were."""
    bugs = 0
    for each in (action, bench.turn):
        try:
            each()
        except (KeyError, FrameBug):
            bugs += 1
    while bench.broker.has_more:
        bugs += does(bench, bench.turn)
    return bugs


def passes(bench: Bench, seconds: float) -> int:
    """Let time pass. Return how many bugs there were."""
    return sum(does(bench, lambda: bench.passes(0.25)) for _ in range(round(seconds * 4)))


def consumed(bench: Bench) -> list[str]:
    """Consume the messages of Q, one by one."""
    reader = bench.reader(Q, ack="client-individual")
    frames = reader.reads()
    for frame in frames:
        reader.acks(frame)
    reader.unsubscribes()
    bench.turn()
    return [frame.text for frame in frames]


def is_over(bench: Bench) -> None:
    """Check that nothing is left, in memory and in the store."""
    assert bench.broker.scheduler.waiting == len(bench.broker.timers) == 0
    assert len(bench.broker.scheduler.jobs) == 0
    if isinstance(bench, DurableBench):
        bench.turn()
        assert bench.store.statistics().live_messages == 0
        again = bench.restarts()
        assert again.broker.scheduler.waiting == 0
    assert bench.memory.kept_bytes == 0


@pytest.mark.parametrize(("kind", "where"), CASES)
@pytest.mark.parametrize("repeats", [0, 1])
@pytest.mark.parametrize("at", [1, 2])
def test_what_is_due(
    at: int, repeats: int, kind: type[Bench], where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = kind()
    sender, reader = bench.actor(), bench.reader(Q)
    again = {"AMQ_SCHEDULED_PERIOD": "4000", "AMQ_SCHEDULED_REPEAT": "1"} if repeats else {}
    for body in ("a", "b"):
        sender.sends(Q, body, persistent="true", AMQ_SCHEDULED_DELAY="1000", **again)  # type: ignore[arg-type]
    sender.sends(Q, "c", persistent="true", AMQ_SCHEDULED_DELAY="1500")
    bench.turn()
    plant(monkeypatch, where, at)
    assert passes(bench, 4) == 1
    first = [each.text for each in reader.reads()]
    assert sorted(first) == ["a", "b", "c"]
    assert passes(bench, 8) == 0
    assert sorted(each.text for each in reader.reads()) == ["a", "b"] * repeats
    is_over(bench)


@pytest.mark.parametrize("repeats", [0, 1])
@pytest.mark.parametrize("where", [KEEP, FINISH_ALL, "durability._log.Log.forget", NEXT_DUE])
@pytest.mark.parametrize("at", [1, 2])
def test_what_finds_room_in_part(
    at: int, where: str, repeats: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = DurableBench(book={Q: DestinationPolicy(max_messages=1)})
    sender = bench.actor()
    again = {"AMQ_SCHEDULED_PERIOD": "9000", "AMQ_SCHEDULED_REPEAT": "1"} if repeats else {}
    sender.sends(Q, "a", "b", "c", persistent="true", AMQ_SCHEDULED_DELAY="1000", **again)  # type: ignore[arg-type]
    bench.turn()
    plant(monkeypatch, where, at)
    found: list[str] = []
    bugs = 0
    for _ in range(60):
        bugs += passes(bench, 0.5)
        found += consumed(bench)
    assert found == ["a", "b", "c"] * (1 + repeats)
    assert bugs <= 1
    is_over(bench)


@pytest.mark.parametrize("where", [FINISH_ALL, "durability._log.Log.forget"])
@pytest.mark.parametrize("is_part", [False, True])
@pytest.mark.parametrize("is_due", [False, True])
def test_a_cancellation(
    is_due: bool, is_part: bool, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = DurableBench(book={Q: DestinationPolicy(max_messages=1)})
    sender = bench.actor()
    periodic = {"AMQ_SCHEDULED_PERIOD": "9000", "AMQ_SCHEDULED_REPEAT": "1"}
    sender.sends(Q, "a", "b", persistent="true", AMQ_SCHEDULED_DELAY="1000", **periodic)  # type: ignore[arg-type]
    bench.turn()
    passes(bench, 2)
    assert bench.waiting(Q) == ["a"]
    if not is_due:
        assert consumed(bench) == ["a"]
        passes(bench, 2)
        assert consumed(bench) == ["b"]
    (item,) = bench.broker.scheduler.jobs.beginning_at(0)
    first, last = item.numbers[0], item.numbers[-1]
    name = f"{last}" if is_part else f"{first}-{last}"
    (removal,) = (bench.broker.manager.left.cancel([name], sender.client.identity),)
    plant(monkeypatch, where)
    assert does(bench, lambda: removal.step(bench.now)) == 1
    found: list[str] = []
    for _ in range(40):
        assert passes(bench, 0.5) == 0
        found += consumed(bench)
    assert found == (["a", "b", "a", "b"] if is_due else ["a", "b"])
    is_over(bench)


@pytest.mark.parametrize(
    "where",
    ["sending._due.DueSender.send", "sending._publisher.Publisher.send_to", KEEP],
)
@pytest.mark.parametrize("repeats", [0, 1])
def test_what_is_sent_to_durable_subscriptions(
    repeats: int, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if where == KEEP and not repeats:
        where = FINISH_ALL
    bench = DurableBench()
    readers = [
        bench.reader("/topic/t", durable_subscription_name=f"d{number}") for number in range(3)
    ]
    bench.turn()
    sender = bench.actor()
    again = {"AMQ_SCHEDULED_PERIOD": "6000", "AMQ_SCHEDULED_REPEAT": "1"} if repeats else {}
    for body in ("a", "b"):
        sender.sends("/topic/t", body, persistent="true", AMQ_SCHEDULED_DELAY="1000", **again)  # type: ignore[arg-type]
    bench.turn()
    plant(monkeypatch, where)
    assert passes(bench, 4) == 1
    for reader in readers:
        assert sorted(each.text for each in reader.reads()) == ["a", "b"]
    assert passes(bench, 8) == 0
    for reader in readers:
        assert sorted(each.text for each in reader.reads()) == ["a", "b"] * repeats
    is_over(bench)
