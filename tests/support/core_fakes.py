"""Fakes around the messaging core: outboxes that record, a server that counts, clients that speak.

What the core staged is read back by a parser of this file's own, so that a fault of the codec does
not hide itself. Queues, acknowledgements and transactions only need more events: see ``Peer.does``.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from attrs import define, field

from tests.support.fakes import lose
from trio_stomp.base._errors import CloseReason
from trio_stomp.base._identity import ANONYMOUS, Identity
from trio_stomp.broker import (
    AccessRules,
    Broker,
    BrokerPolicies,
    Census,
    Client,
    Delivery,
    DestinationPolicy,
    MemoryBudget,
    PolicyBook,
    WallTime,
    dialect,
)
from trio_stomp.broker.queues._consumer import SHOWN_BYTES
from trio_stomp.frames import FrameRun, Head
from trio_stomp.protocol import (
    NO_HEARTBEATS,
    STOMP_1_0,
    STOMP_1_1,
    STOMP_1_2,
    Acked,
    Event,
    HeartbeatPlan,
    Left,
    Opened,
    Subscribed,
    Unsubscribed,
)

BOOT = "b7"
AMPLE = 1 << 40
UNTIL_NUL = -1
VERSIONS = {"1.0": STOMP_1_0, "1.1": STOMP_1_1, "1.2": STOMP_1_2}

_ESCAPES = {
    "1.0": {},
    "1.1": {"n": "\n", "c": ":", "\\": "\\"},
    "1.2": {"r": "\r", "n": "\n", "c": ":", "\\": "\\"},
}
_PLAIN_ID = re.compile(r"[A-Za-z0-9.-]+")

Pairs = tuple[tuple[str, str], ...]
Staged = tuple[bytes, Delivery | None]


@define(frozen=True)
class Received:
    """A frame as a client reads it."""

    command: str
    headers: Pairs
    body: bytes

    def get(self, name: str) -> str | None:
        """The value of the first header ``name``."""
        return next((text for key, text in self.headers if key == name), None)

    def names(self) -> list[str]:
        """Header names in order."""
        return [name for name, _ in self.headers]

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()


def read_frames(data: bytes, version: str) -> list[Received]:
    """Read whole frames by the book; an AssertionError says where the bytes are none."""
    frames = []
    place = 0
    while place < len(data):
        end = data.index(b"\n\n", place)
        command, *lines = data[place:end].decode().split("\n")
        assert re.fullmatch("[A-Z]+", command), command
        # CONNECTED is never escaped (F22).
        known = "1.0" if command == "CONNECTED" else version
        headers = tuple(_read_line(line, known) for line in lines)
        names = [name for name, _ in headers]
        assert len(set(names)) == len(names), f"repeated header: {names}"
        body, place = _read_body(data, end + 2, dict(headers).get("content-length"))
        frames.append(Received(command, headers, body))
    return frames


def _read_line(line: str, version: str) -> tuple[str, str]:
    name, colon, text = line.partition(":")
    assert name, line
    assert colon, line
    if version != "1.0":
        assert ":" not in text, line
    if version == "1.0":
        assert text, f"an empty value in 1.0: {line}"
    if version != "1.1":
        assert "\r" not in line, line
    return _unescape(name, version), _unescape(text, version)


def _unescape(text: str, version: str) -> str:
    if version == "1.0":
        return text
    return re.sub(r"\\(.?)", lambda found: _ESCAPES[version][found[1]], text)


def _read_body(data: bytes, start: int, told: str | None) -> tuple[bytes, int]:
    end = data.index(b"\0", start) if told is None else start + int(told)
    assert data[end : end + 2] == b"\0\n", "no NUL and line feed behind the body"
    return data[start:end], end + 2


@define(eq=False, repr=False)
class OutboxFake:
    """Records what the core stages, and is as full as a test wants it.

    Args:
      version: What its client reads.
      capacity: MESSAGEs that may wait. As with the real one, an empty outbox takes any run.
      room: ``has_room`` while fewer MESSAGEs wait.
    """

    version: str = "1.2"
    capacity: int = AMPLE
    room: int = AMPLE
    is_jammed: bool = False
    """Takes no MESSAGE, however few wait."""
    closed: CloseReason | None = None
    staged: deque[Staged] = field(factory=deque)
    written: list[bytes] = field(factory=list)
    refused: int = 0
    swallowed: int = 0
    """MESSAGEs that came when it was closed."""
    discarded: int = 0
    expired: int = 0
    is_paused: bool = False
    """Its client is not to be read from."""
    unsent: list[Delivery] = field(factory=list)
    """What expired before it was written, and its consumer would have had to acknowledge."""

    @property
    def waiting(self) -> int:
        """MESSAGEs that wait."""
        return sum(delivery.count for _, delivery in self.staged if delivery is not None)

    def stage(self, prefix: bytes, delivery: Delivery) -> bool:
        """The port's."""
        size = sum(map(len, delivery.tails))
        assert delivery.size in ((size, size + SHOWN_BYTES) if delivery.count == 1 else (size,))
        assert delivery.count == len(delivery.tails) - 1
        # What comes out of a queue holds no bodies but its tails.
        assert len(delivery.publication.bodies) in (0, delivery.count)
        assert delivery.tails[0] == b""
        if self.closed is not None:
            self.swallowed += delivery.count
            return True
        waiting = self.waiting
        if self.is_jammed or (waiting and waiting + delivery.count > self.capacity):
            self.refused += delivery.count
            return False
        self.staged.append((prefix, delivery))
        return True

    def stage_frame(self, frame: bytes) -> None:
        """The port's."""
        if self.closed is None:
            self.staged.append((frame, None))

    def drop_oldest(self, size: int) -> int:
        """The port's."""
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
        return self.closed is None and self.waiting < self.room

    def discard(self) -> int:
        """The port's."""
        lost = self.drop_oldest(AMPLE)
        self.discarded += lost
        return lost

    def pause_reading(self, *, paused: bool) -> None:
        """The port's."""
        self.is_paused = paused

    def close(self, reason: CloseReason) -> None:
        """The port's."""
        if self.closed is None:
            self.closed = reason

    def write(self, now: float = 0.0) -> None:
        """Write all that waits, but what has expired."""
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
        """All frames in order, written or not."""
        waiting = [
            prefix if delivery is None else prefix.join(delivery.tails)
            for prefix, delivery in self.staged
        ]
        frames = read_frames(b"".join((*self.written, *waiting)), self.version)
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
    """SENDs that share a header block, as the decoder tells them."""
    pairs = (("destination", destination), *headers)
    raw = [body.encode() if isinstance(body, str) else body for body in bodies]
    return FrameRun(Head("SEND", pairs, length, destination), raw, list(receipts))


