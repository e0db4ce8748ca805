"""A COMMIT with an exception at any step: nothing of it is there, in the store and in memory."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from attrs import define
from hypothesis import HealthCheck, event, example, given, settings
from hypothesis import strategies as st

from tests.support.core import Actor, Bench, lasting_bytes, pairs, run_of
from tests.support.durable_fakes import DurableBench, answered
from tests.support.part_bench import PartBench
from trio_stomp.base import FrameBug
from trio_stomp.broker import DestinationPolicy, Log, internal_error
from trio_stomp.broker.sending import Duplicates
from trio_stomp.cluster.routing import Forward
from trio_stomp.protocol import Acked, Committed, Refused

IN, OUT, NEWS, LOG, LAST = "/queue/in", "/queue/out", "/topic/news", "/topic/log", "/topic/last"
FAR = "/queue/far"
BOOK = {
    LOG: DestinationPolicy(stream=True),
    LAST: DestinationPolicy(retain="always", stream=True),
}
NAMES = (OUT, NEWS, LOG, LAST, FAR, "/temp-queue/a", "/temp-topic/b")
HEADERS = {
    "persistent": ["true"],
    "x-dedup-id": ["1", "2"],
    "AMQ_SCHEDULED_DELAY": ["1000", "wrong"],
    "priority": ["9"],
    "ttl": ["100000"],
    "reply-to": ["/temp-queue/a"],
}
ACK = None
Action = tuple[list[str], dict[str, str]] | None
"""The destinations and headers of a SEND, or an ACK."""
SENDS = st.tuples(
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True),
    st.fixed_dictionaries({}, optional={key: st.sampled_from(HEADERS[key]) for key in HEADERS}),
)
STEPS = ("write", "when_safe", "finish_all")


@define
class Fault:
    """Makes a method of the log raise an exception once, at one of its calls in an atomic group.

    It does so in a COMMIT, and not when the ids of a turn are written.
    """

    method: str
    left: int

    @contextmanager
    def injected(self) -> Iterator[None]:
        """Let it happen inside."""
        method: Callable[..., Any] = getattr(Log, self.method)

        def call(log: Log, *arguments: Any, **named: Any) -> Any:
            self.left -= log.is_atomic
            if log.is_atomic and not self.left:
                raise KeyError("a bug")
            return method(log, *arguments, **named)

        write = Duplicates.write

        def without(duplicates: Duplicates) -> None:
            left, self.left = self.left, 0
            write(duplicates)
            self.left = left

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Log, self.method, call)
            patch.setattr(Duplicates, "write", without)
            yield


class Scene:
    """A broker with a message in IN, and readers of what is sent elsewhere."""

    def __init__(self, *, is_spread: bool) -> None:
        self.desk = PartBench(book=dict(BOOK)) if is_spread else DurableBench(book=dict(BOOK))
        self.desk.actor().sends(IN, "job", persistent="true")
        self.readers = [self.desk.reader(name) for name in (OUT, FAR, LOG, LAST)]
        self.readers.append(self.desk.reader("/stream/topic/log"))
        durable = {"durable_subscription_name": "d"}
        self.readers.append(self.desk.reader(NEWS, **durable))
        self.settles()

    def settles(self) -> None:
        """Let the broker do what is left."""
        answered(self.desk)

    def seen(self) -> list[list[tuple[str, str | None]]]:
        """Return what each reader got, with offsets, and what is to be sent on."""
        self.settles()
        self.desk.passes(2)
        self.settles()
        found = [
            [(frame.text, frame.get("x-stream-offset")) for frame in reader.messages()]
            for reader in self.readers
        ]
        found.append([(item.bodies[0].decode(), item.destination) for item in self.forwards()])
        return found

    def forwards(self) -> list[Forward]:
        """Return what is to be sent on."""
        return list(self.desk.forwards.waiting) if isinstance(self.desk, PartBench) else []

    def state(self) -> tuple[object, ...]:
        """Return what a COMMIT changes: charges, counts, ids and offsets, in memory and store."""
        broker, memory, store = self.desk.broker, self.desk.memory, self.desk.store
        destinations = sorted(broker.destinations, key=lambda each: each.name)
        return (
            memory.used_bytes,
            memory.tables_bytes - lasting_bytes(broker),
            memory.stored_bytes,
            memory.kept_bytes,
            broker.scheduler.waiting,
            len(self.forwards()),
            len(broker.timers),
            [list(each.seen) for each in destinations if each.seen],
            [(each.name, each.retained_id) for each in destinations if each.retained_id],
            [(stream.coming, stream.next) for stream in broker.streams.in_use.values()],
            [(queue.name, queue.size, queue.message_count, queue.unacked) for queue in broker.queues
             if not queue.destination.private],
            store.statistics().live_messages,
        )  # fmt: skip

    def kept(self) -> tuple[int, int]:
        """Return the messages in the store, and the bytes that they are charged after a restart."""
        again = self.desk.restarts()
        return again.store.statistics().live_messages, again.memory.stored_bytes

    def worker(self) -> tuple[Actor, str]:
        """Return a client with the message of IN, and the id that acknowledges it."""
        worker = self.desk.actor()
        worker.subscribes("/temp-queue/a")
        worker.subscribes(IN, "in", "client-individual")
        self.settles()
        (job,) = worker.reads()
        return worker, job["ack"]

    def commits(self, actions: list[Action]) -> bool:
        """Have a worker commit. Return whether it got a RECEIPT; if not, it got an ERROR."""
        worker, ack = self.worker()
        sends = [
            Acked([ack.encode()], "id", None, False, True, ())
            if action is ACK
            else run_of(",".join(action[0]), [f"{index}"], (*pairs(action[1]), ("n", f"{index}")))
            for index, action in enumerate(actions)
        ]
        try:
            worker.commits(*sends)
            self.settles()
        except FrameBug as bug:
            worker.does(Refused(internal_error(bug)))
        self.settles()
        answers = [frame for frame in worker.frames() if frame.command != "MESSAGE"]
        (answer,) = answers
        worker.is_gone()
        self.settles()
        assert answer.get("receipt-id") == "done"
        return answer.command == "RECEIPT"


def actions_of(*more: Action) -> list[Action]:
    return [([OUT], {"persistent": "true"}), ACK, *more]


@example(
    [ACK, ([LOG, OUT], {"x-dedup-id": "1"}), ([LAST], {"persistent": "true"})], "write", 5, True
)
@example([([LOG], {"persistent": "true"}), ACK, ([OUT], {"persistent": "true"})], "write", 2, False)
@given(
    st.lists(SENDS, min_size=1, max_size=5).map(lambda sends: [*sends[:1], ACK, *sends[1:]]),
    st.sampled_from(STEPS),
    st.integers(1, 12),
    st.booleans(),
)
@settings(max_examples=60, suppress_health_check=list(HealthCheck))
def test_all_or_nothing(actions: list[Action], method: str, at: int, is_spread: bool) -> None:
    control = Scene(is_spread=is_spread)
    scene = Scene(is_spread=is_spread)
    nothing, fault = scene.seen(), Fault(method, at)
    before = scene.state()
    with fault.injected():
        is_done = scene.commits(actions)
    event(f"fault: {fault.left <= 0}, done: {is_done}")
    if not is_done:
        assert scene.seen() == nothing
        assert scene.state() == before
        is_done = scene.commits(actions)
    assert is_done == control.commits(actions)
    assert scene.seen() == control.seen()
    assert scene.kept() == control.kept()


@pytest.mark.bugs
def test_requests_of_a_commit_that_fails_are_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    reader, sender, other = bench.actor(), bench.actor(), bench.actor()
    reader.subscribes("/queue/answers")
    ask = run_of("DIAG/explain", ['{"destination": "/queue/x"}'], (("reply-to", "/queue/answers"),))
    with monkeypatch.context() as patch:
        patch.setattr("trio_stomp.broker.sending._to_queue.QueueSender.enqueue", None)
        with pytest.raises(FrameBug):
            sender.does(Committed([ask, run_of(OUT, ["x"])], b"c"))

    other.sends("/topic/t", "y", receipts=[(1, b"r")])
    assert [frame.command for frame in other.frames()] == ["RECEIPT"]
    assert reader.reads() == []
