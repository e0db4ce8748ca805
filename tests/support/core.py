"""The harness of the messaging core: a broker, its clock, and clients that speak to it.

``Core`` ends the turn after each batch of events, and its ``Peer`` reads everything received so
far.
``Bench`` ends a turn on request or on a read, and its ``Actor`` reads what has arrived since its
last read. Outboxes record the staged bytes, and an independent oracle decodes them, so a fault of
the codec cannot hide itself.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import Any

from _oracle.server_frames import Pairs as Pairs
from _oracle.server_frames import Received as Received
from _oracle.server_frames import read_frames as read_frames
from attrs import define, field

from tests.support.fakes import lose
from trio_stomp.base import ANONYMOUS, CloseReason, Identity
from trio_stomp.broker import (
    AccessRules,
    Broker,
    BrokerPolicies,
    Census,
    Client,
    Delivery,
    DestinationPolicy,
    Log,
    MemoryBudget,
    PolicyBook,
    Setup,
    WallTime,
    assemble,
    dialect,
)
from trio_stomp.broker.delivery import Turns
from trio_stomp.broker.queues import Consumer, Queue
from trio_stomp.frames import DEDUP_HEADERS, FrameRun, Head
from trio_stomp.protocol import (
    NO_HEARTBEATS,
    STOMP_1_0,
    STOMP_1_1,
    STOMP_1_2,
    Acked,
    Committed,
    Disconnected,
    Event,
    HeartbeatPlan,
    Opened,
    Subscribed,
    Unsubscribed,
)

BOOT = "b7"
AMPLE = 1 << 40
UNTIL_NUL = -1
LOOK_S = 100e-6
"""The time of a step of a work on a slow machine: how far the core's clock goes at each look."""
OVERHEAD = 256
"""Bytes charged for a message besides its body: repeated here, since it is part of a limit."""
DIALECTS = ("native", "rabbitmq", "activemq", "artemis", "apollo", "stompica")
"""All dialects."""
SHOWN_BYTES = 576
"""Bytes charged for a delivery of one message besides its content."""
VERSIONS = {"1.0": STOMP_1_0, "1.1": STOMP_1_1, "1.2": STOMP_1_2}

_PLAIN_ID = re.compile(r"(\d+_)?[A-Za-z0-9.-]+")
"""An id; those of partitions begin with the partition."""

Staged = tuple[bytes, Delivery | None]