def head_bytes(headers: Pairs) -> int:
    """What a header block of plain texts is charged: spelled out, since it is part of a limit."""
    return 512 + sum(176 + 2 * (len(name) + len(text)) for name, text in headers)


def queue_head(destination: str = "/queue/q", *headers: tuple[str, str]) -> int:
    """The same of a SEND as ``run_of`` makes it."""
    return head_bytes((("destination", destination), *headers))


def lasting_bytes(broker: Broker) -> int:
    """What is charged for names, ids and durable subscriptions, which outlive their clients."""
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


@define(eq=False, repr=False)
class Peer:
    """One client of a ``Core``: says things to the broker, reads what it is told."""

    core: "Core"
    client: Client
    outbox: OutboxFake

    def does(self, *events: Event, received_at: float | None = None) -> None:
        """Have the broker apply any events as one batch, and end the turn."""
        core = self.core
        core.broker.apply(
            self.client, events, core.now if received_at is None else received_at, core.now
        )
        core.broker.end_turn(core.now)

    def opens(
        self,
        headers: Pairs = (),
        heartbeats: HeartbeatPlan = NO_HEARTBEATS,
        identity: Identity = ANONYMOUS,
    ) -> None:
        """CONNECT."""
        self.does(Opened(VERSIONS[self.outbox.version], heartbeats, headers, identity))

    def sends(
        self,
        destination: str,
        *bodies: str | bytes,
        headers: Pairs = (),
        receipts: Sequence[tuple[int, bytes]] = (),
        received_at: float | None = None,
    ) -> None:
        """SEND, a run of as many frames as there are bodies."""
        run = run_of(destination, bodies or ("x",), headers, receipts)
        self.does(run, received_at=received_at)

    def subscribes(
        self,
        destination: str,
        id: str | None = "0",
        *,
        ack: str = "auto",
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

    def acks(self, *messages: Received, receipt: bytes | None = None) -> None:
        """ACK each of these MESSAGEs, by the header of its version."""
        self._settles(messages, receipt, negative=False, requeue=True)

    def nacks(
        self, *messages: Received, requeue: bool = True, receipt: bytes | None = None
    ) -> None:
        """NACK each of these MESSAGEs."""
        self._settles(messages, receipt, negative=True, requeue=requeue)

    def _settles(
        self,
        messages: Sequence[Received],
        receipt: bytes | None,
        *,
        negative: bool,
        requeue: bool,
    ) -> None:
        newest = self.outbox.version == "1.2"
        header, source = ("id", "ack") if newest else ("message-id", "message-id")
        ids = [(message.get(source) or "").encode() for message in messages]
        receipts = [] if receipt is None else [(len(ids), receipt)]
        self.does(Acked(ids, header, None, negative, requeue, receipts))

    def leaves(self, receipt: bytes | None = None) -> None:
        """DISCONNECT."""
        self.does(Left(receipt))

    def is_gone(self, reason: CloseReason = CloseReason.CONNECTION_LOST) -> None:
        """The connection has ended."""
        broker = self.core.broker
        broker.forget(self.client, reason, self.core.now)
        broker.end_turn(self.core.now)

    def drains(self) -> None:
        """Read all that waits, and let the broker give more, until there is no more."""
        core = self.core
        while self.outbox.staged:
            self.outbox.write(core.now)
            for delivery in self.outbox.unsent:
                core.broker.unsent(delivery, core.now)
            self.outbox.unsent.clear()
            core.broker.writable(self.client, core.now)
            core.broker.end_turn(core.now)

    def frames(self, *commands: str) -> list[Received]:
        """What it was sent, or only these commands."""
        return [
            frame for frame in self.outbox.frames() if not commands or frame.command in commands
        ]

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


@define(eq=False, repr=False)
class Core:
    """A broker, its clock and its budget, and the clients made with ``peer``."""

    policies: BrokerPolicies = field(factory=BrokerPolicies)
    memory: MemoryBudget = field(factory=lambda: MemoryBudget(AMPLE))
    now: float = 100.0
    server: ServerFake = field(factory=ServerFake)
    server_name: str = ""
    by_destination: dict[str, DestinationPolicy] = field(factory=dict)
    dialect: str = "native"
    wall_offset_s: float = 0.0
    rules: AccessRules | None = None
    broker: Broker = field(init=False)
    peers: list[Peer] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.broker = Broker(
            self.policies,
            self.memory,
            self.server,
            BOOT,
            self.server_name,
            PolicyBook(tuple(self.by_destination.items())),
            dialect(self.dialect),
            WallTime(self.wall_offset_s),
            rules=self.rules,
        )
        # Not by chance: tests know the names of others' temporary destinations.
        self.broker.publisher.temporary.begin_name = lambda client: client.session_id

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
        """One more client; its CONNECTED is written already, and not recorded."""
        outbox = OutboxFake(version, capacity, room)
        number = len(self.peers) + 1
        peer = Peer(self, Client(f"s{number}", outbox, remote=f"10.0.0.{number}"), outbox)
        self.peers.append(peer)
        if opens:
            peer.opens((("client-id", client_id),) if client_id else (), identity=identity)
            outbox.staged.clear()
        return peer

    def passes(self, seconds: float) -> None:
        """Let time pass, and the broker know."""
        self.now += seconds
        self.broker.tick(self.now)
        self.broker.end_turn(self.now)

    def events(self) -> list[tuple[str, str, str]]:
        """What the broker told of since the last call: name, session, destination."""
        return [
            (event.name, event.session_id, event.destination) for event in self.broker.events.take()
        ]

    def ends(self) -> None:
        """End all clients and let everything expire: nothing may be left."""
        for peer in self.peers:
            peer.is_gone()
        while not self.broker.leaving.is_over:
            self.passes(0)
        self.passes(1e9)
        assert self.broker.stale.size == self.broker.stale.bytes == 0
        assert self.memory.used_bytes == self.memory.kept_bytes == 0
        assert self.memory.tables_bytes == lasting_bytes(self.broker)
        assert len(self.broker.timers) == 0
        assert len(self.broker.subscriber) == self.broker.destinations.wildcards == 0
        assert not self.broker.clients


def ttl_core(**policies: int | str) -> Core:
    """A core whose messages live 10 s."""
    return Core(BrokerPolicies(**{"ttl_ms": 10_000, **policies}))  # type: ignore[arg-type]


def numbered(prefix: str, count: int) -> Iterator[str]:
    """Bodies: ``prefix`` and a number from 0."""
    return (f"{prefix}{number}" for number in range(count))
