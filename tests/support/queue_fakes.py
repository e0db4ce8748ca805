"""A broker for queues, and clients that speak to it: what tests of queues and ACKs share.

``Bench`` is a broker with a clock that stands until told. ``Actor`` is one client: it says events
and reads frames. ``Box`` is its outbox, which expires messages as the real one does.
"""

from collections.abc import Iterable, Sequence

from attrs import define, field

from tests.support.core_fakes import (
    VERSIONS,
    Received,
    ServerFake,
    head_bytes,
    lasting_bytes,
    queue_head,
    read_frames,
    run_of,
)
from trio_stomp.base._errors import CloseReason
from trio_stomp.broker import (
    Broker,
    BrokerPolicies,
    Client,
    Delivery,
    DestinationPolicy,
    MemoryBudget,
    PolicyBook,
    dialect,
)
from trio_stomp.broker.queues._consumer import SHOWN_BYTES, Consumer
from trio_stomp.broker.queues._queue import Queue
from trio_stomp.protocol import (
    NO_HEARTBEATS,
    Acked,
    Committed,
    Event,
    Left,
    Opened,
    Subscribed,
    Unsubscribed,
)

AMPLE = 1 << 40
OVERHEAD = 256
"""What a message is charged beside its body: spelled out, since it is part of a limit."""
HEAD = queue_head()
"""What the header block of a plain SEND to ``/queue/q`` is charged, once for all of its run."""


@define(eq=False, repr=False)
class Box:
    """An outbox that keeps what was staged until it is read."""

    version: str
    room: bool = True
    asks_left: int = AMPLE
    """How many more times ``has_room`` may say yes."""
    paused: bool = False
    pauses: int = 0
    closed: CloseReason | None = None
    waiting: list[tuple[bytes, Delivery | None]] = field(factory=list)
    log: list[bytes] = field(factory=list)
    """All MESSAGEs staged, written or not, for who wants to look before they are written."""

    def stage(self, prefix: bytes, delivery: Delivery) -> bool:
        """The port's."""
        assert delivery.tails[0] == b""
        assert delivery.count == len(delivery.tails) - 1 > 0
        size = sum(map(len, delivery.tails))
        assert delivery.size in ((size, size + SHOWN_BYTES) if delivery.count == 1 else (size,))
        if self.closed is None:
            self.waiting.append((prefix, delivery))
            self.log.append(prefix.join(delivery.tails))
        return True

    def stage_frame(self, frame: bytes) -> None:
        """The port's."""
        if self.closed is None:
            self.waiting.append((frame, None))

    def drop_oldest(self, size: int) -> int:
        """The port's; this outbox is never too full."""
        raise AssertionError(size)

    def has_room(self) -> bool:
        """The port's."""
        self.asks_left -= 1
        return self.room and self.closed is None and self.asks_left >= 0

    def discard(self) -> int:
        """The port's; this outbox is never too full."""
        raise AssertionError

    def pause_reading(self, *, paused: bool) -> None:
        """The port's."""
        self.paused = paused
        self.pauses += paused

    def close(self, reason: CloseReason) -> None:
        """The port's."""
        self.closed = self.closed or reason

    def write(self, now: float) -> tuple[list[Received], list[Delivery]]:
        """All that waits as the client reads it; and what had expired before it was written."""
        taken, self.waiting = self.waiting, []
        data: list[bytes] = []
        unsent = []
        for prefix, delivery in taken:
            if delivery is None:
                data.append(prefix)
            elif delivery.publication.is_over(now):
                unsent.append(delivery)
            else:
                data.append(prefix.join(delivery.tails))
        return read_frames(b"".join(data), self.version), unsent


@define(eq=False, repr=False)
class Actor:
    """One client."""

    bench: "Bench"
    client: Client
    box: Box
    version: str

    def does(self, *events: Event) -> None:
        """Have the broker apply events as one batch, without ending the turn."""
        self.bench.broker.apply(self.client, events, self.bench.now, self.bench.now)

    def sends(
        self,
        destination: str,
        *bodies: str | bytes,
        receipts: Sequence[tuple[int, bytes]] = (),
        **headers: str,
    ) -> None:
        """SEND, a run of as many as there are bodies; header names with ``_`` for ``-``."""
        self.does(run_of(destination, bodies or ("x",), pairs(headers), receipts))

    def subscribes(
        self, destination: str, id: str | None = "0", ack: str = "auto", **headers: str
    ) -> None:
        """SUBSCRIBE."""
        self.does(Subscribed(id, destination, ack, pairs(headers), None))

    def unsubscribes(self, id: str = "0") -> None:
        """UNSUBSCRIBE."""
        self.does(Unsubscribed(id, None, None))

    def acks(self, *what: Received | str) -> None:
        """ACK, a run."""
        self.does(self.acked(*what))

    def nacks(self, *what: Received | str, requeue: bool = True) -> None:
        """NACK, a run."""
        self.does(self.acked(*what, negative=True, requeue=requeue))

    def acked(
        self,
        *what: Received | str,
        negative: bool = False,
        requeue: bool = True,
        subscription: str | None = None,
        receipts: Sequence[tuple[int, bytes]] = (),
    ) -> Acked:
        """The event of ACKs or NACKs, as this version's session tells it."""
        is_new = self.version == "1.2"
        ids = [
            each if isinstance(each, str) else each.get("ack" if is_new else "message-id") or ""
            for each in what
        ]
        raw = [each.encode() for each in ids]
        header = "id" if is_new else "message-id"
        return Acked(raw, header, subscription, negative, requeue, receipts)

    def commits(self, *actions: Event, receipt: bytes | None = b"done") -> None:
        """COMMIT of a transaction that held ``actions``."""
        self.does(Committed(actions, receipt))  # type: ignore[arg-type]

    def leaves(self) -> None:
        """DISCONNECT."""
        self.does(Left(None))

    def is_gone(self) -> None:
        """The connection is lost."""
        self.bench.broker.forget(self.client, CloseReason.CONNECTION_LOST, self.bench.now)

    def opens_up(self) -> None:
        """Its outbox has room again."""
        self.box.room = True
        self.bench.broker.writable(self.client, self.bench.now)

    def frames(self) -> list[Received]:
        """End the turn; all that has come since the last call."""
        self.bench.turn()
        return self.writes()

    def writes(self) -> list[Received]:
        """What waits is written, and what has expired is given back; all that was written."""
        frames, unsent = self.box.write(self.bench.now)
        for delivery in unsent:
            self.bench.broker.unsent(delivery, self.bench.now)
        return frames

    def reads(self, id: str | None = None) -> list[Received]:
        """End the turn; the MESSAGEs since the last call, and nothing else may have come."""
        frames = self.frames()
        assert [frame.command for frame in frames if frame.command != "MESSAGE"] == []
        return [frame for frame in frames if id is None or frame.get("subscription") == id]

    def bodies(self, id: str | None = None) -> list[str]:
        """The same, only the bodies."""
        return [frame.text for frame in self.reads(id)]

    def error(self) -> Received:
        """End the turn; the ERROR that must be the last frame since the last call."""
        frames = self.frames()
        assert [frame.command for frame in frames].count("ERROR") == 1
        assert frames[-1].command == "ERROR"
        assert self.box.closed is not None
        return frames[-1]

    def consumer(self, id: str = "0") -> Consumer:
        """What stands behind one of its subscriptions."""
        found = self.client.subscriptions[id].consumer
        assert found is not None
        return found