@define(eq=False, repr=False)
class OutboxFake:
    """Records what the core stages. Its fill level is controlled by the test.

    Args:
      version: The STOMP version of its client.
      capacity: MESSAGEs that may wait. As with the real one, an empty outbox takes any run.
      room: ``has_room`` while fewer MESSAGEs wait.
    """

    version: str = "1.2"
    capacity: int = AMPLE
    room: int = AMPLE
    asks_left: int = AMPLE
    """The number of further calls of ``has_room`` that may return True."""
    may_overflow: bool = True
    is_logged: bool = False
    is_jammed: bool = False
    """Takes no MESSAGE, however few wait."""
    closed: CloseReason | None = None
    staged: deque[Staged] = field(factory=deque)
    written: list[bytes] = field(factory=list)
    log: list[bytes] = field(factory=list)
    """MESSAGEs as they are staged, if ``is_logged``."""
    refused: int = 0
    swallowed: int = 0
    """MESSAGEs staged after it was closed."""
    discarded: int = 0
    expired: int = 0
    is_paused: bool = False
    """Its client is not to be read from."""
    pauses: int = 0
    unsent: list[Delivery] = field(factory=list)
    """Deliveries that expired before they were written, and need an acknowledgement."""

    @property
    def waiting(self) -> int:
        """MESSAGEs that wait."""
        return sum(delivery.count for _, delivery in self.staged if delivery is not None)

    def stage(self, prefix: bytes, delivery: Delivery) -> bool:
        """The port's."""
        size = sum(map(len, delivery.tails))
        assert delivery.size in ((size, size + SHOWN_BYTES) if delivery.count == 1 else (size,))
        assert delivery.count == len(delivery.tails) - 1 > 0
        # A message out of a queue holds only the tail of its body.
        assert len(delivery.publication.bodies) in (0, delivery.count)
        assert delivery.tails[0] == b""
        if self.closed is not None:
            self.swallowed += delivery.count
            return True
        waiting = self.waiting if self.capacity < AMPLE else 0
        if self.is_jammed or (waiting and waiting + delivery.count > self.capacity):
            self.refused += delivery.count
            return False
        self.staged.append((prefix, delivery))
        if self.is_logged:
            self.log.append(prefix.join(delivery.tails))
        return True

    def stage_frame(self, frame: bytes) -> None:
        """The port's."""
        if self.closed is None:
            self.staged.append((frame, None))

    def drop_oldest(self, size: int) -> int:
        """The port's."""
        assert self.may_overflow, "this outbox is never too full"
        dropped = 0
        kept: deque[Staged] = deque()
        for prefix, delivery in self.staged:
            if size > 0 and delivery is not None:
                size -= delivery.size + delivery.count * len(prefix)
                dropped += lose(delivery)
            else:
                kept.append((prefix, delivery))
        self.staged = kept
        return dropped

    def has_room(self) -> bool:
        """The port's."""
        self.asks_left -= 1
        if self.closed is not None or self.asks_left < 0:
            return False
        return self.room == AMPLE or self.waiting < self.room

    def discard(self) -> int:
        """The port's."""
        lost = self.drop_oldest(AMPLE)
        self.discarded += lost
        return lost

    def pause_reading(self, *, paused: bool) -> None:
        """The port's."""
        self.is_paused = paused
        self.pauses += paused

    def close(self, reason: CloseReason) -> None:
        """The port's."""
        self.closed = self.closed or reason

    def write(self, now: float = 0.0) -> None:
        """Write all waiting messages that have not expired."""
        for prefix, delivery in self.staged:
            if delivery is None:
                self.written.append(prefix)
            elif delivery.publication.is_over(now):
                self.expired += delivery.count
                if delivery.ticket is not None:
                    self.unsent.append(delivery)
            else:
                self.written.append(prefix.join(delivery.tails))
        self.staged.clear()

    def frames(self) -> list[Received]:
        """Return all frames in order, written or not."""
        waiting = [
            prefix if delivery is None else prefix.join(delivery.tails)
            for prefix, delivery in self.staged
        ]
        return self._read([*self.written, *waiting])

    def take(self) -> list[Received]:
        """Return the frames written since the last call."""
        written, self.written = self.written, []
        return self._read(written)

    def _read(self, data: list[bytes]) -> list[Received]:
        frames = read_frames(b"".join(data), self.version)
        messages = [frame for frame in frames if frame.command == "MESSAGE"]
        ids = [
            tuple(map(frame.get, ("subscription", "message-id", "delivery-count")))
            for frame in messages
        ]
        assert len(set(ids)) == len(ids), "message-id used twice"
        acks = [ack for frame in messages if (ack := frame.get("ack"))]
        assert len(set(acks)) == len(acks), "ack used twice"
        assert all(_PLAIN_ID.fullmatch(each or "") for _, each, _ in ids), ids
        return frames


@define(eq=False)
class ServerFake:
    """The server, as the core asks it for figures."""

    figures: Census = field(factory=Census)

    def census(self) -> Census:
        """The port's."""
        return self.figures


def run_of(
    destination: str,
    bodies: Iterable[str | bytes] = ("x",),
    headers: Pairs = (),
    receipts: Sequence[tuple[int, bytes]] = (),
    length: int = UNTIL_NUL,
) -> FrameRun:
    """Return SENDs that share a header block, as the decoder returns them."""
    pairs = (("destination", destination), *headers)
    raw = [body.encode() if isinstance(body, str) else body for body in bodies]
    return FrameRun(Head("SEND", pairs, length, destination), raw, list(receipts))


def singly(run: FrameRun) -> Iterator[FrameRun]:
    """Yield each frame as a run of its own."""
    for number, body in enumerate(run.bodies, 1):
        own = [(1, name) for count, name in run.receipts if count == number]
        yield FrameRun(run.head, [body], own)


