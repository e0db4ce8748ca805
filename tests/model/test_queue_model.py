"""Queues against a naive model, over random lives of clients.

Every accepted message is in exactly one place: waiting, delayed, with a consumer, delivered,
expired, dead (and then its dead letter is a message of its own), or dropped. The model knows the
rules. It reads the broker's choice of a consumer from the deliveries, and checks that the choice
was allowed: in order, within the credit, no idle consumer while messages wait.
"""

from collections import Counter

from attrs import define, field
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.support.core import OVERHEAD, Actor, Bench, Received, read_frames, run_of
from trio_stomp.broker import DestinationPolicy
from trio_stomp.broker.delivery import NEVER
from trio_stomp.broker.subscribing import LOST
from trio_stomp.frames import FrameRun

WAITING, DELAYED, UNACKED = "waiting", "delayed", "unacked"
ACKED, AUTO, EXPIRED, DEAD, DROPPED = "acked", "auto", "expired", "dead", "dropped"
HELD = (WAITING, DELAYED, UNACKED)

BODY = 5
"""Bytes of every body."""
BACKOFF = (0.0, 1.0, 2.0, 4.0)
BOOK = {
    "/queue/a": DestinationPolicy(max_messages=12, max_redeliveries=2),
    "/queue/b": DestinationPolicy(
        max_messages=6, overflow="drop-oldest", ack_timeout_ms=3000, max_redeliveries=99
    ),
    "/queue/c.x": DestinationPolicy(max_bytes=5 * 6, overflow="drop-newest", priority=False),
    "/queue/c.y": DestinationPolicy(
        max_messages=8, overflow="dead-letter", dead_letter_expired=True
    ),
}
NAMES = list(BOOK)
PATTERNS = {
    **{name: {name} for name in NAMES},
    "/queue/c.*": {"/queue/c.x", "/queue/c.y"},
    "/queue/*": set(NAMES),
    "/queue/DLQ.>": {f"/queue/DLQ.{name[7:]}" for name in NAMES},
}


@define(eq=False, repr=False)
class Copy:
    """One accepted message."""

    body: str
    queue: str
    number: int
    level: int
    expires: float
    state: str = WAITING
    deliveries: int = 0
    failures: int = 0
    due: float = NEVER
    """When its delay or the time to acknowledge it ends."""
    reader: "Reader | None" = None
    id: str = ""
    """The id in an ACK of its last delivery."""

    @property
    def rank(self) -> tuple[int, int]:
        """Return the rank: a smaller one is due first."""
        return (-self.level, self.number)


@define(eq=False, repr=False)
class Reader:
    """A subscription."""

    actor: Actor
    id: str
    pattern: str
    ack: str
    prefetch: int
    level: int
    mine: dict[str, Copy] = field(factory=dict)
    """Unacknowledged, by message id, in order of delivery."""
    newest: dict[tuple[str, int], int] = field(factory=dict)

    @property
    def is_ready(self) -> bool:
        """Return whether it accepts one more message."""
        if not self.actor.outbox.has_room():
            return False
        return self.ack == "auto" or len(self.mine) < self.prefetch


def name_of(frame: Received) -> str:
    """Return the id for an ACK of a MESSAGE: in 1.2 that of the delivery, before 1.2 of the
    message."""
    return frame.get("ack") or frame.get("message-id") or ""


