"""The record of the clients' observations, and the promises that it must fulfil.

A *track* is the sequence of all messages of one producer, numbered from 0. Its flags are bytes by
number, each set by only one thread: a million messages cost little, and no thread needs a lock.
"""

import threading
import time
from array import array
from dataclasses import dataclass, field

MAX_VIOLATIONS = 100

OPEN, COMMITTING, COMMITTED, ABORTED = "open", "committing", "committed", "aborted"


@dataclass
class Group:
    """A transaction: ``count`` messages from ``first`` on, and its progress.

    Args:
      origin: Number of the message that was acknowledged in it; -1 = none.
    """

    first: int
    count: int
    state: str = OPEN
    origin: int = -1


@dataclass
class Track:
    """The messages of one producer, and their outcomes.

    Args:
      is_sure: Each message with a receipt must arrive; otherwise (``ack:auto``) messages in transit
        at a kill may be lost.
      is_acked_apart: Its messages are acknowledged with a receipt.
    """

    name: str
    is_sure: bool = True
    receipted: bytearray = field(default_factory=bytearray)
    seen: bytearray = field(default_factory=bytearray)
    acked: bytearray = field(default_factory=bytearray)
    life: "array[int]" = field(default_factory=lambda: array("i"))
    when: "array[float]" = field(default_factory=lambda: array("d"))
    groups: list[Group] = field(default_factory=list)

    def new(self) -> int:
        """Return the next message's number. It is recorded before the message is sent."""
        for flags in (self.receipted, self.seen, self.acked):
            flags.append(0)
        self.life.append(-1)
        self.when.append(0.0)
        return len(self.life) - 1


@dataclass
class Ledger:
    """All tracks by name, and the violations.

    Args:
      lazy_s: Longest time before a kill at which an ``auto`` delivery may be repeated.
      allowed: The code of an ERROR that a broker may send before it ends.
      must_mark: Whether a redelivered message must have ``redelivered:true``.
    """

    lazy_s: float
    allowed: str = ""
    must_mark: bool = False
    tracks: dict[str, Track] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    found: int = 0
    life: int = 0
    killed_at: dict[int, float] = field(default_factory=dict)
    deliveries: int = 0
    duplicates: int = 0
    unmarked: int = 0
    auto_lost: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def track(self, name: str, *, is_sure: bool = True) -> Track:
        """Begin a track."""
        return self.tracks.setdefault(name, Track(name, is_sure))

    def wrong(self, text: str) -> None:
        """Record a violation. Only the first ones are stored."""
        with self._lock:
            self.found += 1
            if len(self.violations) < MAX_VIOLATIONS:
                self.violations.append(f"life {self.life}: {text}")

    def deliver(self, name: str, number: int, *, is_marked: bool) -> None:
        """Record that a message was received.

        Args:
          is_marked: Whether it had ``redelivered:true``.
        """
        track = self.tracks[name]
        if number >= len(track.seen):
            self.wrong(f"{name} {number} arrived, but was never sent")
            return
        if track.acked[number]:
            self.wrong(f"{name} {number} arrived after the RECEIPT of its ACK")
        is_again = bool(track.seen[number])
        if is_again:
            self._again(track, number)
            if self.must_mark and not is_marked:
                self.wrong(f"{name} {number} arrived again without redelivered:true")
        with self._lock:
            self.deliveries += 1
            self.duplicates += is_again
            self.unmarked += is_again and not is_marked
        track.seen[number] = 1
        track.life[number] = self.life
        track.when[number] = time.monotonic()

    def _again(self, track: Track, number: int) -> None:
        before = track.life[number]
        if before == self.life and not (self.must_mark and self.life in self.killed_at):
            self.wrong(f"{track.name} {number} arrived twice, without a kill in between")
        elif not track.is_sure:
            age = self.killed_at.get(before, 0.0) - track.when[number]
            if age > self.lazy_s:
                self.wrong(
                    f"{track.name} {number}, ack:auto, arrived again; {age:.1f} s before kill"
                )

    def look(self, name: str, numbers: list[int]) -> None:
        """Compare the messages of a track in the store, of which none was delivered yet."""
        if numbers != sorted(set(numbers)):
            self.wrong(f"{name} is in the store twice, or out of order")
        held = set(numbers)
        for number, receipted in enumerate(self.tracks[name].receipted):
            if receipted and number not in held:
                self.wrong(f"{name} {number} had a RECEIPT, but is not in the store")

    def is_drained(self) -> bool:
        """Return whether all messages that must arrive have arrived."""
        return not any(self._missing(track) for track in self.tracks.values() if track.is_sure)

    def judge(self) -> None:
        """Compare, after everything was drained."""
        for track in self.tracks.values():
            missing = self._missing(track)
            if not track.is_sure:
                missing = [number for number in missing if not self._was_on_its_way(track, number)]
            for number in missing:
                self.wrong(f"{track.name} {number} had a RECEIPT, but is lost")
            self._judge_groups(track)
        self._judge_hops()

    @staticmethod
    def _missing(track: Track) -> list[int]:
        if not any(track.receipted):
            return []
        pairs = enumerate(zip(track.receipted, track.seen, strict=True))
        return [number for number, (receipted, seen) in pairs if receipted > seen]

    def _was_on_its_way(self, track: Track, number: int) -> bool:
        """Return whether a kill was between the messages before and after it.

        If none came before it, the span begins with the first life. If none came after it, it ends
        with the last life, because messages in transit at the last kill usually have no successor.
        """
        before = next((life for life in reversed(track.life[:number]) if life >= 0), 1)
        after = next((life for life in track.life[number + 1 :] if life >= 0), self.life)
        self.auto_lost += before < after
        return before < after

    def _judge_groups(self, track: Track) -> None:
        for group in track.groups:
            came = sum(track.seen[group.first : group.first + group.count])
            if group.state in (OPEN, ABORTED) and came:
                self.wrong(f"{track.name}: {came} of a transaction {group.state} came")
            elif came not in (0, group.count):
                self.wrong(f"{track.name}: {came} of {group.count} of a transaction came")
            elif group.state == COMMITTED and not came:
                self.wrong(f"{track.name}: a transaction had a RECEIPT, but is lost")

    def _judge_hops(self) -> None:
        """Check that each message of ``hop`` was moved once, as its ACK and SEND are one."""
        hop, out = self.tracks["hop"], self.tracks["hop2"]
        moved = bytearray(len(hop.seen))
        for group in out.groups:
            moved[group.origin] += out.seen[group.first]
        for number, times in enumerate(moved):
            if times > 1:
                self.wrong(f"hop {number} was moved {times} times")
            elif hop.receipted[number] and not times:
                self.wrong(f"hop {number} was not moved")

    def summary(self) -> dict[str, object]:
        """Return the figures."""
        tracks = self.tracks.values()
        groups = [group for track in tracks for group in track.groups]
        return {
            "sent": sum(len(track.seen) for track in tracks),
            "receipted": sum(sum(track.receipted) for track in tracks),
            "transactions": len(groups),
            "transactions_receipted": sum(group.state == COMMITTED for group in groups),
            "deliveries": self.deliveries,
            "acks_receipted": sum(sum(track.acked) for track in tracks),
            "duplicates_of_unacked": self.duplicates,
            "duplicates_without_redelivered": self.unmarked,
            "auto_lost_on_their_way": self.auto_lost,
            "violations": self.found,
            "first_violations": self.violations,
        }