def head_bytes(headers: Pairs) -> int:
    """Return the bytes charged for a plain header block: repeated here, as part of a limit."""
    return 512 + sum(176 + 2 * (len(name) + len(text)) for name, text in headers)


def queue_head(destination: str = "/queue/q", *headers: tuple[str, str]) -> int:
    """Return the bytes charged for the header block of a SEND made by ``run_of``."""
    return head_bytes((("destination", destination), *headers))


HEAD = queue_head()
"""Bytes charged for the header block of a plain SEND to ``/queue/q``, once for its run."""


def counted_turns() -> Turns:
    """Return turns whose shares end after a number of steps, wherever they are looked at."""
    looks = count()
    return Turns(lambda: next(looks) * LOOK_S)


def lasting_bytes(broker: Broker) -> int:
    """Return the bytes charged for names, ids and durable subscriptions, which outlive clients."""
    bindings = list(broker.bindings.durables)
    selectors = {binding.selector for binding in bindings if binding.selector is not None}
    ids = sum(
        256 + len(name.encode()) for destination in broker.destinations for name in destination.seen
    )
    names = sum(destination.cost for destination in broker.destinations)
    return (
        names
        + ids
        + sum(binding.cost for binding in bindings)
        + sum(each.cost for each in selectors)
    )


KEPT = ("message_group", "AMQ_SCHEDULE")
"""Beginnings of header names with underscores."""


def pairs(headers: dict[str, str]) -> Pairs:
    """Return headers from keyword arguments. ``_`` becomes ``-`` except in names of ``KEPT``."""
    return tuple(
        (name if name.startswith(KEPT) else name.replace("_", "-"), text)
        for name, text in headers.items()
    )