class QueueModel(RuleBasedStateMachine):
    """Random clients, and the model of the fate of their messages."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0
        self.order: dict[str, int] = {}
        """The last delivery of each name, counted."""
        self.bench = Bench(book=BOOK)
        self.copies: list[Copy] = []
        self.readers: list[Reader] = []
        self.peers: list[Actor] = []
        self.counts: Counter[tuple[str, str]] = Counter()
        self.number = self.accepted = 0
        for version in ("1.1", "1.2"):
            self.peers.append(self.bench.actor(version))

    # Actions of clients.

    @rule(
        who=st.integers(0, 9),
        name=st.sampled_from(NAMES),
        size=st.integers(1, 4),
        priority=st.sampled_from([None, None, None, 0, 9]),
        ttl=st.sampled_from([None, None, 1, 4]),
    )
    def send(self, who: int, name: str, size: int, priority: int | None, ttl: int | None) -> None:
        actor = self.pick(who)
        run = self.run(name, size, priority, ttl)
        actor.does(run)
        if not self.take(run, priority, ttl):
            self.fail(actor)
        self.settle()

    @rule(
        who=st.integers(0, 9),
        pattern=st.sampled_from(list(PATTERNS)),
        ack=st.sampled_from(["auto", "client", "client-individual", "client-individual"]),
        prefetch=st.integers(1, 5),
        level=st.sampled_from([0, 0, 0, 1]),
    )
    def subscribe(self, who: int, pattern: str, ack: str, prefetch: int, level: int) -> None:
        actor = self.pick(who)
        if len(self.readers) < 6:
            reader = Reader(actor, f"{self.count()}", pattern, ack, prefetch, level)
            self.readers.append(reader)
            actor.subscribes(
                pattern, reader.id, ack, prefetch_count=f"{prefetch}", x_priority=f"{level}"
            )
        self.settle()

    @precondition(lambda self: self.readers)
    @rule(who=st.integers(0, 9))
    def unsubscribe(self, who: int) -> None:
        reader = self.readers[who % len(self.readers)]
        reader.actor.unsubscribes(reader.id)
        self.end(reader)
        self.settle()

    @precondition(lambda self: any(reader.mine for reader in self.readers))
    @rule(
        who=st.integers(0, 9), place=st.integers(0, 9), how=st.sampled_from(["ack", "nack", "kill"])
    )
    def acknowledge(self, who: int, place: int, how: str) -> None:
        reader, name = self.delivery(who, place)
        reader.actor.does(reader.actor.acked(name, negative=how != "ack", requeue=how == "nack"))
        self.acked(reader, name, how)
        self.settle()

    @rule(who=st.integers(0, 9))
    def acknowledge_nonsense(self, who: int) -> None:
        actor = self.pick(who)
        actor.acks("b.zz-1")
        self.fail(actor)
        self.settle()

    @rule(
        who=st.integers(0, 9),
        place=st.integers(0, 9),
        names=st.lists(st.sampled_from(NAMES), min_size=1, max_size=3),
        size=st.integers(1, 4),
        is_bad=st.sampled_from([False, False, True]),
    )
    def commit(self, who: int, place: int, names: list[str], size: int, is_bad: bool) -> None:
        """BEGIN … COMMIT: SENDs, an ACK if there is something to ACK, perhaps an unknown one."""
        actor = self.pick(who)
        runs = [self.run(name, size, None, None) for name in names]
        actions: list[object] = [*runs]
        reader = name = None
        if any(each.mine for each in self.readers):
            reader, name = self.delivery(who, place)
            actor = reader.actor
            actions.insert(1, actor.acked(name))
        if is_bad:
            actions.append(actor.acked("b.zz-1"))
        actor.commits(*actions)  # type: ignore[arg-type]
        if is_bad or not all(self.commits(each, names.count(each) * size) for each in names):
            self.fail(actor)
        else:
            for action in actions:
                if isinstance(action, FrameRun):
                    assert self.take(action, None, None)
                elif reader is not None and name is not None:
                    self.acked(reader, name, "ack")
        self.settle()

    @rule(who=st.integers(0, 9), is_polite=st.booleans())
    def disconnect(self, who: int, is_polite: bool) -> None:
        actor = self.pick(who)
        if is_polite:
            actor.leaves()
        self.replace(actor)
        self.settle()

    @rule(seconds=st.sampled_from([0.0, 0.5, 1.0, 3.0]), ticks=st.booleans())
    def time_passes(self, seconds: float, ticks: bool) -> None:
        self.bench.now += seconds
        if ticks:
            self.tick()
        self.settle()

    @rule(who=st.integers(0, 9))
    def room_changes(self, who: int) -> None:
        actor = self.pick(who)
        if actor.outbox.room:
            actor.outbox.room = 0
        else:
            actor.opens_up()
        self.settle()

    @rule(who=st.integers(0, 9))
    def write(self, who: int) -> None:
        """Write the messages in an outbox. Expired ones become dead letters."""
        actor = self.pick(who)
        for prefix, delivery in actor.outbox.staged:
            if delivery is None or delivery.publication.expires_at > self.bench.now:
                continue
            for frame in read_frames(prefix.join(delivery.tails), actor.version):
                for reader in self.of(actor):
                    copy = reader.mine.pop(name_of(frame), None)
                    if copy is not None:
                        self.dead_letter(copy, EXPIRED)
        actor.writes()
        self.settle()

    # Expected behaviour of the broker.

    def take(self, run: FrameRun, priority: int | None, ttl: int | None) -> bool:
        """Put a run into its queue; False if that refuses some of it."""
        name = run.head.destination or ""
        policy = BOOK[name]
        for body in run.bodies:
            while not self.fits(name, 1):
                if policy.overflow == "drop-newest":
                    self.counts[DROPPED, name] += 1
                    break
                waiting = self.in_state(name, WAITING)
                if policy.overflow == "reject" or not waiting:
                    return False
                if policy.overflow == "drop-oldest":
                    waiting[0].state = DROPPED
                    self.counts[DROPPED, name] += 1
                else:
                    self.dead_letter(waiting[0], DEAD)
            else:
                level = 4 if priority is None or not policy.priority else priority
                expires = NEVER if ttl is None else self.bench.now + ttl
                self.accept(Copy(body.decode(), name, 0, level, expires))
        return True

    def fits(self, name: str, count: int) -> bool:
        """Return whether a queue has room for this many more."""
        policy = BOOK[name]
        held = len(self.in_state(name, *HELD)) + count
        if policy.max_messages and held > policy.max_messages:
            return False
        return not policy.max_bytes or held * BODY <= policy.max_bytes

    def commits(self, name: str, count: int) -> bool:
        """Return whether a transaction may send this many to the queue."""
        policy = BOOK[name]
        if policy.overflow == "drop-newest" or self.fits(name, count):
            return True
        stuck = len(self.in_state(name, DELAYED, UNACKED))
        return policy.overflow != "reject" and (
            not policy.max_messages or stuck < policy.max_messages
        )

    def accept(self, copy: Copy) -> None:
        self.accepted += 1
        copy.number = self.accepted
        self.copies.append(copy)
        self.counts["enqueued", copy.queue] += 1

    def dead_letter(self, copy: Copy, how: str) -> None:
        """Record the end of a message. Its dead letter, if any, is a new message."""
        copy.state = how
        self.counts[how, copy.queue] += 1
        is_kept = how == DEAD or BOOK.get(copy.queue, DestinationPolicy()).dead_letter_expired
        if is_kept and "DLQ" not in copy.queue:
            dead_letters = f"/queue/DLQ.{copy.queue[7:]}"
            self.accept(Copy(copy.body, dead_letters, 0, copy.level, NEVER))
        elif how == DEAD:
            self.counts[DROPPED, copy.queue] += 1  # a dead letter that ends again is dropped

    def acked(self, reader: Reader, name: str, how: str) -> None:
        names = [name]
        if reader.ack == "client":
            # By delivery: those of one turn are looked at queue by queue here.
            last = self.order[name]
            names = [each for each in reader.mine if self.order[each] <= last]
        for each in names:
            copy = reader.mine.pop(each)
            if how == "ack":
                copy.state = ACKED
                self.counts[ACKED, copy.queue] += 1
                continue
            self.counts["nacked", copy.queue] += 1
            if how == "kill":
                self.dead_letter(copy, DEAD)
            else:
                self.has_failed(copy)

    def has_failed(self, copy: Copy, *, waits: bool = True) -> None:
        copy.failures += 1
        if copy.failures > BOOK.get(copy.queue, DestinationPolicy()).max_redeliveries:
            self.dead_letter(copy, DEAD)
        else:
            self.give_back(copy, BACKOFF[min(copy.failures, 4) - 1] if waits else 0.0)

    def give_back(self, copy: Copy, delay: float) -> None:
        self.counts["redelivered", copy.queue] += 1
        copy.state = DELAYED if delay else WAITING
        copy.due = self.bench.now + delay
        copy.reader = None

    def end(self, reader: Reader, *, is_lost: bool = False) -> None:
        self.readers.remove(reader)
        first = min(reader.mine, key=lambda name: self.order[name], default="")
        for name, copy in reader.mine.items():
            if is_lost and name == first:
                self.has_failed(copy, waits=False)
            else:
                self.give_back(copy, 0.0)
        reader.mine.clear()

    def tick(self) -> None:
        now = self.bench.now
        for copy in list(self.copies):
            if copy.state == DELAYED and copy.due <= now:
                copy.state = WAITING
        for reader in self.readers:
            for copy in list(reader.mine.values()):
                if copy.due <= now:
                    del reader.mine[copy.id]
                    self.has_failed(copy)
        self.bench.broker.tick(now)

    def fail(self, actor: Actor) -> None:
        """Record that the client received an ERROR."""
        assert actor.outbox.closed is not None
        assert actor.outbox.staged[-1][0].startswith(b"ERROR")
        self.replace(actor)

    def replace(self, actor: Actor) -> None:
        is_lost = actor.outbox.closed is None or actor.outbox.closed in LOST
        for reader in self.of(actor):
            self.end(reader, is_lost=is_lost)
        actor.is_gone()
        self.bench.peers.remove(actor)
        self.peers[self.peers.index(actor)] = self.bench.actor(actor.version)

    # Checks of the broker's actions.

    def settle(self) -> None:
        self.bench.turn()
        got: dict[str, list[tuple[Reader, Received]]] = {}
        readers = {(reader.actor.client.session_id, reader.id): reader for reader in self.readers}
        for actor in self.peers:
            for frame in read_frames(b"".join(actor.outbox.log), actor.version):
                reader = readers[actor.client.session_id, frame.get("subscription") or ""]
                self.seen += 1
                self.order[name_of(frame)] = self.seen
                got.setdefault(frame.get("destination") or "", []).append((reader, frame))
            actor.outbox.log.clear()
        # The dead letters last: they may contain messages that expired just now.
        names = [*NAMES, *sorted(PATTERNS["/queue/DLQ.>"])]
        for name in names:
            self.check_turn(name, got.get(name, []))
        for name in names:
            self.check_nobody_is_idle(name, got.pop(name, []))
        assert not got

    def check_turn(self, name: str, got: list[tuple[Reader, Received]]) -> None:
        """Check that the deliveries of a turn are the first due messages."""
        waiting = self.in_state(name, WAITING)
        alive = [copy for copy in waiting if copy.expires > self.bench.now]
        given = {copy.body: copy for copy in alive[: len(got)]}
        assert sorted(frame.text for _, frame in got) == sorted(given), "not the first ones"
        for reader, frame in got:
            assert name in PATTERNS[reader.pattern]
            self.hand_over(given[frame.text], reader, frame)
        self.purge(name, waiting, list(given.values()))

    def check_nobody_is_idle(self, name: str, got: list[tuple[Reader, Received]]) -> None:
        """Check that ready consumers left no message waiting, and none to a lower priority."""
        ready = [
            reader
            for reader in self.readers
            if name in PATTERNS[reader.pattern] and reader.is_ready
        ]
        assert not ready or not self.in_state(name, WAITING), "somebody is idle"
        for reader, _ in got:
            assert not any(each.level > reader.level for each in ready), "out of turn"

    def hand_over(self, copy: Copy, reader: Reader, frame: Received) -> None:
        assert copy.state == WAITING, "delivered twice"
        if not copy.deliveries:
            place = (copy.queue, copy.level)
            assert reader.newest.get(place, 0) < copy.number, "backwards"
            reader.newest[place] = copy.number
        copy.deliveries += 1
        again = copy.deliveries > 1
        assert frame.get("redelivered") == ("true" if again else None)
        assert frame.get("delivery-count") == (f"{copy.deliveries}" if again else None)
        if reader.ack == "auto":
            copy.state = AUTO
            self.counts[AUTO, copy.queue] += 1
            return
        copy.state, copy.reader, copy.id = UNACKED, reader, name_of(frame)
        timeout_s = BOOK.get(copy.queue, DestinationPolicy()).ack_timeout_ms / 1000
        copy.due = self.bench.now + timeout_s if timeout_s else NEVER
        reader.mine[copy.id] = copy
        assert len(reader.mine) <= reader.prefetch

    def purge(self, name: str, waiting: list[Copy], given: list[Copy]) -> None:
        """Remove expired messages that precede a delivered one."""
        expired = [copy for copy in waiting if copy.expires <= self.bench.now]
        last = max((copy.rank for copy in given), default=(-99, 0))
        destination = self.bench.broker.destinations.find_current(name)
        purged = 0 if destination is None else destination.expired - self.counts["purged", name]
        queue = self.bench.broker.queues.find(name)
        left = queue.waiting.in_order() if queue is not None else []
        still = {message.body.decode() for message in left}
        gone = [copy for copy in expired if copy.body not in still]
        assert all(copy in gone for copy in expired if copy.rank < last)
        assert purged == len(gone)
        self.counts["purged", name] += purged
        for copy in gone:
            self.dead_letter(copy, EXPIRED)

    # Book-keeping.

    def run(self, name: str, size: int, priority: int | None, ttl: int | None) -> FrameRun:
        headers = []
        if priority is not None:
            headers.append(("priority", f"{priority}"))
        if ttl is not None:
            headers.append(("ttl", f"{ttl * 1000}"))
        return run_of(name, [f"{self.count():0{BODY}}" for _ in range(size)], tuple(headers))

    def pick(self, who: int) -> Actor:
        return self.peers[who % len(self.peers)]

    def delivery(self, who: int, place: int) -> tuple[Reader, str]:
        """Some unacknowledged delivery."""
        readers = [reader for reader in self.readers if reader.mine]
        reader = readers[who % len(readers)]
        return reader, list(reader.mine)[place % len(reader.mine)]

    def of(self, actor: Actor) -> list[Reader]:
        return [reader for reader in self.readers if reader.actor is actor]

    def count(self) -> int:
        self.number += 1
        return self.number

    def in_state(self, name: str, *states: str) -> list[Copy]:
        """A queue's messages in these states, first the one that is due first."""
        found = [copy for copy in self.copies if copy.queue == name and copy.state in states]
        return sorted(found, key=lambda copy: copy.rank)

    @invariant()
    def every_message_is_where_the_model_has_it(self) -> None:
        for queue in self.bench.broker.queues:
            name = queue.name
            waiting = [message.body.decode() for message in queue.waiting.in_order()]
            assert waiting == [copy.body for copy in self.in_state(name, WAITING)]
            assert queue.delayed == len(self.in_state(name, DELAYED))
            assert queue.unacked == len(self.in_state(name, UNACKED))
            assert queue.size == BODY * queue.message_count
        for reader in self.readers:
            consumer = reader.actor.consumer(reader.id)
            mine = sorted(reader.mine.items(), key=lambda each: self.order[each[0]])
            known = [copy.body for _, copy in mine]
            assert [each.body.decode() for each in consumer.unacked.values()] == known
            assert consumer.lent is None or len(consumer.lent) >= len(known)
            assert consumer.count_left == reader.prefetch - len(known)

    @invariant()
    def the_counters_are_the_models(self) -> None:
        broker, counts = self.bench.broker, self.counts
        total: Counter[str] = Counter()
        for queue in broker.queues:
            name = queue.name
            for what in ("enqueued", "nacked", "redelivered"):
                assert getattr(queue, what) == counts[what, name], (name, what)
            assert queue.dequeued == counts[ACKED, name] + counts[AUTO, name]
            assert queue.destination.dropped == counts[DROPPED, name]
            gone = [counts[what, name] for what in (ACKED, AUTO, EXPIRED, DEAD)]
            pushed = len(self.in_state(name, DROPPED))
            assert counts["enqueued", name] == queue.message_count + sum(gone) + pushed
        for (what, _), number in counts.items():
            total[what] += number
        assert broker.queues.accepted == self.accepted == len(self.copies)
        assert broker.acknowledger.counters.acked == total[ACKED]
        assert broker.acknowledger.counters.nacked == total["nacked"]
        assert broker.acknowledger.counters.redelivered == total["redelivered"]
        assert sum(broker.queues.dead_letter_counts.failed.values()) == total[DEAD] + total[EXPIRED]

    @invariant()
    def the_budget_is_what_is_held(self) -> None:
        held = sum(copy.state in HELD for copy in self.copies)
        memory = self.bench.memory
        assert memory.used_bytes == memory.kept_bytes
        heads = memory.used_bytes - held * (BODY + OVERHEAD)
        if any(queue.delayed for queue in self.bench.broker.queues):
            assert heads > 0  # a delayed message is in no queue
        else:
            assert heads == self.bench.heads_bytes()

    def teardown(self) -> None:
        self.bench.ends()


QueueModel.TestCase.settings = settings(
    max_examples=300,
    stateful_step_count=40,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
    # The time to create an example depends only on the machine's load.
    suppress_health_check=[HealthCheck.too_slow],
)
TestQueueModel = QueueModel.TestCase