@define(eq=False, repr=False)
class Bench:
    """A broker with policies by destination, a clock, and a budget."""

    book: dict[str, DestinationPolicy] = field(factory=dict)
    policies: BrokerPolicies = field(factory=BrokerPolicies)
    memory: MemoryBudget = field(factory=lambda: MemoryBudget(AMPLE))
    now: float = 1000.0
    dialect_name: str = "native"
    broker: Broker = field(init=False)
    actors: list[Actor] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.broker = Broker(
            self.policies,
            self.memory,
            ServerFake(),
            "b",
            book=PolicyBook(self.book.items()),
            dialect=dialect(self.dialect_name),
        )

    def actor(self, version: str = "1.2", *, room: bool = True) -> Actor:
        """One more client, connected."""
        box = Box(version, room)
        number = len(self.actors) + 1
        actor = Actor(self, Client(f"s{number}", box), box, version)
        self.actors.append(actor)
        actor.does(Opened(VERSIONS[version], NO_HEARTBEATS, ()))
        box.waiting.clear()
        return actor

    def turn(self) -> None:
        """End the turn."""
        self.broker.end_turn(self.now)

    def passes(self, seconds: float) -> None:
        """Let time pass, and the broker know."""
        self.now += seconds
        self.broker.tick(self.now)
        self.turn()

    def queue(self, name: str) -> Queue:
        """A queue that exists."""
        destination = self.broker.destinations.known(name)
        assert destination is not None
        assert destination.queue is not None
        return destination.queue

    def waiting(self, name: str) -> list[str]:
        """Bodies of what waits in a queue, in order; [] if there is none."""
        destination = self.broker.destinations.known(name)
        if destination is None or destination.queue is None:
            return []
        return [message.body.decode() for message in destination.queue.waiting.in_order()]

    def heads_bytes(self) -> int:
        """What the header blocks of all messages are charged that wait or are unacknowledged."""
        waiting = [each for queue in self.broker.queues for each in queue.waiting.in_order()]
        taken = [
            unacked.message
            for queue in self.broker.queues
            for consumer in queue.consumers
            for unacked in consumer.unacked.values()
        ]
        heads = {message.publication.head for message in waiting + taken}
        return sum(head_bytes(head.headers) for head in heads)

    def ends(self) -> None:
        """All clients go and every queue is emptied: nothing may still be charged for."""
        for actor in self.actors:
            actor.is_gone()
        self.broker.finish(self.now)
        self.now += 1e6
        self.broker.tick(self.now)
        for queue in list(self.broker.queues):
            assert queue.unacked == queue.delayed == 0
            self.broker.queues.end(queue.name, self.now)
            assert queue.size == queue.held == 0
        assert self.memory.used_bytes == 0
        assert self.memory.tables_bytes == lasting_bytes(self.broker)


def bench(policy: DestinationPolicy | None = None, **fields: object) -> Bench:
    """A bench where one policy holds for ``/queue/q``, and the defaults for all else."""
    if policy is None:
        policy = DestinationPolicy(**fields)  # type: ignore[arg-type]
    return Bench({"/queue/q": policy})


def pairs(headers: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """Headers from keyword arguments: ``_`` stands for ``-`` but in the names that have one."""
    return tuple(
        (name if name.startswith(KEPT) else name.replace("_", "-"), text)
        for name, text in headers.items()
    )


KEPT = ("message_group", "AMQ_SCHEDULE")
"""How the names of headers begin that have an underscore."""


def texts(frames: Iterable[Received]) -> list[str]:
    """The bodies."""
    return [frame.text for frame in frames]


def numbered(prefix: str, count: int) -> list[str]:
    """Bodies: ``prefix`` and a number from 0."""
    return [f"{prefix}{number}" for number in range(count)]