@define(eq=False, repr=False)
class Peer:
    """A client of a ``Core``: sends events to the broker, and reads what it stages."""

    core: "Core"
    client: Client
    outbox: OutboxFake

    @property
    def version(self) -> str:
        """The version that it speaks."""
        return self.outbox.version

    def does(self, *events: Event, received_at: float | None = None) -> None:
        """Have the broker apply any events as one batch."""
        core = self.core
        core.broker.apply(
            self.client, events, core.now if received_at is None else received_at, core.now
        )
        core.batch_ended()

    def opens(
        self,
        headers: Pairs = (),
        heartbeats: HeartbeatPlan = NO_HEARTBEATS,
        identity: Identity = ANONYMOUS,
    ) -> None:
        """CONNECT."""
        self.does(Opened(VERSIONS[self.version], heartbeats, headers, identity))

    def sends(
        self,
        destination: str,
        *bodies: str | bytes,
        headers: Pairs = (),
        receipts: Sequence[tuple[int, bytes]] = (),
        received_at: float | None = None,
    ) -> None:
        """SEND as many frames as there are bodies, in runs as the decoder makes them."""
        run = run_of(destination, bodies or ("x",), headers, receipts)
        is_single = any(name in DEDUP_HEADERS for name, _ in headers)
        self.does(*(singly(run) if is_single else [run]), received_at=received_at)

    def subscribes(
        self,
        destination: str,
        id: str | None = "0",
        ack: str = "auto",
        *,
        receipt: bytes | None = None,
        headers: Pairs = (),
    ) -> None:
        """SUBSCRIBE."""
        self.does(Subscribed(id, destination, ack, headers, receipt))

    def unsubscribes(
        self,
        id: str | None = "0",
        destination: str | None = None,
        *,
        receipt: bytes | None = None,
        headers: Pairs = (),
    ) -> None:
        """UNSUBSCRIBE."""
        self.does(Unsubscribed(id, destination, receipt, headers))

    def acks(self, *what: Received | str, receipt: bytes | None = None) -> None:
        """ACK, a run."""
        self.does(self.acked(*what, receipts=_last(what, receipt)))

    def nacks(
        self, *what: Received | str, requeue: bool = True, receipt: bytes | None = None
    ) -> None:
        """NACK, a run."""
        receipts = _last(what, receipt)
        self.does(self.acked(*what, negative=True, requeue=requeue, receipts=receipts))

    def acked(
        self,
        *what: Received | str,
        negative: bool = False,
        requeue: bool = True,
        subscription: str | None = None,
        receipts: Sequence[tuple[int, bytes]] = (),
    ) -> Acked:
        """Return the event of ACKs or NACKs, as this version's session reports it."""
        header, source = ("id", "ack") if self.version == "1.2" else ("message-id", "message-id")
        ids = [each if isinstance(each, str) else each.get(source) or "" for each in what]
        raw = [each.encode() for each in ids]
        return Acked(raw, header, subscription, negative, requeue, receipts)

    def commits(self, *actions: Event, receipt: bytes | None = b"done") -> None:
        """COMMIT of a transaction that held ``actions``."""
        self.does(Committed(actions, receipt))  # type: ignore[arg-type]

    def leaves(self, receipt: bytes | None = None) -> None:
        """DISCONNECT."""
        self.does(Disconnected(receipt))

    def is_gone(self, reason: CloseReason = CloseReason.CONNECTION_LOST) -> None:
        """The connection has ended."""
        self.core.broker.forget(self.client, reason, self.core.now)
        self.core.batch_ended()

    def gives_back(self) -> None:
        """Give deliveries back to the broker that expired before they were written."""
        unsent, self.outbox.unsent = self.outbox.unsent, []
        for delivery in unsent:
            self.core.broker.unsent(delivery, self.core.now)

    def drains(self) -> None:
        """Read all waiting frames, and let the broker stage more, until none are left."""
        core = self.core
        while self.outbox.staged:
            self.outbox.write(core.now)
            self.gives_back()
            core.broker.writable(self.client, core.now)
            core.broker.end_turn(core.now)

    def frames(self, *commands: str) -> list[Received]:
        """Return its frames, or only those with these commands."""
        return _only(self.outbox.frames(), commands)

    def messages(self) -> list[Received]:
        """The MESSAGEs that it was sent."""
        return self.frames("MESSAGE")

    def bodies(self, id: str | None = None) -> list[str]:
        """The bodies of its MESSAGEs, or only of one subscription."""
        return [
            frame.text for frame in self.messages() if id is None or frame.get("subscription") == id
        ]

    def error(self) -> Received:
        """The one ERROR that it was sent, which is the last frame."""
        frames = self.frames()
        assert [frame.command for frame in frames].count("ERROR") == 1
        assert frames[-1].command == "ERROR"
        return frames[-1]

    def consumer(self, id: str = "0") -> Consumer:
        """Return the consumer of one of its subscriptions."""
        found = self.client.subscriptions[id].consumer
        assert isinstance(found, Consumer)
        return found


def _last(what: Sequence[object], receipt: bytes | None) -> Sequence[tuple[int, bytes]]:
    return [] if receipt is None else [(len(what), receipt)]


def _only(frames: list[Received], commands: Sequence[str]) -> list[Received]:
    return [frame for frame in frames if not commands or frame.command in commands]


