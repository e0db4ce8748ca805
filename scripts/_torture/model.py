"""The messages of all clients, as sent and received, and the violations.

A *lane* is the sequence of messages that one connection sends to one destination, either in
transactions or outside them, numbered from 0. The broker processes frames of a connection in order,
so a lane arrives in order, and a message missing in its middle was aborted, or is lost.
"""

import threading
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

SENT, SURE, ABORTED = range(3)
"""The states of a message: sent, accepted by the broker, or aborted."""
MAX_VIOLATIONS = 10
MAX_DELIVERIES = 255
BOOT = 1000
"""Deliveries are numbered from here on after the broker's first restart, from twice this after the
second: a crash may forget how often a message was delivered."""

KINDS = {
    "order": "frames of one connection were processed out of order",
    "lost": "an accepted message never arrived",
    "double": "a message was redelivered without redelivered:true, or after its ACK",
    "transaction": "an aborted message arrived",
    "error": "an unexpected ERROR",
    "tls": "TLS broke, stalled or ended unexpectedly",
    "close": "an end (Close, DISCONNECT, a violation, a half close) was not answered in time",
    "silence": "a RECEIPT did not arrive in time",
    "ended": "the broker ended a connection without a violation",
    "client": "the client itself failed, without a result about the broker",
    "log": "the broker's log has unexpected lines",
}


@dataclass
class Lane:
    """The messages of one connection to one destination. Flags are bytes by number.

    Args:
      born: The number of lanes before it.
      boot: The number of restarts before its connection.
      saved: Whether each message is durable.
      acked: The acknowledged delivery of each message.
      came: Number and delivery of each message received from a queue.
    """

    name: str
    destination: str
    born: int = 0
    boot: int = 0
    state: bytearray = field(default_factory=bytearray)
    seen: bytearray = field(default_factory=bytearray)
    saved: bytearray = field(default_factory=bytearray)
    acked: dict[int, int] = field(default_factory=dict)
    came: set[tuple[int, int]] = field(default_factory=set)

    def new(self, *, is_saved: bool = False) -> int:
        """Return the next message's number. It is recorded before the message is sent."""
        for flags in (self.state, self.seen):
            flags.append(0)
        self.saved.append(is_saved)
        return len(self.state) - 1

    def last_sure(self) -> int:
        """Return the number of the last message known to be accepted, or -1."""
        return self.state.rfind(SURE)


class Place(NamedTuple):
    """One message, or one delivery of it, counted from 1, and from ``BOOT`` on for each restart."""

    lane: Lane
    number: int
    delivery: int = 1


@dataclass
class Violation:
    """A violation of a promise.

    Args:
      kind: One of ``KINDS``.
      who: The connection, and its transport.
      history: The last frames of that connection.
    """

    kind: str
    who: str
    text: str
    history: list[str]

    def __str__(self) -> str:
        return "\n".join([f"{self.kind}: {self.who}: {self.text}", *self.history])


class World:
    """All lanes by name, and the violations. For use by any thread."""

    def __init__(self) -> None:
        self.lanes: dict[str, Lane] = {}
        self.violations: list[Violation] = []
        self.found: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.orphans: deque[str] = deque()
        """Queues of closed connections, for the janitor."""
        self.boot = 0
        """The number of restarts of the broker."""
        self.is_down = False
        self.refusals: tuple[str, ...] = ()
        """Codes of ERRORs that a broker with little memory may send at any time."""
        self._live: dict[str, dict[str, Lane]] = {}
        self._lock = threading.Lock()

    def begin_down(self) -> None:
        """Record that the broker is about to end."""
        with self._lock:
            self.boot += 1
            self.is_down = True

    def lane(self, name: str, destination: str, boot: int) -> Lane:
        """Return the lane of that name, and begin it if necessary.

        A connection may begin one while its broker ends: then the next start has begun, but the
        lane's messages are this broker's.

        Args:
          boot: The number of restarts before its connection.
        """
        with self._lock:
            lane = self.lanes.get(name)
            if lane is None:
                lane = self.lanes[name] = Lane(name, destination, len(self.lanes), boot)
                self._live.setdefault(destination, {})[name] = lane
            return lane

    def retire(self, lanes: Iterable[Lane]) -> None:
        """Note that these lanes have ended."""
        with self._lock:
            for lane in lanes:
                self._live[lane.destination].pop(lane.name, None)

    def live(self, destination: str) -> list[Lane]:
        """Return the lanes of open connections to a destination."""
        with self._lock:
            return list(self._live.get(destination, {}).values())

    def wrong(self, kind: str, who: str, text: str, history: Iterable[str] = ()) -> None:
        """Record a violation. Only the first ones of each kind are stored."""
        assert kind in KINDS, kind
        with self._lock:
            self.found[kind] += 1
            if self.found[kind] <= MAX_VIOLATIONS:
                self.violations.append(Violation(kind, who, text, list(history)))

    def add(self, what: str, count: int = 1) -> None:
        """Count something, for the summary."""
        with self._lock:
            self.counts[what] += count

    def place(self, body: str, delivery: int, boot: int = 0) -> Place | None:
        """Return the message that a body belongs to, or None if it was never sent.

        Args:
          body: The body of the MESSAGE.
          delivery: Its delivery, counted from 1.
          boot: The number of restarts before its connection.
        """
        name, _, rest = body.partition(" ")
        text = rest.partition(" ")[0]
        lane = self.lanes.get(name)
        if lane is None or not text.isdecimal() or int(text) >= len(lane.state):
            return None
        return Place(lane, int(text), boot * BOOT + min(delivery, MAX_DELIVERIES))

    def deliver(self, place: Place) -> tuple[str, str] | None:
        """Record a delivery from a queue. Return the violation's kind and text, or None.

        A client that reads late may read an earlier delivery after another client has received the
        next one. Deliveries are distinguished only by their count.
        """
        lane, number, delivery = place
        with self._lock:
            self.counts["from queues"] += 1
            self.counts["redelivered"] += delivery % BOOT > 1
            is_again = (number, delivery) in lane.came
            lane.came.add((number, delivery))
            lane.seen[number] = 1
        name = f"{lane.name} {number}, delivery {delivery},"
        if lane.state[number] == ABORTED:
            return "transaction", f"{name} arrived, but its transaction was aborted"
        if lane.acked.get(number, delivery) < delivery:
            return "double", f"{name} arrived, but delivery {lane.acked[number]} was acknowledged"
        if is_again and delivery % BOOT < MAX_DELIVERIES:
            return "double", f"{name} arrived twice, without redelivered:true"
        return None

    def judge(self) -> None:
        """Check, after the drain, that all accepted messages have arrived.

        Those that are not durable may end with the broker.
        """
        for lane in self.lanes.values():
            if not lane.destination.startswith("/queue/"):
                continue  # its subscribers have checked it
            messages = zip(lane.state, lane.seen, lane.saved, strict=True)
            for number, (state, seen, is_saved) in enumerate(messages):
                if state == SURE and not seen and (is_saved or lane.boot == self.boot):
                    self.wrong("lost", lane.name, f"{lane.name} {number} had its RECEIPT")
