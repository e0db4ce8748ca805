"""The promises of the simulated cluster, and the checks that it keeps them."""

import struct
from collections import deque
from collections.abc import Callable, Mapping

import trio
from attrs import define, field

from _cluster.engine import Engine
from trio_stomp.cluster import ClusterNames
from trio_stomp.nats import parse_object

MAX_VIOLATIONS = 20
TRACE = 60
"""Events to remember and show with a violation."""
_ENTRY = struct.Struct("<4sQQII")


@define(eq=False)
class Trace:
    """The last events of a run.

    Args:
      now: A function that returns the time, in any thread.
      prints: Whether to print each event immediately.
    """

    now: Callable[[], float]
    prints: bool = False
    events: deque[str] = field(factory=lambda: deque(maxlen=TRACE))

    def add(self, who: str, text: str) -> None:
        """Note an event."""
        line = f"{self.now():9.4f} {who:5} {text}"
        self.events.append(line)
        if self.prints:
            print(line, flush=True)


@define(eq=False)
class State:
    """The contents of an owner's store.

    Args:
      live: Messages that have not ended, by id.
      stream: The messages of the stream, by offset.
      kept: The number in the setting.
    """

    live: Mapping[int, bytes]
    stream: Mapping[int, bytes]
    kept: int


@define(eq=False)
class Ledger:
    """Compares the messages that owners of a partition confirm, deliver and find.

    Args:
      names: The names of the partition's streams and subjects.
      ttl_s: The duration of a lease.
      violations: Descriptions of the violations.
    """

    engine: Engine
    trace: Trace
    names: ClusterNames
    ttl_s: float
    violations: list[str] = field(factory=list)
    found: trio.Event = field(factory=trio.Event)
    """Set with the first violation."""
    sent: set[bytes] = field(factory=set)
    stored: dict[int, bytes] = field(factory=dict)
    """Messages whose storage was confirmed, by id."""
    ending: set[int] = field(factory=set)
    """Ids of messages that clients acknowledged, confirmed or not."""
    ended: set[int] = field(factory=set)
    """Ids of messages whose acknowledgement was confirmed."""
    streamed: dict[int, bytes] = field(factory=dict)
    kept: int = 0
    trimmed: int = 0
    handed: dict[int, object] = field(factory=dict)
    """The owner's term in which each message was last delivered, by id."""
    confirmed: int = 0
    unleased: int = 0
    """Appends that an owner confirmed after the end of its lease, before another node had it."""
    takeovers: int = 0
    taken_at: float = 0.0
    """The time when a node last began to serve clients."""
    rebuilt: int = 0
    """Nodes that began with a snapshot, as the log had been shortened."""
    silences: list[float] = field(factory=list)
    """The times without an owner after kills, if no other fault happened meanwhile and another node
    was up to date."""
    redelivered: int = 0
    _confirmers: dict[int, object] = field(factory=dict)
    """The term in which each entry was confirmed, by sequence."""
    _last_of: dict[bytes, tuple[int, int]] = field(factory=dict)
    """The number and sequence of the last confirmed message, by producer."""
    _owners: list[int] = field(factory=lambda: [0])
    """The writer that began an epoch, by its sequence in the log."""

    def wrong(self, text: str) -> None:
        """Note a violation."""
        self.trace.add("!", text)
        self.found.set()
        if len(self.violations) < MAX_VIOLATIONS:
            self.violations.append(f"{self.trace.now():.4f}: {text}")

    # --- the log ----------------------------------------------------------------------------------

    def _owner_at(self, sequence: int) -> int:
        """Return the writer that alone may write an entry of the log."""
        history = self.engine.streams[self.names.log].history
        for message in history[len(self._owners) - 1 : sequence]:
            _, writer, first, _, parts = _ENTRY.unpack_from(message.payload)
            begins = not first and parts == 1
            self._owners.append(writer if begins else self._owners[-1])
        return self._owners[sequence]

    def is_last(self, writer: int) -> bool:
        """Return whether no other owner has begun since a writer, which may itself be late."""
        return self._owner_at(self.engine.streams[self.names.log].last) == writer

    def confirm(self, node: str, term: object, writer: int, sequence: int) -> None:
        """Check that an owner may confirm the append that ends with an entry of the log."""
        history = self.engine.streams[self.names.log].history
        self.confirmed += 1
        written = self._last_written(node)
        self.unleased += self.trace.now() > written + self.ttl_s
        if sequence > len(history):
            self.wrong(f"{node} confirms entry {sequence}, but the log ends at {len(history)}")
            return
        found = _ENTRY.unpack_from(history[sequence - 1].payload)[1]
        if found != writer:
            self.wrong(f"{node} confirms entry {sequence}, but another node wrote it")
        elif self._owner_at(sequence) != writer:
            self.wrong(f"{node} confirms entry {sequence} of another owner's epoch")
        other = self._confirmers.setdefault(sequence, term)
        if other is not term:
            self.wrong(f"{node} confirms entry {sequence}, which another owner has confirmed")

    def confirm_message(self, node: str, sequence: int, number: int, body: bytes) -> None:
        """Record a message whose storage is confirmed."""
        if self.stored.setdefault(number, body) != body:
            self.wrong(f"{node} confirms {body!r} with the id {number} of {self.stored[number]!r}")
        producer, _, count = body.partition(b" ")[0].partition(b"-")
        before = self._last_of.get(producer, (-1, 0))
        if int(count) > before[0]:
            if sequence < before[1]:
                self.wrong(f"{node} stored {body[:20]!r} before an earlier message")
            self._last_of[producer] = int(count), sequence

    def refuse(self, node: str, writer: int, commit: int) -> None:
        """Check that an append reported to clients as failed is not in the log."""
        for message in self.engine.streams[self.names.log].history[-8:]:
            _, found, first, part, parts = _ENTRY.unpack_from(message.payload)
            if (found, first) == (writer, commit) and part == parts - 1:
                self.wrong(f"{node} refuses what entry {message.sequence} has")

    # --- owners -----------------------------------------------------------------------------------

    def take_over(self, node: str, found: State) -> None:
        """Check the contents of a new owner's store."""
        self.takeovers += 1
        self.taken_at = self.trace.now()
        gone = [
            number
            for number, body in self.stored.items()
            if number not in self.ending and found.live.get(number) != body
        ]
        if gone:
            self.wrong(f"{node} lacks {len(gone)} confirmed messages: ids {gone[:10]}")
        back = [number for number in found.live if number in self.ended]
        if back:
            self.wrong(f"{node} has {len(back)} messages whose ACK was confirmed: ids {back[:10]}")
        strange = [body for body in found.live.values() if body not in self.sent]
        if strange:
            self.wrong(f"{node} has messages that no client sent: {strange[:3]}")
        lacks = [
            offset
            for offset, body in self.streamed.items()
            if offset >= self.trimmed and found.stream.get(offset) != body
        ]
        if lacks:
            self.wrong(f"{node} lacks offsets {lacks[:10]} of the stream")
        if found.kept < self.kept:
            self.wrong(f"{node} has the setting {found.kept}, but {self.kept} was confirmed")

    def hand_out(
        self, node: str, term: object, number: int, *, speed: float, is_marked: bool
    ) -> None:
        """Check that a node may deliver a message.

        Args:
          node: Its name.
          term: Its term as the owner.
          number: The id of the message.
          speed: The speed of the node's clock.
          is_marked: Whether it is marked as redelivered.
        """
        if number in self.ended:
            self.wrong(f"{node} hands out {number}, whose ACK was confirmed")
        last = self.handed.get(number)
        if last is not None and last is not term:
            self.redelivered += 1
            if not is_marked:
                self.wrong(f"{node} hands out {number} again, without a mark")
        self.handed[number] = term
        written = self._last_written(node)
        if self.trace.now() > written + self.ttl_s / speed:
            self.wrong(f"{node} hands out {number}, but its lease of {written:.4f} has run out")

    def _last_written(self, node: str) -> float:
        """Return when a node last took or renewed the lease."""
        for message in reversed(self.engine.streams[self.names.leases].history):
            is_ours = message.subject == self.names.lease_subject
            if is_ours and parse_object(message.payload).get("holder") == node:
                return message.at
        return float("-inf")