@define(eq=False, repr=False)
class Actor(Peer):
    """A client of a ``Bench``. Each read ends the turn, and returns what is new.

    Headers are given by keyword, as ``pairs`` reads them.
    """

    def sends(  # type: ignore[override]
        self,
        destination: str,
        *bodies: str | bytes,
        receipts: Sequence[tuple[int, bytes]] = (),
        **headers: str,
    ) -> None:
        """SEND, a run of as many as there are bodies."""
        Peer.sends(self, destination, *bodies, headers=pairs(headers), receipts=receipts)

    def subscribes(  # type: ignore[override]
        self, destination: str, id: str | None = "0", ack: str = "auto", **headers: str
    ) -> None:
        """SUBSCRIBE."""
        Peer.subscribes(self, destination, id, ack, headers=pairs(headers))

    def frames(self, *commands: str) -> list[Received]:
        """End the turn, and return all frames since the last call."""
        self.core.turn()
        return _only(self.writes(), commands)

    def writes(self) -> list[Received]:
        """Write waiting frames, and give back expired ones. Return all that was written."""
        self.outbox.write(self.core.now)
        self.gives_back()
        return self.outbox.take()

    def messages(self) -> list[Received]:
        """End the turn. Return the MESSAGEs since the last call; there may be no other frames."""
        return self.reads()

    def reads(self, id: str | None = None) -> list[Received]:
        """End the turn. Return the new MESSAGEs, or only those of one subscription."""
        frames = self.frames()
        assert [frame.command for frame in frames if frame.command != "MESSAGE"] == []
        return [frame for frame in frames if id is None or frame.get("subscription") == id]

    def error(self) -> Received:
        """End the turn. Return the ERROR that must be the last frame since the last call."""
        error = Peer.error(self)
        assert self.outbox.closed is not None
        return error

    def opens_up(self) -> None:
        """Its outbox has room again."""
        self.outbox.room = AMPLE
        self.core.broker.writable(self.client, self.core.now)


@define(eq=False, repr=False)
class Core:
    """A broker, its clock and its budget, and the clients made with ``peer``."""

    policies: BrokerPolicies = field(factory=BrokerPolicies)
    memory: MemoryBudget = field(factory=lambda: MemoryBudget(AMPLE))
    now: float = 100.0
    server: ServerFake = field(factory=ServerFake)
    server_name: str = ""
    book: dict[str, DestinationPolicy] = field(factory=dict)
    dialect: str = "native"
    wall_offset_s: float = 0.0
    rules: AccessRules | None = None
    boot: str = field(default=BOOT, init=False)
    broker: Broker = field(init=False)
    peers: list[Any] = field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        self.broker = self.make()
        # Not by chance: tests know the names of others' temporary destinations.
        self.broker.publisher.temporary.begin_name = lambda client: client.session_id

    def make(self, log: Log | None = None) -> Broker:
        """Return a broker with these policies."""
        setup = Setup(
            policies=self.policies,
            memory=self.memory,
            server=self.server,
            turns=counted_turns() if log is None else log.turns,
            boot=self.boot,
            server_name=self.server_name,
            book=PolicyBook(tuple(self.book.items())),
            dialect=dialect(self.dialect),
            wall=WallTime(self.wall_offset_s),
            rules=self.rules,
            log=log,
        )
        return self.assemble(setup)

    def assemble(self, setup: Setup) -> Broker:
        """Return a broker."""
        return assemble(setup)

    def batch_ended(self) -> None:
        """End the turn."""
        self.broker.end_turn(self.now)

    def peer(
        self,
        version: str = "1.2",
        *,
        capacity: int = AMPLE,
        room: int = AMPLE,
        opens: bool = True,
        client_id: str = "",
        identity: Identity = ANONYMOUS,
    ) -> Peer:
        """Return a new client. Its CONNECTED is already written, and not recorded."""
        outbox = OutboxFake(version, capacity, room)
        peer = Peer(self, self.client(outbox), outbox)
        self.peers.append(peer)
        if opens:
            peer.opens((("client-id", client_id),) if client_id else (), identity=identity)
            outbox.staged.clear()
        return peer

    def reader(
        self,
        destination: str,
        id: str = "0",
        ack: str = "auto",
        *,
        headers: Pairs = (),
        room: int = AMPLE,
        client_id: str = "",
        identity: Identity = ANONYMOUS,
    ) -> Peer:
        """Return a new client that has subscribed."""
        peer = self.peer(room=room, client_id=client_id, identity=identity)
        peer.subscribes(destination, id, ack, headers=headers)
        return peer

    def client(self, outbox: OutboxFake) -> Client:
        """The next client."""
        number = len(self.peers) + 1
        return Client(f"s{number}", outbox, remote=f"10.0.0.{number}")

    def turn(self) -> None:
        """End the turn."""
        self.broker.end_turn(self.now)

    def passes(self, seconds: float) -> None:
        """Let time pass, and the broker know."""
        self.now += seconds
        self.broker.tick(self.now)
        self.turn()

    def events(self) -> list[tuple[str, str, str]]:
        """Return the broker's events since the last call: name, session, destination."""
        return [
            (event.name, event.session_id, event.destination) for event in self.broker.take_events()
        ]

    def queue(self, name: str) -> Queue:
        """Return an existing queue."""
        found = self.broker.queues.find(name)
        assert found is not None
        return found

    def waiting(self, name: str) -> list[str]:
        """Return the bodies waiting in a queue, in order, or [] if there is none."""
        queue = self.broker.queues.find(name)
        return [] if queue is None else [each.body.decode() for each in queue.waiting.in_order()]

    def heads_bytes(self) -> int:
        """Return the bytes charged for header blocks of waiting and unacknowledged messages."""
        waiting = [each for queue in self.broker.queues for each in queue.waiting.in_order()]
        taken = [
            message
            for queue in self.broker.queues
            for consumer in queue.consumers
            for message in consumer.unacked.values()
        ]
        heads = {message.publication.head for message in waiting + taken}
        return sum(head_bytes(head.headers) for head in heads)

    def ends(self) -> None:
        """End all clients, let everything expire, and check that nothing is left."""
        for peer in self.peers:
            peer.is_gone()
        while not self.broker.leaving.is_over:
            self.passes(0)
        self.passes(1e9)
        queues = list(self.broker.queues)
        for queue in queues:
            assert queue.unacked == queue.delayed == 0
            self.broker.queues.end(queue.name, self.now)
        while self.broker.has_more:
            self.turn()
        assert not any(queue.size or queue.message_count for queue in queues)
        assert self.broker.stale.size == self.broker.stale.bytes == 0
        assert self.memory.used_bytes == self.memory.kept_bytes == self.memory.stored_bytes == 0
        assert self.memory.tables_bytes == lasting_bytes(self.broker)
        assert len(self.broker.timers) == 0
        assert len(self.broker.subscriptions) == self.broker.destinations.wildcards == 0
        assert not self.broker.clients

    def ends_with_durables(self) -> None:
        """End all durable subscriptions too."""
        for binding in list(self.broker.bindings.durables):
            self.broker.bindings.end_durable(binding, self.now)
        self.ends()


@define(eq=False, repr=False)
class Bench(Core):
    """A core whose turns end explicitly, or on a read."""

    boot: str = field(default="b", init=False)

    def batch_ended(self) -> None:
        """Do not end the turn."""

    def settles(self) -> int:
        """Run until all work is done. Return the number of turns."""
        turns = 0
        while self.broker.has_more:
            self.turn()
            turns += 1
            assert turns < 10_000
        return turns

    def actor(self, version: str = "1.2", *, room: int = AMPLE) -> Actor:
        """Return a new connected client."""
        outbox = OutboxFake(version, room=room, may_overflow=False, is_logged=True)
        actor = Actor(self, self.client(outbox), outbox)
        self.peers.append(actor)
        actor.opens()
        outbox.staged.clear()
        return actor

    def reader(  # type: ignore[override]
        self, destination: str, id: str = "0", ack: str = "auto", **headers: str
    ) -> Actor:
        """Return a new client that has subscribed."""
        actor = self.actor()
        actor.subscribes(destination, id, ack, **headers)
        return actor


def bench(policy: DestinationPolicy | None = None, **fields: object) -> Bench:
    """Return a bench with one policy for ``/queue/q``, and the defaults for the rest."""
    if policy is None:
        policy = DestinationPolicy(**fields)  # type: ignore[arg-type]
    return Bench(book={"/queue/q": policy})


def ttl_core(**policies: int | str) -> Core:
    """Return a core with a TTL of 10 s."""
    return Core(BrokerPolicies(**{"ttl_ms": 10_000, **policies}))  # type: ignore[arg-type]


def texts(frames: Iterable[Received]) -> list[str]:
    """The bodies."""
    return [frame.text for frame in frames]


def numbered(prefix: str, count: int) -> list[str]:
    """Bodies: ``prefix`` and a number from 0."""
    return [f"{prefix}{number}" for number in range(count)]
